"""Runs a batch: a line, a run, a line of output, at most `concurrency` of them in hand.

Owns the order of things, and nothing that would have to survive: what is under way is in the store, what is done in the
output. Whoever is stopped here starts again from those two.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from toolfleet.errors import BrokerUnreachable, CallerError, StoreUnreachable
from toolfleet.messages import is_same_conversation
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.batch import openai_format, own_format
from toolfleet.orchestrator.batch.identity import Identity
from toolfleet.orchestrator.batch.output import Output
from toolfleet.orchestrator.batch.records import AskedLine, RefusedLine
from toolfleet.orchestrator.batch.summary import Tally
from toolfleet.orchestrator.errors import IllegalTransition, OtherQuestion, UnknownTool
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.outages import while_it_may_be_away

AWAY_MAX_S: Final = 60.0
"""How long a line waits to be begun: for Redis, and for workers that are restarted."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How the runs of a batch are run where their lines do not say, and how its output is written."""

    options: RunOptions = field(default_factory=RunOptions)
    concurrency: int = 100
    ordered: bool = False
    """Write in the order of the input. A run that has ended stays in hand until those before it have."""
    again: bool = False
    """Runs that ended without an answer go on."""


def _nobody(_tally: Tally) -> None:
    """Nobody watches."""


class BatchRunner:
    """Runs lines. What they came to is in the output and in `tally`; `watch` hears of every line."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        identity: Identity,
        output: Output,
        manner: Manner,
        watch: Callable[[Tally], None] = _nobody,
    ) -> None:
        self._orchestrator = orchestrator
        self._identity = identity
        self._output = output
        self._manner = manner
        self._watch = watch
        self._served: set[tuple[str, ...] | None] = set()
        self.tally = Tally()
        self.in_hand: set[str] = set()
        """The ids of runs that have begun and are not written."""

    async def run(self, lines: Iterable[AskedLine | RefusedLine]) -> None:
        """Run all lines that are not done. A failing one is a failed line of output.

        Whoever stops waiting leaves the runs in hand to the store. Raises StoreUnreachable when Redis stays away.
        """
        slots = asyncio.Semaphore(self._manner.concurrency)
        before: asyncio.Event | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                for line in lines:
                    if self._is_done(line):
                        self.tally.done_before += 1
                        self._watch(self.tally)
                        await asyncio.sleep(0)  # thousands of them may follow one another
                        continue
                    await slots.acquire()
                    written = asyncio.Event()
                    # watched: the group raises what it raises
                    tasks.create_task(self._do(line, before, written, slots))
                    before = written if self._manner.ordered else None
        except ExceptionGroup as failures:
            # One says it all: they fail together, for want of Redis.
            raise failures.exceptions[0] from None

    async def cancel_in_hand(self, reason: str, *, by: str = "") -> None:
        """Cancel the runs that have begun and are not written."""
        for run_id in sorted(self.in_hand):
            with suppress(CallerError, IllegalTransition):  # it has ended meanwhile
                await self._orchestrator.cancel(run_id, reason, by=by)

    def _is_done(self, line: AskedLine | RefusedLine) -> bool:
        if isinstance(line, RefusedLine):
            return self._output.holds_line(_refused(line))
        return self._output.holds_run(self._identity.run_id(line.question.id))

    async def _do(
        self,
        line: AskedLine | RefusedLine,
        before: asyncio.Event | None,
        written: asyncio.Event,
        slots: asyncio.Semaphore,
    ) -> None:
        if isinstance(line, RefusedLine):
            await _passed(before)
            self._output.write(_refused(line), run_id=None)
            self.tally.count_failed(refused=True)
        else:
            await self._ask(line, before)
        self._watch(self.tally)
        written.set()
        slots.release()

    async def _ask(self, line: AskedLine, before: asyncio.Event | None) -> None:
        run_id = self._identity.run_id(line.question.id)
        self.in_hand.add(run_id)
        began_unix_s = time.time()
        try:
            run = await self._answered(run_id, line, began_unix_s)
        except CallerError as error:
            await _passed(before)
            self._output.write(_unbegun(line, run_id, f"line {line.line}: {error}"), run_id=run_id)
            self.tally.count_failed()
        else:
            is_new = run.started_unix_s >= began_unix_s
            run_time_s = max(0.0, time.time() - began_unix_s) if is_new else None
            await _passed(before)
            self._output.write(_written(line, run), run_id=run_id)
            self.tally.count_run(run, run_time_s=run_time_s)
        self.in_hand.discard(run_id)

    async def _answered(self, run_id: str, line: AskedLine, began_unix_s: float) -> Run:
        """The run at its end, begun unless it was. Raises OtherQuestion, UnknownTool, StoreUnreachable."""
        await self._begin(run_id, line)
        run = await self._orchestrator.wait(run_id)
        asked = line.question.messages
        if not is_same_conversation(run.messages[: len(asked)], asked):
            raise OtherQuestion(f"run {run_id} is stored with another question: choose another --batch-id")
        is_old = run.started_unix_s < began_unix_s
        if self._manner.again and is_old and run.state is not State.DONE:
            await self._orchestrator.resume(run_id)
            run = await self._orchestrator.wait(run_id)
        return run

    async def _begin(self, run_id: str, line: AskedLine) -> None:
        offered = RunOptions(tools=()) if line.form == "openai" else RunOptions()
        options: RunOptions = {**offered, **self._manner.options, **line.question.options, "run_id": run_id}
        tools = options.get("tools")
        wanted = None if tools is None else tuple(tools)

        def is_passing(error: Exception) -> bool:
            # Tools that were there are being restarted; others are misspelt.
            is_restarted = isinstance(error, UnknownTool) and wanted in self._served
            return is_restarted or isinstance(error, StoreUnreachable | BrokerUnreachable)

        async def start() -> None:
            await self._orchestrator.start(line.question.messages, **options)

        await while_it_may_be_away(start, for_s=AWAY_MAX_S, on=is_passing)
        self._served.add(wanted)


async def _passed(before: asyncio.Event | None) -> None:
    if before is not None:
        await before.wait()


def _written(line: AskedLine, run: Run) -> bytes:
    if line.form == "openai":
        return openai_format.written(line.question.id, run)
    return own_format.written(line.line, line.question.id, run)


def _unbegun(line: AskedLine, run_id: str, reason: str) -> bytes:
    if line.form == "openai":
        return openai_format.written_unbegun(line.question.id, run_id, reason)
    return own_format.written_unbegun(line.line, line.question.id, run_id, reason)


def _refused(line: RefusedLine) -> bytes:
    return openai_format.written_refused(line) if line.form == "openai" else own_format.written_refused(line)
