"""Media and large results as MCP clients get them: the official one, over each transport and era; real workers."""

import asyncio
import json
import re
from base64 import b64decode
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.doors import TasksExtension, served, text
from tests.mcp.mcp_tools import PNG
from toolfleet.errors import ArtifactNotFound
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import Caller, mcp_app
from toolfleet.orchestrator.doors.mcp.kept import artifact_contents

TEXT_BYTES = 300_000


def kinds(result):
    assert not result.is_error, result.content
    return [block.type for block in result.content]


async def test_what_is_declared_to_return_media_has_no_schema_and_returns_them(connect_anyhow):
    async with connect_anyhow() as client:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        assert {schemas[name] for name in ("drawn", "spoken", "paged", "illustrated", "album")} == {None}

        drawn = await client.call_tool("drawn", {})
        said, picture = drawn.content
        assert (said.text, drawn.structured_content, drawn.is_error) == ("[image/png dot.png, 70 bytes]", None, False)
        assert (picture.type, picture.mime_type, b64decode(picture.data)) == ("image", "image/png", PNG)

        _, sound = (await client.call_tool("spoken", {})).content
        assert (sound.type, sound.mime_type, b64decode(sound.data)) == ("audio", "audio/wav", b"RIFF....WAVE")

        _, page = (await client.call_tool("paged", {})).content
        assert (page.type, page.resource.mime_type) == ("resource", "text/html; charset=utf-8")
        assert (str(page.resource.uri), page.resource.text) == (
            "toolfleet:media/page.html",
            "<script>alert('☃')</script>",
        )


async def test_lists_and_mixes_of_text_and_media_keep_their_order(connect_anyhow):
    async with connect_anyhow() as client:
        await client.list_tools()
        assert kinds(await client.call_tool("album", {"pictures": 3})) == ["text", "image", "image", "image"]
        mixed = await client.call_tool("illustrated", {})
        assert kinds(mixed) == ["text", "image", "audio"]
        assert mixed.content[0].text == "before\n[image/png, 70 bytes]\nafter\n[audio/wav, 12 bytes]"


async def test_an_object_that_holds_a_picture_is_structured_and_has_the_picture_beside_it(connect):
    async with connect() as client:
        await client.list_tools()
        charted = await client.call_tool("charted", {})
        assert kinds(charted) == ["text", "image"]
        assert charted.structured_content == {"sum": 3, "chart": "[image/png, 70 bytes]"}


async def test_a_part_whose_data_are_none_takes_nothing_of_the_result_along(connect):
    async with connect() as client:
        said, part = (await client.call_tool("miscoded", {})).content
        assert (said.text, part.resource.blob) == ("look", "")


async def test_a_picture_that_is_kept_as_an_artifact_is_shown_all_the_same(connect_anyhow):
    async with connect_anyhow() as client:
        shown = await client.call_tool("photographed", {"size_bytes": 200_000})
        assert kinds(shown) == ["text", "image"]
        assert b64decode(shown.content[1].data) == PNG.ljust(200_000, b"\0")


async def test_of_what_is_too_large_to_be_shown_a_link_says_where_it_is_read(fleet):
    patient = fleet.settings.model_copy(update={"mcp_wait_s": 60})  # else it may come as a handle
    async with (
        Orchestrator(settings=patient) as orchestrator,
        served(mcp_app(orchestrator)) as address,
        Client(address) as client,
    ):
        shown = await client.call_tool("photographed", {"size_bytes": 9_000_000})
        assert kinds(shown) == ["text", "resource_link"]
        link = shown.content[1]
        assert (link.name, link.mime_type, link.size) == ("photo.png", "image/png", 9_000_000)
        contents = await artifact_contents(orchestrator, link.uri, Caller())
    assert (contents.mime_type, b64decode(contents.blob)) == ("image/png", PNG.ljust(9_000_000, b"\0"))


@pytest.mark.parametrize("extensions", [[], [TasksExtension()]], ids=["without_tasks", "with_tasks"])
async def test_a_slow_tool_that_returns_a_picture_returns_it_in_the_end(address, stage, extensions):
    async with Client(address, extensions=extensions) as client:
        calling = asyncio.create_task(client.call_tool("play_and_draw", {"stage": stage.path}))
        (await stage.enters()).returns(None)
        assert kinds(await calling) == ["text", "image"]


async def test_a_picture_that_comes_after_the_client_could_wait_is_got_by_its_task_id(address, stage):
    async with Client(address) as client:
        waiting = await client.call_tool("play_and_draw", {"stage": stage.path})
        (await stage.enters()).returns(None)
        late = await client.call_tool("task_result", {"task_id": waiting.structured_content["task_id"]})
    assert kinds(late) == ["text", "image"]


async def test_a_large_text_is_read_on_with_read_result(connect_anyhow):
    async with connect_anyhow() as client:
        assert "read_result" in {tool.name for tool in (await client.list_tools()).tools}
        logged = await client.call_tool("logged", {"lines": TEXT_BYTES // 8})
        preview = logged.content[0].text
        assert preview.startswith("line 0\n")
        artifact = re.search(r'read_result\(artifact="([0-9a-f]{64})"', preview)[1]
        page = text(await client.call_tool("read_result", {"artifact": artifact, "offset": 7, "limit": 6}))
        assert page.startswith("line 1\n[characters 7 to 13 of ")
        found = text(await client.call_tool("read_result", {"artifact": artifact, "search": "THE END"}))
        assert "1 place shown, no more" in found
        wrong = await client.call_tool("read_result", {"artifact": "0" * 64})
        assert (wrong.is_error, "kept no longer" in text(wrong)) == (True, True)
        assert (await client.call_tool("read_result", {"artifact": artifact, "offset": -1})).is_error


@pytest.mark.parametrize("extensions", [[], [TasksExtension()]], ids=["without_tasks", "with_tasks"])
async def test_a_typed_result_that_is_too_large_is_a_success_that_says_where_it_is(address, extensions):
    async with Client(address, extensions=extensions) as client:
        await client.list_tools()
        large = await client.call_tool("padded", {"characters": TEXT_BYTES})
        assert kinds(large) == ["text", "resource_link"]
        artifact = large.structured_content["artifact"]
        assert large.structured_content == {"artifact": artifact, "status": "too_large"}
        assert large.content[1].uri == f"toolfleet://artifacts/{artifact}"
        whole = await client.call_tool("read_result", {"artifact": artifact, "limit": 20})
        assert text(whole).startswith('{"text":"xxxxxxxxxxx')


async def test_another_tenant_reads_nothing_of_it(orchestrator):
    def caller_of(request):
        return Caller(tenant=request.headers["x-tenant"])

    @asynccontextmanager
    async def client_of(tenant):
        async with (
            httpx2.AsyncClient(headers={"x-tenant": tenant}) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            yield client

    async with served(mcp_app(orchestrator, caller_of=caller_of, hosts=None)) as address:
        async with client_of("ann") as ann:
            logged = await ann.call_tool("logged", {"lines": TEXT_BYTES // 8})
            artifact = re.search(r'artifact="([0-9a-f]{64})"', logged.content[0].text)[1]
            assert not (await ann.call_tool("read_result", {"artifact": artifact})).is_error
        async with client_of("bob") as bob:
            assert (await bob.call_tool("read_result", {"artifact": artifact})).is_error
    with pytest.raises(ArtifactNotFound):
        await artifact_contents(orchestrator, f"toolfleet://artifacts/{artifact}", Caller(tenant="bob"))


@pytest.mark.parametrize(
    ("revision", "sound", "large"),
    [
        ("2024-11-05", ["text", "resource"], ["text"]),
        ("2025-03-26", ["text", "audio"], ["text"]),
        ("2025-06-18", ["text", "audio"], ["text", "resource_link"]),
    ],
)
async def test_a_client_of_an_older_revision_gets_only_what_that_has_a_word_for(address, revision, sound, large):
    async with httpx2.AsyncClient() as http:

        async def ask(number, method, **params):
            body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            accepted = {"accept": "application/json, text/event-stream"}
            answer = await http.post(address, json=body, headers=accepted)
            http.headers.update({"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": revision})
            [data] = re.findall(r"^data: (.*\S)", answer.text, re.MULTILINE)
            return json.loads(data)["result"]

        client = {"name": "old", "version": "1"}
        opened = await ask(1, "initialize", protocolVersion=revision, capabilities={}, clientInfo=client)
        assert opened["protocolVersion"] == revision
        spoken = await ask(2, "tools/call", name="spoken", arguments={})
        logged = await ask(3, "tools/call", name="logged", arguments={"lines": TEXT_BYTES // 8})
    assert [block["type"] for block in spoken["content"]] == sound
    assert [block["type"] for block in logged["content"]] == large
