"""pydantic-ai with the fleet as a toolset on real workers, with its own scripted model."""

import asyncio

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from toolfleet.orchestrator.adapters.pydantic_ai import FleetToolset


def scripted(*replies):
    """A model that says one reply after the other, and what it was told."""
    left, told = list(replies), []

    def reply(messages, info):
        told[:] = [part for message in messages for part in message.parts]
        return ModelResponse(parts=left.pop(0))

    return FunctionModel(reply), told


def asks(*calls):
    return [ToolCallPart(name, given, tool_call_id=f"c{n}") for n, (name, given) in enumerate(calls)]


def says(text):
    return [TextPart(text)]


def returned(told):
    return [part.content for part in told if isinstance(part, ToolReturnPart)]


async def test_an_agent_calls_tools_of_the_fleet_at_the_same_time(orchestrator, stage):
    play = ("play", {"stage": stage.path})
    model, told = scripted(asks(play, play, ("add", {"a": 1, "b": 2})), says("thanks"))
    agent = Agent(model, toolsets=[FleetToolset(orchestrator)])
    running = asyncio.create_task(agent.run("go"))
    for actor in [await stage.enters(), await stage.enters()]:  # both, before either has returned
        actor.returns("played")
    assert (await running).output == "thanks"
    assert returned(told) == ["played", "played", "3"]


async def test_wrong_arguments_are_tried_again_and_other_failures_are_told(orchestrator):
    model, told = scripted(
        asks(("add", {"a": 1})), asks(("add", {"a": 1, "b": 1}), ("fail", {"text": "no luck"})), says("thanks")
    )
    assert (await Agent(model, toolsets=[FleetToolset(orchestrator)]).run("go")).output == "thanks"
    assert any("no luck" in str(part.content) for part in told if hasattr(part, "content"))
    assert "2" in returned(told)


async def test_a_tool_that_requires_approval_is_deferred_until_it_is_approved(orchestrator):
    model, told = scripted(asks(("pay", {"amount": 3})), says("thanks"))
    agent = Agent(model, toolsets=[FleetToolset(orchestrator)], output_type=[str, DeferredToolRequests])
    deferred = await agent.run("go")
    [call] = deferred.output.approvals
    approved = DeferredToolResults(approvals={call.tool_call_id: True})
    done = await agent.run(message_history=deferred.all_messages(), deferred_tool_results=approved)
    assert (done.output, returned(told)) == ("thanks", ["paid 3"])


async def test_context_and_odd_names_reach_the_worker(orchestrator):
    toolset = FleetToolset(orchestrator, ["who_asks", "a name/that models refuse"], context={"user": "ann"})
    names = []

    def reply(messages, info):
        names[:] = names or [tool.name for tool in info.function_tools]
        told = [part for message in messages for part in message.parts]
        return ModelResponse(parts=says(str(returned(told))) if returned(told) else asks(*((n, {}) for n in names)))

    run = await Agent(FunctionModel(reply), toolsets=[toolset]).run("go")
    assert run.output == str(['{"user":"ann"}', "odd"])


async def test_a_run_that_is_stopped_cancels_its_calls_on_the_workers(orchestrator, stage):
    model, _ = scripted(asks(("play", {"stage": stage.path})))
    running = asyncio.create_task(Agent(model, toolsets=[FleetToolset(orchestrator)]).run("go"))
    actor = await stage.enters()
    running.cancel()
    assert await actor.leaves() == "cancelled"
    with pytest.raises(asyncio.CancelledError):
        await running
