"""What Redis holds of runs that have ended, and of calls that wait: `python -m benchmarks.retention`.

One orchestrator in this process, one real worker, one real server that nobody else uses. Runs end, are kept for as long
as `keep_done_s` says, and are gone; what stays then is compared with what was there before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import redis.asyncio
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.about import about
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, Usage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import ReplyComplete
from toolfleet.orchestrator.run.states import State
from toolfleet.settings import Settings

TOOLS = "benchmarks.contenders.toolfleet_tools"
AT_ONCE = 100
WARM_UP = 50
MANY_CALLS = 11
CALLS_THAT_WAIT = 40
"""Of each of the runs whose calls wait: as many as a run may make of one tool unless it says otherwise."""

PACKED_WITHIN_S = 2.0
"""Histories are packed half a second after their run has ended."""

LOOK_EVERY_S = 0.2
LIMIT_S = 300.0


@dataclass(frozen=True)
class Held:
    """What a server holds at a moment."""

    bytes: int
    keys: int


@dataclass(frozen=True)
class Finding:
    """What was measured. Bytes are those of `used_memory`."""

    runs: int
    floor: Held
    kept: Held
    after: Held
    bytes_per_run: float
    """One turn with one short call, and its answer."""
    bytes_per_further_call: float
    bytes_per_claim: float
    """Of a call that must not be repeated, until ten minutes after its deadline."""
    bytes_per_waiting_call: float
    """In the queue, with its part of its run's history."""


class Asking:
    """A model that asks for calls as its question says ("noop 3"), and answers when they are back."""

    name = "asking"

    async def stream(
        self, messages: Sequence[Message], tools: Any, **options: Any
    ) -> AsyncGenerator[ReplyComplete, None]:
        """See toolfleet.orchestrator.models."""
        del tools, options
        said, reason = AssistantMessage(content="done"), "stop"
        if not isinstance(messages[-1], ToolMessage):
            tool, count = messages[0].content.split()
            requests = (
                RequestedCall(id=f"call-{n}", name=tool, arguments=json.dumps({"x": n})) for n in range(int(count))
            )
            said, reason = AssistantMessage(tool_calls=tuple(requests)), "tool_calls"
        yield ReplyComplete(message=said, usage=Usage(), model=self.name, finish_reason=reason)

    async def aclose(self) -> None:
        """Nothing is open."""


class Bench:
    """Runs on one fleet, and looks at its server."""

    def __init__(self, client: redis.asyncio.Redis, orchestrator: Orchestrator) -> None:
        self._client = client
        self._orchestrator = orchestrator

    async def held(self) -> Held:
        """Look at the server."""
        return Held((await self._client.info("memory"))["used_memory"], await self._client.dbsize())

    async def end(self, runs: int, question: str) -> Held:
        """Have so many runs asked this; returns what is held once they have ended and are packed."""
        for start in range(0, runs, AT_ONCE):
            some = range(start, min(runs, start + AT_ONCE))
            await asyncio.gather(*(self._orchestrator.run(question) for _ in some))
        await asyncio.sleep(PACKED_WITHIN_S)
        return await self.held()

    async def until_gone(self, keys: int) -> Held:
        """Wait until no more keys are there than these."""

        async def are_gone() -> bool:
            return await self._client.dbsize() <= keys

        await until(are_gone)
        return await self.held()

    async def waiting(self, calls: int) -> float:
        """Return the bytes that each of so many calls holds that wait for a worker with one slot."""
        before = await self.held()
        question = f"sleep {CALLS_THAT_WAIT}"
        run_ids = [await self._orchestrator.start(question) for _ in range(calls // CALLS_THAT_WAIT)]

        async def are_on_their_way() -> bool:
            return {(await self._orchestrator.get(run_id)).state for run_id in run_ids} == {State.CALLING}

        await until(are_on_their_way)
        await asyncio.sleep(PACKED_WITHIN_S)
        held = await self.held()
        await asyncio.gather(*(self._orchestrator.cancel(run_id) for run_id in run_ids))
        return (held.bytes - before.bytes) / (len(run_ids) * CALLS_THAT_WAIT)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(LIMIT_S):
        while not await is_so():  # noqa: ASYNC110  # of another process
            await asyncio.sleep(LOOK_EVERY_S)


async def measured(settings: Settings, *, runs: int) -> Finding:
    """Measure what ended runs and waiting calls hold."""
    async with connect_async(settings) as client, Orchestrator(model=Asking(), settings=settings) as orchestrator:
        bench = Bench(client, orchestrator)
        before = await bench.held()
        await bench.end(WARM_UP, "noop_read_only 1")
        at_rest = before.keys + WARM_UP // 2  # the fleet's own keys: counters, its orchestrator's, …
        floor = await bench.until_gone(at_rest)
        kept = await bench.end(runs, "noop_read_only 1")
        after = await bench.until_gone(floor.keys)
        fewer = max(WARM_UP, runs // 10)  # that the first ones are still there when the last ones have ended
        many = await bench.end(fewer, f"noop_read_only {MANY_CALLS}")
        of_many = (many.bytes - after.bytes) / fewer
        rest = await bench.until_gone(floor.keys)
        claimed = await bench.end(runs, "noop 1")
        claims = await bench.until_gone(floor.keys + runs)
        assert claims.keys <= claimed.keys
        of_one = (kept.bytes - floor.bytes) / runs
        return Finding(
            runs=runs,
            floor=floor,
            kept=kept,
            after=after,
            bytes_per_run=of_one,
            bytes_per_further_call=(of_many - of_one) / (MANY_CALLS - 1),
            bytes_per_claim=(claims.bytes - rest.bytes) / runs,
            bytes_per_waiting_call=await bench.waiting(runs),
        )


def as_table(finding: Finding) -> Table:
    """Make a table of it, for people."""
    table = Table("what", "figure", title=f"{finding.runs:,} runs that have ended")
    for when in ("floor", "kept", "after"):
        held: Held = getattr(finding, when)
        table.add_row(f"{when}", f"{held.bytes / 1024:,.0f} KiB in {held.keys:,} keys")
    table.add_row("a run with one call", f"{finding.bytes_per_run:,.0f} bytes")
    table.add_row("each further call", f"{finding.bytes_per_further_call:,.0f} bytes")
    table.add_row("a claim", f"{finding.bytes_per_claim:,.0f} bytes")
    table.add_row("a call that waits", f"{finding.bytes_per_waiting_call:,.0f} bytes")
    return table


def main(
    *,
    runs: Annotated[int, typer.Option(min=CALLS_THAT_WAIT, help="Runs that end, each time.")] = 2_000,
    keep_s: Annotated[float, typer.Option(min=1, help="How long the record of one is kept.")] = 30.0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure what is held of runs that have ended, and of calls that wait."""
    pools = {"io": 1}
    with LocalFleet([TOOLS], pools=pools, worker_options=["--concurrency", "1"], keep_done_s=keep_s) as fleet:
        finding = asyncio.run(measured(fleet.settings, runs=runs))
    if json_:
        print(json.dumps({"about": about(quick=False), "retention": asdict(finding)}, indent=2))
    else:
        Console().print(as_table(finding))


if __name__ == "__main__":
    typer.run(main)
