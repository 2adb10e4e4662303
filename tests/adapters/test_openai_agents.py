"""The OpenAI Agents SDK with the fleet's tools on real workers, its model scripted."""

import asyncio
import base64
import json
import re

import pytest

from tests.adapters.adapter_tools import PNG
from tests.imported_when_used import ImportedWhenUsed

adapter = ImportedWhenUsed("toolfleet.orchestrator.adapters.openai_agents")
agents = ImportedWhenUsed("agents")
responses = ImportedWhenUsed("openai.types.responses")


def quiet():
    return agents.RunConfig(tracing_disabled=True)


def scripted(*replies):
    """A model that says one reply after the other, and keeps what it was sent."""

    class ScriptedModel(agents.Model):
        def __init__(self):
            self.replies = list(replies)
            self.asked = []

        async def get_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002  # the SDK's name
            self.asked.append(input)
            return agents.ModelResponse(output=self.replies.pop(0), usage=agents.Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):
            raise NotImplementedError

        @property
        def outputs(self):
            """What the last request says the calls returned."""
            return [item["output"] for item in self.asked[-1] if item.get("type") == "function_call_output"]

    return ScriptedModel()


def asks(*calls):
    return [
        responses.ResponseFunctionToolCall(
            call_id=f"c{n}",
            name=name,
            arguments=given if isinstance(given, str) else json.dumps(given),
            type="function_call",
        )
        for n, (name, given) in enumerate(calls)
    ]


def says(text):
    content = [responses.ResponseOutputText(text=text, type="output_text", annotations=[])]
    return [
        responses.ResponseOutputMessage(id="m", content=content, role="assistant", status="completed", type="message")
    ]


async def test_an_agent_calls_tools_of_the_fleet_at_the_same_time(orchestrator, stage):
    play = ("play", {"stage": stage.path})
    model = scripted(asks(play, play, ("add", {"a": 1, "b": 2})), says("thanks"))
    agent = agents.Agent("agent", model=model, tools=await adapter.fleet_tools(orchestrator))
    running = asyncio.create_task(agents.Runner.run(agent, "go", run_config=quiet()))
    for actor in [await stage.enters(), await stage.enters()]:  # both, before either has returned
        actor.returns("played")
    assert (await running).final_output == "thanks"
    assert model.outputs == ["played", "played", "3"]


async def test_failures_and_malformed_arguments_are_told_to_the_model(orchestrator):
    model = scripted(asks(("fail", {"text": "no luck"}), ("add", {"a": 1})), says("thanks"))
    agent = agents.Agent("agent", model=model, tools=await adapter.fleet_tools(orchestrator))
    assert (await agents.Runner.run(agent, "go", run_config=quiet())).final_output == "thanks"
    failed, wrong = model.outputs
    assert "no luck" in failed
    assert "b" in wrong


async def test_a_tool_that_requires_approval_interrupts_the_run(orchestrator):
    model = scripted(asks(("pay", {"amount": 3})), says("thanks"))
    agent = agents.Agent("agent", model=model, tools=await adapter.fleet_tools(orchestrator, ["pay"]))
    stopped = await agents.Runner.run(agent, "go", run_config=quiet())
    [interruption] = stopped.interruptions
    state = stopped.to_state()
    state.approve(interruption)
    assert (await agents.Runner.run(agent, state, run_config=quiet())).final_output == "thanks"
    assert model.outputs == ["paid 3"]


async def test_context_and_odd_names_reach_the_worker(orchestrator):
    tools = await adapter.fleet_tools(orchestrator, ["who_asks", "a name/that models refuse"], context={"user": "ann"})
    model = scripted(asks(*((tool.name, {}) for tool in tools)), says("thanks"))
    await agents.Runner.run(agents.Agent("agent", model=model, tools=tools), "go", run_config=quiet())
    assert model.outputs == ['{"user":"ann"}', "odd"]


async def test_a_run_that_is_stopped_cancels_its_calls_on_the_workers(orchestrator, stage):
    model = scripted(asks(("play", {"stage": stage.path})))
    agent = agents.Agent("agent", model=model, tools=await adapter.fleet_tools(orchestrator, ["play"]))
    running = asyncio.create_task(agents.Runner.run(agent, "go", run_config=quiet()))
    actor = await stage.enters()
    running.cancel()
    assert await actor.leaves() == "cancelled"
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("size_bytes", [0, 200_000], ids=["small", "kept_as_an_artifact"])
async def test_pictures_and_documents_are_shown_to_the_model_and_others_are_described(orchestrator, size_bytes):
    asked = asks(("drawn", {"size_bytes": size_bytes}), ("printed", {}), ("spoken", {}), ("zipped", {}))
    model = scripted(asked, says("thanks"))
    agent = agents.Agent("agent", model=model, tools=await adapter.fleet_tools(orchestrator))
    assert (await agents.Runner.run(agent, "go", run_config=quiet())).final_output == "thanks"
    [said, picture], [_, document], sound, archive = model.outputs
    assert (said["type"], said["text"].partition(" ")[0]) == ("input_text", "look:\n[image/png")
    url = f"data:image/png;base64,{base64.b64encode(PNG.ljust(size_bytes, bytes(1))).decode()}"
    assert picture == {"type": "input_image", "image_url": url}
    assert document == {
        "type": "input_file",
        "file_data": f"data:application/pdf;base64,{base64.b64encode(b'%PDF-1.7').decode()}",
        "filename": "a.pdf",
    }
    assert (sound, archive) == ("[audio/wav, 12 bytes]", "[application/zip a.zip, 2 bytes]")


async def test_a_large_result_is_read_on_with_a_tool(orchestrator):
    tools = {tool.name: tool for tool in await adapter.fleet_tools(orchestrator)}
    preview = await tools["logged"].on_invoke_tool(None, json.dumps({"lines": 40_000}))
    artifact = re.search(r'artifact="([0-9a-f]{64})"', preview)[1]
    model = scripted(asks(("read_result", {"artifact": artifact, "search": "line 39999"})), says("thanks"))
    agent = agents.Agent("agent", model=model, tools=await adapter.fleet_tools(orchestrator, ["read_result"]))
    assert (await agents.Runner.run(agent, "go", run_config=quiet())).final_output == "thanks"
    assert "line 39999" in model.outputs[0]
