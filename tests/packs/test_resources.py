"""Resources of an MCP server as tools: listed page by page, and read if the server names them."""

import base64
import json
import sys
from pathlib import Path

import pytest

from tests.packs.calling import call, imported
from toolfleet import Effect, Media, ToolError

SERVER = Path(__file__).parent / "changing_mcp_server.py"
PICTURE = b"\x89PNG12345"
RESOURCES = {
    **{f"memo://{number}": f"memo {number}" for number in range(7)},
    "memo://picture": {"blob": base64.b64encode(PICTURE).decode()},
    "memo://broken": "broken",
    "memo://garbage": {"blob": "not base64!", "type": "image/png"},
    "memo://of-no-type": {"blob": "AAAA", "type": "x" * 100_000},
}


pytestmark = pytest.mark.asyncio(loop_scope="module")  # servers are started once


def written(folder, name, state, **entry):
    """The entry of a server with this state."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(state))
    return {"command": sys.executable, "args": [str(SERVER), str(path), "stdio"], **entry}


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("servers")
    templates = ["user://{name}/card", "file:///docs/{+path}", "{", "x" * 5000]
    many = [f"x://{number}/{'y' * 500}/{{id}}" for number in range(200)]
    one = {"resources": {"memo://1": "one"}, "tools": {"other": {}}}
    servers = {
        "s": written(folder, "s", {"resources": RESOURCES, "templates": templates}),
        "many": written(folder, "many", {"templates": many}),
        "more": written(folder, "more", one, resources=["file:///srv/*"], prefix="more_"),
        "none": written(folder, "none", one, resources=False),
        "listing": written(folder, "listing", one, exclude=["read_*"]),
        "empty": written(folder, "empty", {"tools": {"other": {}}}),
        "own": written(folder, "own", one | {"tools": {"read_resource": {"description": "Its own."}}}),
    }
    return imported(folder, servers=servers)


async def test_U15_resources_and_templates_are_listed_page_by_page(tools):
    pages, page = [], None
    while page is None or "next_page" in page:
        page = json.loads(await call(tools["s_list_resources"], **({"page": page["next_page"]} if page else {})))
        pages.append(page)
    assert [each["uri"] for page in pages for each in page["resources"]] == list(RESOURCES)
    assert [each["uri_template"] for page in pages for each in page["templates"]] == [
        "user://{name}/card", "file:///docs/{+path}", "{",
    ]  # fmt: skip
    assert pages[0]["resources"][0] == {"uri": "memo://0", "name": "0", "size_bytes": 7}
    assert {tools[name].spec.effect for name in ("s_list_resources", "s_read_resource")} == {Effect.READ_ONLY}
    assert tools["s_read_resource"].spec.tags == ("mcp", "s")


async def test_U15_a_page_of_any_length_is_cut_into_short_ones(tools):
    first = json.loads(await call(tools["many_list_resources"], page="templates:0:"))
    second = json.loads(await call(tools["many_list_resources"], page=first["next_page"]))
    assert len(json.dumps(first)) < 50_000
    assert second["templates"][0]["uri_template"].startswith(f"x://{len(first['templates'])}/")
    with pytest.raises(ToolError, match="no such page"):
        await call(tools["many_list_resources"], page="garbage\n")


async def test_U15_texts_are_read_as_texts_and_bytes_as_media(tools):
    async def read(uri):
        return await call(tools["s_read_resource"], uri=uri)

    assert await read("memo://6") == "memo 6"
    assert await read("user://ada/card") == "made of user://ada/card"
    assert await read("file:///docs/a/b.txt") == "made of file:///docs/a/b.txt"
    assert await read("memo://picture") == [Media(PICTURE, "image/png")]
    assert "not shown: it cannot be read" in await read("memo://garbage")
    assert len(await read("memo://of-no-type")) < 300
    with pytest.raises(ToolError, match="the MCP server s refused the resource memo://broken: memo://broken cannot be"):
        await read("memo://broken")


async def test_U15_a_uri_that_the_server_does_not_name_is_refused(tools):
    climbing = [
        "file:///docs/../etc/passwd",
        "file:///docs/%2e%2e/x",
        "file:///docs/%252e%252e/x",
        "file:///docs/..\\x",
    ]
    for uri in ["file:///etc/passwd", "memo://", "", "user://a/b/card", *climbing]:
        with pytest.raises(ToolError, match="names no such resource"):
            await call(tools["s_read_resource"], uri=uri)
    with pytest.raises(ToolError, match="at most 2000 characters"):
        await call(tools["s_read_resource"], uri="memo://" * 10_000)


async def test_U15_the_configuration_may_allow_more_or_nothing_at_all(tools):
    assert await call(tools["more_read_resource"], uri="file:///srv/x") == "made of file:///srv/x"
    with pytest.raises(ToolError, match="names no such resource"):
        await call(tools["more_read_resource"], uri="file:///srv/../etc/passwd")
    by_server = {name: {tool for tool in tools if tool.startswith(f"{name}_")} for name in ("none", "listing", "empty")}
    assert by_server == {
        "none": {"none_other"},
        "listing": {"listing_other", "listing_list_resources"},
        "empty": {"empty_other"},
    }
    assert tools["own_read_resource"].spec.description == "Its own."
