"""A schedule as people and programs are shown it, at every door the same. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toolfleet.calls import Record
from toolfleet.messages import Message
from toolfleet.orchestrator.errors import InvalidSchedule
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.orchestrator.schedules.records import Missed, Schedule, Tick


class ScheduleStanding(Record):
    """How a schedule stands."""

    schedule_id: str
    cron: str
    tz: str
    model: str
    messages: tuple[Message, ...]
    """What is asked."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The options that its runs were given."""
    missed: Missed
    at_most: int
    tenant: str
    subject: str
    by: str
    made_unix_s: float
    is_paused: bool
    next_unix_s: int | None
    """Its next tick; null while it is paused."""
    owed: int
    """Ticks that have come and whose runs are about to begin."""
    ticks: tuple[Tick, ...]
    """What has come of the newest ticks, newest first."""


def standing_of(schedule: Schedule) -> ScheduleStanding:
    """Return how a schedule stands."""
    given = schedule.terms.model_dump(mode="json", exclude_defaults=True)
    same = ("schedule_id", "cron", "tz", "model", "messages", "missed", "at_most", "by", "made_unix_s", "is_paused")
    return ScheduleStanding(
        **{name: getattr(schedule, name) for name in same},
        options={name: value for name, value in given.items() if name in AskedTerms.model_fields},
        tenant=schedule.tenant,
        subject=schedule.terms.subject,
        next_unix_s=_next_of(schedule),
        owed=len(schedule.owed),
        ticks=schedule.ticks,
    )


def _next_of(schedule: Schedule) -> int | None:
    try:
        return schedule.next_unix_s()
    except InvalidSchedule:  # a zone that this machine does not know
        return None
