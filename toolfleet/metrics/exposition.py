"""A small port of a process's own, at which Prometheus reads what it has counted.

For processes that serve no HTTP otherwise: workers and orchestrators. Off unless there is a port in the settings.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from toolfleet.errors import ExtraMissing, ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.settings import Settings
from toolfleet.supervision import start_thread

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = FactLog("toolfleet")

AGAIN_S: Final = 5.0
"""How soon a port that somebody else has is tried again: the worker that this one replaces may still end its calls."""

REQUEST_WITHIN_S: Final = 5.0
"""How long whoever connects may keep a thread without asking for anything."""

REMEDY: Final = "TOOLFLEET_METRICS_PORT needs `pip install 'toolfleet[metrics]'`"

Collect = Callable[[], "list[Metric]"]


def serve_metrics(settings: Settings, collect: Collect) -> None:
    """Answer `GET /metrics` at the settings' port with what `collect` returns then; without a port, do nothing.

    On a thread that keeps no process alive. A port that is taken is waited for: a process that works counts for more
    than its figures. Raises ExtraMissing.
    """
    must_be_served(settings)
    if settings.metrics_port:
        start_thread("metrics", _serve, (settings.metrics_host, settings.metrics_port), collect)


def must_be_served(settings: Settings) -> None:
    """Raise ExtraMissing where there is a port and nothing that could answer at it."""
    if settings.metrics_port and importlib.util.find_spec("prometheus_client") is None:
        raise ExtraMissing(REMEDY)


def exposition(metrics: list[Metric]) -> bytes:
    """Return metrics as Prometheus's text, with the processor time and the memory of this process."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest  # noqa: PLC0415  # an extra

    from toolfleet.metrics.families import Snapshot  # noqa: PLC0415  # as above

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(Snapshot(metrics))
    return generate_latest(registry)


def _serve(address: tuple[str, int], collect: Collect) -> None:
    has_said = False
    while True:
        try:
            server = _Server(address, partial(_Answering, collect))
        except OSError as error:
            if not has_said:
                has_said = True
                log.warning("metrics_not_served", host=address[0], port=address[1], error=str(error))
            time.sleep(AGAIN_S)
        else:
            with server:
                server.serve_forever()
            return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Answering(BaseHTTPRequestHandler):
    timeout = REQUEST_WITHIN_S

    def __init__(self, collect: Collect, *connection: object) -> None:
        self._collect = collect
        super().__init__(*connection)  # type: ignore[arg-type]  # as socketserver passes them

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        from prometheus_client.exposition import CONTENT_TYPE_LATEST  # noqa: PLC0415  # an extra

        try:
            text = exposition(self._collect())
        except (ToolfleetError, TimeoutError) as error:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=type(error).__name__)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing: every scrape would be a line."""
