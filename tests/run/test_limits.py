"""What a run may use up, decided without a clock or a model of its own."""

import pytest
from pydantic import ValidationError

from toolfleet.calls import Returned, Spent, Submitted
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator import Limits
from toolfleet.orchestrator.run.events import CallsBack, CallsSent, ModelReplied, RunStarted, SlowResultDelivered
from toolfleet.orchestrator.run.limits import TIMED_OUT, NothingLeft, breach, cost_of, limits_below, spent_by
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run
from toolfleet.prices import Price
from toolfleet.settings import Settings


def why(run: Run, now_unix_s: float) -> str | None:
    """Why a run must not go on."""
    found = breach(run, now_unix_s)
    return None if found is None else found.reason


def used(
    input_tokens: int,
    output_tokens: int,
    limits: Limits | None = None,
    deadline_unix_s: float | None = None,
    *,
    price: Price | None = None,
) -> Run:
    """A run whose first turn is over and has used so many tokens."""
    run = Run.start(
        RunStarted(
            run_id="r",
            messages=(UserMessage(content="?"),),
            terms=RunTerms(max_turns=9, limits=limits or Limits(), price=price),
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
    assert why(used(60, output_tokens, Limits(tokens=100)), 0.0) == reason


@pytest.mark.parametrize(("output_tokens", "reason"), [(500, None), (600, "the limit of $0.007 is reached")])
def test_B7_cost_is_counted_by_the_prices_that_are_given(output_tokens, reason):
    price = Price(input=2.0, output=10.0)
    assert why(used(1000, output_tokens, Limits(cost=0.007), price=price), 0.0) == reason


def test_B7_cached_and_reasoning_tokens_have_prices_of_their_own_or_those_of_the_others():
    usage = Usage(
        input_tokens=1000,
        output_tokens=100,
        input_details={"cached_tokens": 400, "cache_write_tokens": 100},
        output_details={"reasoning_tokens": 30},
    )
    plain = Price(input=1e3, output=1e4)
    assert plain.of(usage) == 1000 * 1e-3 + 100 * 1e-2
    apart = Price(input=1e3, output=1e4, cached_input=1e2, cache_write=2e3, reasoning=0.0)
    assert apart.of(usage) == pytest.approx(500 * 1e-3 + 400 * 1e-4 + 100 * 2e-3 + 70 * 1e-2)


@pytest.mark.parametrize(("now_unix_s", "reason"), [(99.9, None), (100.0, TIMED_OUT)])
def test_B7_no_turn_begins_after_the_deadline(now_unix_s, reason):
    assert why(used(1, 1, deadline_unix_s=100.0), now_unix_s) == reason


@pytest.mark.parametrize("limits", [{"calls": 0}, {"tokens": 0}, {"cost": 0.0}, {"cost": float("nan")}])
def test_B7_a_limit_that_allows_nothing_is_refused(limits):
    with pytest.raises(ValidationError):
        Limits(**limits)


# --- runs below ------------------------------------------------------------------------------------------------------

SPENT = Spent(input_tokens=30, output_tokens=3, cost=2.0, calls={"add": 2, "find": 3})


def with_agents(*names: str, limits: Limits | None = None) -> Run:
    """A run that has sent these calls, all of them of agents."""
    terms = RunTerms(limits=limits or Limits(), price=Price(input=1e6, output=2e6))
    run = Run.start(RunStarted(run_id="r", messages=(), terms=terms))
    asked = tuple(RequestedCall(id=f"a{n}", name=name, arguments="{}") for n, name in enumerate(names))
    run = run.on(ModelReplied(message=AssistantMessage(tool_calls=asked), usage=Usage(input_tokens=1, output_tokens=1)))
    ids = [call.call_id for call in run.calls_owed]
    return run.on(CallsSent(deadlines_unix_s=dict.fromkeys(ids, 1e9), agents=tuple(ids)))


def back(run: Run, *results: Returned | Submitted) -> Run:
    by_id = {call.call_id: result for call, result in zip(run.calls_owed, results, strict=True)}
    return run.on(CallsBack(results=by_id, messages=run.messages_with(by_id)))


def test_P6_what_runs_below_have_used_is_added_when_their_results_come_and_once():
    run = back(with_agents("one", "two"), Returned(content="1", spent=SPENT), Submitted(handle="h"))
    assert run.usage == Usage(input_tokens=31, output_tokens=4)
    late = {run.calls[1].call_id: Returned(content="2", spent=SPENT)}
    asked = AssistantMessage(tool_calls=(RequestedCall(id="f", name="task_result", arguments="{}"),))
    fetched = run.on(ModelReplied(message=asked))
    for _ in range(2):  # a model may ask for it again
        [call] = fetched.calls_owed
        answer = {call.call_id: Returned(content="2")}
        fetched = fetched.on(CallsBack(results=answer, messages=fetched.messages_with(answer), fetched=late))
        assert fetched.usage == Usage(input_tokens=61, output_tokens=7)
        fetched = fetched.on(ModelReplied(message=asked))
    assert spent_by(fetched).calls == {"one": 1, "two": 1, "add": 4, "find": 6, "task_result": 3}
    waiting = run.on(ModelReplied(message=AssistantMessage(content="done")))
    assert waiting.on(SlowResultDelivered(results=late, messages=())).usage == Usage(input_tokens=61, output_tokens=7)


def test_P6_what_a_worker_says_of_costs_is_not_looked_at():
    run = Run.start(RunStarted(run_id="r", messages=(), terms=RunTerms()))
    asked = AssistantMessage(tool_calls=(RequestedCall(id="a", name="add", arguments="{}"),))
    run = run.on(ModelReplied(message=asked))
    run = run.on(CallsSent(deadlines_unix_s={run.calls_owed[0].call_id: 1e9}))
    run = back(run, Returned(content="1", spent=SPENT))
    assert run.usage == Usage()
    assert spent_by(run).calls == {"add": 1}


def test_P6_cost_of_a_run_below_counts_by_its_own_prices():
    run = back(with_agents("one", limits=Limits(cost=5.0)), Returned(content="1", spent=SPENT))
    assert cost_of(run) == 1 + 2 + 2.0
    assert why(run, 0.0) is None
    more = run.on(ModelReplied(message=AssistantMessage(content=""), usage=Usage(input_tokens=1), problem="no"))
    assert why(more, 0.0) == "the limit of $5 is reached"


def test_P6_a_run_below_gets_its_share_of_what_is_left_and_no_more_than_it_wants():
    limits = Limits(calls=22, calls_per_tool=10, tokens=103, cost=9.0)
    run = back(with_agents("one", "two", limits=limits), Returned(content="1", spent=SPENT), Submitted(handle="h"))
    got = limits_below(run, Limits(), ("find", "other"), sharing=2)
    # 2 calls of its own and 5 below; 3 of the latter of `find`. 35 tokens. One token in and one out, and 2.0 below.
    assert got == Limits(calls=7, calls_per_tool=3, tokens=34, cost=2.0)
    modest = limits_below(run, Limits(calls=1, tokens=5), ("find",), sharing=1)
    assert (modest.calls, modest.tokens) == (1, 5)


@pytest.mark.parametrize("limits", [Limits(calls=1), Limits(calls_per_tool=1), Limits(tokens=2)])
def test_P6_a_run_below_that_nothing_is_left_for_is_refused_with_the_limit(limits):
    run = with_agents("one", limits=limits)
    with pytest.raises(NothingLeft, match=r"the limit of \d .* leaves nothing for it"):
        limits_below(run, Limits(), ("one",), sharing=1)
