"""MCP servers that are lost, restarted, unreachable or wrongly configured; over stdio and Streamable HTTP."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from tests.packs.calling import call, configured, imported
from tests.ports import free_port
from toolfleet import Effect, ToolError
from toolfleet.calls import Progress
from toolfleet.errors import BadArguments, InvalidSettings
from toolfleet.workers.packs.mcp_servers.configuration import Server, servers_in

SERVER = Path(__file__).parent / "mcp_server.py"
HOSTILE = {"command": sys.executable, "args": [str(SERVER.with_name("hostile_mcp_server.py"))], "prefix": ""}
STDIO = {"command": sys.executable, "args": [str(SERVER), "stdio"]}


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
    return free_port()


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


# --- a server that means harm -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return imported(tmp_path_factory.mktemp("hostile"), servers={"hostile": HOSTILE}, call_timeout_s=20)


def test_a_servers_tools_that_cannot_be_used_harmlessly_are_left_out(hostile):
    assert set(hostile) == {
        "expression", "expression_of_names", "expression_of_results", "results_without_end", "wordy", "twice", "tree",
        "line_without_end",
    }  # fmt: skip
    assert len(hostile["wordy"].spec.description) < 10_000


def test_a_servers_regular_expressions_are_told_to_the_model_and_never_run(hostile):
    evil = "a" * 40 + "b"
    assert hostile["expression"].bind(json.dumps({"text": evil}))
    assert hostile["expression_of_names"].bind(json.dumps({evil: 1}))
    text = hostile["expression"].spec.input_schema["properties"]["text"]
    assert text == {"type": "string", "description": '{"pattern": "^(a+)+$"}'}


def test_a_schema_that_refers_to_itself_is_cut_where_it_does(hostile):
    assert hostile["tree"].bind(json.dumps({"kind": "x", "child": {"child": {}}}))
    with pytest.raises(BadArguments, match="kind"):
        hostile["tree"].bind(json.dumps({"kind": 1}))


@pytest.mark.parametrize("name", ["expression_of_results", "results_without_end"])
async def test_what_a_server_says_of_its_results_costs_no_time(hostile, name):
    async with asyncio.timeout(20):
        assert await call(hostile[name]) == json.dumps({"text": "a" * 40 + "b"})


async def test_a_server_whose_line_never_ends_is_ended_within_its_memory(hostile):
    before = psutil.Process().memory_info().rss
    with pytest.raises(ToolError, match="was lost during the call"):
        await call(hostile["line_without_end"])
    assert psutil.Process().memory_info().rss - before < 1 << 30
    assert not [each for each in psutil.Process().children(recursive=True) if "hostile_mcp" in " ".join(each.cmdline())]


@pytest.mark.parametrize("compressed", [False, True])
async def test_an_answer_over_http_that_never_ends_is_not_read_to_its_end(tmp_path, compressed):
    before = psutil.Process().memory_info().rss
    with endless_http_server(compressed=compressed) as url, pytest.raises(ToolError, match="endless"):
        imported(tmp_path, servers={"endless": {"url": url}}, connect_timeout_s=20)
    assert psutil.Process().memory_info().rss - before < 1 << 30


@contextmanager
def endless_http_server(*, compressed):
    """Answers every request with JSON that goes on, or with a small body that unfolds to gigabytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.send_header("content-type", "application/json")
            if compressed:
                self.send_header("content-encoding", "gzip")
            self.end_headers()
            squeezed = zlib.compressobj(9, wbits=31)
            with suppress(OSError):
                while True:
                    self.wfile.write(squeezed.compress(bytes(1 << 24)) if compressed else b"[" * 65536)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
