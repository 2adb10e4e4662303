"""Both ends of `benchmarks.telemetry`: a module with a tool for its workers, and its orchestrator's program."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

if os.environ.get("TELEMETRY_BENCHMARK") == "api":
    import opentelemetry.trace  # noqa: F401  # imported, and nothing set: that is what is measured
elif os.environ.get("TELEMETRY_BENCHMARK") == "sdk":
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        """Takes spans and does nothing with them: the network is not what is measured."""

        def export(self, spans: object) -> SpanExportResult:
            del spans
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)

from benchmarks.contenders.toolfleet_tools import noop  # served by the workers
from toolfleet.garbage import collect_rarely
from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator import Orchestrator

__all__ = ["noop"]
ARGUMENTS = '{"x": 1}'


async def calls(fleet: Orchestrator, n: int) -> None:
    """So many calls at once."""
    message = AssistantMessage(
        tool_calls=tuple(RequestedCall(id=str(at), name="noop", arguments=ARGUMENTS) for at in range(n))
    )
    answers = await fleet.execute(message)
    if len(answers) != n or any(answer.is_error for answer in answers):
        raise RuntimeError(f"not {n} answers: {answers[:1]}")


async def main() -> None:
    """Do what each line says, and print the CPU that it took here, in microseconds."""
    async with Orchestrator() as fleet:
        for line in iter(sys.stdin.readline, ""):
            ask = json.loads(line)
            begin = time.process_time_ns()
            if "burst" in ask:
                await calls(fleet, ask["burst"])
            else:
                for _ in range(ask["lone"]):
                    await calls(fleet, 1)
            print((time.process_time_ns() - begin) / 1000, flush=True)


if __name__ == "__main__":
    collect_rarely()  # as every service of Toolfleet does: else all that is imported is looked through again and again
    asyncio.run(main())
