"""Runs that end with calls which their caller answers."""

import pytest

from toolfleet.calls import Returned
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage, UserMessage
from toolfleet.orchestrator.errors import IllegalTransition
from toolfleet.orchestrator.run.events import CallsBack, CallsHandedOver, ModelReplied, RunStarted
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run
from toolfleet.tool import ToolSpec


def asked_for(*tools):
    mine = ToolSpec(name="mine", description="", input_schema={"type": "object"})
    started = RunStarted(
        run_id="r", messages=(UserMessage(content="?"),), terms=RunTerms(max_turns=5, client_tools=(mine,))
    )
    calls = tuple(RequestedCall(id=f"{n}", name=name, arguments="{}") for n, name in enumerate(tools))
    return Run.start(started).on(ModelReplied(message=AssistantMessage(content="one moment", tool_calls=calls)))


def test_a_run_with_nothing_but_its_callers_calls_left_ends_with_a_message_for_each():
    run = asked_for("mine", "add")
    assert not run.only_callers_calls_left
    run = run.on(CallsBack(results={"r.1.1": Returned(content="5")}))
    assert run.only_callers_calls_left
    run = run.on(CallsHandedOver())
    assert (run.state, run.answer, [call.call_id for call in run.handed_over]) == (State.DONE, "one moment", ["r.1.0"])
    assert [m.tool_call_id for m in run.messages if isinstance(m, ToolMessage)] == ["0", "1"]


def test_calls_of_the_fleet_are_never_handed_over():
    with pytest.raises(IllegalTransition):
        asked_for("mine", "add").on(CallsHandedOver())


def test_half_a_call_is_answered_here():
    run = asked_for()
    half = RequestedCall(id="0", name="mine", arguments='{"a": ')
    run = Run.start(RunStarted(run_id="r", messages=(), terms=run.terms)).on(
        ModelReplied(message=AssistantMessage(tool_calls=(half,)), incomplete=Incomplete.LENGTH)
    )
    assert not run.only_callers_calls_left
