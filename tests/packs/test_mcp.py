"""MCP servers that are lost, restarted, unreachable or wrongly configured; over stdio and Streamable HTTP."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from toolfleet import Context, Effect, ToolError
from toolfleet.calls import Progress
from toolfleet.errors import InvalidSettings
from toolfleet.workers.packs.mcp import McpSettings, Server, servers_in, tools_of_servers

SERVER = Path(__file__).parent / "mcp_server.py"
STDIO = {"command": sys.executable, "args": [str(SERVER), "stdio"]}


def configured(tmp_path, **servers):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def imported(tmp_path, *, servers, **settings):
    return tools_of_servers(McpSettings(config=configured(tmp_path, **servers), **settings))


async def call(tool, *, report=None, **arguments):
    context = Context(call_id="r.1.0", run_id="r", tool="f", deadline_unix_s=0, report=report or (lambda _: None))
    return await tool.invoke(tool.bind(json.dumps(arguments)), context)


@contextmanager
def http_server(port):
    """The server over Streamable HTTP, once it takes connections."""
    with subprocess.Popen([sys.executable, str(SERVER), str(port)]) as process:
        try:
            while process.poll() is None and not listens(port):
                time.sleep(0.02)
            yield
        finally:
            process.kill()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_P7_hints_become_effects_and_schemas_pass_through(tmp_path):
    tools = imported(
        tmp_path, servers={"s": STDIO | {"include": ["add", "pid", "die_*"], "prefix": "x-", "queue": "q"}}
    )
    assert {name: tool.spec.effect for name, tool in tools.items()} == {
        "x-add": Effect.READ_ONLY, "x-pid": Effect.IDEMPOTENT, "x-die_first": Effect.READ_ONLY,
        "x-die_once": Effect.ONCE,
    }  # fmt: skip
    add = tools["x-add"].spec
    assert add.input_schema["properties"]["a"] == {"description": "the first", "title": "A", "type": "integer"}
    assert (add.description, add.queue, add.tags) == ("Add two numbers.", "q", ("mcp", "s"))


async def test_P7_a_lost_server_is_started_again_and_only_harmless_calls_are_repeated(tmp_path):
    tools = imported(tmp_path, servers={"s": STDIO})
    first = await call(tools["s_pid"])
    assert json.loads(await call(tools["s_die_first"], path=str(tmp_path / "a"))) == {"result": "survived"}
    assert await call(tools["s_pid"]) != first
    with pytest.raises(ToolError, match="may or may not have happened"):
        await call(tools["s_die_once"], path=str(tmp_path / "b"))
    assert json.loads(await call(tools["s_die_once"], path=str(tmp_path / "b"))) == {"result": "survived"}


async def test_P7_a_server_over_http_is_found_again_after_a_restart(tmp_path, port):
    with http_server(port):
        tools = imported(tmp_path, servers={"web": {"url": f"http://127.0.0.1:{port}/mcp"}})
        first = await call(tools["web_pid"])
        assert json.loads(await call(tools["web_person"], name="Ada")) == {"name": "Ada", "age": 42}
    with pytest.raises(ToolError, match="the MCP server web cannot be reached: ConnectError"):
        await call(tools["web_pid"])
    with http_server(port):
        assert await call(tools["web_pid"]) != first


async def test_progress_is_reported_and_a_call_that_takes_too_long_is_given_up(tmp_path):
    tools = imported(tmp_path, servers={"s": STDIO | {"timeout_s": 0.3}})
    reported = []
    await call(tools["s_add"], a=1)
    with pytest.raises(ToolError, match=r"hang of the MCP server s gave no answer within 0\.3 s"):
        await call(tools["s_hang"], path=str(tmp_path / "c"))
    assert json.loads(await call(tools["s_report"], report=reported.append)) == {"result": "reported"}
    assert reported == [Progress(fraction=0.5, message="half")]


async def test_calls_at_the_same_time_share_one_server(tmp_path):
    tools = imported(tmp_path, servers={"s": STDIO})
    assert len(set(await asyncio.gather(*(call(tools["s_pid"]) for _ in range(20))))) == 1


def test_a_server_that_cannot_be_reached_is_named(tmp_path):
    with pytest.raises(ToolError, match="the MCP server gone cannot be reached"):
        imported(tmp_path, servers={"gone": {"command": str(tmp_path / "nothing")}})
    with pytest.raises(ToolError, match=r"the MCP server mute did not answer within 0\.3 s"):
        imported(tmp_path, servers={"mute": {"command": "sleep", "args": ["60"]}}, connect_timeout_s=0.3)


def test_variables_are_filled_in_and_disabled_servers_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("MCP_TEST_TOKEN", "hush")
    remote = {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${MCP_TEST_TOKEN}"}}
    path = configured(tmp_path, on=remote, off={"command": "x", "disabled": True})
    assert servers_in(path) == {"on": Server(url=remote["url"], headers={"Authorization": "Bearer hush"})}
    assert "hush" not in repr(servers_in(path))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no", "is not of the form"),
        ("{}", "is not of the form"),
        ('{"mcpServers": {"x": {}}}', "is needed"),
        ('{"mcpServers": {"x": {"command": "x", "url": "y"}}}', "is needed"),
        ('{"mcpServers": {"x": {"command": "${NO_SUCH_VARIABLE}"}}}', "NO_SUCH_VARIABLE"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(tmp_path, text, complaint):
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(InvalidSettings, match=complaint):
        servers_in(path)
    with pytest.raises(InvalidSettings, match="cannot be read"):
        servers_in(tmp_path / "nothing.json")
