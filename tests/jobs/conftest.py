"""Another system on a real HTTP server, directed by the test; workers that start jobs in it; what comes of that."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from post import Post

from toolfleet.local.fleet import LocalFleet

WAIT_S = 20
HERE = {"PYTHONPATH": str(Path(__file__).parent)}


@dataclass
class Question:
    """A poll that waits for its answer, or a wish to cancel."""

    method: str
    job: str
    headers: dict[str, str]
    reply: asyncio.Future[tuple[int, Any]] = field(repr=False)

    @property
    def pid(self) -> int:
        """Of the worker that asks."""
        return int(self.headers["pid"])

    def answer(self, kind: str = "returned", /, *, status: int = 200, **said: Any) -> None:
        if not self.reply.done():
            self.reply.set_result((status, {"type": kind} | said))


class OtherSystem:
    """Every question is put to the test, which sees it and decides the answer."""

    def __init__(self) -> None:
        self.url = ""
        self.jobs: list[str] = []
        self.starter = 0
        """The process that started the newest job."""
        self.questions: list[Question] = []
        self._asked: asyncio.Queue[Question] = asyncio.Queue()
        self._numbers = count(1)

    async def asked(self) -> Question:
        async with asyncio.timeout(WAIT_S):
            return await self._asked.get()

    async def create(self, request: web.Request) -> web.Response:
        self.jobs.append(f"{self.url}/jobs/{next(self._numbers)}")
        self.starter = int(request.headers.get("pid", 0))
        return web.Response(text=self.jobs[-1])

    async def ask(self, request: web.Request) -> web.Response:
        reply: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
        question = Question(request.method, f"{self.url}{request.path}", dict(request.headers), reply)
        self.questions.append(question)
        self._asked.put_nowait(question)
        status, said = await reply
        return web.json_response(said, status=status)


@pytest.fixture
async def system():
    system = OtherSystem()
    app = web.Application()
    app.router.add_post("/jobs", system.create)
    app.router.add_route("GET", "/jobs/{id}", system.ask)
    app.router.add_route("DELETE", "/jobs/{id}", system.ask)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    system.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield system
    for question in system.questions:
        question.answer()
    await runner.cleanup()


@pytest.fixture(scope="session")
def tools_here() -> dict[str, str]:
    """What lets a worker find job_tools."""
    return HERE


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["job_tools"],
        pools={"io": 2, "cpu": 1},
        environment=HERE,
        lease_s=3,
        heartbeat_s=0.5,
        poll_timeout_s=1.0,
        poll_lease_s=1.3,
        poll_tick_s=0.05,
        poll_retry_s=0.05,
        max_poll_errors=3,
    ) as running:
        yield running


class JobPost(Post):
    """Sends calls that submit jobs, and hears what workers say of them."""

    async def submitted(self, tool: str, *, queue: str = "io", deadline_in_s: float = 60, **arguments: Any):
        """A call whose job stands in Redis."""
        call = self.call(tool, arguments, deadline_unix_s=time.time() + deadline_in_s)
        self.send(call, queue=queue)
        async with asyncio.timeout(WAIT_S):
            while "s" not in await self.told(call.call_id):
                await self.client.xread({self.keys.replies(self.reply_to): "$"}, block=50)
        return call

    async def ended(self, call) -> Any:
        """The result that was told first."""
        call_id, result = await self.result()
        assert call_id == call.call_id
        return result

    async def told(self, call_id: str) -> str:
        """What the orchestrator was told of a call: s for submitted, p for progress, r for its result."""
        entries = await self.client.xrange(self.keys.replies(self.reply_to))
        return "".join(
            name.decode()
            for _, said in entries
            if said.get(b"c", b"").decode() == call_id
            for name in said
            if name != b"c"
        )

    async def released(self, call) -> None:
        """Wait until nobody is asking about a call's job."""
        async with asyncio.timeout(WAIT_S):
            while await self.client.hexists(self.keys.job(call.call_id), "until"):
                await self.client.xread({self.keys.replies(self.reply_to): "$"}, block=20)

    async def left_of(self, call) -> dict[str, Any]:
        """What Redis still knows of a call's job."""
        job = await self.client.hgetall(self.keys.job(call.call_id))
        due = await self.client.zscore(self.keys.jobs(call.tool), call.call_id)
        return {"job": job, "due": due}


@pytest.fixture
async def post(fleet):
    async with JobPost(fleet.settings) as post:
        yield post
