"""What a run may use up, decided without a clock or a model of its own."""

import pytest
from pydantic import ValidationError

from toolfleet.calls import Returned
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator import Limits
from toolfleet.orchestrator.run.events import CallsBack, ModelReplied, RunStarted
from toolfleet.orchestrator.run.limits import TIMED_OUT, breach
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run
from toolfleet.settings import Settings


def used(
    input_tokens: int, output_tokens: int, limits: Limits | None = None, deadline_unix_s: float | None = None
) -> Run:
    """A run whose first turn is over and has used so many tokens."""
    run = Run.start(
        RunStarted(
            run_id="r",
            messages=(UserMessage(content="?"),),
            terms=RunTerms(max_turns=9, limits=limits or Limits()),
            deadline_unix_s=deadline_unix_s,
        )
    )
    asked = AssistantMessage(tool_calls=(RequestedCall(id="a", name="add", arguments="{}"),))
    run = run.on(ModelReplied(message=asked, usage=Usage(input_tokens=input_tokens, output_tokens=output_tokens)))
    [call] = run.calls_owed
    answer = ToolMessage(tool_call_id=call.requested_id, name="add", content="1")
    return run.on(CallsBack(results={call.call_id: Returned(content="1")}, messages=(answer,)))


def test_B7_the_limits_that_hold_unless_a_run_says_otherwise():
    assert Settings().max_turns == 100
    assert Limits() == Limits(calls=150, calls_per_tool=40, tokens=None, cost=None)


@pytest.mark.parametrize(("output_tokens", "reason"), [(40, None), (41, "the limit of 100 tokens is reached")])
def test_B7_tokens_in_and_out_count_together(output_tokens, reason):
    assert breach(used(60, output_tokens, Limits(tokens=100)), 0.0) == reason


@pytest.mark.parametrize(("output_tokens", "reason"), [(500, None), (600, "the limit of 0.007 in cost is reached")])
def test_B7_cost_is_counted_by_the_prices_that_are_given(output_tokens, reason):
    limits = Limits(cost=0.007, input_price=2.0, output_price=10.0)
    assert breach(used(1000, output_tokens, limits), 0.0) == reason


@pytest.mark.parametrize(("now_unix_s", "reason"), [(99.9, None), (100.0, TIMED_OUT)])
def test_B7_no_turn_begins_after_the_deadline(now_unix_s, reason):
    assert breach(used(1, 1, deadline_unix_s=100.0), now_unix_s) == reason


@pytest.mark.parametrize("limits", [{"calls": 0}, {"tokens": 0}, {"cost": 0.0}, {"input_price": -1.0}])
def test_B7_a_limit_that_allows_nothing_is_refused(limits):
    with pytest.raises(ValidationError):
        Limits(**limits)
