"""What an MCP client sees of a fleet: the official client, over both transports and eras, on real workers."""

import json
from base64 import b64decode

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from tests.mcp.doors import text


async def test_tools_are_listed_with_hints_and_schemas(connect):
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        hints = {
            name: (hint.read_only_hint, hint.idempotent_hint, hint.destructive_hint)
            for name in ("echo", "mirrored", "add")
            if (hint := tools[name].annotations)
        }
        assert hints == {"echo": (True, True, False), "mirrored": (False, True, True), "add": (False, False, True)}
        assert tools["add"].input_schema["required"] == ["a", "b"]
        assert tools["add"].output_schema is None
        assert tools["mirrored"].output_schema["anyOf"][0]["properties"].keys() == {"x", "y"}
        assert {"task_result", "task_cancel"} < tools.keys()


async def test_calls_return_text_and_structured_content(connect_anyhow):
    async with connect_anyhow() as client:
        plain = await client.call_tool("add", {"a": 1, "b": 2})
        assert (plain.is_error, text(plain), plain.structured_content) == (False, "3", None)
        typed = await client.call_tool("mirrored", {"point": {"x": 1, "y": 2}})
        assert typed.structured_content == {"x": 2, "y": 1} == json.loads(text(typed))


async def test_what_json_can_say_reaches_a_tool_as_it_was_said(connect, orchestrator):
    async with connect() as client:
        assert text(await client.call_tool("add", {"a": 10**30, "b": 1})) == str(10**30 + 1)
        assert str(10**30) in text(await client.call_tool("pay", {"amount": 10**30}))
        beyond = await client.call_tool("read_result", {"artifact": "0" * 64, "offset": 10**30})
        assert (beyond.is_error, "no artifact" in text(beyond)) == (True, True)
    assert (await orchestrator.call("echo", {"value": "half \ud800"})).content == "half \ufffd"


async def test_a_tool_that_fails_answers_with_what_its_model_is_to_read(connect):
    async with connect() as client:
        failed = await client.call_tool("fail", {"text": "no luck"})
        assert (failed.is_error, "no luck" in text(failed)) == (True, True)
        wrong = await client.call_tool("add", {"a": 1})
        assert (wrong.is_error, "b" in text(wrong)) == (True, True)
        assert wrong.meta["toolfleet/kind"] == "bad_arguments"


async def test_an_unknown_tool_is_an_error_of_the_protocol(address):
    async with Client(address) as client:
        with pytest.raises(MCPError, match="nobody_serves_this") as error:
            await client.call_tool("nobody_serves_this", {})
        assert error.value.code == INVALID_PARAMS


async def test_a_tool_whose_name_clients_refuse_is_listed_under_one_that_they_take(address):
    async with Client(address) as client:
        [odd] = [tool for tool in (await client.list_tools()).tools if tool.title]
        assert (odd.title, odd.name.isascii(), " " in odd.name) == ("a name/that clients refuse", True, False)
        assert text(await client.call_tool(odd.name, {})) == "odd"


async def test_media_travel_as_what_they_are(address):
    async with Client(address) as client:
        said, picture, file = (await client.call_tool("pictured", {})).content
    assert said.text.startswith("look\n[image/png")
    assert (picture.type, picture.mime_type, b64decode(picture.data)) == ("image", "image/png", b"PNG")
    assert (file.type, str(file.resource.uri), b64decode(file.resource.blob)) == (
        "resource",
        "toolfleet:media/a%20b.pdf",
        b"PDF",
    )
