"""What has become of a reply's calls, and what is written down of it: pure, without a loop or a server."""

import pytest

from toolfleet.calls import Failed, FailureKind, Returned, Submitted
from toolfleet.messages import AssistantMessage, RequestedCall, UserMessage
from toolfleet.orchestrator.calls.outcome import (
    GroupOutcome,
    how_it_rests,
    masked_and_back,
    what_came_back,
    what_was_sent,
)
from toolfleet.orchestrator.errors import IllegalTransition
from toolfleet.orchestrator.run.events import Approval, ApprovalGiven, CallsSent, ModelReplied, RunStarted
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run

FIRST, SECOND = "r.1.0", "r.1.1"
HANDLE = {SECOND: Submitted(handle="h", message="later")}


def calling(slow="wait"):
    calls = tuple(RequestedCall(id=f"{n}", name="add", arguments="{}") for n in range(2))
    started = RunStarted(run_id="r", messages=(UserMessage(content="?"),), terms=RunTerms(max_turns=5, slow=slow))
    return Run.start(started).on(ModelReplied(message=AssistantMessage(tool_calls=calls)))


def test_what_is_sent_is_written_down_once_and_an_approval_is_asked_for_once():
    run = calling()
    sent = what_was_sent(run, {FIRST: 9.0}, [FIRST], [SECOND])
    assert sent == CallsSent(deadlines_unix_s={FIRST: 9.0}, direct=(FIRST,), awaiting_approval=(SECOND,))
    assert what_was_sent(run.on(sent), {}, [], [SECOND]) is None


def test_an_outcome_of_nothing_is_not_written_down():
    assert what_came_back(calling(), GroupOutcome({}, {}, frozenset({FIRST, SECOND})), HANDLE) is None


def test_the_last_result_brings_the_messages_for_the_model_and_an_earlier_one_does_not():
    run = calling()
    some = what_came_back(run, GroupOutcome({FIRST: Returned(content="3")}, {}, frozenset({SECOND})), HANDLE)
    assert (set(some.results), some.messages) == ({FIRST}, ())
    failed = Failed(kind=FailureKind.ERROR, message="no")
    rest = what_came_back(run.on(some), GroupOutcome({SECOND: failed}, {}, frozenset()), {})
    assert [message.tool_call_id for message in rest.messages] == ["0", "1"]
    assert run.on(some).on(rest).state is State.THINKING


def test_a_run_that_waits_rests_with_its_slow_calls_and_one_that_goes_on_hands_them_out():
    outcome = GroupOutcome({FIRST: Returned(content="3")}, {}, frozenset({SECOND}))
    sent = CallsSent(deadlines_unix_s={FIRST: 9.0, SECOND: 9.0})
    waits, goes_on = calling().on(sent), calling("handle").on(sent)
    waits = waits.on(what_came_back(waits, outcome, HANDLE))
    goes_on = goes_on.on(what_came_back(goes_on, outcome, HANDLE))
    assert how_it_rests(waits, HANDLE).handles == {SECOND: "h"}
    assert waits.on(how_it_rests(waits, HANDLE)).state is State.PARKED
    assert (goes_on.state, how_it_rests(goes_on, HANDLE)) == (State.THINKING, None)


def test_a_run_with_a_call_that_was_approved_meanwhile_does_not_rest():
    run = calling().on(CallsSent(deadlines_unix_s={FIRST: 9.0}, awaiting_approval=(SECOND,)))
    rest = how_it_rests(run, {})
    assert run.on(rest).state is State.PARKED
    run = run.on(ApprovalGiven(call_id=SECOND, approval=Approval(granted=True)))
    assert how_it_rests(run, {}) is None
    with pytest.raises(IllegalTransition):
        run.on(rest)


def test_only_the_secrets_of_calls_that_are_back_are_given_up():
    first, second = (call.model_copy(update={"kept_as": call.call_id}) for call in calling().calls)
    assert masked_and_back([first, second], {FIRST}) == [FIRST]
    assert masked_and_back(calling().calls, {FIRST, SECOND}) == []
