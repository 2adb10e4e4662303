"""Who has a key, or none, and wants the API gone: its memory stays small, it answers others, and says why."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.http.fleet_of_doors import api_of
from tests.http.serving import MIB, Served, serving
from toolfleet.wire import Seal

HEALTH_WITHIN_S = 30.0
"""How long a question may stay without an answer: a server that is busy is slow here, one that is blocked is silent."""
MOST_MIB = 400
"""What any attack here may make the process grow by; without the limits they took 1,800 and 3,300."""

LARGE = "x" * (1024 * 1024)
SSE = {"accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def served(http_fleet, tmp_path_factory):
    bounds = {
        "TOOLFLEET_API_HEADER_TIMEOUT_S": "2",
        "TOOLFLEET_API_RUNNING_RUNS": "20",
        "TOOLFLEET_API_LISTENERS": "40",
    }
    # What is counted in Redis is counted for a namespace of its own, and no worker is needed.
    settings = http_fleet.settings.model_copy(update={"namespace": "exhaustion"})
    with serving(settings, tmp_path_factory.mktemp("serve"), **bounds) as running:
        yield running


@pytest.fixture
async def ask(served: Served):
    async with httpx.AsyncClient(
        base_url=served.url, timeout=30, headers=served.local_key, limits=httpx.Limits(max_connections=600)
    ) as client:
        yield client


@asynccontextmanager
async def attacked(served: Served):
    """Look at memory and health while the block attacks."""
    before, worst = served.memory_mib, 0.0
    is_over = asyncio.Event()

    async def watch():
        nonlocal worst
        async with httpx.AsyncClient(timeout=HEALTH_WITHIN_S) as client:
            while not is_over.is_set():
                began = time.monotonic()
                for path in ("/healthz", "/readyz"):
                    assert (await client.get(f"{served.url}{path}")).status_code == 200
                worst = max(worst, time.monotonic() - began)
                await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        is_over.set()
        await watching
    grown = served.memory_mib - before
    print(f"grown by {grown} MiB, health within {worst:.2f} s")
    assert grown < MOST_MIB, grown


@pytest.fixture
async def connect():
    """Connect, say something, and read only what is asked for; at the end each connection is cut."""
    writers = []

    async def connect_one(served: Served, text: str):
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # else the kernel takes what nobody reads
        bound.setblocking(False)
        await asyncio.get_running_loop().sock_connect(bound, served.address)
        reader, writer = await asyncio.open_connection(sock=bound, limit=4096)
        writers.append(writer)
        writer.write(text.encode())
        return reader, writer

    yield connect_one
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0)  # they are closed in the loop's next round


async def listen_until(status: int, ask: httpx.AsyncClient, run_id: str) -> httpx.Response:
    """Ask for the events of a run again and again, until this is the answer."""
    async with asyncio.timeout(60):
        while True:
            async with ask.stream("GET", f"/v1/runs/{run_id}/events") as listening:
                if listening.status_code == status:
                    if status != 200:
                        await listening.aread()
                    return listening
            await asyncio.sleep(0.2)


def problem(answer: httpx.Response) -> tuple[str, str]:
    assert answer.status_code == 429, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    said = answer.json()
    return said["limit"], said["of"]


async def test_sessions_of_mcp_are_opened_with_little_and_so_many(served, ask):
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n", "version": "1"}}

    async def open_one(name):
        params = {**about, "clientInfo": {"name": name, "version": "1"}}
        return await ask.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, headers=SSE
        )

    async with attacked(served):
        for _ in range(15):
            answers = await asyncio.gather(*(open_one(4 * LARGE[:-200]) for _ in range(10)))
            assert {answer.status_code for answer in answers} <= {413, 429}
        answers = [await open_one("small") for _ in range(120)]
    opened = [answer for answer in answers if answer.status_code == 200]
    assert 0 < len(opened) <= 100
    assert problem(answers[-1]) == ("api_sessions", "key")
    for answer in opened:
        await ask.delete("/mcp", headers={"mcp-session-id": answer.headers["mcp-session-id"]})
    assert (await open_one("again")).status_code == 200


async def test_listeners_that_do_not_read_hold_no_memory_and_are_dropped(served, ask, connect):
    asked = {"question": 3 * LARGE, "model": "nobody-has-this"}
    run_id = (await ask.post("/v1/runs", json=asked)).json()["run_id"]
    head = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.key}\r\n\r\n"
    async with attacked(served):
        clients = [await connect(served, head) for _ in range(200)]
        for reader, _ in clients:
            reader._transport.pause_reading()
        refused = await listen_until(429, ask, run_id)
        assert problem(refused) == ("api_listeners", "key")
        await listen_until(200, ask, run_id)  # they are dropped, and their places are free again
    await ask.delete(f"/v1/runs/{run_id}")


async def test_answers_that_nobody_takes_hold_no_memory(served, ask, connect):
    asked = {"question": 3 * LARGE, "model": "nobody-has-this"}
    run_id = (await ask.post("/v1/runs", json=asked)).json()["run_id"]
    head = f"GET /v1/runs/{run_id} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.key}\r\n\r\n"
    async with attacked(served):
        clients = [await connect(served, head) for _ in range(300)]
        for reader, _ in clients:
            reader._transport.pause_reading()
        await asyncio.sleep(5)
    await ask.delete(f"/v1/runs/{run_id}")


async def test_heads_that_never_end_and_clients_that_say_nothing_lose_their_connection(served, connect):
    async with attacked(served):
        clients = [await connect(served, "GET /healthz HTTP/1.1\r\nhost: x\r\n") for _ in range(200)]
        clients += [await connect(served, "") for _ in range(200)]

        async def drip(writer):
            while not writer.transport.is_closing():
                writer.write(b"x-more: 1\r\n")
                await asyncio.sleep(0.2)

        dripping = [asyncio.create_task(drip(writer)) for _, writer in clients[:200]]
        async with asyncio.timeout(15):
            ends = await asyncio.gather(*(reader.read() for reader, _ in clients), return_exceptions=True)
    assert all(end == b"" or isinstance(end, ConnectionError) for end in ends)
    for task in dripping:
        task.cancel()
    await asyncio.gather(*dripping, return_exceptions=True)


async def test_bodies_that_never_end_hold_no_more_than_their_key_may(served, ask, connect):
    head = (
        "POST /v1/runs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {served.key}\r\ncontent-length: 4000000\r\n\r\n"
    )
    async with attacked(served):
        for _ in range(200):
            await connect(served, head + LARGE)
        await asyncio.sleep(2)
        assert problem(await ask.post("/v1/runs", json={"question": 3 * LARGE, "model": "m"})) == (
            "api_body_bytes",
            "key",
        )


async def test_runs_that_do_not_end_and_bytes_that_are_stored_are_so_many(served, ask):
    asked = {"question": "?", "model": "nobody-has-this"}
    begun, answer = [], await ask.post("/v1/runs", json=asked)
    async with attacked(served):
        while answer.status_code == 202:
            begun.append(answer.json()["run_id"])
            assert len(begun) <= 20
            answer = await ask.post("/v1/runs", json=asked)
    assert problem(answer) == ("api_running_runs", "key")
    await ask.post(f"/v1/runs/{begun.pop()}/cancel", json={})
    await asyncio.sleep(1.1)  # a refusal is remembered for a second
    answer = await ask.post("/v1/runs", json=asked)
    assert answer.status_code == 202, answer.text
    for run_id in [*begun, answer.json()["run_id"]]:
        await ask.delete(f"/v1/runs/{run_id}")


async def test_who_is_refused_something_large_is_served_something_small_at_once(settings):
    async with api_of(settings.model_copy(update={"api_stored_bytes": MIB})) as api:
        large, small = ({"question": text, "model": "nobody-has-this"} for text in (2 * LARGE, "?"))
        answers = [(await api.client.post("/v1/runs", json=asked)) for asked in (large, small, large, small)]
    assert [answer.status_code for answer in answers] == [429, 202, 429, 202]
    assert problem(answers[2]) == ("api_stored_bytes", "key")


async def test_stored_bytes_are_free_again_when_their_runs_are_deleted(http_fleet, tmp_path):
    settings = http_fleet.settings.model_copy(update={"namespace": "stored-bytes"})
    with serving(settings, tmp_path, TOOLFLEET_API_STORED_BYTES=str(3 * MIB)) as served:
        async with httpx.AsyncClient(base_url=served.url, timeout=30, headers=served.local_key) as ask:
            asked = {"question": LARGE, "model": "nobody-has-this"}
            answers = [await ask.post("/v1/runs", json=asked) for _ in range(3)]
            assert [answer.status_code for answer in answers] == [202, 202, 429]
            assert problem(answers[-1]) == ("api_stored_bytes", "key")
            for answer in answers[:2]:
                await ask.delete(f"/v1/runs/{answer.json()['run_id']}")
            async with asyncio.timeout(40):
                while (await ask.post("/v1/runs", json=asked)).status_code == 429:
                    await asyncio.sleep(1)


async def test_a_flood_of_requests_is_refused_and_health_answers(http_fleet, tmp_path, connect):
    settings = http_fleet.settings.model_copy(update={"namespace": "flood"})
    with serving(settings, tmp_path, TOOLFLEET_API_REQUESTS_PER_S="20") as served:
        head = f"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.key}\r\n"
        flood = f"{head}\r\n" * 49 + f"{head}connection: close\r\n\r\n"
        async with attacked(served):
            clients = [await connect(served, flood) for _ in range(20)]
            answers = b"".join(await asyncio.gather(*(reader.read() for reader, _ in clients)))
        counted = [answers.count(b"HTTP/1.1 %d" % status) for status in (200, 429)]
        assert sum(counted) == 1000
        assert 40 <= counted[0] < 500
        async with httpx.AsyncClient(base_url=served.url, headers=served.local_key) as ask:
            answers = await asyncio.gather(*(ask.get("/v1/models") for _ in range(120)))
            refused = [answer for answer in answers if answer.status_code == 429]
        assert problem(refused[0]) == ("api_requests_per_s", "key")


async def test_a_body_to_an_open_path_is_not_taken(served, connect):
    for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n"
            reader, _ = await connect(served, head)
            status = await asyncio.wait_for(reader.readline(), 10)  # though nothing of the body was sent
            assert status.split()[1] == b"405", (method, path)


async def test_nobody_keeps_callbacks_out_with_what_they_only_announce(served, connect):
    seal, expires = Seal(served.settings), int(time.time()) + 600

    def address(call_id):
        return f"/v1/handles/{call_id}/complete?expires={expires}&signature={seal.sign_callback(call_id, expires)}"

    announced = "HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 4194304\r\n\r\n"
    clients = [await connect(served, f"POST /healthz {announced}") for _ in range(100)]
    clients += [await connect(served, f"POST {address('r.1.0')} {announced}") for _ in range(100)]
    async with httpx.AsyncClient(base_url=served.url, timeout=30) as other_system:
        for _ in range(20):  # meanwhile all of those have come in
            answer = await other_system.post(address("r.1.1"), json={"type": "returned", "content": "42"})
            assert (answer.status_code, answer.json()["type"]) == (404, "urn:toolfleet:problem:not-found"), answer.text
            await asyncio.sleep(0.05)
