"""A schedule as it is kept, and what is decided of it: which ticks begin runs, and which were missed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

from pydantic import Field

from toolfleet.calls import Record
from toolfleet.messages import Message
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.schedules.ticks import Cron, tick_text

Missed = Literal["skip", "once", "all"]
"""What becomes of ticks at which no orchestrator was there: nothing, one run for the newest, or one for each."""

MOST_MISSED: Final = 1000
"""How many runs missed ticks may begin at once."""

LOOKED_THROUGH: Final = 2 * MOST_MISSED
"""Ticks that are gone through one by one after an outage. Of more, the oldest are not looked at."""

TOLD: Final = 20
"""How many of the newest ticks a schedule tells of."""


class Tick(Record):
    """What has come of a tick, or of several that were missed."""

    tick_unix_s: int
    run_id: str = ""
    """The run that it has begun; "" for none."""
    missed: int = 0
    """How many ticks up to this one were missed, and began no run."""
    reason: str = ""
    """Why it has begun none."""


class Schedule(Record):
    """A schedule: what is asked when, and how far that has come."""

    v: Literal[1] = 1
    schedule_id: str
    cron: str
    tz: str
    messages: tuple[Message, ...]
    model: str
    """What the orchestrators that work on its runs have."""
    terms: RunTerms
    """The options of its runs, and whose they are."""
    missed: Missed = "skip"
    at_most: int = Field(default=100, ge=1, le=MOST_MISSED)
    """How many missed ticks begin a run with `missed="all"`: the newest."""
    by: str = ""
    """Who has made it."""
    made_unix_s: float
    is_paused: bool = False
    decided_unix_s: int
    """Up to when its ticks are decided; the next one is behind that."""
    owed: tuple[int, ...] = ()
    """Ticks that are decided to begin a run, and of which it is not yet noted that they have."""
    ticks: tuple[Tick, ...] = ()
    """What has come of the newest ticks, newest first."""

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.terms.tenant

    @property
    def read(self) -> Cron:
        """Its ticks. Raises InvalidSchedule where this machine does not know its zone."""
        return Cron.read(self.cron, self.tz)

    def next_unix_s(self) -> int | None:
        """Return its next tick; None while it is paused."""
        return None if self.is_paused else next(self.read.after(self.decided_unix_s), None)

    def run_of(self, tick_unix_s: int) -> str:
        """Return the id of the run that a tick begins: derived, so that however often it is begun there is one."""
        return f"{self.schedule_id}-{tick_text(tick_unix_s)}"

    def decided(self, now_unix_s: float, grace_s: float) -> Schedule:
        """Return the schedule with all ticks up to now decided: owed, or missed."""
        passed = _passed(self.read, self.decided_unix_s, now_unix_s)
        if not passed.ticks:
            return self
        late = [tick for tick in passed.ticks if tick < now_unix_s - grace_s]
        made_up = {"skip": 0, "once": 1, "all": self.at_most}[self.missed]
        left_out = late[: max(0, len(late) - made_up)]
        owed = passed.ticks[len(left_out) :]
        decided = self.model_copy(update={"owed": (*self.owed, *owed), "decided_unix_s": passed.ticks[-1]})
        missed = len(left_out) + passed.unseen
        if not missed:
            return decided
        newest = left_out[-1] if left_out else late[0]
        return decided.told(Tick(tick_unix_s=newest, missed=missed, reason="nobody was there to begin it"))

    def told(self, tick: Tick) -> Schedule:
        """Return the schedule with a tick that it tells of, and does not owe any more."""
        owed = tuple(each for each in self.owed if each != tick.tick_unix_s)
        return self.model_copy(update={"owed": owed, "ticks": (tick, *self.ticks)[:TOLD]})

    def paused(self) -> Schedule:
        """Return it so that nothing begins any more."""
        return self.model_copy(update={"is_paused": True, "owed": ()})

    def resumed(self, now_unix_s: float) -> Schedule:
        """Return it so that it goes on with the next tick; those while it was paused were not missed."""
        return self.model_copy(update={"is_paused": False, "decided_unix_s": int(now_unix_s)})


class _Passed(NamedTuple):
    ticks: Sequence[int]
    unseen: int
    """How many before them were not looked at, at least."""


def _passed(cron: Cron, after_unix_s: int, now_unix_s: float) -> _Passed:
    """Return the ticks behind a moment up to now; the newest of very many."""
    ticks = list(islice(_until(cron, after_unix_s, now_unix_s), LOOKED_THROUGH))
    if len(ticks) < LOOKED_THROUGH:
        return _Passed(ticks, 0)
    # As close together as those that were seen: so far back there are enough of them.
    back_s = max(ticks[-1] - ticks[0], LOOKED_THROUGH)
    begins = max(ticks[-1], int(now_unix_s) - back_s)
    newest = list(islice(_until(cron, begins, now_unix_s), 2 * LOOKED_THROUGH))
    if begins > ticks[-1]:
        return _Passed(newest or ticks[-1:], len(ticks))
    return _Passed([*ticks, *newest], 0)


def _until(cron: Cron, after_unix_s: int, now_unix_s: float) -> Iterator[int]:
    for tick in cron.after(after_unix_s):
        if tick > now_unix_s:
            return
        yield tick
