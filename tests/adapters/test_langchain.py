"""LangChain's tools and LangGraph's graphs on real workers, with a scripted model of LangChain's."""

import asyncio
import base64
import re

import pytest

from tests.adapters.adapter_tools import PNG
from tests.imported_when_used import ImportedWhenUsed
from toolfleet.orchestrator import Orchestrator, sync

langchain = ImportedWhenUsed("langchain_core.messages")
langgraph = ImportedWhenUsed("langgraph.graph")
models = ImportedWhenUsed("langchain_core.language_models.fake_chat_models")
prebuilt = ImportedWhenUsed("langgraph.prebuilt")
adapter = ImportedWhenUsed("toolfleet.orchestrator.adapters.langchain")

ODD = "t_a_name_that_models_refuse"


def asks(*calls):
    return langchain.AIMessage(
        "", tool_calls=[{"id": f"c{n}", "name": name, "args": given} for n, (name, given) in enumerate(calls)]
    )


def graph_of(node, *replies):
    """A graph as LangGraph's documentation builds it, its model scripted."""
    model = models.FakeMessagesListChatModel(responses=list(replies))

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = langgraph.StateGraph(langgraph.MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", node)
    graph.add_edge(langgraph.START, "think")
    graph.add_conditional_edges("think", prebuilt.tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


async def test_a_tool_is_called_by_its_schema_and_fails_with_a_message(orchestrator):
    tools = {tool.name: tool for tool in await adapter.fleet_tools(orchestrator, context={"user": "ann"})}
    assert tools["add"].tool_call_schema["properties"]["a"]["description"] == "the first"
    assert await tools["add"].ainvoke({"a": 1, "b": 2}) == "3"
    assert await tools["who_asks"].ainvoke({}) == '{"user":"ann"}'
    answer = await tools["fail"].ainvoke({"type": "tool_call", "id": "c", "name": "fail", "args": {"text": "no luck"}})
    assert (answer.status, "no luck" in answer.content) == ("error", True)
    [odd] = [tool for name, tool in tools.items() if name.startswith(ODD)]
    assert await odd.ainvoke({}) == "odd"


async def test_a_tool_is_called_from_a_thread_but_not_from_the_loop_itself(orchestrator):
    [add] = await adapter.fleet_tools(orchestrator, ["add"])
    assert await asyncio.to_thread(add.invoke, {"a": 1, "b": 2}) == "3"
    with pytest.raises(sync.NotHere, match="ainvoke"):
        add.invoke({"a": 1, "b": 2})


def test_a_program_without_a_loop_uses_tools_and_node(fleet):
    orchestrator = Orchestrator(settings=fleet.settings)

    async def parts(fleet):
        return await adapter.fleet_tools(fleet, ["add"]), adapter.FleetToolNode(fleet)

    try:
        [add], node = sync.do(orchestrator, parts)
        assert add.invoke({"a": 1, "b": 2}) == "3"
        [answer] = node.invoke([asks(("add", {"a": 2, "b": 2}))])
        assert answer.content == "4"
    finally:
        sync.close(orchestrator)


async def test_a_graph_performs_all_calls_of_a_message_in_one_batch(orchestrator, stage):
    asked = asks(("play", {"stage": stage.path}), ("play", {"stage": stage.path}), ("fail", {"text": "no"}), ("x", {}))
    graph = graph_of(adapter.FleetToolNode(orchestrator), asked, langchain.AIMessage("thanks"))
    running = asyncio.create_task(graph.ainvoke({"messages": [langchain.HumanMessage("go")]}))
    first, second = await stage.enters(), await stage.enters()  # both, before either has returned
    second.returns("second")
    first.returns("first")
    *_, a, b, c, d, last = (await running)["messages"]
    assert [answer.tool_call_id for answer in (a, b, c, d)] == ["c0", "c1", "c2", "c3"]
    assert {a.content, b.content} == {"first", "second"}
    assert [answer.status for answer in (a, b, c, d)] == ["success", "success", "error", "error"]
    assert last.content == "thanks"


async def test_the_node_answers_torn_calls_and_only_those_without_an_answer(orchestrator):
    torn = {"id": "t", "name": "add", "args": '{"a": 1, ', "error": "no JSON", "type": "invalid_tool_call"}
    message = asks(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2}))
    message.invalid_tool_calls = [torn]
    messages = [message, langchain.ToolMessage("2", tool_call_id="c0")]
    second, third = (await adapter.FleetToolNode(orchestrator).ainvoke({"messages": messages}))["messages"]
    assert (second.tool_call_id, second.content) == ("c1", "4")
    assert (third.tool_call_id, third.status) == ("t", "error")


async def test_the_node_runs_what_was_approved_and_denies_the_rest(orchestrator):
    message = asks(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    node = adapter.FleetToolNode(orchestrator, approve=lambda message: {message.tool_calls[1]["id"]})
    denied, paid = await node.ainvoke([message])
    assert (denied.status, paid.content) == ("error", "paid 2")


async def test_a_graph_that_is_stopped_cancels_its_calls_on_the_workers(orchestrator, stage):
    graph = graph_of(
        adapter.FleetToolNode(orchestrator), asks(("play", {"stage": stage.path})), langchain.AIMessage("")
    )
    running = asyncio.create_task(graph.ainvoke({"messages": [langchain.HumanMessage("go")]}))
    actor = await stage.enters()
    running.cancel()
    assert await actor.leaves() == "cancelled"
    with pytest.raises(asyncio.CancelledError):
        await running


def said_as(name, **arguments):
    return {"type": "tool_call", "id": "c", "name": name, "args": arguments}


@pytest.mark.parametrize("size_bytes", [0, 200_000], ids=["small", "kept_as_an_artifact"])
async def test_a_picture_is_a_block_that_models_see(orchestrator, size_bytes):
    [drawn] = await adapter.fleet_tools(orchestrator, ["drawn"])
    alone = await drawn.ainvoke(said_as("drawn", size_bytes=size_bytes))
    [in_graph] = await adapter.FleetToolNode(orchestrator).ainvoke([asks(("drawn", {"size_bytes": size_bytes}))])
    for answer in (alone, in_graph):
        said, picture = answer.content
        assert said["text"].startswith("look:\n[image/png dot.png")
        assert (picture["type"], picture["mime_type"]) == ("image", "image/png")
        assert base64.b64decode(picture["base64"]) == PNG.ljust(size_bytes, b"\0")
        assert [block["type"] for block in answer.content_blocks] == ["text", "image"]
        [converted] = langchain.convert_to_openai_messages([answer])
        assert converted["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
        assert [(part["media_type"], part["name"]) for part in answer.artifact] == [("image/png", "dot.png")]


async def test_what_messages_of_tools_cannot_hold_is_told_to_the_model_and_given_to_the_application(orchestrator):
    asked = asks(("spoken", {}), ("zipped", {}), ("printed", {}))
    sound, archive, document = await adapter.FleetToolNode(orchestrator).ainvoke([asked])
    assert (sound.content, archive.content) == ("[audio/wav, 12 bytes]", "[application/zip a.zip, 2 bytes]")
    assert base64.b64decode(sound.artifact[0]["data"]) == b"RIFF....WAVE"
    assert [block["type"] for block in document.content] == ["text", "file"]
    assert document.content[1]["extras"] == {"filename": "a.pdf"}


async def test_a_large_result_is_read_on_with_a_tool(orchestrator):
    tools = {tool.name: tool for tool in await adapter.fleet_tools(orchestrator)}
    preview = await tools["logged"].ainvoke({"lines": 40_000})
    artifact = re.search(r'artifact="([0-9a-f]{64})"', preview)[1]
    assert "line 39999" in await tools["read_result"].ainvoke({"artifact": artifact, "search": "line 39999"})
    [answer] = await adapter.FleetToolNode(orchestrator).ainvoke(
        [asks(("read_result", {"artifact": artifact, "limit": 6}))]
    )
    assert answer.content.startswith("line 0\n[characters 0 to 6 of ")
    gone = await tools["read_result"].ainvoke(said_as("read_result", artifact="0" * 64))
    assert (gone.status, "kept no longer" in gone.content) == ("error", True)
