"""Recorded runs begun anew with another model: how many come to the answer that is asked for, at which cost.

Each is taken through the turn loop, offline but for its model; recorded tools answer. What the user said later in the
recorded run is said again, each time that the model has answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from toolfleet.calls import Record
from toolfleet.messages import Message, Usage
from toolfleet.orchestrator.budgets.price_list import price_of
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.loop.turn import TurnLoop
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.replay.checks import Check, ended_well
from toolfleet.orchestrator.replay.export import Export
from toolfleet.orchestrator.replay.offline import OFFLINE, Code, begin_nothing, offline_loop
from toolfleet.orchestrator.replay.recorded_tools import RecordedTools, as_evaluated
from toolfleet.orchestrator.replay.recording import Recording
from toolfleet.orchestrator.run.events import MessagesSaid, RunEvent, RunResumed, RunStopped
from toolfleet.orchestrator.run.limits import own_usage
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.chain import beginning
from toolfleet.orchestrator.store.history import Stored
from toolfleet.orchestrator.store.journal import Journal
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.tools.chain import NO_CHAIN, Chain, Interceptors
from toolfleet.prices import Price
from toolfleet.settings import Settings

STUCK: Final = "it waits for something that only people or workers could bring"


class Used(Record):
    """What a run has used up."""

    turns: int
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    """None where nobody has said what the model costs."""

    @classmethod
    def by(cls, run: Run, price: Price | None) -> Used:
        """What its own model has used, and how many calls that has asked for."""
        usage: Usage = own_usage(run)
        usd = None if price is None else price.of(usage)
        return cls(
            turns=run.turn,
            calls=len(run.calls),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            usd=usd,
        )


class Evaluated(Record):
    """What has come of one run."""

    run_id: str
    passed: bool
    complaints: dict[str, str] = Field(default_factory=dict)
    """What each check has against it, by the check's name."""
    state: State
    reason: str | None = None
    expected: str | None
    """The recorded answer."""
    answer: str | None
    unrecorded: int
    """How many calls had no recorded result."""
    used: Used
    recorded: Used
    wall_s: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How recorded runs are evaluated: with which model, by which checks, so many at once."""

    model: ChatModel
    settings: Settings
    checks: Sequence[Check]
    concurrency: int = 4

    async def of_all(self, exports: Sequence[Export], done: Callable[[Evaluated], None]) -> None:
        """Evaluate all of them; `done` hears of each as it ends. Whoever stops waiting stops what is under way."""
        waiting = iter(exports)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, len(exports))):
                group.create_task(self._work(waiting, done))  # watched: the group waits for it

    async def _work(self, waiting: Iterator[Export], done: Callable[[Evaluated], None]) -> None:
        for export in waiting:
            done(await self.of_one(export))

    async def of_one(self, export: Export) -> Evaluated:
        """Evaluate one run. Raises IllegalTransition for an export that this version does not understand."""
        recording = Recording.of(export, time.time())
        began_s = time.monotonic()
        tools = RecordedTools(recording, self.settings.argument_limits)
        run = await self._run(recording, tools)
        missing = ended_well(run)
        complaints = {
            check.name: complaint
            for check in self.checks
            if (complaint := missing or check.complaint(recording.run, run)) is not None
        }
        return Evaluated(
            run_id=export.run_id,
            passed=not complaints,
            complaints=complaints,
            state=run.state,
            reason=run.reason,
            expected=recording.run.answer,
            answer=run.answer,
            unrecorded=len(tools.unrecorded),
            used=Used.by(run, price_of(self.model.name, self.settings.prices)),
            recorded=Used.by(recording.run, price_of(recording.run.model, self.settings.prices)),
            wall_s=round(time.monotonic() - began_s, 3),
        )

    async def _run(self, recording: Recording, tools: RecordedTools) -> Run:
        offline = offline_loop(
            self.model,
            recording.as_offered(self.settings),
            tools=as_evaluated(recording.tools),
            agents=recording.agents,
            answers=tools,
            code=Code(interceptors=_NoInterceptors()),
        )
        started = recording.started
        price = started.terms.price and price_of(self.model.name, self.settings.prices)
        terms = started.terms.model_copy(update={"price": price, "accounts": (), "compensate": False})
        if terms.tools is not None:
            terms = terms.model_copy(update={"tools": (*terms.tools, *recording.brought)})
        begun = started.model_copy(update={"model": self.model.name, "agent": "", "terms": terms})
        journal = _Unwritten(offline.store, Run.start(begun))
        work = RunAtWork(journal, None, begin_nothing)
        await _drive(offline.loop, work)
        for messages in _said_later(recording):
            if journal.run.state is not State.DONE:
                break
            await journal.append(RunResumed(messages=messages))
            await _drive(offline.loop, work)
        return journal.run


class _Unwritten(Journal):
    """Keeps a run where nobody else can see it."""

    def __init__(self, store: RunStore, run: Run) -> None:
        super().__init__(store, Stored(run, beginning(run.run_id)), OFFLINE)

    async def append(
        self, event: RunEvent, after: Run | None = None, *, again: Callable[[Run], RunEvent] | None = None
    ) -> Run:
        """Return the run after an event. Raises IllegalTransition."""
        del again
        self.run = after or self.run.on(event)
        return self.run


class _NoInterceptors(Interceptors):
    """Stands for those that runs name: what they did to calls is among the recorded results."""

    def __bool__(self) -> bool:
        return True

    def chosen(self, names: Sequence[str]) -> Chain:
        """No interceptors."""
        del names
        return NO_CHAIN


async def _drive(loop: TurnLoop, work: RunAtWork) -> None:
    """Drive a run until it ends; one that rests has nothing to wait for."""
    await loop.drive(work)
    if not work.run.state.is_terminal:
        await work.journal.append(RunStopped(state="failed", reason=STUCK))


def _said_later(recording: Recording) -> Iterator[tuple[Message, ...]]:
    """Yield what the user said after the beginning, each time."""
    for event in recording.events:
        if isinstance(event, RunResumed | MessagesSaid) and event.messages:
            yield event.messages
