"""The connection that many tasks share: whatever becomes of it, each gets its reply or hears of none."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import socket
import ssl
import time
import warnings
from contextlib import AsyncExitStack
from pathlib import Path

import hiredis
import pytest
import redis
import trustme
from redis.asyncio import Connection, ConnectionPool
from redis.exceptions import InvalidResponse

from toolfleet import Orchestrator
from toolfleet.connections import connect, connect_async
from toolfleet.errors import StoreUnreachable
from toolfleet.multiplexing import SENT_AT_ONCE_BYTES, SILENT_S, MultiplexedConnection, ReplyStream, may_share, packed
from toolfleet.settings import new_secret, read_settings
from toolfleet.testing import FaultyServer, Proxy

PASSWORD = "not-a-real-password"
MEGABYTES = 100


@pytest.fixture(scope="module")
def server():
    with FaultyServer() as running:
        yield running


@pytest.fixture
def proxy(server):
    with Proxy(server.port_url) as between:
        yield between


@pytest.fixture
def silent_url():
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"redis://127.0.0.1:{silent.getsockname()[1]}/0"


@contextlib.asynccontextmanager
async def line_to(url, *, silent_s=SILENT_S, **options):
    pool = ConnectionPool.from_url(url, **options)
    line = MultiplexedConnection(pool.make_connection, silent_s=silent_s)
    try:
        yield line
    finally:
        await line.aclose()
        await pool.aclose()


# --- replies --------------------------------------------------------------------------------------------------------


def some_reply(chance, depth=0):
    """One reply of any kind, as a server of either protocol version writes it."""
    kind = chance.randrange(9 if depth < 3 else 6)
    text = bytes(chance.choice(b"\r\n$*:+-_a0 \xff") for _ in range(chance.choice([0, 1, 7, 300])))
    match kind:
        case 0:
            return b"$%d\r\n%s\r\n" % (len(text), text)
        case 1:
            return b":%d\r\n" % chance.randrange(-(10**6), 10**18)
        case 2:
            return b"+OK\r\n"
        case 3:
            return chance.choice([b"$-1\r\n", b"*-1\r\n", b"_\r\n"])
        case 4:
            return b"-WRONGTYPE of %d\r\n" % chance.randrange(1000)
        case 5:
            return chance.choice([b"#t\r\n", b",1.5\r\n", b"*0\r\n"])
        case 6:
            pairs = chance.randrange(3)
            return b"%%%d\r\n" % pairs + b"".join(b"+k%d\r\n" % n + some_reply(chance, depth + 1) for n in range(pairs))
        case _:
            members = chance.randrange(4)
            return b"*%d\r\n" % members + b"".join(some_reply(chance, depth + 1) for _ in range(members))


def comparable(reply):
    """Errors are equal to nothing but themselves."""
    if isinstance(reply, Exception):
        return str(reply)
    if isinstance(reply, list):
        return [comparable(each) for each in reply]
    return {name: comparable(each) for name, each in reply.items()} if isinstance(reply, dict) else reply


def read_whole(data):
    parser = hiredis.Reader(notEnoughData=parser_end)
    parser.feed(data)
    return list(iter(parser.gets, parser_end))


parser_end = object()


async def test_replies_are_the_same_wherever_their_bytes_are_cut(server):
    """A hundred thousand cuts, held to the parser that is given all at once."""
    chance = random.Random("cuts")
    connection = ConnectionPool.from_url(server.port_url).make_connection()
    await connection.connect()
    stream = ReplyStream(connection)
    cuts = 0
    while cuts < 100_000:
        counts = [chance.randrange(1, 4) for _ in range(chance.randrange(1, 30))]
        data = b"".join(some_reply(chance) for _ in range(sum(counts)))
        waiting = [asyncio.ensure_future(stream.request(b"", count)) for count in counts]
        await asyncio.sleep(0)
        at = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([1, 50, len(data)])))
        for start, end in zip([0, *at], [*at, len(data)], strict=True):
            stream.data_received(data[start:end])
        cuts += len(at)
        whole = iter(read_whole(data))
        assert [comparable(await each) for each in waiting] == [
            [comparable(next(whole)) for _ in range(count)] for count in counts
        ]
        assert next(whole, parser_end) is parser_end
    await stream.aclose()


async def test_a_reply_of_100_mb_comes_whole_and_others_behind_it(server):
    async with line_to(server.url) as line:
        blob = os.urandom(1 << 20) * MEGABYTES
        await line.request([("SET", "blob", blob)])
        got, small = await asyncio.gather(line.request([("GET", "blob")]), line.request([("ECHO", "small")]))
        assert got == [blob]
        assert small == [b"small"]
        await line.request([("DEL", "blob")])


async def test_every_task_gets_its_own_reply(server):
    async with line_to(server.url) as line:
        asked = [f"{n}" * (n % 50 + 1) for n in range(3000)]
        got = await asyncio.gather(*(line.request([("ECHO", text), ("ECHO", "end")]) for text in asked))
        assert got == [[text.encode(), b"end"] for text in asked]


async def reads_on(line):
    """How often the server has read from its clients, this question included."""
    [info] = await line.request([("INFO", "stats")])
    return int(info.partition(b"total_reads_processed:")[2].split()[0])


async def test_commands_of_one_tick_leave_in_one_write_behind_one_that_was_alone(server):
    async with line_to(server.port_url) as line:
        for writes in (2, 1):  # what comes in one tick is held back once some did
            before = await reads_on(line)
            await asyncio.gather(*(line.request([("ECHO", str(n))]) for n in range(100)))
            # One for each write, and one for the second question; a server that is late reads two writes as one.
            assert 1 < await reads_on(line) - before <= writes + 1


async def test_two_commands_of_each_tick_leave_together(server):
    async with line_to(server.port_url) as line:
        ticks, before = 50, await reads_on(line)
        for _ in range(ticks):
            await asyncio.gather(line.request([("ECHO", "1")]), line.request([("ECHO", "2")]))
        assert await reads_on(line) - before <= ticks + 2  # of the first tick two, and one for the second question


async def test_commands_stay_in_order_when_some_are_too_large_to_be_held_back(server):
    chance = random.Random(5)
    texts = [bytes([n % 256]) * chance.choice([1, 100, SENT_AT_ONCE_BYTES, 3 * SENT_AT_ONCE_BYTES]) for n in range(200)]
    async with line_to(server.port_url) as line:
        replies = await asyncio.gather(*(line.request([("ECHO", text)]) for text in texts))
    assert replies == [[text] for text in texts]


async def test_a_command_that_is_left_in_its_own_tick_is_carried_out(server):
    async with line_to(server.port_url) as line:
        await line.request([("DEL", "left")])
        leaving = asyncio.create_task(line.request([("INCR", "left")]))
        asking = asyncio.create_task(line.request([("GET", "left")]))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await asking == [b"1"]


async def test_errors_among_replies_are_replies_and_change_nothing_for_the_others(server):
    async with line_to(server.url) as line:
        before, wrong, after = await asyncio.gather(
            line.request([("ECHO", "a")]), line.request([("NO-SUCH",), ("ECHO", "b")]), line.request([("ECHO", "c")])
        )
        assert (before, after) == ([b"a"], [b"c"])
        assert isinstance(wrong[0], redis.ResponseError)
        assert wrong[1] == b"b"


async def test_who_leaves_takes_nobody_elses_reply(server):
    async with line_to(server.url) as line:
        await line.request([("PING",)])
        leaving = [asyncio.ensure_future(line.request([("ECHO", f"left {n}")])) for n in range(10)]
        staying = [asyncio.ensure_future(line.request([("ECHO", f"stays {n}")])) for n in range(10)]
        await asyncio.sleep(0)
        for each in leaving:
            each.cancel()
        assert await asyncio.gather(*staying) == [[f"stays {n}".encode()] for n in range(10)]


async def test_what_is_no_command_is_refused_before_it_is_sent(server):
    async with line_to(server.url) as line:
        with pytest.raises(redis.DataError):
            await line.request([("SET", "a", {"no": "text"})])
        assert await line.request([("ECHO", "on")]) == [b"on"]


def test_commands_are_packed_as_redis_py_packs_them():
    connection = Connection()
    for command in (("SET", "ключ", b"\xff\r\n", 5, 1.5), ("CLIENT ID",), ("SCRIPT LOAD", "return 1")):
        assert packed(command) == b"".join(connection.pack_command(*command))


@pytest.mark.parametrize(
    ("command", "shares"),
    [
        (("GET", "a"), True),
        (("xread", "COUNT", 1, "STREAMS", "a", "0"), True),
        (("XREAD", b"BLOCK", 5, b"STREAMS", "a", "0"), False),
        (("blpop", "a", 0), False),
        (("CLIENT KILL", "TYPE", "normal"), False),
        (("WATCH", "a"), False),
        (("SUBSCRIBE", "a"), False),
        (("WAIT", 1, 0), False),
    ],
)
def test_what_waits_or_changes_the_connection_does_not_share_it(command, shares):
    assert may_share(command) is shares


async def test_blocking_reads_hold_nobody_up(server):
    async with connect_async(read_settings(redis_url=server.url)) as client:
        waiting = asyncio.ensure_future(client.blpop(["nothing comes"], timeout=0))
        await client.set("a", "b")
        with connect(read_settings(redis_url=server.url)) as other:
            while not any(each["cmd"] == "blpop" for each in other.client_list()):
                await asyncio.sleep(0.01)
        assert await asyncio.wait_for(client.get("a"), 5) == b"b"
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_client_with_a_connection_of_its_own_can_be_left_while_it_waits(server):
    async with connect_async(read_settings(redis_url=server.url)) as client, client.client() as alone:
        waiting = asyncio.ensure_future(alone.xread({"nothing": "0"}, block=0))
        await client.ping()
        while not any(each["cmd"] == "xread" for each in await client.client_list()):
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await asyncio.wait_for(alone.get("a"), 5) == await client.get("a")


# --- transactions and pipelines ---------------------------------------------------------------------------------------


async def test_a_transaction_is_carried_out_as_a_whole_or_says_why_not(server):
    async with connect_async(read_settings(redis_url=server.url)) as client:
        pipeline = client.pipeline(transaction=True)
        pipeline.set("t", 1)
        pipeline.incr("t")
        assert await pipeline.execute() == [True, 2]
        pipeline.execute_command("NO-SUCH")
        pipeline.incr("t")
        with pytest.raises(redis.ResponseError, match="unknown command"):
            await pipeline.execute()
        assert await client.get("t") == b"2"


async def test_keys_are_watched_on_a_connection_of_their_own(server):
    async with connect_async(read_settings(redis_url=server.url)) as client, client.pipeline() as pipeline:
        await pipeline.watch("w")
        await client.set("w", "changed by another")
        pipeline.multi()
        pipeline.set("w", "mine")
        with pytest.raises(redis.WatchError):
            await pipeline.execute()
        assert await client.get("w") == b"changed by another"


async def test_errors_in_a_pipeline_are_raised_or_given_as_asked(server):
    async with connect_async(read_settings(redis_url=server.url)) as client:
        await client.set("text", "no number")
        pipeline = client.pipeline(transaction=False)
        pipeline.incr("text")
        pipeline.echo("after")
        refusal, echoed = await pipeline.execute(raise_on_error=False)
        assert isinstance(refusal, redis.ResponseError)
        assert echoed == b"after"
        pipeline.incr("text")
        with pytest.raises(redis.ResponseError, match="not an integer"):
            await pipeline.execute()


# --- connections that are lost ----------------------------------------------------------------------------------------


async def test_a_lost_connection_is_told_to_all_who_wait_and_the_next_command_makes_another(proxy):
    async with line_to(proxy.url) as line:
        await line.request([("SET", "n", 0)])
        proxy.hold()
        waiting = [asyncio.ensure_future(line.request([("INCR", "n")])) for _ in range(50)]
        await asyncio.sleep(0)
        proxy.cut()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        proxy.release()
        assert {type(each) for each in ended} == {redis.ConnectionError}
        assert await line.request([("ECHO", "again")]) == [b"again"]


async def test_whoever_asks_while_it_connects_shares_the_new_connection(proxy):
    async with line_to(proxy.url) as line:
        assert await asyncio.gather(*(line.request([("ECHO", "x")]) for _ in range(200))) == [[b"x"]] * 200
        assert proxy.connections == 1
        proxy.cut()
        with contextlib.suppress(redis.ConnectionError):
            await line.request([("PING",)])
        assert await asyncio.gather(*(line.request([("ECHO", "y")]) for _ in range(200))) == [[b"y"]] * 200
        assert proxy.connections == 1


async def test_connections_that_are_cut_at_random_mix_up_no_replies(proxy):
    async with line_to(proxy.url) as line:
        heard, lost = 0, 0

        async def ask(worker):
            nonlocal heard, lost
            for n in range(100):
                text = f"{worker}-{n}"
                try:
                    assert await line.request([("ECHO", text)]) == [text.encode()]
                    heard += 1
                except redis.ConnectionError:
                    lost += 1

        asking = asyncio.gather(*(ask(worker) for worker in range(30)))
        while not asking.done():
            await asyncio.sleep(0.01)
            await asyncio.to_thread(proxy.cut)
        await asking
        assert heard + lost == 3000
        assert heard > 0


@pytest.mark.parametrize("connecting_s", [0, 0.05])
async def test_a_connection_that_is_closed_while_it_connects_is_told_to_who_waits(silent_url, connecting_s):
    async with line_to(silent_url, socket_timeout=None, socket_connect_timeout=None) as line:
        waiting = asyncio.ensure_future(line.request([("PING",)]))
        await asyncio.sleep(connecting_s)
        await line.aclose()
        with pytest.raises(redis.ConnectionError):
            await waiting
        with pytest.raises(redis.ConnectionError):
            await line.request([("PING",)])


async def test_a_connection_that_is_lost_before_it_is_taken_over_is_told_and_can_be_closed(server, proxy):
    class CutOnceConnected(Connection):
        async def connect(self):
            await super().connect()
            await asyncio.to_thread(proxy.cut)
            while not self._reader.at_eof():
                await asyncio.sleep(0)

    pool = ConnectionPool.from_url(proxy.url, connection_class=CutOnceConnected)
    line = MultiplexedConnection(pool.make_connection)
    with pytest.raises(redis.ConnectionError):
        await line.request([("PING",)])
    await asyncio.wait_for(line.aclose(), 5)


async def test_a_connection_that_nobody_closes_is_closed_once_it_is_dropped(proxy):
    line = MultiplexedConnection(ConnectionPool.from_url(proxy.url).make_connection)
    assert await line.request([("ECHO", "x")]) == [b"x"]
    assert proxy.connections == 1

    def drop():
        nonlocal line
        del line
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed"):
        drop()
    async with asyncio.timeout(5):
        while proxy.connections:
            await asyncio.sleep(0.01)


async def test_a_server_that_falls_silent_is_left_for_another_connection(proxy):
    async with line_to(proxy.url, silent_s=0.3) as line:
        await line.request([("PING",)])
        proxy.hold()
        filling = [line.request([("SET", f"k{n}", bytes(1 << 20))]) for n in range(20)]
        ended = await asyncio.gather(*filling, line.request([("PING",)]), return_exceptions=True)
        assert {type(each) for each in ended} <= {redis.TimeoutError, redis.ConnectionError}
        with pytest.raises((redis.TimeoutError, redis.ConnectionError)):
            await line.request([("PING",)])
        proxy.release()
        assert await line.request([("ECHO", "again")]) == [b"again"]
        await line.request([("FLUSHDB",)])


async def test_a_server_that_says_nothing_when_it_is_greeted_is_left(silent_url):
    async with line_to(silent_url, silent_s=0.2, socket_timeout=None, socket_connect_timeout=None) as line:
        with pytest.raises(redis.TimeoutError, match=r"0\.2 s to connect"):
            await line.request([("PING",)])


async def test_an_orchestrator_is_left_in_seconds_while_redis_is_frozen():
    with FaultyServer() as own:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(
                Orchestrator(settings=read_settings(redis_url=own.url, secret=new_secret()))
            )
            with own.frozen():
                began_s = time.monotonic()
                await stack.aclose()
                assert time.monotonic() - began_s < SILENT_S


async def test_an_idle_connection_and_a_slow_reply_are_no_silence(server, proxy):
    async with line_to(proxy.url, silent_s=0.3) as line:
        await line.request([("PING",)])
        await asyncio.sleep(0.5)  # nothing is due
        assert proxy.connections == 1
        asked = asyncio.ensure_future(line.request([("ECHO", "x")] * 5))
        stream = line._replies
        await asyncio.sleep(0)
        assert (await asked) == [b"x"] * 5
        slow = asyncio.ensure_future(stream.request(b"", 1))
        await asyncio.sleep(0)
        for piece in (b"$5\r\n", b"s", b"l", b"o", b"w", b"!", b"\r\n"):
            stream.data_received(piece)
            await asyncio.sleep(0.15)
        assert await slow == [b"slow!"]
        assert await line.request([("ECHO", "y")]) == [b"y"]
        assert proxy.connections == 1


async def test_a_server_that_answers_what_nobody_asked_is_left(server):
    connection = ConnectionPool.from_url(server.port_url).make_connection()
    await connection.connect()
    stream = ReplyStream(connection)
    asked = asyncio.ensure_future(stream.request(packed(("ECHO", "one")), 1))
    assert await asked == [b"one"]
    stream.data_received(b"+one too many\r\n")
    assert not stream.is_open
    await stream.aclose()


async def test_a_server_of_another_kind_is_told_apart(server):
    connection = ConnectionPool.from_url(server.port_url).make_connection()
    await connection.connect()
    stream = ReplyStream(connection)
    waiting = asyncio.ensure_future(stream.request(b"", 1))
    await asyncio.sleep(0)
    stream.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(InvalidResponse):
        await waiting
    await stream.aclose()


async def test_commands_wait_while_the_server_does_not_take_them(proxy):
    async with line_to(proxy.url) as line:
        await line.request([("PING",)])
        proxy.hold()
        filling = [asyncio.ensure_future(line.request([("SET", f"k{n}", bytes(1 << 20))])) for n in range(20)]
        late = asyncio.ensure_future(line.request([("ECHO", "late")]))
        await asyncio.sleep(0.2)
        assert not late.done()
        proxy.release()
        assert {tuple(each) for each in await asyncio.gather(*filling)} == {(b"OK",)}
        assert await late == [b"late"]
        await line.request([("FLUSHDB",)])


# --- ways to a server ------------------------------------------------------------------------------------------------


async def test_a_password_and_a_database_are_given_first(server):
    with connect(read_settings(redis_url=server.url)) as admin:
        admin.acl_setuser("somebody", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all"])
        at = server.port_url.removeprefix("redis://").rpartition("/")[0]
        async with connect_async(read_settings(redis_url=f"redis://somebody:{PASSWORD}@{at}/3")) as client:
            await client.set("in", "three")
            assert await client.acl_whoami() in {b"somebody", "somebody"}
        assert admin.get("in") is None
        async with connect_async(read_settings(redis_url=f"redis://somebody:wrong@{at}/3")) as client:
            with pytest.raises(StoreUnreachable, match="refused us") as refused:
                await client.get("in")
        assert "wrong@" not in str(refused.value)


async def test_tls_is_spoken_where_the_url_says_so(server, tmp_path):
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    target = int(server.port_url.rpartition(":")[2].partition("/")[0])

    async def relay(reader, writer):
        inner, outer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, outer), pump(inner, writer))

    async def pump(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={Path(tmp_path, 'ca.pem')}"
        async with connect_async(read_settings(redis_url=url)) as client:
            assert await client.echo("x" * 3_000_000) == b"x" * 3_000_000
            assert await asyncio.gather(*(client.echo(str(n)) for n in range(200))) == [b"%d" % n for n in range(200)]


def test_one_whose_loop_was_closed_first_closes_its_socket(server):
    """Nobody can close it in order any more, so nothing is said of it."""

    async def left_open():
        client = connect_async(read_settings(redis_url=server.url))
        await client.ping()
        return client

    client = asyncio.run(left_open())
    transport = client._line._replies._transport
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del client
        gc.collect()
    assert (said, transport._sock) == ([], None)


@pytest.mark.parametrize("turns", range(5))
async def test_who_is_cancelled_while_leaving_leaves_no_connection_open(server, turns):
    readers = []

    async def ask(client):
        async with client.client() as reader:
            await reader.ping()
            readers.append(reader)

    async with connect_async(read_settings(redis_url=server.url)) as client:
        asking = asyncio.create_task(ask(client))
        while not readers:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert not readers[0]._line._replies.is_open
