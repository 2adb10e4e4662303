"""A traced orchestrator in a process of its own: does what each line asks for, and says what came of it."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import nullcontext
from typing import Any, ClassVar

import own_telemetry  # noqa: F401  # as a user does it
from opentelemetry import baggage, context as otel, trace

from toolfleet.logs import configure_logs
from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator import Approval, Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat


class Carried(OpenAIChat):
    """A model that looks at what would go along with its requests."""

    seen: ClassVar[list[str]] = []

    async def stream(self, messages: Any, tools: Any, **given: Any) -> Any:
        self.seen.append(repr(dict(baggage.get_all())))
        async for event in super().stream(messages, tools, **given):
            yield event


async def do(fleet: Orchestrator, ask: dict[str, Any]) -> Any:
    match ask["do"]:
        case "run":
            run = await fleet.run(ask["question"], **ask.get("options", {}))
            return {"state": run.state, "answer": run.answer, "id": run.run_id, "seen": Carried.seen}
        case "start":
            return await fleet.start(ask["question"], **ask.get("options", {}))
        case "wait":
            run = await fleet.wait(ask["id"])
            return {"state": run.state, "answer": run.answer}
        case "resume":
            await fleet.resume(ask["id"], ask["question"])
            return str((await fleet.wait(ask["id"])).state)
        case "cancel":
            return str((await fleet.cancel(ask["id"])).state)
        case "deny":
            while not (waiting := (await fleet.get(ask["id"])).awaiting_approval):
                await asyncio.sleep(0.02)
            await fleet.approve(waiting[0].call_id, Approval(granted=False, reason="no"))
            return str((await fleet.wait(ask["id"])).state)
        case "call":
            return (await fleet.call(ask["tool"], ask.get("arguments", {}), **ask.get("options", {}))).type
        case "execute":
            calls = tuple(
                RequestedCall(id=str(at), name="add", arguments='{"a":1,"b":2}') for at in range(ask["calls"])
            )
            return [each.content for each in await fleet.execute(AssistantMessage(tool_calls=calls))]
    raise ValueError(ask)


async def within(fleet: Orchestrator, ask: dict[str, Any]) -> Any:
    carrying = otel.attach(baggage.set_baggage("tenant", ask["tenant"])) if "tenant" in ask else None
    span = trace.get_tracer("caller").start_as_current_span(ask["span"]) if "span" in ask else nullcontext()
    try:
        with span:
            return await do(fleet, ask)
    finally:
        if carrying is not None:
            otel.detach(carrying)


async def main(base_url: str) -> None:
    model = Carried(REHEARSAL_MODEL, base_url=base_url, api_key="rehearsal")
    async with Orchestrator(model=model) as fleet:
        print('"ready"', flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            print(json.dumps(await within(fleet, json.loads(line))), flush=True)
    trace.get_tracer_provider().force_flush()


if __name__ == "__main__":
    configure_logs("info")
    asyncio.run(main(sys.argv[1]))
