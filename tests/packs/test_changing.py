"""MCP servers whose tools come, change and go while workers serve them: told by them, or found after a restart."""

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from fleets import asking

from tests.packs.calling import call, configured, followed
from tests.ports import free_port
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.workers.celery.living_tools import LivingTools

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = Path(__file__).parent / "changing_mcp_server.py"
ANSWERS = {"answer": {"answer": "one"}, "pid": {}}


class Lists:
    """What one server lists; it tells of a change by itself."""

    def __init__(self, path, **tools):
        self.path = path
        self.tools = tools
        self.say()

    def say(self, *, resources=(), **tools):
        self.tools |= tools
        kept = {name: said for name, said in self.tools.items() if said is not None}
        text = json.dumps({"tools": kept, "resources": dict.fromkeys(resources, "text")})
        beside = self.path.with_suffix(".new")  # a file that is half written would be no JSON
        beside.write_text(text)
        beside.rename(self.path)

    @property
    def stdio(self):
        return {"command": sys.executable, "args": [str(SERVER), str(self.path), "stdio"]}


class Fleet:
    """Two workers of the pool io and one of processes, each with servers of its own, but for one over HTTP."""

    def __init__(self, fleet, folder, orchestrator):
        self.fleet, self.orchestrator = fleet, orchestrator
        self.port = free_port()
        self.lists = {name: Lists(folder / f"{name}.json", **ANSWERS) for name in ("first", "second", "cpu", "web")}
        self.workers = {}

    def begin(self, folder):
        """Start the workers, once the server over HTTP is there."""
        web = {"url": f"http://127.0.0.1:{self.port}/mcp"}
        first = self.start(folder, "io", "first", web=web, s=self.lists["first"].stdio)
        second = self.start(folder, "io", "second", s=self.lists["second"].stdio)
        cpu = self.start(folder, "cpu", "cpu", p=self.lists["cpu"].stdio | {"queue": "cpu"})
        self.workers = {"first": first, "second": second, "cpu": cpu}

    def start(self, folder, pool, name, **servers):
        (folder / name).mkdir()
        config = configured(folder / name, **servers)
        return self.fleet.start_worker(
            pool, "--log-level", "info", "--concurrency", "2", environment={"TOOLFLEET_MCP_CONFIG": str(config)}
        )

    async def announced(self, name):
        """The tools that one worker announces now."""
        node = f"{self.workers[name].name}@"
        said = [each for each in await self.orchestrator.catalog.workers() if each.worker.startswith(node)]
        return {spec.name: spec for each in said for spec in each.tools}

    async def until(self, name, condition):
        async with asyncio.timeout(60):
            while not condition(tools := await self.announced(name)):
                await asyncio.sleep(0.02)
            while not set(tools) <= set(await self.orchestrator.catalog.offered(*tools)):
                await asyncio.sleep(0.02)

    async def calls(self, *calls):
        return [message.content for message in await self.orchestrator.execute(asking(*calls))]

    def log(self, name):
        return self.workers[name].log_path.read_text()


@asynccontextmanager
async def web_server(fleet):
    """The server over HTTP, until it is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), str(fleet.lists["web"].path), str(fleet.port)
    )
    try:
        while process.returncode is None:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", fleet.port)
                writer.close()
                break
            await asyncio.sleep(0.02)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changing")
    with LocalFleet(["toolfleet.workers.packs.mcp"], pools={}) as running:
        async with Orchestrator(settings=running.settings) as orchestrator:
            fleet = Fleet(running, folder, orchestrator)
            async with web_server(fleet):
                fleet.begin(folder)
                await asyncio.to_thread(running.wait_until_ready)
            yield fleet


async def test_U15_a_tool_that_comes_is_callable_one_that_changes_is_another_and_one_that_goes_is_not_offered(fleet):
    lists = fleet.lists["first"]
    lists.say(late={"answer": "here"})
    await fleet.until("first", lambda tools: "s_late" in tools)
    assert await fleet.calls(("s_late", {}), ("s_answer", {})) == ["here", "one"]
    lists.say(late={"input": {"word": {"type": "string"}}, "answer": "changed"})
    await fleet.until("first", lambda tools: tools["s_late"].input_schema["properties"])
    assert await fleet.calls(("s_late", {"word": "x"})) == ["changed"]
    lists.say(late=None)
    await fleet.until("first", lambda tools: "s_late" not in tools)
    [told] = await fleet.calls(("s_late", {}))
    assert "s_late" in told
    assert "tools_followed" in fleet.log("first")


async def test_U15_child_processes_have_tools_that_came_after_they_were_forked(fleet):
    lists = fleet.lists["cpu"]
    assert await fleet.calls(("p_answer", {})) == ["one"]
    lists.say(late={"answer": "here"}, answer={"answer": "one", "input": {"word": {"type": "string"}}})
    await fleet.until("cpu", lambda tools: "p_late" in tools)
    assert await fleet.calls(*[("p_late", {})] * 4, ("p_answer", {"word": "x"})) == [*["here"] * 4, "one"]
    [refused] = await fleet.calls(("p_answer", {"word": 1}))
    assert "word" in refused
    lists.say(late=None)
    await fleet.until("cpu", lambda tools: "p_late" not in tools)
    lists.say(late={"answer": "again"})
    await fleet.until("cpu", lambda tools: "p_late" in tools)
    assert await fleet.calls(*[("p_late", {})] * 4) == ["again"] * 4


async def test_U15_a_call_under_way_ends_as_it_began_when_its_tool_goes(fleet, tmp_path):
    lists, begun, until = fleet.lists["first"], tmp_path / "begun", tmp_path / "until"
    lists.say(slow={"begun": str(begun), "until": str(until), "answer": "ended"})
    await fleet.until("first", lambda tools: "s_slow" in tools)
    calling = asyncio.create_task(fleet.calls(("s_slow", {})))
    async with asyncio.timeout(60):
        while not begun.exists():
            await asyncio.sleep(0.02)
    lists.say(slow=None)
    await fleet.until("first", lambda tools: "s_slow" not in tools)
    until.touch()
    assert await calling == ["ended"]


async def test_U15_while_workers_hear_of_changes_at_different_moments_each_call_is_answered(fleet):
    schemas = [{"word": {"type": "string"}}, {"word": {"type": "string"}, "other": {"type": "integer"}}]
    answers = []

    async def call():
        for _ in range(40):
            answers.extend(await fleet.calls(("s_answer", {"word": "x"}), ("s_steady", {})))

    for name in ("first", "second"):
        fleet.lists[name].say(steady={"answer": "still"})
        await fleet.until(name, lambda tools: "s_steady" in tools)
    calling = [asyncio.create_task(call()) for _ in range(4)]
    for number in range(4):
        for name in ("first", "second"):
            schema = schemas[number % 2]
            fleet.lists[name].say(answer={"input": schema, "answer": "one"})
            await fleet.until(name, lambda tools, schema=schema: tools["s_answer"].input_schema["properties"] == schema)
    await asyncio.gather(*calling)
    assert (answers.count("one"), answers.count("still")) == (160, 160)


async def test_U15_a_server_that_is_killed_is_found_again_with_the_tools_that_it_has_then(fleet):
    lists = fleet.lists["second"]
    killed = psutil.Process(int(await _pid_of(fleet, "second")))
    killed.kill()
    lists.path.write_text(json.dumps({"tools": {"reborn": {"answer": "new"}, "pid": {}}}))
    await fleet.until("second", lambda tools: {"s_reborn", "s_pid"} == set(tools))
    assert await fleet.calls(("s_reborn", {})) == ["new"]
    assert "task_failed" not in fleet.log("second")


async def test_U15_a_server_over_http_that_comes_back_with_other_tools_and_resources_is_found(fleet):
    async with web_server(fleet) as server:
        assert await fleet.calls(("web_answer", {})) == ["one"]
        server.kill()
        await server.wait()
    fleet.lists["web"].say(answer=None, reborn={"answer": "new"}, resources=["memo://1"])
    async with web_server(fleet):
        await fleet.until("first", lambda tools: {"web_reborn", "web_read_resource"} <= set(tools))
        assert "web_answer" not in await fleet.announced("first")
        assert await fleet.calls(("web_reborn", {}), ("web_read_resource", {"uri": "memo://1"})) == ["new", "text"]
        fleet.lists["web"].say(resources=[])
        await fleet.until("first", lambda tools: "web_read_resource" not in tools)
    assert "task_failed" not in fleet.log("first")


async def test_U15_a_name_that_others_serve_already_is_left_out_and_ends_no_worker(fleet, tmp_path):
    config = {"TOOLFLEET_MCP_CONFIG": str(configured(tmp_path, s=fleet.lists["second"].stdio))}
    environment = {**config, "PYTHONPATH": str(Path(__file__).parent)}
    other = fleet.fleet.start_worker("io", "--import", "taken_tools", environment=environment)
    await asyncio.to_thread(fleet.fleet.wait_until_ready)
    fleet.lists["first"].say(taken={"answer": "the server's"}, beside={"answer": "beside"})
    await fleet.until("first", lambda tools: "s_beside" in tools)
    assert "s_taken" not in await fleet.announced("first")
    assert await fleet.calls(("s_taken", {}), ("s_beside", {})) == ["a function's", "beside"]
    assert "live workers serve another tool under this name" in fleet.log("first")
    assert other.is_running


async def test_U15_a_server_that_tells_of_changes_without_end_is_listed_once_a_second_and_its_tools_are_bounded(
    tmp_path,
):
    entry = {"command": sys.executable, "args": [str(SERVER.with_name("flooding_mcp_server.py"))]}
    servers = followed(tmp_path, servers={"f": entry})
    assert set(servers.tools) == {"f_steady"}
    living, told, began_s = LivingTools(dict(servers.tools), sources=(servers,)), asyncio.Event(), time.monotonic()

    async def tell(written):
        living.take(0, written, living.make(0, written), lambda task: None)
        if "f_list_2" in written:
            told.set()

    following = asyncio.create_task(servers.follow(tell))
    async with asyncio.timeout(60):
        await told.wait()
    listed = int((await call(living.tools["f_steady"])).split()[1])
    elapsed_s = time.monotonic() - began_s
    following.cancel()
    assert listed <= elapsed_s + 2, "once by a first look, which is no second apart from the one before"
    assert 900 < len(living.tools) <= 1000
    assert not [name for name in living.tools if name == "read_result" or len(name) > 64]
    assert living.tasks.keys() == living.tools.keys() - {"f_steady"}


async def _pid_of(fleet, name):
    """The process of one worker's server: both workers serve its tool, so it is asked until that one answers."""
    own = {each.pid for each in psutil.Process(fleet.workers[name].pid).children(recursive=True)}
    while True:
        [pid] = await fleet.calls(("s_pid", {}))
        if int(pid) in own:
            return pid
