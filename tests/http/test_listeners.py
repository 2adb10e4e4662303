"""Many listeners, and those that do not behave."""

import asyncio
import contextlib
import json
import socket

import pytest

from tests.http.fleet_of_doors import api_of
from toolfleet.orchestrator.doors.http.listening import listening_socket
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.doors.http.tail import Behind, EventListener, Frame

CLIENTS = 1000


async def listening(api, run_id):
    """A bare connection that listens to a run, with little of a client's own cost."""
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    key = api.client.headers["authorization"]
    writer.write(f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nhost: {host}\r\nauthorization: {key}\r\n\r\n".encode())
    return reader, writer


async def test_a_thousand_idle_listeners_cost_no_more_than_their_connections_and_all_hear(http_fleet, model):
    settings = http_fleet.settings.model_copy(update={"api_listeners": CLIENTS, "api_requests": 2 * CLIENTS})
    async with api_of(settings, model, options=ApiOptions(ping_s=1)) as api:
        run_id = await api.begin('call wait {"seconds": 90}')
        clients = await asyncio.gather(*(listening(api, run_id) for _ in range(CLIENTS)))
        await asyncio.gather(*(reader.readuntil(b"event: calls_sent") for reader, _ in clients))
        async with asyncio.timeout(20):
            while api.door.tail.listeners < CLIENTS:
                await asyncio.sleep(0.02)
        assert api.door.tail.runs == 1
        assert (await api.client.get("/v1/tools")).status_code == 200
        await api.client.post(f"/v1/runs/{run_id}/cancel")
        async with asyncio.timeout(20):
            ends = await asyncio.gather(*(reader.readuntil(b"event: run_stopped") for reader, _ in clients))
            assert len(ends) == CLIENTS
            while api.door.streams or api.door.tail.runs:
                await asyncio.sleep(0.02)
        for _, writer in clients:
            writer.close()


async def test_listeners_of_one_run_have_its_store_read_once_for_all_of_them(http_fleet):
    """Its first event is large: read for each of them it held up every other command of the process, /readyz's too."""
    listeners, size = 30, 1024 * 1024
    async with api_of(http_fleet.settings) as api:
        run_id = await api.begin("x" * size, model="nobody-has-this")
        before = (await api.door.client.info("stats"))["total_net_output_bytes"]
        clients = await asyncio.gather(*(listening(api, run_id) for _ in range(listeners)))
        for reader, writer in clients:
            reader._limit = 2 * size
            await reader.readuntil(b"event: run_started")
            assert len(await reader.readuntil(b"\n\n")) > size
            writer.close()
        after = (await api.door.client.info("stats"))["total_net_output_bytes"]
    assert after - before < listeners * size / 3


async def test_a_listener_that_reads_nothing_is_dropped_and_loses_nothing_by_it(http_fleet, model):
    options = ApiOptions(send_timeout_s=0.3)
    async with api_of(http_fleet.settings, model, options=options, send_buffer_bytes=4096) as api:
        words = " and ".join('call wordy {"characters": 60000}' for _ in range(3))
        run_id = await api.begin(words)
        await api.door.orchestrator.wait(run_id)
        reader, writer = await listening(api, run_id)
        reader._transport.pause_reading()
        async with asyncio.timeout(20):
            while not api.door.streams:
                await asyncio.sleep(0.001)
            while api.door.streams:
                await asyncio.sleep(0.02)
        reader._transport.resume_reading()
        heard = b""
        with contextlib.suppress(ConnectionError):
            heard = await reader.read(-1)
        assert not heard.endswith(b"0\r\n\r\n")
        writer.close()
        async with api_of(http_fleet.settings) as other:
            assert (await other.events(run_id))[-1][1] == "model_replied"


async def test_no_ping_stands_within_an_event_that_a_slow_listener_takes_in_pieces(http_fleet, model):
    options = ApiOptions(ping_s=0.02)
    async with api_of(http_fleet.settings, model, options=options, send_buffer_bytes=4096) as api:
        run_id = await api.begin(" and ".join('call wordy {"characters": 60000}' for _ in range(4)))
        await api.door.orchestrator.wait(run_id)
        reader, writer = await listening(api, run_id)
        reader._transport.pause_reading()
        await asyncio.sleep(0.5)  # pings are due all the time, and an event is half sent
        reader._transport.resume_reading()
        reader._limit = 16 * 1024 * 1024
        async with asyncio.timeout(20):
            await reader.readuntil(b"\r\n\r\n")
            heard = await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
    events = [line.removeprefix(b"data: ") for line in unchunked(heard).split(b"\n") if line.startswith(b"data: ")]
    assert max(map(len, events)) > 2 * 64 * 1024
    assert [json.loads(event)["type"] for event in events][-1] == "model_replied"


def unchunked(body):
    """What a body says that came in chunks."""
    said = b""
    while size := int(body.partition(b"\r\n")[0], 16):
        body = body.partition(b"\r\n")[2]
        said, body = said + body[:size], body[size + 2 :]
    return said


async def test_a_listener_too_far_behind_is_told_so(api):
    listener = EventListener(2)
    for n in range(3):
        listener.hear(Frame(f"1-{n}", b""))
    with pytest.raises(Behind):
        await listener.next()


async def test_streams_end_when_the_server_stops(http_fleet, model):
    async with api_of(http_fleet.settings, model) as api:
        run_id = await api.begin("?", model="nobody-has-this")
        reader, writer = await listening(api, run_id)
        await reader.readuntil(b"event: run_started")
        api.server.should_exit = True
        async with asyncio.timeout(3):
            rest = await reader.read(-1)
        assert rest.endswith(b"0\r\n\r\n")
        writer.close()


async def test_a_connection_that_is_kept_sends_an_answer_at_once():
    """Else its body follows its head when the client has acknowledged that, which it does 40 ms later."""
    bound, connected = listening_socket("127.0.0.1", 0), asyncio.get_running_loop().create_future()

    async def take(_, writer):
        connected.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(take, sock=bound):
        _, writer = await asyncio.open_connection(*bound.getsockname())
        assert await connected
        writer.close()
        await writer.wait_closed()


async def test_who_has_no_answer_when_the_server_gives_up_is_told_so(http_fleet):
    async with api_of(http_fleet.settings) as api:
        api.server.config.timeout_graceful_shutdown = 1
        waiting = asyncio.create_task(
            api.client.post("/v1/tools/wait/call", json={"arguments": {"seconds": 60}, "patience_s": 50})
        )
        async with asyncio.timeout(20):
            while not api.server.server_state.tasks:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            api.server.should_exit = True
            answer = await waiting
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:toolfleet:problem:stopping")
    assert answer.headers["retry-after"] == "2"
    assert "x-request-id" in answer.headers
