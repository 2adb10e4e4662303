"""What comes in on a client's connection, byte for byte, and what its client sees of the answers."""

import asyncio
import contextlib
import json

import pytest

from toolfleet.orchestrator.doors.http.connection import MAX_HEAD_BYTES, MAX_PIPELINED
from toolfleet.orchestrator.doors.http.listening import listening_socket, server_for

HEAD_TIMEOUT_S = 0.5
HOST = b"host: a\r\n"
GET = b"GET /1 HTTP/1.1\r\n" + HOST + b"\r\n"
SLOW = b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n"
UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
POST = b"POST /2?q=%41 HTTP/1.1\r\n" + HOST + b"x-kept:  a b \t\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /3 HTTP/1.1\r\n"
    + HOST
    + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3;ext=1\r\nyou\r\n0\r\nhost: b\r\nx-late: 1\r\n\r\n"
)
OFFERS = b"POST /4 HTTP/1.1\r\n" + HOST + b"content-length: 5\r\n" + UPGRADE + b"\r\nhello"
SEEN = {
    POST: ["POST", "/2", "q=%41", {"content-length": "5", "host": "a", "x-kept": "a b"}, "hello"],
    CHUNKED: ["POST", "/3", "", {"host": "a", "transfer-encoding": "chunked"}, "helloyou"],
}


LEFT: list[bytes] = []


async def echo(scope, receive, send):
    """Answers what it was asked. `/slow` begins an answer and ends it later, `/early` answers without the body.

    `/stream` goes on until its client has left, which it notes.
    """
    if scope["type"] == "lifespan":
        for _ in range(2):
            await send({"type": (await receive())["type"] + ".complete"})
        return
    if scope["path"] == "/slow":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await asyncio.sleep(2 * HEAD_TIMEOUT_S)
        await send({"type": "http.response.body", "body": b"ended"})
        return
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        LEFT.append(scope["query_string"])
        return
    body, more = b"", scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    headers = {name.decode(): value.decode("latin1") for name, value in scope["headers"]}
    seen = json.dumps([scope["method"], scope["path"], scope["query_string"].decode(), headers, body.decode()]).encode()
    length = str(len(seen)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": seen})


@pytest.fixture
async def port():
    bound = listening_socket("127.0.0.1", 0)
    server = server_for(echo, header_timeout_s=HEAD_TIMEOUT_S)
    serving = asyncio.create_task(server._serve(sockets=[bound]))
    while not server.started:
        assert not serving.done(), serving
        await asyncio.sleep(0.005)
    yield bound.getsockname()[1]
    server.should_exit = True
    await serving
    bound.close()


@contextlib.asynccontextmanager
async def connected(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.close()


async def one_answer(reader):
    """The status and the body of the next answer; None once the server has ended the connection."""
    status = await reader.readline()
    if not status:
        return None
    headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    length = [int(header.removeprefix("content-length: ")) for header in headers if header.startswith("content-length")]
    if length:
        return int(status.split()[1]), (await reader.readexactly(length[0])).decode()
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return int(status.split()[1]), body.decode()


async def answers(port, *pieces):
    """What the server answers to these pieces, until it ends the connection."""
    async with connected(port) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.02)
        found = []
        while answer := await one_answer(reader):
            found.append(answer)
        return found


def paths(found):
    return [json.loads(body)[1] for _, body in found]


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", list(SEEN), ids=["with a length", "in chunks, with headers behind them"])
async def test_a_request_is_read_the_same_wherever_it_is_cut(port, request_):
    async with connected(port) as (reader, writer):
        for cut in range(1, len(request_)):
            writer.write(request_[:cut])
            await asyncio.sleep(0.002)
            writer.write(request_[cut:])
            status, body = await one_answer(reader)
            assert (status, json.loads(body)) == (200, SEEN[request_])


async def test_a_client_that_offers_http2_is_served_in_http1_with_its_body(port):
    """Java's does, with its first request of each connection; the parser takes the body for HTTP/2 then."""
    async with connected(port) as (reader, writer):
        for cut in range(1, len(OFFERS)):
            writer.write(OFFERS[:cut])
            await asyncio.sleep(0.002)
            writer.write(OFFERS[cut:] + GET)
            status, body = await one_answer(reader)
            method, path, _, headers, sent = json.loads(body)
            assert (status, method, path, sent) == (200, "POST", "/4", "hello")
            assert headers["host"] == "a"
            assert "upgrade" not in headers
            assert paths([await one_answer(reader)]) == ["/1"]


async def test_requests_sent_together_are_answered_in_order(port):
    async with connected(port) as (reader, writer):
        writer.write(SLOW + POST + GET + OFFERS)
        assert await one_answer(reader) == (200, "begunended")
        assert paths([await one_answer(reader) for _ in range(3)]) == ["/2", "/1", "/4"]


async def test_who_sends_more_than_may_wait_gets_answers_to_those(port):
    found = await answers(port, SLOW + (MAX_PIPELINED + 50) * GET)
    assert len(found) == 1 + MAX_PIPELINED


@pytest.mark.parametrize("behind", [GET, 5 * POST, CHUNKED.replace(b"5\r\nhello", b"xx\r\nhello")])
async def test_a_request_hears_that_its_client_has_left_though_it_has_sent_others(port, behind):
    async with connected(port) as (reader, writer):
        writer.write(b"GET /stream?%d HTTP/1.1\r\n" % len(behind) + HOST + b"\r\n" + behind)
        await reader.readuntil(b"begun")
    async with asyncio.timeout(10):
        while b"%d" % len(behind) not in LEFT:
            await asyncio.sleep(0.01)


async def test_a_request_that_we_do_not_read_yet_is_not_late(port):
    """The second one has the reading paused: of the third one half is read, and its time does not run."""
    async with connected(port) as (reader, writer):
        writer.write(SLOW + GET + POST[:30])
        await asyncio.sleep(1.5 * HEAD_TIMEOUT_S)
        writer.write(POST[30:])
        assert await one_answer(reader) == (200, "begunended")
        assert paths([await one_answer(reader) for _ in range(2)]) == ["/1", "/2"]


async def test_a_client_of_http_1_0_is_sent_no_chunks(port):
    async with connected(port) as (reader, writer):
        writer.write(b"GET /slow HTTP/1.0\r\n\r\n")
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        assert (b"transfer-encoding" in head, body) == (False, b"begunended")
    async with connected(port) as (reader, writer):
        writer.write(b"GET /1 HTTP/1.0\r\n\r\n")
        assert paths([await one_answer(reader)]) == ["/1"]


async def test_an_empty_line_between_requests_is_skipped(port):
    """Some clients end a body with one."""
    async with connected(port) as (reader, writer):
        writer.write(b"\r\n" + POST + b"\r\n" + GET)
        assert paths([await one_answer(reader) for _ in range(2)]) == ["/2", "/1"]


# --- what is no request -----------------------------------------------------------------------------------------------

TOO_LARGE = {
    "a header": b"GET / HTTP/1.1\r\n" + HOST + b"x: " + MAX_HEAD_BYTES * b"a" + b"\r\n\r\n",
    "a header without end": [b"GET / HTTP/1.1\r\n" + HOST + b"x: "] + 20 * [16 * 1024 * b"a"],
    "the name of a header": [b"GET / HTTP/1.1\r\n" + HOST] + 20 * [16 * 1024 * b"a"],
    "the address": [b"GET /"] + 20 * [16 * 1024 * b"a"],
    "many headers": b"GET / HTTP/1.1\r\n" + HOST + 20_000 * b"x: a\r\n" + b"\r\n",
    "empty lines": [20_000 * b"\r\n"] * 5,
    "headers behind the body": CHUNKED[: CHUNKED.index(b"x-late")] + 20_000 * b"x: a\r\n" + b"\r\n",
    "the extension of a chunk": [CHUNKED[: CHUNKED.index(b"ext")]] + 20 * [16 * 1024 * b"a"],
}


@pytest.mark.parametrize("sent", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_a_head_that_is_too_large_is_refused(port, sent):
    found = await answers(port, *([sent] if isinstance(sent, bytes) else sent))
    [(status, body)] = found
    assert status == 431
    assert json.loads(body)["detail"] == f"a head has at most {MAX_HEAD_BYTES} bytes"


async def test_a_body_in_many_small_chunks_is_no_large_head(port):
    head = CHUNKED[: CHUNKED.index(b"5\r\n")].replace(HOST, HOST + b"connection: close\r\n")
    async with connected(port) as (reader, writer):
        writer.write(head)
        for _ in range(4000):  # in segments of their own: each holds nothing but the size of a chunk, or its end
            for piece in (b"10\r\n", 16 * b"x", b"\r\n"):
                writer.write(piece)
                await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        status, body = await one_answer(reader)
    assert (status, len(json.loads(body)[4])) == (200, 4000 * 16)


async def test_a_head_in_small_pieces_may_be_as_large_as_at_once(port):
    head = b"GET /1 HTTP/1.1\r\n" + HOST + b"x: " + 60_000 * b"a" + b"\r\nconnection: close\r\n\r\n"
    async with connected(port) as (reader, writer):
        for start in range(0, len(head), 1400):
            writer.write(head[start : start + 1400])
            await asyncio.sleep(0.002)
        assert paths([await one_answer(reader)]) == ["/1"]


async def test_a_head_that_is_just_small_enough_is_read(port):
    head = b"GET /1 HTTP/1.1\r\n" + HOST + b"x: " + (MAX_HEAD_BYTES - 100) * b"a" + b"\r\nconnection: close\r\n\r\n"
    assert paths(await answers(port, head[:30_000], head[30_000:])) == ["/1"]


REFUSED = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 505),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", 400),
    "a proxy's": (b"CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n", 405),
    "two lengths": (POST.replace(b"content-length: 5", b"content-length: 5\r\ncontent-length: 6"), 400),
    "a length and chunks": (CHUNKED.replace(HOST, HOST + b"content-length: 5\r\n"), 400),
    "a length that is none": (POST.replace(b"content-length: 5", b"content-length: +5"), 400),
    "a chunk without size": (CHUNKED.replace(b"5\r\nhello", b"xx\r\nhello"), 400),
    "a body that is packed": (CHUNKED.replace(b": chunked", b": gzip, chunked"), 501),
    "chunks in HTTP/1.0": (CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0"), 400),
    "a zero byte": (GET.replace(HOST, HOST + b"x: a\x00b\r\n"), 400),
    "a folded header": (GET.replace(HOST, HOST + b"x: a\r\n b\r\n"), 400),
    "a space before the colon": (GET.replace(HOST, b"host : a\r\n"), 400),
}


@pytest.mark.parametrize(("sent", "status"), REFUSED.values(), ids=REFUSED)
async def test_what_is_no_request_is_refused_once_and_the_connection_ended(port, sent, status):
    assert [found[0] for found in await answers(port, sent, GET)] == [status]


@pytest.mark.parametrize(
    "behind",
    [
        b"\x00\x01 garbage\r\n\r\n",
        CHUNKED.replace(b"5\r\nhello", b"xx\r\nhello"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /unend",
    ],
    ids=["no request", "a request with a broken body", "a request without a host", "a head that does not end"],
)
async def test_what_is_no_request_does_not_cut_off_the_answers_to_those_before(port, behind):
    assert await answers(port, SLOW + behind) == [(200, "begunended")]
    found = await answers(port, SLOW + POST + behind)
    assert found[0] == (200, "begunended")
    assert paths(found[1:]) == ["/2"]


async def test_an_application_hears_nothing_more_of_a_body_that_breaks_off(port):
    assert [found[0] for found in await answers(port, CHUNKED[:80], b"xx\r\n" + GET)] == [400]


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n", b"GET /", GET[:-2]], ids=["nothing", "a line", "a word", "all but the end"]
)
async def test_a_head_that_does_not_come_in_time_ends_the_connection(port, sent):
    assert await answers(port, sent) == []


async def test_a_connection_rests_longer_between_requests(port):
    async with connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(GET)
            assert paths([await one_answer(reader)]) == ["/1"]
            await asyncio.sleep(1.5 * HEAD_TIMEOUT_S)
        writer.write(GET[:5])
        assert await one_answer(reader) is None


async def test_who_goes_on_sending_a_body_after_the_answer_is_cut_off(port):
    head = b"POST /early HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n"
    async with connected(port) as (reader, writer):
        writer.write(head)
        assert paths([await one_answer(reader)]) == ["/early"]
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"5\r\nhello\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)


async def test_a_body_that_ends_after_the_answer_leaves_the_connection_for_the_next_request(port):
    async with connected(port) as (reader, writer):
        writer.write(b"POST /early HTTP/1.1\r\n" + HOST + b"content-length: 5\r\n\r\n")
        assert paths([await one_answer(reader)]) == ["/early"]
        writer.write(b"hello")
        await asyncio.sleep(1.5 * HEAD_TIMEOUT_S)  # it rests, as after any request
        writer.write(GET)
        assert paths([await one_answer(reader)]) == ["/1"]
