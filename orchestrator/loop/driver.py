"""The runs of this orchestrator: begun, adopted, driven, woken, handed over.

A run has one task while it does something and none while it rests: then it has, unless somebody waits for it here, no
entry in any table but the gatherer's. News of a run that has a task never starts a second one; the task looks again
before it ends. Knows when a run is worked on, never how.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from toolfleet.call_news import News
from toolfleet.calls import ToolResult
from toolfleet.errors import BrokerUnreachable, StoreUnreachable
from toolfleet.log_subject import log_about_run
from toolfleet.logs import FactLog
from toolfleet.metrics.of_runs import RUNS
from toolfleet.orchestrator.calls.scope import BeginRun, Emit
from toolfleet.orchestrator.errors import LostRun, NewerVersion, RunIsOver, RunNotBelieved, RunNotFound
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.loop.turn import TurnLoop
from toolfleet.orchestrator.run.events import RunEvent, RunStarted
from toolfleet.orchestrator.run.updates import CallAsks, CallAwaitsApproval, CallEnded, RunEnded, RunUpdate, told
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.run.words import Words
from toolfleet.orchestrator.spans.runs import RunSpans
from toolfleet.orchestrator.store.history import Stored
from toolfleet.orchestrator.store.journal import Journal, adopt
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.supervision import Errands, failed, stop
from toolfleet.trusted import changed

log = FactLog("toolfleet.orchestrator")

DRAIN_S: Final = 3.0
"""How long runs may finish the step they are at when this orchestrator stops."""

READ_AGAIN_S: Final = 1.0
"""How long after Redis was away a run is read again."""

LOOK_AGAIN_MAX_S: Final = 60.0
"""How often, at least, a run is looked at again that could not be worked on: first soon, then ever more rarely."""
GIVE_BACK_S: Final = 10.0
"""How long a run that a newer version has written to is kept from others: not for ever handed back and forth."""

MAX_READING: Final = 100
"""How many runs are read at once: after a restart thousands are woken together."""


class _AtRest(NamedTuple):
    """What is held of a run at rest that somebody looks on at: enough to tell of its slow calls."""

    tools: Mapping[str, str]
    """Of its calls under way, by their ids."""
    handles: Collection[str]
    """Those of them whose model has a handle, and goes on."""


@dataclass(slots=True)
class _Live:
    """A run that is worked on here, or waited for."""

    run_id: str
    emit: Emit | None = None
    ended: asyncio.Future[Run] | None = None
    fresh: Journal | None = None
    """The run as we have just stored it: it need not be read."""
    journal: Journal | None = None
    task: asyncio.Task[None] | None = None
    at_rest: _AtRest | None = None
    is_asked_again: bool = False
    """Whether there is news that the task may not have seen."""
    is_to_adopt: bool = False
    """Whether it was given to us, and this is not written into it yet."""

    def rest(self) -> None:
        """Let go of the run, which is read again when it is woken, but for what whoever looks on is told by."""
        if self.journal is not None and self.emit is not None:
            under_way = self.journal.run.calls_under_way
            handles = frozenset(call.call_id for call in under_way if call.is_slow_and_open)
            self.at_rest = _AtRest({call.call_id: call.tool for call in under_way}, handles)
        self.journal = None

    @property
    def is_read(self) -> bool:
        """Whether anything is known of the run here."""
        return self.journal is not None or self.at_rest is not None

    def has_handle_of(self, call_id: str) -> bool:
        """Whether the run's model goes on with a handle for a call; otherwise the run waits for it."""
        if self.journal is not None:
            run = self.journal.run
            # Also one whose handle is about to be written down: it is watched before that.
            handles = (*run.open_slow_calls, *run.in_background)
            return run.terms.slow == "handle" or any(call.call_id == call_id for call in handles)
        return self.at_rest is not None and call_id in self.at_rest.handles

    def tool_of(self, call_id: str) -> str:
        """Return the tool of a call of the run; "" for one that is not known here."""
        if self.journal is not None:
            return next((call.tool for call in self.journal.run.calls if call.call_id == call_id), "")
        return self.at_rest.tools.get(call_id, "") if self.at_rest else ""


@dataclass(slots=True)
class Runs:
    """Works on runs. Create it on the loop; `loop` is None where no model is: then runs are only looked at.

    It is the `Listener` of the reply stream: what is back wakes the run that rests until then.
    """

    store: RunStore
    gatherer: Gatherer
    orchestrator_id: str
    loop: TurnLoop | None
    spans: RunSpans | None = None
    words: Words | None = None
    """Those of runs that it takes over and that have none."""
    adopted_so_far: int = 0
    _live: dict[str, _Live] = field(default_factory=dict)
    _errands: Errands = field(default_factory=lambda: Errands("run_news"))
    _reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_READING))
    _closing: bool = False

    async def begin(self, started: RunStarted, emit: Emit | None = None, *, then: Sequence[RunEvent] = ()) -> bool:
        """Store a run, with what it begins with, and work on it. Whether it is new: one that is stored is left so."""
        started = changed(started, orchestrator_id=self.orchestrator_id)
        if started.parent_call_id is not None and started.trace is not None:
            below = None if self.spans is None else self.spans.begun_below(started, started.trace)
            started = started.model_copy(update={"trace": below})
        stored = await self.store.begin(started, then=then, owner=self.orchestrator_id)
        if stored is None:
            await self._work_on_unheard(started.run_id)
            return False
        live = self._live[started.run_id] = _Live(started.run_id, emit=emit)
        live.fresh = self._journal(stored)
        self._work_on(live)
        return True

    def _beginning_below(self, emit: Emit | None) -> BeginRun:
        """How agents' runs begin below a run: whoever looks on at that hears of their calls that wait for a person."""
        return self.begin if emit is None else partial(self.begin, emit=partial(_tell_of_approvals, emit))

    async def _work_on_unheard(self, run_id: str) -> None:
        """Work on a run that we have stored without hearing so, because Redis went away: nobody else would."""
        if run_id not in self._live and await self.store.owner(run_id) == self.orchestrator_id:
            self._wake(run_id)

    def end_of(self, run_id: str) -> asyncio.Future[Run] | None:
        """The end of a run that is worked on here; None for any other."""
        live = self._live.get(run_id)
        if live is None:
            return None
        if live.ended is None:
            live.ended = asyncio.get_running_loop().create_future()
        return live.ended

    def work_on_adopted(self, run_ids: Sequence[str]) -> None:
        """Start working on runs that were given to this orchestrator just now."""
        self.adopted_so_far += len(run_ids)
        for run_id in run_ids:
            self._live.setdefault(run_id, _Live(run_id)).is_to_adopt = True
            self._wake(run_id)

    async def look_at_all(self) -> None:
        """Look at every run of this orchestrator: the store came back older. Raises StoreUnreachable."""
        for run_id in await self.store.owned(self.orchestrator_id):
            live = self._live.get(run_id)
            if live is None or live.task is None:
                self._wake(run_id)
        for live in list(self._live.values()):
            if live.task is not None and live.journal is not None:
                await self._interrupt_if_astray(live, live.journal)

    async def _interrupt_if_astray(self, live: _Live, journal: Journal) -> None:
        """Begin anew with a run whose newest entry is lost for good: it may wait for what never comes."""
        run_id, link = live.run_id, journal.link
        with suppress(NewerVersion):
            if await self.store.holds(run_id, link) or await self.store.newer(run_id, link) is not None:
                return
        if live.task is not None and journal.link is link:
            await stop(live.task)
            self._wake(run_id)

    @property
    def working(self) -> int:
        """How many runs have a task now."""
        return sum(live.task is not None for live in self._live.values())

    async def aclose(self) -> None:
        """Let every run finish its step, for a moment; whoever waits for one here hears that it goes on elsewhere."""
        self._closing = True
        if self.loop is not None:
            self.loop.drain()
        tasks = [live.task for live in self._live.values() if live.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=DRAIN_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._errands.aclose(within_s=DRAIN_S)
        for live in self._live.values():
            if live.ended is not None and not live.ended.done():
                live.ended.cancel()

    # --- news, from the reply stream --------------------------------------------------------------------------------

    def hear_result(self, run_id: str, call_id: str, result: ToolResult) -> None:
        """Wake the run of a slow call that is back."""
        live = self._live.get(run_id)
        # A run that waits for it tells of it when it takes it up.
        if live is not None and live.emit is not None and live.has_handle_of(call_id):
            tool, now = live.tool_of(call_id), time.time()
            live.emit(CallEnded(run_id=run_id, call_id=call_id, tool=tool, result=result, at_unix_s=now))
        self._wake(run_id)

    def hear_news(self, run_id: str, call_id: str, news: News) -> None:
        """Say how far a call of a resting run has come, what it asks, or what it yields."""
        live = self._live.get(run_id)
        if live is not None and live.emit is not None and live.is_read:
            live.emit(told(run_id, call_id, live.tool_of(call_id), news))

    def hear_stray(self, run_id: str) -> None:
        """Look at a run that does not wait for the result that has come: it may be another's by now, or rest.

        One that is worked on here takes the result up with its other calls: there may be thousands of them, sent early.
        """
        if run_id in self._live:
            self._wake(run_id)
        else:
            self.run_in_background(self._wake_if_ours(run_id))

    def notify(self, run_id: str) -> None:
        """Look at a run again: somebody else has written to it, or its time has come."""
        live = self._live.get(run_id)
        if live is None or live.task is None:
            self._wake(run_id)
        else:
            live.is_asked_again = True
            # Its task may wait for a call or for its model, and would see the news only after that.
            self.run_in_background(self._interrupt_if_over(live))

    # --- work ---------------------------------------------------------------------------------------------------

    def _wake(self, run_id: str) -> None:
        if self._closing:
            return
        live = self._live.setdefault(run_id, _Live(run_id))
        if live.task is None:
            self._work_on(live)
        else:
            live.is_asked_again = True

    async def _wake_if_ours(self, run_id: str) -> None:
        """Wake a run if it is still ours, or tell its owner. Reads no history: most such runs have ended."""
        try:
            owner = await self.store.owner(run_id)
            if owner and owner != self.orchestrator_id:
                await self.store.notify(run_id)
        except StoreUnreachable:
            owner = self.orchestrator_id  # to be asked again until the store is back
        if owner == self.orchestrator_id:
            self._wake(run_id)

    def _work_on(self, live: _Live) -> None:
        live.task = asyncio.create_task(self._work(live))  # watched: whatever it meets, it tells and goes on

    async def _work(self, live: _Live) -> None:
        """Drive a run until it rests, ends or is lost."""
        pause_s = READ_AGAIN_S
        if self.spans is not None:
            self.spans.tracing.leave()  # this task was begun by whoever brought the news
        log_about_run(live.run_id)
        try:
            while True:
                live.is_asked_again = False
                try:
                    is_over = await self._drive(live)
                except (StoreUnreachable, BrokerUnreachable) as error:
                    # The store says what is owed once it can be read again; nothing needs to be undone.
                    log.warning("run_interrupted", run_id=live.run_id, error=str(error))
                    await asyncio.sleep(READ_AGAIN_S)
                    continue
                except Exception as error:  # noqa: BLE001  # a bug of ours: who waits must not do so for ever
                    self._tell_of_bug(live, error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LOOK_AGAIN_MAX_S)
                    continue
                if is_over or not live.is_asked_again or self._closing:
                    return
        finally:
            live.task = None
            live.rest()
            if live.ended is None and live.emit is None:
                self._live.pop(live.run_id, None)

    def _tell_of_bug(self, live: _Live, error: Exception) -> None:
        failed("run", error, run_id=live.run_id)
        if live.ended is not None and not live.ended.done():
            live.ended.set_exception(error)

    async def _drive(self, live: _Live) -> bool:
        """Drive the run as far as it goes now. Whether it is over for us."""
        try:
            journal = live.journal = await self._open_journal(live)
            if (trace := journal.run.trace) is not None:
                log_about_run(live.run_id, trace.traceparent)
            if self.loop is not None and not journal.run.state.is_terminal:
                await self.loop.drive(RunAtWork(journal, live.emit, self._beginning_below(live.emit)))
                RUNS.left(journal.run.state, has_ended=journal.run.state.is_terminal)
        except RunIsOver:
            pass
        except NewerVersion as newer:
            log.warning("run_left_to_newer", run_id=live.run_id, reason=str(newer))
            self.run_in_background(self._give_back(live, newer))
            return True
        except (LostRun, RunNotFound) as lost:
            if isinstance(lost, RunNotBelieved):
                await self._refuse(live, lost)
            if isinstance(lost, LostRun):  # a single call has no run, and its result is no news of one
                log.info("run_lost", run_id=live.run_id, reason=str(lost))
            self.run_in_background(self._follow(live))
            return True
        if not journal.run.state.is_terminal:
            return False
        self._end(live, journal.run)
        return True

    async def _open_journal(self, live: _Live) -> Journal:
        """The run as it is stored now. Raises LostRun when it is another orchestrator's, RunNotFound."""
        if live.fresh is not None:
            journal, live.fresh = live.fresh, None
            return journal
        async with self._reading:
            stored = await self._stored_for_us(live)
        return self._journal(stored)

    def _journal(self, stored: Stored) -> Journal:
        return Journal(self.store, stored, self.orchestrator_id, self.spans.tell if self.spans else None)

    async def _stored_for_us(self, live: _Live) -> Stored:
        """The run as it is stored, in which it stands that it is ours. Raises LostRun, RunNotFound, NewerVersion."""
        stored = await self.store.load_to_write(live.run_id)
        if not stored.run.state.is_terminal and stored.owner != self.orchestrator_id:
            await self._must_be_given(live, stored)
            stored = await adopt(self.store, live.run_id, self.orchestrator_id, self.words)
            if self.spans is not None:
                self.spans.adopted(stored.run)
        live.is_to_adopt = False
        return stored

    async def _must_be_given(self, live: _Live, stored: Stored) -> None:
        """Raises LostRun for a run that is not ours to adopt.

        A head is easily altered: where it names us and nothing else has given us the run, whoever owns it by its
        history keeps it, as long as they live. After that anybody with its model may adopt it.
        """
        named = await self.store.owner(live.run_id)
        if named == self.orchestrator_id and not live.is_to_adopt and await self.store.has_lease(stored.owner):
            named = stored.owner
        if named != self.orchestrator_id:
            await self.store.tell(named, live.run_id)  # what has woken us was meant for them
            raise LostRun(f"run {live.run_id} is owned by {named or 'nobody'}")
        if self.loop is None or stored.run.model != self.loop.asking.model.name:
            await self.store.disown(live.run_id, self.orchestrator_id, model=stored.run.model)
            raise LostRun(f"run {live.run_id} is for {stored.run.model}, whoever was to have it")

    async def _refuse(self, live: _Live, why: RunNotBelieved) -> None:
        """Let go of a run that nobody of the fleet has begun, for good: it is in no set that is adopted from."""
        log.warning("run_not_believed", run_id=live.run_id, reason=str(why))
        await self.store.disown(live.run_id, self.orchestrator_id)
        await self.store.count("runs_not_believed")

    async def _give_back(self, live: _Live, why: NewerVersion) -> None:
        """Leave a run to newer orchestrators of its model, after a while."""
        self._live.pop(live.run_id, None)
        if live.ended is not None and not live.ended.done():
            live.ended.set_exception(why)
        await asyncio.sleep(GIVE_BACK_S)
        with suppress(StoreUnreachable):
            if self.loop is not None and await self.store.owner(live.run_id) == self.orchestrator_id:
                await self.store.disown(live.run_id, self.orchestrator_id, model=self.loop.asking.model.name)

    def _end(self, live: _Live, run: Run) -> None:
        self.gatherer.unwatch(run.run_id, [call.call_id for call in run.calls])
        if self.loop is not None:
            self.loop.asking.spending.note_end(run)
        if live.emit:
            live.emit(RunEnded(run=run))
        if live.ended is not None and not live.ended.done():
            live.ended.set_result(run)
        self._live.pop(run.run_id, None)

    async def _interrupt_if_over(self, live: _Live) -> None:
        """Stop working on a run that somebody else has ended, taken or written to as we cannot read."""
        is_to_adopt = live.is_to_adopt  # then its history cannot say yet that it is ours
        with suppress(StoreUnreachable, RunNotFound):
            try:
                stored = await self.store.load(live.run_id)
            except NewerVersion as newer:
                await self._leave_to_newer(live, newer)
                return
            is_ours = is_to_adopt or live.is_to_adopt or stored.owner == self.orchestrator_id
            if live.task is not None and (stored.run.state.is_terminal or not is_ours):
                await stop(live.task)
                if stored.run.state.is_terminal:
                    self._end(live, stored.run)
                else:
                    await self._follow(live)

    async def _leave_to_newer(self, live: _Live, why: NewerVersion) -> None:
        """Stop working on a run that a newer version has written to. Its task may have found that out by itself."""
        if live.task is not None:
            log.warning("run_left_to_newer", run_id=live.run_id, reason=str(why))
            await stop(live.task)
            await self._give_back(live, why)

    async def _follow(self, live: _Live) -> None:
        """Tell whoever waits here for a run that goes on elsewhere how it has ended."""
        if live.emit is None and live.ended is None:
            return
        try:
            self._end(live, await self.store.end_of(live.run_id))
        except RunNotFound as gone:
            if live.ended is not None and not live.ended.done():
                live.ended.set_exception(gone)
            self._live.pop(live.run_id, None)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the runs; it is waited for, for a moment, when this orchestrator stops."""
        self._errands.run(work)


def _tell_of_approvals(emit: Emit, update: RunUpdate) -> None:
    if isinstance(update, CallAwaitsApproval | CallAsks):
        emit(update)
