"""One run as its owner works on it: the value, and the only way to change it, which is to write the change down first.

Decides nothing. What others wrote meanwhile (a cancel, an approval, an adoption) is folded in before our own event.
Where the store has lost entries that we know of, they are written again; where others have gone on without them, so do
we.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import IllegalTransition, LostRun, Overtaken, RunIsOver, RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.events import ApprovalGiven, QuestionAnswered, RunAdopted, RunEvent
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.run.words import Words
from toolfleet.orchestrator.store.chain import Link
from toolfleet.orchestrator.store.history import Entry, Stored, after
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.outages import while_it_may_be_away

log = FactLog("toolfleet.orchestrator")

AWAY_MAX_S = 60.0
"""How long one write waits for Redis, after its first try, before its run is left as it stands, to be read again."""


class Journal:
    """A run as its owner works on it, and the entry that its next event follows."""

    def __init__(
        self,
        store: RunStore,
        stored: Stored,
        orchestrator_id: str,
        tell: Callable[[Run, RunEvent], None] | None = None,
    ) -> None:
        """`tell` is called with each event of ours once it is stored, and with what it led to. It raises nothing."""
        self.run = stored.run
        self._tell = tell
        self.store = store
        self.link = stored.link
        """The entry that our next event follows."""
        self._orchestrator_id = orchestrator_id
        self._is_in_doubt = False
        """Whether an attempt at the last write failed, so that it may have been stored."""

    async def append(
        self, event: RunEvent, after: Run | None = None, *, again: Callable[[Run], RunEvent] | None = None
    ) -> Run:
        """Write an event down, and return the run after it. Waits for Redis up to a minute.

        `after`: what the event makes of the run as it stands, where the caller has looked at that already. `again`
        makes the event anew of what the run is once others were first; otherwise it stays as it is.
        Raises RunIsOver, LostRun or Overtaken when others were first, IllegalTransition when the event cannot have
        happened, NewerVersion, StoreUnreachable.
        """
        run = after or self.run.on(event)
        while (link := await self._try_to_append(run, event)) is None:
            newer = await self._catch_up()
            if self._is_in_doubt and newer and newer[0].event == event:
                # An attempt of ours had succeeded unheard; whether replicas have it, nobody has heard either.
                await while_it_may_be_away(self.store.confirm, for_s=AWAY_MAX_S)
                return self._written(event)
            if self.run.state.is_terminal:
                raise RunIsOver(f"run {self.run.run_id} is {self.run.state}: {self.run.reason}")
            event = again(self.run) if again is not None else event
            try:
                run = self.run.on(event)
            except IllegalTransition as error:
                raise Overtaken(str(error)) from error
        self.run, self.link = run, link
        return self._written(event)

    def _written(self, event: RunEvent) -> Run:
        if self._tell is not None:
            self._tell(self.run, event)
        return self.run

    async def _try_to_append(self, run: Run, event: RunEvent) -> Link | None:
        self._is_in_doubt = False
        try:
            return await self.store.append(run, event, follows=self.link)  # mostly enough
        except StoreUnreachable:
            self._is_in_doubt = True
        return await while_it_may_be_away(lambda: self.store.append(run, event, follows=self.link), for_s=AWAY_MAX_S)

    async def _catch_up(self) -> list[Entry]:
        """Fold in the entries that others have written, and return them; none where only junk was cut off.

        Raises LostRun, Overtaken.
        """
        newer = await self.store.newer(self.run.run_id, self.link)
        if newer is None:
            await self._heal()
            return []
        try:
            self._fold(newer.entries)
        except IllegalTransition as error:
            log.warning("entry_illegal", run_id=self.run.run_id, error=str(error))
            await self._go_on_from_stored()
        await self.store.set_aside(self.run.run_id, newer.tail)
        return newer.entries

    def _fold(self, newer: list[Entry]) -> None:
        owners = [entry.event.orchestrator_id for entry in newer if isinstance(entry.event, RunAdopted)]
        for entry in newer:
            self.run = after(self.run, entry)
            self.store.note_read(self.run, entry, self.link)
            self.link = entry.link
        if owners and owners[-1] != self._orchestrator_id:
            raise LostRun(f"run {self.run.run_id} was taken over by {owners[-1]}")

    async def _heal(self) -> None:
        """Write again what the store has lost of the run. Raises LostRun, or Overtaken when others went on without."""
        restored = await self.store.restore_run(self.run.run_id)
        if restored and await self.store.holds(self.run.run_id, self.link):
            log.warning("run_written_again", run_id=self.run.run_id, entries=restored)
        elif await self.store.newer(self.run.run_id, self.link) is None:
            await self._go_on_from_stored()

    async def _go_on_from_stored(self) -> None:
        """Take the run as it is stored, whatever we know. Raises LostRun if it is another's, else Overtaken."""
        run_id, known = self.run.run_id, self.link.position
        try:
            stored = await self.store.load_to_write(run_id)
        except RunNotFound as gone:
            raise LostRun(f"run {run_id} was deleted, or cannot be believed: {gone}") from gone
        if stored.owner != self._orchestrator_id and not stored.run.state.is_terminal:
            raise LostRun(f"run {run_id} goes on with {stored.owner or 'nobody'}, in a store that came back older")
        log.warning("run_goes_on_from_stored", run_id=run_id, known=known, stored=stored.link.position)
        self.run, self.link = stored.run, stored.link
        raise Overtaken(f"run {run_id} goes on from what is stored: the store came back older, and others have written")


async def adopt(store: RunStore, run_id: str, orchestrator_id: str, words: Words | None = None) -> Stored:
    """Write down that a run is this orchestrator's from here on, unless it has ended; the run after that.

    One without words of its own gets these.

    Raises RunNotFound, RunNotBelieved for one that somebody has made up, NewerVersion, StoreUnreachable.
    """
    while True:
        stored = await store.load_to_write(run_id)
        if stored.run.state.is_terminal:
            return stored
        event = RunAdopted(orchestrator_id=orchestrator_id, words=words if stored.run.terms.words is None else None)
        run = stored.run.on(event)
        if link := await store.append(run, event, follows=stored.link, owner=orchestrator_id):
            return Stored(run, link, orchestrator_id)


async def write_from_outside(
    store: RunStore, run_id: str, what: RunEvent | Callable[[Run], Awaitable[RunEvent]]
) -> Run:
    """Add an event to a run that somebody else may own, tell the owner, and return the run after it.

    `what` may be a function that makes the event of the run as it stands; it is asked again if others were first.
    Raises RunNotOpen when the event cannot happen now, RunNotFound, StoreUnreachable.
    """
    while True:
        stored = await store.load_to_write(run_id)
        event = await what(stored.run) if callable(what) else what
        try:
            run = stored.run.on(event)
        except IllegalTransition as error:  # from outside that is no bug: they cannot know how the run stands
            raise RunNotOpen(_cannot(event, stored.run)) from error
        # Before the end is written, which takes the run from its owner: who else would hear of it at once?
        owner = await store.owner(run_id)
        if await store.append(run, event, follows=stored.link):
            await store.tell(owner, run_id)
            return run


def _cannot(event: RunEvent, run: Run) -> str:
    """Return why an event from outside cannot happen to the run as it stands."""
    if isinstance(event, ApprovalGiven):
        call = next((call for call in run.calls if call.call_id == event.call_id), None)
        if call is not None and (said := call.approval) is not None:
            verb = "approved" if said.granted else "denied"
            return f"call {event.call_id} was {verb} already{f' by {said.by}' if said.by else ''}: a decision is final"
        if call is not None and event.approval.digest not in {"", call.digest} and call in run.awaiting_approval:
            return (
                f"call {event.call_id} has other arguments than those that were decided about: their digest is "
                f"{call.digest}, and not {event.approval.digest[:64]}. Look at it again"
            )
        waiting = [call.call_id for call in run.awaiting_approval]
        verb = "do" if len(waiting) > 1 else "does"
        named = ", ".join(waiting) or "none"
        return f"call {event.call_id} does not wait for approval; of its run, which is {run.state}, {named} {verb}"
    if isinstance(event, QuestionAnswered):
        return f"question {event.answered.key} of call {event.call_id} waits for no answer any more"
    if run.state.is_terminal:
        return f"run {run.run_id} has ended already: it is {run.state}"
    return f"run {run.run_id} has not ended yet: it is {run.state}"
