"""The table of a call's states, held to the function that decides them over every set of facts and every step."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, strategies as st

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.orchestrator.fleet.queue_position import QueuePosition
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status.call_state import MOVES, CallFacts, CallState, call_state, result_state

RESULTS = (Returned(content="42"), *(Failed(kind=kind, message="why") for kind in FailureKind))
WAITING, WITH_WORKER = QueuePosition(is_with_worker=False, before=3), QueuePosition(is_with_worker=True, attempt=1)
RUNS = (None, State.CALLING, State.PARKED, State.DONE, State.FAILED, State.CANCELLED)

any_facts = st.builds(
    CallFacts,
    result=st.none() | st.sampled_from(RESULTS),
    has_job=st.booleans(),
    queue_position=st.sampled_from((None, WAITING, WITH_WORKER)),
    has_progress=st.booleans(),
    child_run=st.none() | st.sampled_from(State),
    awaits_approval=st.booleans(),
    was_sent=st.booleans(),
    deadline_passed=st.booleans(),
    run=st.none() | st.sampled_from(State),
)


def possible(facts: CallFacts) -> bool:
    """Whether the facts can be found together."""
    has_trace = facts.has_job or facts.queue_position or facts.has_progress or facts.child_run
    traces = sum(map(bool, (facts.has_job, facts.queue_position, facts.child_run)))
    if facts.run is not None and not facts.was_sent:
        # A run sends a call before anybody can have it, and cannot be done while a person has to decide about one.
        return not (has_trace or facts.deadline_passed) and facts.run is not State.DONE
    if facts.run is None and not facts.was_sent:
        return not facts.awaits_approval and not facts.queue_position and not facts.child_run
    return not facts.awaits_approval and traces <= 1


def open_facts() -> Iterator[CallFacts]:
    """Every set of facts without a result that can be found."""
    values = product(
        (False, True),
        (None, WAITING, WITH_WORKER),
        (False, True),
        (None, State.THINKING, State.DONE),
        (False, True),
        (False, True),
        (False, True),
        RUNS,
    )
    return (facts for each in values if possible(facts := CallFacts(None, *each)))


def steps(facts: CallFacts) -> Iterator[CallFacts]:
    """What the facts may be next, after one thing has happened."""
    if facts.result is not None:
        # Traces go, the run ends or is deleted, the deadline passes: none of it matters any more.
        yield replace(facts, has_job=False, queue_position=None, has_progress=False, child_run=None)
        yield replace(facts, deadline_passed=True, run=State.FAILED)
        yield replace(facts, run=None)
        return
    yield from steps_to_a_result(facts)
    yield from steps_of_the_run(facts)
    if facts.was_sent or facts.run is None:
        yield from steps_of_the_tool(facts)
    if facts.was_sent:
        yield replace(facts, deadline_passed=True)
        yield from steps_in_the_queue(facts)


def is_run_open(facts: CallFacts) -> bool:
    return facts.run is not None and not facts.run.is_terminal


def steps_to_a_result(facts: CallFacts) -> Iterator[CallFacts]:
    """A call that waits for approval is denied or ends with its run; whoever polls a job is never in doubt of it."""
    if call_state(facts) is CallState.AWAITING_APPROVAL:
        possible_ends = {CallState.FAILED, CallState.CANCELLED}
    else:
        possible_ends = {state for state in CallState if not (facts.has_job and state is CallState.IN_DOUBT)}
    yield from (replace(facts, result=result) for result in RESULTS if result_state(result) in possible_ends)


def steps_of_the_run(facts: CallFacts) -> Iterator[CallFacts]:
    """The run ends, or sends the call, or has a person decide about it first."""
    if not is_run_open(facts):
        return
    yield replace(facts, run=State.FAILED)
    yield replace(facts, run=State.CANCELLED)
    if facts.was_sent:
        yield replace(facts, run=State.DONE)
        return
    yield replace(facts, awaits_approval=not facts.awaits_approval)
    if not facts.awaits_approval:
        yield replace(facts, was_sent=True)


def steps_of_the_tool(facts: CallFacts) -> Iterator[CallFacts]:
    """The tool reports progress, or starts a job elsewhere."""
    if not facts.has_job:
        yield replace(facts, has_progress=True)
        if facts.child_run is None:
            yield replace(facts, has_job=True, queue_position=None)


def steps_in_the_queue(facts: CallFacts) -> Iterator[CallFacts]:
    """A worker takes the call or loses it, or a run begins to answer it and ends."""
    if facts.child_run is not None:
        yield replace(facts, child_run=State.DONE)
    elif not facts.has_job:
        if is_run_open(facts) or facts.queue_position:
            yield replace(facts, queue_position=WITH_WORKER)
            yield replace(facts, queue_position=WAITING)
        if facts.queue_position is None and is_run_open(facts):
            yield replace(facts, child_run=State.THINKING)


REACHED = {
    (before, after)
    for facts in open_facts()
    for next_ in steps(facts)
    if (before := call_state(facts)) is not (after := call_state(next_)) and not before.is_terminal
}


@given(any_facts)
def test_there_is_a_state_for_any_facts(facts):
    assert call_state(facts) in CallState


@given(any_facts)
def test_a_result_decides_whatever_else_is_found(facts):
    if facts.result is not None:
        assert call_state(facts) is result_state(facts.result)
        assert call_state(facts).is_terminal
        assert {call_state(each) for each in steps(facts)} == {call_state(facts)}


@given(any_facts.filter(possible))
def test_a_terminal_answer_never_turns_back(facts):
    if call_state(facts).is_terminal:
        seen_again = {each for each in steps(facts) if not call_state(each).is_terminal}
        # Of a call that was concluded to be cancelled, only something that is seen of it all the same says otherwise.
        assert {each for each in seen_again if each.run not in {State.FAILED, State.CANCELLED}} == set()


@given(any_facts)
def test_only_a_result_or_the_deadline_or_the_end_of_its_run_ends_a_call(facts):
    if call_state(facts).is_terminal:
        run_has_called_it_off = facts.run in {State.FAILED, State.CANCELLED}
        assert facts.result or facts.deadline_passed or run_has_called_it_off


def test_what_the_table_says_happens_and_nothing_else_does():
    assert {(before, after) for before, row in MOVES.items() for after in row} == REACHED


@pytest.mark.parametrize("state", CallState)
def test_every_state_has_a_row_that_is_empty_for_an_end_only(state):
    assert bool(MOVES[state]) is not state.is_terminal
    assert [state.is_terminal, state.is_under_way, state is CallState.UNKNOWN].count(True) == 1


SENT = CallFacts(was_sent=True)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (replace(SENT, run=State.CANCELLED), CallState.CANCELLED),
        (replace(SENT, run=State.FAILED), CallState.CANCELLED),
        (replace(SENT, run=State.DONE), CallState.UNKNOWN),
        (replace(SENT, run=State.CANCELLED, queue_position=WITH_WORKER), CallState.RUNNING),
        (replace(SENT, run=State.CANCELLED, has_job=True), CallState.SUBMITTED),
        (replace(SENT, run=State.CANCELLED, child_run=State.DONE), CallState.CANCELLED),
        (replace(SENT, run=State.PARKED, child_run=State.DONE), CallState.RUNNING),
        (replace(SENT, run=State.PARKED, has_job=True, deadline_passed=True), CallState.EXPIRED),
        (replace(SENT, run=State.PARKED), CallState.QUEUED),
        (SENT, CallState.QUEUED),
        (CallFacts(run=State.PARKED, awaits_approval=True), CallState.AWAITING_APPROVAL),
        (CallFacts(run=State.CALLING), CallState.QUEUED),
        (CallFacts(), CallState.UNKNOWN),
    ],
)
def test_the_corners_are_decided_as_the_module_says(facts, state):
    assert call_state(facts) is state
