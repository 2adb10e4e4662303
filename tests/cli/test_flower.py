"""What a real Flower shows of calls that failed or were cancelled, and of the queues."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest

from tests.cli.command import Terminal, read_until
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings

WAIT_S = 60
LOGIN = ("somebody", "some-password")

TOOLS = """
import asyncio, time
from toolfleet import tool

@tool(read_only=True)
async def break_down(what: str) -> None:
    "Fails."
    raise RuntimeError("no " + what)

@tool(read_only=True)
def break_down_in_process(what: str) -> None:
    "Fails in a process."
    raise RuntimeError("no " + what)

@tool(read_only=True)
async def sit() -> None:
    "Never ends."
    await asyncio.sleep(600)

@tool(read_only=True)
def sit_in_process() -> None:
    "Never ends, in a process."
    time.sleep(600)

@tool(read_only=True, timeout_s=0.2)
async def sit_too_long() -> None:
    "Takes longer than it may."
    await asyncio.sleep(600)

@tool(read_only=True)
async def add_one(to: int) -> int:
    "One more."
    return to + 1

@tool(read_only=True)
async def answer() -> int:
    "The answer."
    return 42
"""


class Watched:
    """A fleet, a terminal in it, and the Flower that watches it."""

    def __init__(self, terminal: Terminal, client: httpx.Client, settings: Settings) -> None:
        self.terminal = terminal
        self.settings = settings
        self._client = client

    def tasks(self, tool: str) -> list[dict[str, Any]]:
        seen: dict[str, dict[str, Any]] = self._client.get("/api/tasks").json()
        return [task for task in seen.values() if task["name"] == tool]

    def until(self, tool: str, state: str) -> dict[str, Any]:
        return until(lambda: next((task for task in self.tasks(tool) if task["state"] == state), None), tool)

    def queues(self) -> dict[str, dict[str, Any]]:
        rows = self._client.get("/api/queues/length").json()["active_queues"]
        return {row["name"]: row for row in rows}

    def page(self, path: str) -> httpx.Response:
        return self._client.get(path)


def until(look: Callable[[], Any], what: object) -> Any:
    give_up = time.monotonic() + WAIT_S
    while not (seen := look()):
        assert time.monotonic() < give_up, what
        time.sleep(0.05)
    return seen


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("flower")
    (folder / "mine.py").write_text(TOOLS)
    pools = {"io": 1, "cpu": 1}
    here = {"PYTHONPATH": str(folder)}
    with LocalFleet(["mine"], pools=pools, environment=here, worker_options=["--events"]) as fleet:
        login = {"TOOLFLEET_FLOWER_AUTH": ":".join(LOGIN)}
        terminal = Terminal(folder, fleet.settings.as_environment() | login)
        with terminal.start("flower", "--port", "0") as process:
            [*_, said] = read_until(process, "Flower:")
            with httpx.Client(base_url=said.split()[1], auth=LOGIN, timeout=WAIT_S) as client:
                until(lambda: client.get("/api/workers", params={"refresh": "1"}).json(), "workers")
                yield Watched(Terminal(folder, fleet.settings.as_environment()), client, fleet.settings)
            process.terminate()
            process.wait(WAIT_S)


@pytest.mark.parametrize("tool", ["break_down", "break_down_in_process"])
def test_a_tool_that_fails_is_a_failure_and_says_nothing_of_its_arguments(watched: Watched, tool: str) -> None:
    watched.terminal.run("run", f'call {tool} {{"what": "secret-word"}}')
    task = watched.until(tool, "FAILURE")
    assert task["exception"] == "Failed (the run has the reason)"
    assert "secret-word" not in json.dumps(task)
    assert [each["state"] for each in watched.tasks(tool)] == ["FAILURE"]


def test_a_tool_that_takes_too_long_is_a_failure(watched: Watched) -> None:
    watched.terminal.run("run", "call sit_too_long {}")
    watched.until("sit_too_long", "FAILURE")


def test_a_tool_that_answers_is_a_success(watched: Watched) -> None:
    watched.terminal.run("run", "call answer {}")
    assert watched.until("answer", "SUCCESS")["exception"] is None


def test_every_call_of_a_burst_is_shown_as_a_success(watched: Watched) -> None:
    asked = tuple(
        RequestedCall(id=str(number), name="add_one", arguments=f'{{"to": {number}}}') for number in range(2000)
    )

    async def made() -> Sequence[ToolMessage]:
        async with Orchestrator(settings=watched.settings) as orchestrator:
            return await orchestrator.execute(AssistantMessage(tool_calls=asked))

    assert [message.content for message in asyncio.run(made())] == [str(number + 1) for number in range(2000)]
    shown = until(lambda: len(tasks := watched.tasks("add_one")) == 2000 and tasks, "all of them")
    assert len({task["uuid"] for task in shown}) == 2000
    until(lambda: {task["state"] for task in watched.tasks("add_one")} == {"SUCCESS"}, "successes")


@pytest.mark.parametrize("tool", ["sit", "sit_in_process"])
def test_a_cancelled_call_is_revoked(watched: Watched, tool: str) -> None:
    with watched.terminal.start("run", f"call {tool} {{}}") as process:
        watched.until(tool, "STARTED")
        process.terminate()
        process.communicate(timeout=WAIT_S)
    watched.until(tool, "REVOKED")


def test_the_broker_tab_shows_what_workers_have_and_what_waits(watched: Watched) -> None:
    idle = watched.queues()
    assert {"io", "cpu"} <= set(idle)
    assert {row["messages"] for row in idle.values()} == {0}
    with watched.terminal.start("run", "call sit {}") as process:
        until(lambda: watched.queues()["io"]["messages_unacknowledged"] == 1, "in hand")
        row = watched.queues()["io"]
        page = watched.page("/broker")
        process.terminate()
        process.communicate(timeout=WAIT_S)
    assert (row["messages"], row["messages_ready"]) == (1, 0)
    assert page.status_code == 200
    assert 'id="io"' in page.text
    until(lambda: watched.queues()["io"]["messages"] == 0, "gone")
