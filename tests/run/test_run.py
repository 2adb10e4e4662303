import sys

import pytest

from toolfleet.calls import Returned, Submitted
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator.errors import IllegalTransition
from toolfleet.orchestrator.run.events import CallsBack, ModelReplied, RunStarted, RunStopped, SlowResultDelivered
from toolfleet.orchestrator.run.states import TRANSITIONS, Change, State
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run


def started() -> Run:
    return Run.start(RunStarted(run_id="r", messages=(UserMessage(content="?"),), terms=RunTerms(max_turns=9)))


def asks(*ids: str) -> ModelReplied:
    calls = tuple(RequestedCall(id=id_, name="add", arguments="{}") for id_ in ids)
    return ModelReplied(message=AssistantMessage(tool_calls=calls), usage=Usage(input_tokens=3, output_tokens=1))


def answers(text: str) -> ModelReplied:
    return ModelReplied(message=AssistantMessage(content=text), usage=Usage(input_tokens=2))


def back(run: Run, result=None) -> CallsBack:
    owed = run.calls_owed
    result = result or Returned(content="1")
    return CallsBack(
        results={call.call_id: result for call in owed},
        messages=tuple(ToolMessage(tool_call_id=c.requested_id, name=c.tool, content="1") for c in owed),
    )


def test_every_state_has_a_row_in_the_table():
    assert TRANSITIONS.keys() == set(State)


def test_terminal_states_are_exactly_those_that_only_a_resumption_leaves():
    ended = {state for state in State if state.is_terminal}
    assert {state for state, row in TRANSITIONS.items() if row.keys() <= {Change.RESUMED}} == ended


def test_every_state_can_be_reached():
    reached = {State.THINKING} | {after for row in TRANSITIONS.values() for after in row.values()}
    assert reached == set(State)


def test_every_running_state_can_fail_and_be_cancelled():
    for state, row in TRANSITIONS.items():
        if not state.is_terminal:
            assert row[Change.FAILED] is State.FAILED
            assert row[Change.CANCELLED] is State.CANCELLED


def test_an_answer_without_calls_ends_the_run():
    run = started().on(answers("42"))
    assert (run.state, run.answer, run.calls_owed) == (State.DONE, "42", ())


def test_the_record_of_a_waiting_call_takes_half_a_kilobyte():
    [call] = started().on(asks("a")).calls
    assert sys.getsizeof(vars(call)) < 512  # of a hundred thousand at once, each holds one


def test_calls_are_named_by_run_turn_and_position():
    run = started().on(asks("a", "b"))
    assert [call.call_id for call in run.calls_owed] == ["r.1.0", "r.1.1"]
    run = run.on(back(run)).on(asks("a"))
    assert [call.call_id for call in run.calls_owed] == ["r.2.0"]


def test_B9_usage_is_summed_over_turns():
    run = started().on(asks("a"))
    run = run.on(back(run)).on(answers("done"))
    assert run.usage == Usage(input_tokens=5, output_tokens=1)


def test_results_for_other_calls_than_those_owed_are_a_bug():
    run = started().on(asks("a"))
    with pytest.raises(IllegalTransition, match=r"r\.1\.0"):
        run.on(CallsBack(results={"r.9.9": Returned(content="")}, messages=()))


@pytest.mark.parametrize("event", [answers("again"), asks("a"), RunStopped(state="failed", reason="late")])
def test_nothing_happens_to_a_run_that_has_ended(event):
    with pytest.raises(IllegalTransition):
        started().on(answers("42")).on(event)


def test_an_answer_with_an_unseen_slow_result_makes_the_run_wait_for_it():
    run = started().on(asks("a"))
    run = run.on(back(run, Submitted(handle="h"))).on(answers("soon"))
    assert (run.state, run.answer) == (State.WAITING, None)
    late = {"r.1.0": Returned(content="late")}
    run = run.on(SlowResultDelivered(results=late, messages=()))
    assert (run.state, run.open_slow_calls) == (State.THINKING, ())
    assert run.on(answers("now")).state is State.DONE


def test_a_fetched_slow_result_is_not_waited_for():
    run = started().on(asks("a"))
    run = run.on(back(run, Submitted(handle="h"))).on(asks("b"))
    event = back(run).model_copy(update={"fetched": {"r.1.0": Returned(content="late")}})
    assert run.on(event).on(answers("now")).state is State.DONE
