"""What time it is, and arithmetic on dates: zones by their IANA names, days by the calendar, hours by the clock.

Reads the time and the zone database, nothing else.
"""

from __future__ import annotations

import calendar
import functools
import zoneinfo
from datetime import UTC, datetime, timedelta

from pydantic import field_validator
from typing_extensions import TypedDict

from toolfleet import ToolError, tool
from toolfleet.misspelt import nearest
from toolfleet.workers.packs.pack_settings import PackSettings, for_pack, read_pack_settings


class ClockSettings(PackSettings):
    """Where the clock hangs."""

    model_config = for_pack("clock")

    timezone: str = "UTC"
    """IANA name of the zone that is meant where the model names none."""

    @field_validator("timezone")
    @classmethod
    def _exists(cls, name: str) -> str:
        try:
            return zone(name).key
        except ToolError as error:
            raise ValueError(str(error)) from None


class Moment(TypedDict):
    """A moment as a person reads it."""

    iso: str
    weekday: str
    timezone: str
    utc_offset: str


class Difference(TypedDict):
    """From one moment to another; all but `calendar_days` are exact."""

    seconds: float
    days: float
    calendar_days: int
    text: str


class Clock:
    """Answers in one zone unless the model names another."""

    def __init__(self, settings: ClockSettings) -> None:
        self._settings = settings

    @tool(read_only=True)
    async def current_time(self, timezone: str | None = None) -> Moment:
        """Tell date, time and weekday of now.

        Args:
            timezone: IANA name such as "Europe/Berlin"; the worker's own default if left out
        """
        return _moment(datetime.now(self._zone(timezone)))

    @tool(read_only=True)
    async def date_add(  # noqa: PLR0917  # a model names them all, and an annotation for each of them helps nobody
        self,
        moment: str,
        years: int = 0,
        months: int = 0,
        weeks: int = 0,
        days: int = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        timezone: str | None = None,
    ) -> Moment:
        """Add to a date or time, or subtract with negative numbers.

        Years to days keep the time on the clock, and a day that a month lacks becomes its last; hours to seconds are
        exact, also where the clocks change.

        Args:
            moment: ISO 8601, for example "2025-02-28" or "2025-02-28T09:30+01:00"
            years: may be negative, as all of these
            months: calendar months
            weeks: seven days each
            days: calendar days
            hours: elapsed hours
            minutes: elapsed minutes
            seconds: elapsed seconds
            timezone: IANA name of the zone that counts; that of the moment or the default if left out
        """
        try:
            start = self._read(moment, timezone)
            shifted = _months_later(start, years * 12 + months) + timedelta(weeks=weeks, days=days)
            elapsed = timedelta(hours=hours, minutes=minutes, seconds=seconds)
            # Through UTC: arithmetic on a zone's own time ignores its changes.
            return _moment((shifted.astimezone(UTC) + elapsed).astimezone(start.tzinfo))
        except (OverflowError, ValueError) as error:
            raise ToolError(f"no such date: {error}") from None

    @tool(read_only=True)
    async def date_difference(self, start: str, end: str, timezone: str | None = None) -> Difference:
        """Tell how long it is from one date or time to another; negative if the second is earlier.

        Args:
            start: ISO 8601, for example "2025-02-28"
            end: likewise
            timezone: IANA name of the zone of what names none; the worker's own default if left out
        """
        first, last = self._read(start, timezone), self._read(end, timezone)
        elapsed = last.astimezone(UTC) - first.astimezone(UTC)
        return Difference(
            seconds=elapsed.total_seconds(),
            days=elapsed / timedelta(days=1),
            calendar_days=(last.date() - first.date()).days,
            text=str(elapsed) if elapsed >= timedelta() else f"-{-elapsed}",
        )

    def _zone(self, name: str | None) -> zoneinfo.ZoneInfo:
        return zone(name or self._settings.timezone)

    def _read(self, text: str, timezone: str | None) -> datetime:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ToolError(f"{text[:80]!r} is not a date or time in ISO 8601, such as 2025-02-28T09:30") from None
        if moment.tzinfo is None:
            return moment.replace(tzinfo=self._zone(timezone))
        try:
            return moment.astimezone(self._zone(timezone)) if timezone else moment
        except OverflowError as error:
            raise ToolError(f"no such date: {error}") from None


def zone(name: str) -> zoneinfo.ZoneInfo:
    """A zone by its IANA name. Raises ToolError with the names that are close to it."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        close = nearest(name, _zone_names(), at_most=3)
        hint = f"; did you mean {', '.join(close)}?" if close else ", use an IANA name such as Europe/Berlin"
        raise ToolError(f"there is no timezone {name[:80]!r}{hint}") from None


@functools.cache
def _zone_names() -> list[str]:
    return sorted(zoneinfo.available_timezones())


def _months_later(moment: datetime, months: int) -> datetime:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:  # what the calendar of datetime knows
        raise OverflowError(f"the year {year} is out of range")
    last_day = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last_day))


def _moment(moment: datetime) -> Moment:
    zone_of = moment.tzinfo
    return Moment(
        iso=moment.isoformat(timespec="seconds"),
        weekday=calendar.day_name[moment.weekday()],
        timezone=zone_of.key if isinstance(zone_of, zoneinfo.ZoneInfo) else str(zone_of),
        utc_offset=moment.strftime("%z"),
    )


_clock = Clock(read_pack_settings(ClockSettings))
current_time, date_add, date_difference = _clock.current_time, _clock.date_add, _clock.date_difference
