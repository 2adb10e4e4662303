"""Requests of other protocols that are sent again to the next server, and hosted loops whose processes are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
from a2a.client.errors import A2AClientError
from a2a.utils.errors import A2AError

from tests.faults.arena import ROOT, Arena, fault, until
from tests.faults.judge import RETURNED, Ask, entries_of
from tests.faults.load import MIXED, UNFINISHED_AFTER_S
from tests.faults.of_orchestrators import note_run
from tests.faults.steered import STAND
from tests.hosted.hosted_api import ENVIRONMENT, KEY, NOW, HostedApi
from tests.http.a2a_agents import Agent, said
from tests.http.agui_front_end import Sent, asked, of_kind, sent
from tests.http.serving import Served, serving
from toolfleet.orchestrator.models import REHEARSAL_MODEL, RehearsalServer


def program(turns: Sequence[Sequence[Ask]]) -> str:
    """What the rehearsal model is to call."""
    return " then ".join(" and ".join(f"call {ask.tool} {ask.arguments}" for ask in turn) for turn in turns)


def sent_now(asks: list[Ask]) -> list[Ask]:
    """The same calls, which are asked for right now."""
    for ask in asks:
        ask.sent_s = time.monotonic()
    return asks


async def begun(arena: Arena, asks: Sequence[Ask]) -> None:
    """Until one of these calls has had its effect: then the server is in the midst of them."""
    await until(lambda: any(ask.nonce in entries_of(arena.ledger) for ask in asks))


# --- AG-UI and A2A ---------------------------------------------------------------------------------------------------


class Doors:
    """The clients of one round: each has a request of its own, which it may send again."""

    def __init__(self, arena: Arena, number: int) -> None:
        self.asks = [[sent_now(arena.load.mixture(2, 0.4, MIXED)) for _ in range(2)] for _ in range(2)]
        self._thread = f"thread-{arena.load.rng.getrandbits(32):08x}-{number}"
        self._message = said(program(self.asks[1]), message_id=f"message-{self._thread}")
        self.run_ids: list[set[str]] = [set(), set()]

    def of(self, door: int) -> list[Ask]:
        return [ask for turn in self.asks[door] for ask in turn]

    async def agui(self, served: Served) -> list[Sent]:
        """The events of the request over AG-UI, as far as they come."""
        async with httpx.AsyncClient(base_url=served.url, headers=served.local_key) as client:
            body = asked(program(self.asks[0]), thread=self._thread)
            [first] = await sent(client, body, most=1)
            self.run_ids[0].add(first.event["metadata"]["toolfleet"]["runId"])
            return await sent(client, body)

    async def a2a(self, served: Served) -> None:
        """The message over A2A, followed to its end."""
        async with Agent.at(served.url, served.key) as agent:
            async for event in agent.streaming(self._message):
                if event.HasField("task"):
                    self.run_ids[1].add(event.task.id)


@fault(
    "the API server is killed under requests over AG-UI and A2A, which are sent again to another one",
    short=2,
    long=10,
    stand=STAND,
)
async def doors_server_killed(arena: Arena, times: int) -> None:
    folder = Path(tempfile.mkdtemp(dir=arena.ledger.parent))
    async with RehearsalServer() as model:
        variables = {"OPENAI_BASE_URL": model.base_url, "OPENAI_MODEL": REHEARSAL_MODEL, "OPENAI_API_KEY": "rehearsal"}
        for number in range(times):
            doors = Doors(arena, number)
            async with _serving(arena, folder, variables) as first, asyncio.TaskGroup() as group:
                group.create_task(_as_far_as_it_comes(doors.agui(first)))
                group.create_task(_as_far_as_it_comes(doors.a2a(first)))
                await begun(arena, [*doors.of(0), *doors.of(1)])
                await until(lambda doors=doors: all(doors.run_ids))
                first.process.kill()
                arena.injected()
            async with _serving(arena, folder, variables) as second, asyncio.timeout(UNFINISHED_AFTER_S):
                events, _ = await asyncio.gather(doors.agui(second), doors.a2a(second))
                await _judge(arena, doors, events)


@asynccontextmanager
async def _serving(arena: Arena, folder: Path, variables: dict[str, str]) -> AsyncIterator[Served]:
    served = serving(arena.settings, folder, **variables)
    try:
        yield await asyncio.to_thread(served.__enter__)
    finally:
        await asyncio.to_thread(served.__exit__, None, None, None)


async def _as_far_as_it_comes(request) -> None:
    with suppress(httpx.HTTPError, A2AClientError, A2AError, ValueError):
        await request


async def _judge(arena: Arena, doors: Doors, events: list[Sent]) -> None:
    for door, run_ids in enumerate(doors.run_ids):
        asks = doors.of(door)
        arena.load.asks += asks
        arena.expect(len(run_ids) == 1, f"a request that was sent again is {len(run_ids)} runs")
        for run_id in run_ids:
            note_run(await arena.load.orchestrator.wait(run_id), asks)
    results = [str(each["content"]) for each in of_kind(events, "TOOL_CALL_RESULT")]
    arena.expect(sorted(results) == sorted(ask.nonce for ask in doors.of(0)), f"the front end was told {results}")


# --- hosted loops ----------------------------------------------------------------------------------------------------

HELD_S = 2.0
"""How long the vendor waits for a heartbeat."""


@fault(
    "a process that serves a hosted agent loop is killed with tool uses under way, and another one claims its sessions",
    short=3,
    long=15,
    stand=STAND,
)
async def hosted_loop_killed(arena: Arena, times: int) -> None:
    async with HostedApi(ttl_s=HELD_S).up() as api, _environments(arena, api) as processes:
        await processes.start()
        for number in range(times):
            sessions = [f"session-{number}-{one}" for one in range(3)]
            asks = {session: sent_now(arena.load.mixture(4, 0.8, MIXED)) for session in sessions}
            for session in sessions:
                api.begin(session)
                for ask in asks[session]:
                    api.use(session, ask.nonce, ask.tool, **json.loads(ask.arguments))
            every = [ask for session in sessions for ask in asks[session]]
            await begun(arena, every)
            await asyncio.sleep(0.6 * arena.rng.random())
            await processes.start()
            await processes.kill_oldest()
            arena.injected()
            posted = {ask.nonce for ask in every}
            with suppress(TimeoutError):  # those that are missing are unfinished
                async with asyncio.timeout(UNFINISHED_AFTER_S):
                    while not posted <= {each["custom_tool_use_id"] for each in api.posted}:
                        await asyncio.sleep(0.05)
            _note_posted(arena, api, every)
            for session in sessions:  # a process has so many at a time
                api.sessions[session].say({"type": "session.deleted", "id": f"end-{session}", "processed_at": NOW})
        await asyncio.sleep(HELD_S)  # whoever posts twice does so by then
        for ask in arena.load.asks:
            ask.answers = len(api.results(ask.nonce))


def _note_posted(arena: Arena, api: HostedApi, asks: list[Ask]) -> None:
    arena.load.asks += asks
    for ask in asks:
        if results := api.results(ask.nonce):
            content = results[0]["content"][0]["text"]
            is_error = results[0]["is_error"]
            ask.outcome, ask.content, ask.ended_s = "failed" if is_error else RETURNED, content, time.monotonic()


class Environments:
    """Processes that serve the environment, oldest first."""

    def __init__(self, arena: Arena, api: HostedApi) -> None:
        self._variables = {**arena.settings.as_environment(), "ANTHROPIC_BASE_URL": api.url}
        self.running: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolfleet.orchestrator.doors.cli", "environment", ENVIRONMENT),
            cwd=ROOT,
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, **self._variables, "ANTHROPIC_ENVIRONMENT_KEY": KEY},
        )
        self.running.append(process)

    async def kill_oldest(self) -> None:
        process = self.running.pop(0)
        process.send_signal(signal.SIGKILL)
        await process.wait()


@asynccontextmanager
async def _environments(arena: Arena, api: HostedApi) -> AsyncIterator[Environments]:
    processes = Environments(arena, api)
    try:
        yield processes
    finally:
        while processes.running:
            await processes.kill_oldest()
