"""What is shown of an attempt that has begun can be relied upon: its worker may be lost the moment after."""

from __future__ import annotations

import asyncio
import threading
import time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolfleet.calls import ToolCall
from toolfleet.connections import connect_async
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.settings import Settings, new_secret
from toolfleet.tool import tool
from toolfleet.tracing.spans import Tracing, _GivenIds
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.perform.attempts import Attempts

WITHIN_S = 20
TRACEPARENT = f"00-{'1' * 32}-{'2' * 16}-01"
CALL = ToolCall(call_id="r.1.0", run_id="r", tool="job", arguments="{}", deadline_unix_s=time.time() + 60, reply_to="o")
CALL = CALL.model_copy(update={"traceparent": TRACEPARENT})


@tool(read_only=True, queue="long", long_running=True)
async def job() -> None:
    """Work."""


class Held:
    """An event loop that does what it is told when it is let go."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self._calls = []

    def call_soon_threadsafe(self, callback, *args):
        self._calls.append((callback, args))
        self.told.set()

    def let_go(self):
        for callback, args in self._calls:
            callback(*args)


async def test_T4_an_attempt_is_kept_before_it_is_shown_so_that_it_is_told_of_when_its_worker_is_lost():
    shown, exported = InMemorySpanExporter(), threading.Event()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(shown))
    tracer = provider.get_tracer("toolfleet")
    tracer.id_generator = _GivenIds(tracer.id_generator)
    with EmbeddedServer(port=0, temporary=True) as server:
        settings, held = Settings(redis_url=server.url, secret=new_secret()), Held()
        seal, client = Seal(settings), connect_async(settings)
        attempts = Attempts(Tracing(provider, tracer, tracer.id_generator), held, client, settings.keys, seal)
        text, mac = seal.close_call(CALL)
        delivery = Delivery(task_id=CALL.call_id, task=CALL.tool, text=text, mac=mac)
        attempt = await attempts.at(delivery, CALL, job.spec, TRACEPARENT)
        attempts.tracing.flush_soon = exported.set
        with attempt:
            assert await asyncio.to_thread(held.told.wait, WITHIN_S)
            assert [span.name for span in shown.get_finished_spans()] == []
            held.let_go()
            assert await asyncio.to_thread(exported.wait, WITHIN_S)
        assert [span.name for span in shown.get_finished_spans()] == ["begin job", "process long"]
        assert await client.exists(attempts.key(CALL.call_id))
        await client.aclose()
