"""What the HTTP door costs: `python -m benchmarks.http_door`.

One real worker, one real uvicorn in a process of its own; every figure beside a bare one of the same run, and the best
of several repeats, since the machine is shared.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import aiohttp
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.about import about
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator import Orchestrator

TOOL, ARGUMENTS = "square_root", {"x": 4}
CALL = AssistantMessage(tool_calls=(RequestedCall(id="1", name=TOOL, arguments=json.dumps(ARGUMENTS)),))
REPEATS = 5
CALLS = 200
LISTENERS = 1000
REQUESTS = 2000
AT_ONCE = 32

BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
async def bare(request): return PlainTextResponse("ok")
uvicorn.run(Starlette(routes=[Route("/healthz", bare)]), port=int(sys.argv[1]), log_level="error", access_log=False)
"""


@dataclass(frozen=True)
class Finding:
    """Milliseconds at p50, and requests per second: the best of the repeats."""

    execute_ms: float
    http_ms: float
    overhead_ms: float
    listeners: int
    events_expected: int
    events_delivered: int
    delivery_s: float
    requests_per_s: float
    bare_requests_per_s: float
    ratio: float


@contextmanager
def process(*command: str, port: int, **environment: str) -> Iterator[str]:
    """A server, until the block is left."""
    with subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL) as running:
        try:
            give_up = time.monotonic() + 60
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert running.poll() is None, "the server ended"
                assert time.monotonic() < give_up, "the server did not start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def p50_ms(work: Callable[[], Awaitable[Any]]) -> float:
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


async def overhead(settings: Any, session: aiohttp.ClientSession, url: str) -> tuple[float, float]:
    async def over_http() -> None:
        async with session.post(f"{url}/v1/tools/{TOOL}/call", json={"arguments": ARGUMENTS}) as answer:
            assert (await answer.json())["content"] == "2.0"

    async with Orchestrator(settings=settings, adopts=False) as orchestrator:
        pairs = [(await p50_ms(lambda: orchestrator.execute(CALL)), await p50_ms(over_http)) for _ in range(REPEATS)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


async def rate(session: aiohttp.ClientSession, url: str) -> float:
    left = iter(range(REQUESTS))

    async def asks() -> None:
        for _ in left:
            async with session.get(f"{url}/healthz") as answer:
                await answer.read()

    began = time.perf_counter()
    await asyncio.gather(*(asks() for _ in range(AT_ONCE)))
    return REQUESTS / (time.perf_counter() - began)


async def listeners(session: aiohttp.ClientSession, url: str) -> tuple[int, int, float]:
    """Events expected and delivered, and the seconds from the first listener's coming until all have all of it."""
    question = " then ".join(f'call {TOOL} {{"x": {n}}}' for n in range(20))
    async with session.post(f"{url}/v1/runs", json={"question": question}) as answer:
        run_id = (await answer.json())["run_id"]

    async def hears() -> int:
        async with session.get(f"{url}/v1/runs/{run_id}/events") as stream:
            return (await stream.read()).count(b"\nevent: ")

    began = time.perf_counter()
    heard = await asyncio.gather(*(hears() for _ in range(LISTENERS)))
    took_s = time.perf_counter() - began
    return LISTENERS * await hears(), sum(heard), took_s


async def measured(settings: Any, url: str, bare_url: str) -> Finding:
    timeout, connector = aiohttp.ClientTimeout(total=120), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        execute_ms, http_ms = await overhead(settings, session, url)
        pairs = [(await rate(session, url), await rate(session, bare_url)) for _ in range(REPEATS)]
        expected, delivered, took_s = await listeners(session, url)
    ours, bare = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    return Finding(
        execute_ms=execute_ms,
        http_ms=http_ms,
        overhead_ms=http_ms - execute_ms,
        listeners=LISTENERS,
        events_expected=expected,
        events_delivered=delivered,
        delivery_s=took_s,
        requests_per_s=ours,
        bare_requests_per_s=bare,
        ratio=ours / bare,
    )


def main(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Measure the door."""
    port, bare_port = free_port(), free_port()
    with LocalFleet(["toolfleet.workers.packs.arithmetic"], pools={"io": 1}) as fleet:
        serve = [sys.executable, "-m", "toolfleet.orchestrator.doors.cli", "serve", "--insecure", "--port", str(port)]
        # What is measured is the door, not how much of it one caller may have.
        limits = {
            "api_requests_per_s": 1e6,
            "api_requests": 10_000,
            "api_listeners": 10_000,
            "api_running_runs": 10_000,
        }
        wide = fleet.settings.model_copy(update=limits)
        with (
            process(*serve, port=port, **wide.as_environment()) as url,
            process(sys.executable, "-c", BARE, str(bare_port), port=bare_port) as bare_url,
        ):
            finding = asyncio.run(measured(fleet.settings, url, bare_url))
    if as_json:
        print(json.dumps({"about": about(quick=False), **asdict(finding)}, default=str))
        return
    table = Table("figure", "value", title="The HTTP door")
    for name, value in asdict(finding).items():
        table.add_row(name, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
