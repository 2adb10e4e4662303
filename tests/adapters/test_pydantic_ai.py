"""pydantic-ai with the fleet as a toolset on real workers, with its own scripted model."""

import asyncio
import re

import pytest

from tests.adapters.adapter_tools import PNG
from tests.imported_when_used import ImportedWhenUsed

adapter = ImportedWhenUsed("toolfleet.orchestrator.adapters.pydantic_ai")
functions = ImportedWhenUsed("pydantic_ai.models.function")
pydantic_ai = ImportedWhenUsed("pydantic_ai")
said = ImportedWhenUsed("pydantic_ai.messages")


def scripted(*replies):
    """A model that says one reply after the other, and what it was told."""
    left, told = list(replies), []

    def reply(messages, info):
        told[:] = [part for message in messages for part in message.parts]
        return said.ModelResponse(parts=left.pop(0))

    return functions.FunctionModel(reply), told


def asks(*calls):
    return [said.ToolCallPart(name, given, tool_call_id=f"c{n}") for n, (name, given) in enumerate(calls)]


def says(text):
    return [said.TextPart(text)]


def returned(told):
    return [part.content for part in told if isinstance(part, said.ToolReturnPart)]


async def test_an_agent_calls_tools_of_the_fleet_at_the_same_time(orchestrator, stage):
    play = ("play", {"stage": stage.path})
    model, told = scripted(asks(play, play, ("add", {"a": 1, "b": 2})), says("thanks"))
    agent = pydantic_ai.Agent(model, toolsets=[adapter.FleetToolset(orchestrator)])
    running = asyncio.create_task(agent.run("go"))
    for actor in [await stage.enters(), await stage.enters()]:  # both, before either has returned
        actor.returns("played")
    assert (await running).output == "thanks"
    assert returned(told) == ["played", "played", "3"]


async def test_wrong_arguments_are_tried_again_and_other_failures_are_told(orchestrator):
    model, told = scripted(
        asks(("add", {"a": 1})), asks(("add", {"a": 1, "b": 1}), ("fail", {"text": "no luck"})), says("thanks")
    )
    assert (await pydantic_ai.Agent(model, toolsets=[adapter.FleetToolset(orchestrator)]).run("go")).output == "thanks"
    assert any("no luck" in str(part.content) for part in told if hasattr(part, "content"))
    assert "2" in returned(told)


async def test_a_tool_that_requires_approval_is_deferred_until_it_is_approved(orchestrator):
    model, told = scripted(asks(("pay", {"amount": 3})), says("thanks"))
    agent = pydantic_ai.Agent(
        model, toolsets=[adapter.FleetToolset(orchestrator)], output_type=[str, pydantic_ai.DeferredToolRequests]
    )
    deferred = await agent.run("go")
    [call] = deferred.output.approvals
    approved = pydantic_ai.DeferredToolResults(approvals={call.tool_call_id: True})
    done = await agent.run(message_history=deferred.all_messages(), deferred_tool_results=approved)
    assert (done.output, returned(told)) == ("thanks", ["paid 3"])


async def test_context_and_odd_names_reach_the_worker(orchestrator):
    toolset = adapter.FleetToolset(orchestrator, ["who_asks", "a name/that models refuse"], context={"user": "ann"})
    names = []

    def reply(messages, info):
        names[:] = names or [tool.name for tool in info.function_tools]
        told = [part for message in messages for part in message.parts]
        return said.ModelResponse(
            parts=says(str(returned(told))) if returned(told) else asks(*((n, {}) for n in names))
        )

    run = await pydantic_ai.Agent(functions.FunctionModel(reply), toolsets=[toolset]).run("go")
    assert run.output == str(['{"user":"ann"}', "odd"])


async def test_a_run_that_is_stopped_cancels_its_calls_on_the_workers(orchestrator, stage):
    model, _ = scripted(asks(("play", {"stage": stage.path})))
    running = asyncio.create_task(pydantic_ai.Agent(model, toolsets=[adapter.FleetToolset(orchestrator)]).run("go"))
    actor = await stage.enters()
    running.cancel()
    assert await actor.leaves() == "cancelled"
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("size_bytes", [0, 200_000], ids=["small", "kept_as_an_artifact"])
async def test_pictures_sounds_and_documents_are_content_and_others_are_for_the_application(orchestrator, size_bytes):
    asked = asks(("drawn", {"size_bytes": size_bytes}), ("spoken", {}), ("printed", {}), ("zipped", {}))
    model, told = scripted(asked, says("thanks"))
    assert (await pydantic_ai.Agent(model, toolsets=[adapter.FleetToolset(orchestrator)]).run("go")).output == "thanks"
    drawn, spoken, printed, zipped = [part for part in told if isinstance(part, said.ToolReturnPart)]
    assert drawn.content[0].startswith("look:\n[image/png dot.png")
    shown = [drawn.content[1], spoken.content[1], printed.content[1]]
    assert shown == [
        pydantic_ai.BinaryContent(PNG.ljust(size_bytes, b"\0"), media_type="image/png"),
        pydantic_ai.BinaryContent(b"RIFF....WAVE", media_type="audio/wav"),
        pydantic_ai.BinaryContent(b"%PDF-1.7", media_type="application/pdf"),
    ]
    assert (zipped.content, zipped.metadata[0]["name"]) == ("[application/zip a.zip, 2 bytes]", "a.zip")


async def test_a_large_result_is_read_on_with_a_tool(orchestrator):
    model, told = scripted(asks(("logged", {"lines": 40_000})), says("thanks"))
    toolset = adapter.FleetToolset(orchestrator)
    await pydantic_ai.Agent(model, toolsets=[toolset]).run("go")
    artifact = re.search(r'artifact="([0-9a-f]{64})"', returned(told)[0])[1]
    model, told = scripted(asks(("read_result", {"artifact": artifact, "search": "line 39999"})), says("thanks"))
    await pydantic_ai.Agent(model, toolsets=[toolset]).run("go")
    assert "1 place shown, no more" in returned(told)[0]
