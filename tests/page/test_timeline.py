"""Where things lie on a timeline: of seconds, of hours, and of days that nothing happened in."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from toolfleet.messages import AssistantMessage, RequestedCall, UserMessage
from toolfleet.orchestrator.doors.page.time_axis import MAX_FOLDS, WIDTH, Axis
from toolfleet.orchestrator.doors.page.timeline import MIN_BAR, WORDS, axis_of, drawn, rows_of
from toolfleet.orchestrator.run.events import (
    Answered,
    Approval,
    ApprovalGiven,
    CallsSent,
    ModelReplied,
    QuestionAnswered,
    RunStarted,
)
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.store.chain import Link
from toolfleet.orchestrator.store.history import Entry

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
T0 = 1_700_000_000.0


def entry(at_s, event):
    return Entry(f"{int((T0 + at_s) * 1000)}-0", event, Link(0, b"", b"", ""))


def call(place, *, began_s=None, ended_s=None, state=CallState.SUCCEEDED):
    return CallStanding(
        call_id=f"run.1.{place}",
        run_id="run",
        turn=1,
        tool="tool",
        state=state,
        began_unix_s=None if began_s is None else T0 + began_s,
        ended_unix_s=None if ended_s is None else T0 + ended_s,
    )


def history(sent_s, *, awaiting=(), approved_s=None):
    asked = AssistantMessage(tool_calls=(RequestedCall(id="a", name="tool", arguments="{}"),))
    entries = [
        entry(0, RunStarted(run_id="run", messages=(UserMessage(content="?"),))),
        entry(1, ModelReplied(message=asked)),
    ]
    if awaiting:
        entries.append(entry(1.5, CallsSent(deadlines_unix_s={}, awaiting_approval=awaiting)))
    if approved_s is not None:
        entries.append(entry(approved_s, ApprovalGiven(call_id=awaiting[0], approval=Approval(granted=True))))
    return [*entries, *(entry(at_s, CallsSent(deadlines_unix_s={name: 0.0})) for name, at_s in sent_s.items())]


def test_W5_three_days_until_a_person_decided_are_drawn_as_a_wait_and_folded():
    approved_s = 3 * DAY_S
    entries = history({"run.1.0": approved_s + 1}, awaiting=("run.1.0",), approved_s=approved_s)
    calls = [call(0, began_s=approved_s + 2, ended_s=approved_s + 5)]
    rows = rows_of(entries, calls, now_s=T0 + 4 * DAY_S, is_thinking=False)
    assert [row.key for row in rows] == ["turn-1", "run.1.0"]
    assert [stretch.kind for stretch in rows[1].stretches] == ["person", "queued", "running"]
    axis = axis_of(rows, T0, T0 + approved_s + 5)
    assert [fold.label for fold in axis.folds] == ["3 d"]
    person, _, ran = drawn(rows[1], axis, WORDS).bars
    assert "waited for a person for" in person.title
    # Three seconds of work are seen beside three days of waiting.
    assert ran.width > 100


def test_W5_the_wait_for_an_answer_is_drawn_as_a_wait_and_not_as_time_in_the_queue():
    answered = Answered(key="1", question="?", answer="1", asked_unix_s=T0 + 3)
    entries = [*history({"run.1.0": 2.0}), entry(DAY_S, QuestionAnswered(call_id="run.1.0", answered=answered))]
    entries.append(entry(DAY_S + 3, CallsSent(deadlines_unix_s={"run.1.1": 0.0})))
    calls = [call(0, began_s=DAY_S + 1, ended_s=DAY_S + 2), call(1, state=CallState.QUEUED)]
    asked_s = [("run.1.1", T0 + DAY_S + 5)]
    rows = rows_of(entries, calls, now_s=T0 + DAY_S + 8, is_thinking=False, asked_s=asked_s)
    first, second = (
        [(stretch.kind, stretch.since_s - T0, stretch.to_s - T0) for stretch in row.stretches] for row in rows[1:]
    )
    assert first == [("running", 2.0, 3.0), ("person", 3.0, DAY_S), ("running", DAY_S, DAY_S + 2)]
    assert second == [("running", DAY_S + 3, DAY_S + 5), ("person", DAY_S + 5, DAY_S + 8)]


def test_W6_of_twelve_hours_every_bar_can_be_seen_and_the_axis_goes_in_whole_steps():
    calls = [call(n, began_s=n * 60 + 2, ended_s=n * 60 + 3) for n in range(720)]
    rows = rows_of(history({each.call_id: 2.0 for each in calls}), calls, now_s=T0, is_thinking=False)
    axis = axis_of(rows, T0, T0 + 12 * HOUR_S)
    for row in rows:
        for bar in drawn(row, axis, WORDS).bars:
            assert bar.width >= MIN_BAR
            assert 0 <= bar.x <= WIDTH - bar.width + 0.2
    assert [tick.label for tick in axis.ticks][:3] == ["0", "2 h", "4 h"]


def test_W6_a_gap_of_a_night_is_folded_and_says_how_long_it_was():
    axis = Axis.over(T0, T0 + 10 * HOUR_S, [(T0, T0 + 600), (T0 + 9.5 * HOUR_S, T0 + 10 * HOUR_S)])
    assert [fold.label for fold in axis.folds] == ["9 h"]
    assert axis.x(T0 + 600) - axis.x(T0) > 150
    assert all(not fold.x < tick.x < fold.x + fold.width for tick in axis.ticks for fold in axis.folds)


def test_names_on_the_axis_of_a_run_that_waits_do_not_lie_on_that_of_the_fold():
    axis = Axis.over(T0, T0 + 630, [(T0, T0 + 0.085)])
    [fold] = axis.folds
    assert [tick.label for tick in axis.ticks][:2] == ["0", "20 ms"]
    assert all(abs(tick.x - fold.x - fold.width / 2) > 100 for tick in axis.ticks)


moments = st.floats(0, 40 * DAY_S, allow_nan=False)


@given(st.lists(st.tuples(moments, moments), max_size=30), moments)
def test_any_history_has_an_axis_on_which_later_lies_further_right(stretches, end_s):
    busy = [(T0 + min(pair), T0 + max(pair)) for pair in stretches]
    end_s = max([T0 + end_s, *(to for _, to in busy)])
    axis = Axis.over(T0, end_s, busy)
    assert len(axis.folds) <= MAX_FOLDS
    places = [axis.x(T0 + (end_s - T0) * share / 50) for share in range(51)]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] <= WIDTH
    assert [tick.x for tick in axis.ticks] == sorted(tick.x for tick in axis.ticks)


@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        (CallState.QUEUED, ["queued"]),
        (CallState.RUNNING, ["running"]),
        (CallState.SUBMITTED, ["running"]),
    ],
)
def test_what_goes_on_reaches_to_now(state, kinds):
    rows = rows_of(history({"run.1.0": 2.0}), [call(0, state=state)], now_s=T0 + 10, is_thinking=False)
    assert [stretch.kind for stretch in rows[1].stretches] == kinds
    assert rows[1].stretches[-1].to_s == T0 + 10


def test_a_call_that_was_back_before_its_sending_was_noted_has_a_bar():
    calls = [call(0, began_s=1.996, ended_s=1.999), call(1, ended_s=1.998), call(2, began_s=1.996, ended_s=1.999)]
    rows = rows_of(history({"run.1.0": 2.0, "run.1.1": 2.0}), calls, now_s=T0 + 9, is_thinking=False)
    axis = axis_of(rows, T0, T0 + 3)

    bars = [drawn(row, axis, WORDS).bars for row in rows if row.call]

    assert [[(bar.kind, bar.width >= MIN_BAR) for bar in each] for each in bars] == [[("running", True)]] * 3
