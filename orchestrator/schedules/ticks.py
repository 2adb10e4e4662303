"""When a schedule ticks: cron's five fields, or six with seconds first, in a time zone. Pure.

A clock change neither doubles nor swallows a tick at a given time, as in Debian's cron: one in the hour that is left
out comes right after it, one in the hour that comes twice the first time. What ticks every so many minutes goes by real
time.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Final, Self
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from toolfleet.orchestrator.errors import InvalidSchedule

MAX_CRON_CHARS: Final = 200

LOOKED_AT: Final = 200
"""How many ticks are looked at to find the shortest time between two."""

SIX_FIELDS: Final = 6


@dataclass(frozen=True, slots=True)
class Cron:
    """The ticks of one expression in one zone, as whole seconds of Unix time."""

    expression: str
    zone: ZoneInfo
    _minutes: str = field(repr=False)
    _seconds: tuple[int, ...] = field(repr=False)

    @classmethod
    def read(cls, expression: str, tz: str) -> Self:
        """Return the ticks of an expression. Raises InvalidSchedule, also for one that never ticks."""
        fields = expression.split()
        if len(expression) > MAX_CRON_CHARS or len(fields) not in {SIX_FIELDS - 1, SIX_FIELDS}:
            raise InvalidSchedule(
                f"{expression[:MAX_CRON_CHARS]!r} is no cron expression: give five fields, minute hour day month "
                'weekday, as in "0 8 * * 1-5", or six with seconds first'
            )
        zone = _zone(tz)
        try:
            seconds = sorted(CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC)).seconds)
        except CronSimError as error:
            said = str(error).lower()
            raise InvalidSchedule(f"the cron expression {expression!r} cannot tick: {said}") from None
        # Cron's rules for clock changes are those of five fields.
        minutes = " ".join(fields[-(SIX_FIELDS - 1) :])
        cron = cls(" ".join(fields), zone, minutes, tuple(seconds))
        if next(cron.after(datetime(2000, 1, 1, tzinfo=UTC).timestamp()), None) is None:
            raise InvalidSchedule(f"the cron expression {expression!r} never ticks: no day is like that")
        return cron

    def after(self, unix_s: float) -> Iterator[int]:
        """Yield the ticks behind a moment, each later than the one before."""
        last = int(unix_s // 1)
        begins = datetime.fromtimestamp(last, UTC).replace(second=0) - timedelta(minutes=1)
        for minute in CronSim(self._minutes, begins.astimezone(self.zone)):
            for second in self._seconds:
                tick = int(minute.timestamp()) + second
                if tick > last:
                    yield tick
                    last = tick

    def shortest_s(self, unix_s: float) -> int | None:
        """Return the shortest time between two of the next ticks; None where there is one at most."""
        next_ones = islice(self.after(unix_s), LOOKED_AT)
        return min((later - earlier for earlier, later in pairwise(next_ones)), default=None)


def tick_text(tick_unix_s: int) -> str:
    """Return how a tick is written in ids: 20260301T070000Z."""
    return f"{datetime.fromtimestamp(tick_unix_s, UTC):%Y%m%dT%H%M%SZ}"


def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError, TypeError):  # a folder's name, one that leaves it, one of strange characters
        close = difflib.get_close_matches(tz[:100], available_timezones(), n=1)
        meant = f"; {close[0]!r} is meant?" if close else ", which is written as in 'Europe/Berlin'"
        raise InvalidSchedule(f"{tz[:100]!r} is no time zone{meant}") from None
