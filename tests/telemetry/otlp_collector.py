"""A small OpenTelemetry collector: a real HTTP server that takes OTLP's protobuf, and waits for what is expected."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WAIT_S = 90
KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


@dataclass(frozen=True)
class Seen:
    """A span as it was exported."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent: str
    attributes: dict[str, Any]
    is_error: bool
    status_message: str
    links: list[tuple[str, str]]
    events: list[tuple[str, dict[str, Any]]]
    service: str
    began_ns: int
    ended_ns: int
    scope: str = ""

    @property
    def context(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


@dataclass
class Collector:
    url: str
    spans: list[Seen] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def until(self, is_there: Callable[[list[Seen]], Any]) -> list[Seen]:
        """Wait until what has arrived satisfies this; all of it."""
        with self.arrived:
            came = self.arrived.wait_for(lambda: is_there(list(self.spans)), WAIT_S)
            assert came, "not exported; there are:\n" + "\n".join(
                f"{each.service} {each.name} {each.parent} {each.attributes.get('toolfleet.outcome')}"
                for each in self.spans[-40:]
            )
            return list(self.spans)

    def trace_of(self, span: Seen) -> list[Seen]:
        return [each for each in self.spans if each.trace_id == span.trace_id]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
        }


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes_of(pairs: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in pairs}


def spans_in(body: bytes) -> Iterator[Seen]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        service = attributes_of(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Seen(
                    span.name,
                    KINDS[span.kind],
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    attributes_of(span.attributes),
                    span.status.code == 2,
                    span.status.message,
                    [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    [(event.name, attributes_of(event.attributes)) for event in span.events],
                    service,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    scope.scope.name,
                )


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found = list(spans_in(body)) if self.path == "/v1/traces" else []
            with collector.arrived:
                collector.spans += found
                collector.raw.append(body)
                collector.arrived.notify_all()
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
