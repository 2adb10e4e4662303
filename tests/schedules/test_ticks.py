"""When schedules tick: by the clock of their zone, once at each clock change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.errors import InvalidSchedule
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.schedules.records import LOOKED_THROUGH, Schedule
from toolfleet.orchestrator.schedules.ticks import Cron

CHANGES = {
    "Europe/Berlin": (date(2026, 3, 29), date(2026, 10, 25)),
    "America/New_York": (date(2026, 3, 8), date(2026, 11, 1)),
    "Australia/Lord_Howe": (date(2026, 10, 4), date(2026, 4, 5)),  # by half an hour
    "Africa/Cairo": (date(2026, 4, 24), date(2026, 10, 30)),  # at midnight
}


def ticks(expression: str, tz: str, after: str, count: int) -> list[str]:
    """The next ticks, by the clock on the wall."""
    cron = Cron.read(expression, tz)
    found = islice(cron.after(datetime.fromisoformat(after).timestamp()), count)
    return [f"{datetime.fromtimestamp(tick, ZoneInfo(tz)):%d %H:%M %z}" for tick in found]


def test_U10_a_tick_in_the_hour_that_is_left_out_comes_right_after_it_and_one_in_the_doubled_hour_comes_once():
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00Z", 3) == [
        "28 02:30 +0100",
        "29 03:00 +0200",
        "30 02:30 +0200",
    ]
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45Z", 1) == ["26 02:30 +0100"]  # between the two
    assert ticks("0 8 * * 1-5", "Europe/Berlin", "2026-03-27T12:00Z", 1) == ["30 08:00 +0200"]
    assert ticks("30 15 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", 2) == ["25 02:15 +0200", "26 02:15 +0100"]


def test_what_ticks_every_so_many_minutes_goes_by_real_time():
    cron = Cron.read("*/15 * * * *", "Europe/Berlin")
    for change in CHANGES["Europe/Berlin"]:
        begins = datetime(change.year, change.month, change.day, tzinfo=UTC) - timedelta(hours=2)
        found = list(islice(cron.after(begins.timestamp()), 40))
        assert {later - earlier for earlier, later in pairwise(found)} == {900}


@given(
    tz=st.sampled_from(sorted(CHANGES)),
    which=st.booleans(),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
)
@settings(max_examples=60)
def test_a_time_of_day_ticks_once_a_day_whatever_clocks_do(tz, which, hour, minute):
    cron, change = Cron.read(f"{minute} {hour} * * *", tz), CHANGES[tz][which]
    begins = datetime(change.year, change.month, change.day, tzinfo=UTC) - timedelta(days=3)
    found = list(
        takewhile(lambda tick: tick < (begins + timedelta(days=7)).timestamp(), cron.after(begins.timestamp()))
    )
    days = [datetime.fromtimestamp(tick, ZoneInfo(tz)).date() for tick in found]
    assert len(set(days)) == len(days)
    assert {later - earlier for earlier, later in pairwise(days)} == {timedelta(days=1)}


@given(
    tz=st.sampled_from(sorted(CHANGES)),
    which=st.booleans(),
    expression=st.sampled_from(["30 2 * * *", "0,30 0-3 * * *", "*/20 * * * *", "5 */2 * * *", "10,50 1 2 * * *"]),
    offset_s=st.integers(-36 * 3600, 36 * 3600),
)
@settings(max_examples=60)
def test_the_next_tick_does_not_depend_on_where_one_begins_to_look(tz, which, expression, offset_s):
    cron, change = Cron.read(expression, tz), CHANGES[tz][which]
    noon = int(datetime(change.year, change.month, change.day, 12, tzinfo=UTC).timestamp())
    from_far = cron.after(noon - 4 * 24 * 3600)
    assert next(tick for tick in from_far if tick > noon + offset_s) == next(cron.after(noon + offset_s))


@given(st.text(max_size=30) | st.text("0123456789*/,-#LW ? JAN MON", max_size=30), st.text(max_size=20))
@settings(max_examples=200)
def test_whatever_is_written_is_a_schedule_or_is_refused(expression, tz):
    for zone in ("UTC", tz):
        try:
            cron = Cron.read(expression, zone)
        except InvalidSchedule:
            continue
        assert next(cron.after(0)) > 0


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 30 2 *", "* * * *", "60 * * * *", "* " * 200, "@daily"])
def test_what_never_ticks_is_refused(expression):
    with pytest.raises(InvalidSchedule):
        Cron.read(expression, "UTC")


# --- missed ----------------------------------------------------------------------------------------------------------

DAY_S = 24 * 3600


def daily(**said) -> Schedule:
    fields = {"cron": "0 0 * * *", "tz": "UTC", "model": "m", "terms": RunTerms(), **said}
    return Schedule(schedule_id="s1", messages=(UserMessage(content="?"),), made_unix_s=0.0, decided_unix_s=0, **fields)


@pytest.mark.parametrize(
    ("missed", "at_most", "days"),
    [("skip", 100, [10]), ("once", 100, [9, 10]), ("all", 100, range(1, 11)), ("all", 3, [7, 8, 9, 10])],
)
def test_missed_ticks_are_skipped_made_up_for_once_or_all(missed, at_most, days):
    decided = daily(missed=missed, at_most=at_most).decided(10 * DAY_S + 5, grace_s=60)
    assert [tick // DAY_S for tick in decided.owed] == list(days)
    assert sum(tick.missed for tick in decided.ticks) == 10 - len(decided.owed)
    assert decided.decided_unix_s == 10 * DAY_S
    assert decided.decided(10 * DAY_S + 5, grace_s=60) == decided  # nothing is decided twice


def test_years_of_missed_ticks_take_no_longer_than_some_thousands():
    each_minute = daily(cron="* * * * *", missed="all", at_most=1000)
    now = 5 * 365 * DAY_S
    decided = each_minute.decided(now, grace_s=60)
    assert decided.owed[-1] == now
    assert 1000 <= len(decided.owed) <= 1002
    assert decided.ticks[0].missed >= LOOKED_THROUGH
