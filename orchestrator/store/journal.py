"""One run as its owner works on it: the value, and the only way to change it, which is to write the change down first.

Decides nothing. What others wrote meanwhile (a cancel, an approval, an adoption) is folded in before our own event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import IllegalTransition, LostRun, Overtaken, RunIsOver, RunNotOpen
from toolfleet.orchestrator.run.events import ApprovalGiven, RunAdopted, RunEvent
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.run_store import Entry, RunStore, Stored, folded
from toolfleet.outages import while_it_may_be_away

log = FactLog("toolfleet.orchestrator")

AWAY_MAX_S = 60.0
"""How long one write waits for Redis before its run is left as it stands, to be read again."""


class Journal:
    """A run as its owner works on it, and the entry that its next event follows."""

    def __init__(self, store: RunStore, stored: Stored, orchestrator_id: str) -> None:
        self.run = stored.run
        self._store = store
        self._last_id = stored.last_id
        self._orchestrator_id = orchestrator_id
        self._is_in_doubt = False
        """Whether an attempt at the last write failed, so that it may have been stored."""

    async def append(self, event: RunEvent) -> Run:
        """Write an event down, and return the run after it. Waits for Redis up to a minute.

        Raises RunIsOver, LostRun or Overtaken when others were first, IllegalTransition when the event cannot have
        happened, StoreUnreachable.
        """
        run = self.run.on(event)
        while (entry_id := await self._try_to_append(run, event)) is None:
            newer = await self._catch_up()
            if self._is_in_doubt and newer[0].event == event:
                return self.run  # an attempt of ours had succeeded unheard
            if self.run.state.is_terminal:
                raise RunIsOver(f"run {self.run.run_id} is {self.run.state}: {self.run.reason}")
            try:
                run = self.run.on(event)
            except IllegalTransition as error:
                raise Overtaken(str(error)) from error
        self.run, self._last_id = run, entry_id
        return run

    async def _try_to_append(self, run: Run, event: RunEvent) -> str | None:
        self._is_in_doubt = False

        async def write() -> str | None:
            try:
                return await self._store.append(run, event, follows=self._last_id)
            except StoreUnreachable:
                self._is_in_doubt = True
                raise

        return await while_it_may_be_away(write, for_s=AWAY_MAX_S)

    async def _catch_up(self) -> list[Entry]:
        """Fold in the entries that others have written, and return them. Raises LostRun."""
        newer = await self._store.entries(self.run.run_id, after=self._last_id)
        if not newer:
            raise LostRun(f"run {self.run.run_id} was deleted")
        self._fold(newer)
        return newer

    def _fold(self, newer: list[Entry]) -> None:
        owners = [entry.event.orchestrator_id for entry in newer if isinstance(entry.event, RunAdopted)]
        self.run = folded(self.run, newer)
        self._last_id = newer[-1].id
        if owners and owners[-1] != self._orchestrator_id:
            raise LostRun(f"run {self.run.run_id} was taken over by {owners[-1]}")


async def write_from_outside(
    store: RunStore, run_id: str, what: RunEvent | Callable[[Run], Awaitable[RunEvent]]
) -> Run:
    """Add an event to a run that somebody else may own, tell the owner, and return the run after it.

    `what` may be a function that makes the event of the run as it stands; it is asked again if others were first.
    Raises RunNotOpen when the event cannot happen now, RunNotFound, StoreUnreachable.
    """
    while True:
        stored = await store.load(run_id)
        event = await what(stored.run) if callable(what) else what
        try:
            run = stored.run.on(event)
        except IllegalTransition as error:  # from outside that is no bug: they cannot know how the run stands
            raise RunNotOpen(_cannot(event, stored.run)) from error
        # Before the end is written, which takes the run from its owner: who else would hear of it at once?
        owner = await store.owner(run_id)
        if await store.append(run, event, follows=stored.last_id):
            await store.tell(owner, run_id)
            return run


def _cannot(event: RunEvent, run: Run) -> str:
    """Return why an event from outside cannot happen to the run as it stands."""
    if isinstance(event, ApprovalGiven):
        waiting = [call.call_id for call in run.awaiting_approval]
        verb = "do" if len(waiting) > 1 else "does"
        named = ", ".join(waiting) or "none"
        return f"call {event.call_id} does not wait for approval; of its run, which is {run.state}, {named} {verb}"
    if run.state.is_terminal:
        return f"run {run.run_id} has ended already: it is {run.state}"
    return f"run {run.run_id} has not ended yet: it is {run.state}"
