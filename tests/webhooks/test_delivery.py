"""Webhooks at a real receiver: owed with the end of a run, signed, sent until they are taken, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest
import redis.asyncio
from conversations import WrittenModel
from standardwebhooks import Webhook, WebhookVerificationError

from tests.webhooks.receiver import WAIT_S, Receiver, receiving
from toolfleet.errors import Refused
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import WebhookNotFound
from toolfleet.orchestrator.models import RehearsalServer
from toolfleet.orchestrator.webhooks.outbox import AT_ONCE_EACH, Outbox
from toolfleet.orchestrator.webhooks.owing import message_for
from toolfleet.orchestrator.webhooks.records import Notice, WebhookEvent
from toolfleet.orchestrator.webhooks.schedule import JITTER, asked_wait_s, wait_s
from toolfleet.settings import Settings, new_secret
from toolfleet.testing import Point, kill_at
from toolfleet.wire import Seal

LONE = Path(__file__).parents[1] / "fleet" / "lone_orchestrator.py"


@asynccontextmanager
async def answering(settings: Settings) -> AsyncIterator[Orchestrator]:
    async with Orchestrator(WrittenModel(), settings=settings) as orchestrator:
        yield orchestrator


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


# --- U11 ------------------------------------------------------------------------------------------------------------


async def test_U11_a_receiver_that_is_down_gets_each_message_signed_and_under_one_id_once_it_is_back(
    settings, endpoints, outbox, client
):
    async with receiving() as receiver:
        endpoint, secret = await endpoints.add(receiver.url)
    async with answering(settings) as orchestrator:
        run = await orchestrator.run("?")
        # Down: nobody listens.
        await until(lambda: tries_of(outbox, endpoint.endpoint_id, 3))
        receiver.status = 503
        async with receiving(receiver):
            first, second = (await receiver.wait_for(2))[:2]
            receiver.status = 204
            await until(lambda: nothing_owed(client, settings))
    tried = [*reversed(await outbox.attempts(endpoint.endpoint_id, 100))]
    assert [each.number for each in tried] == list(range(1, len(tried) + 1))
    assert [each.status for each in tried[:3]] == [None] * 3
    assert [each.is_delivered for each in tried] == [False] * (len(tried) - 1) + [True]
    assert first.id == second.id == receiver.got[-1].id
    said = receiver.got[-1].verified(secret)
    assert said["type"] == "run.completed"
    assert said["data"] == {"run_id": run.run_id, "state": "done"}


async def test_U11_no_message_is_lost_where_an_orchestrator_is_killed_between_the_end_of_its_run_and_sending(
    settings, endpoints, receiver, client
):
    _, secret = await endpoints.add(receiver.url)
    async with RehearsalServer() as model, lone(settings, model, kill_at(Point.REPLY_STORED)) as process:
        process.stdin.write(json.dumps({"question": "say hello", "run_id": "killed"}).encode() + b"\n")
        assert await asyncio.wait_for(process.wait(), WAIT_S) == -signal.SIGKILL
    assert receiver.got == []
    assert await client.zcard(settings.keys.webhooks_due()) == 1
    async with Orchestrator(settings=settings):
        [request] = await receiver.wait_for(1)
        assert request.verified(secret)["data"] == {"run_id": "killed", "state": "done"}
        await until(lambda: nothing_owed(client, settings))


async def tries_of(outbox: Outbox, endpoint_id: str, count: int) -> bool:
    return len(await outbox.attempts(endpoint_id, 100)) >= count


async def nothing_owed(client: redis.asyncio.Redis, settings: Settings) -> bool:
    return not await client.zcard(settings.keys.webhooks_due())


@asynccontextmanager
async def lone(settings: Settings, model: RehearsalServer, fate: dict[str, str]):
    """An orchestrator in a process of its own that dies at a point."""
    program = f"import toolfleet.testing.instruments, runpy; runpy.run_path({str(LONE)!r}, run_name='__main__')"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, model.base_url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **settings.as_environment(), **fate},
    )
    try:
        async with asyncio.timeout(WAIT_S):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()


# --- at least once, and not at the same time -------------------------------------------------------------------------


async def test_an_attempt_whose_sender_is_killed_is_made_again_by_another_one(settings, endpoints, receiver, client):
    """The lease is the server's: it is made to lapse here, as nobody waits a minute for a test."""
    hangs = asyncio.Event()

    async def hang(_writer):
        hangs.set()
        await asyncio.sleep(WAIT_S)

    receiver.behave = hang
    await endpoints.add(receiver.url)
    async with RehearsalServer() as model, lone(settings, model, {}) as process:
        process.stdin.write(json.dumps({"question": "say hello"}).encode() + b"\n")
        await asyncio.wait_for(hangs.wait(), WAIT_S)
        process.kill()
        await process.wait()
    receiver.behave = None
    [(delivery, due_ms)] = await client.zrange(settings.keys.webhooks_due(), 0, -1, withscores=True)
    assert 30 < due_ms / 1000 - time.time() < 61
    await client.zadd(settings.keys.webhooks_due(), {delivery: 1})
    async with Orchestrator(settings=settings):
        first, second = await receiver.wait_for(2)
    assert first.id == second.id
    assert first.body == second.body


@pytest.mark.parametrize(("timeout_s", "lease_s", "held_s"), [(15, 30, 60), (1, 30, 30), (1, 2.5, 4)])
async def test_a_message_is_its_senders_for_four_attempts_and_no_shorter_than_a_lease(
    settings, endpoints, client, timeout_s, lease_s, held_s
):
    settings = settings.model_copy(update={"webhook_timeout_s": timeout_s, "lease_s": lease_s})
    outbox = Outbox(client, settings, Seal(settings))
    endpoint, _ = await endpoints.add("http://127.0.0.1:9/nobody")
    owed = message_for(endpoint, Notice(WebhookEvent.TEST, "it", {}, {}), "msg_it", "it")
    await outbox.owe([owed], question="q", tenant="", expires_unix_s=time.time() + 60)
    [taken] = (await outbox.take(1, {})).taken
    seconds, microseconds = await client.time()
    due_ms = await client.zscore(settings.keys.webhooks_due(), taken.owed.delivery_id)
    left_s = due_ms / 1000 - seconds - microseconds / 1e6
    assert held_s - 2 < left_s <= held_s


async def test_U11_of_several_orchestrators_one_sends_a_message_at_a_time(settings, endpoints, receiver, client):
    await endpoints.add(receiver.url)

    async def answer_late(writer):
        await asyncio.sleep(0.3)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    receiver.behave = answer_late
    async with answering(settings) as one, Orchestrator(settings=settings), Orchestrator(settings=settings):
        await asyncio.gather(*(one.run("?") for _ in range(6)))
        await until(lambda: nothing_owed(client, settings))
    assert len(receiver.got) == len({each.id for each in receiver.got}) == 6


async def test_an_endpoint_that_hangs_holds_up_no_other(settings, endpoints, receiver):
    async def hang(_writer):
        await asyncio.sleep(WAIT_S)

    async with answering(settings) as orchestrator, receiving(Receiver(behave=hang)) as hanging:
        await endpoints.add(hanging.url)
        await endpoints.add(receiver.url)
        await asyncio.sleep(0.3)  # an orchestrator looks at endpoints now and then
        await asyncio.gather(*(orchestrator.run("?") for _ in range(100)))
        assert len({each.id for each in await receiver.wait_for(100)}) == 100
        assert len(hanging.got) == hanging.most_under_way == AT_ONCE_EACH


async def test_what_an_entry_owes_is_written_again_with_it_into_a_store_that_has_lost_both(settings, endpoints, client):
    async with receiving() as receiver:
        await endpoints.add(receiver.url)
    async with answering(settings) as orchestrator:
        run = await orchestrator.run("?", run_id="lost")
        store, keys = orchestrator._services.store, settings.keys
        await until(lambda: client.zcard(keys.webhooks_due()))
        for key in [key async for key in client.scan_iter(f"{settings.namespace}:*")]:
            if b"run:lost" in key or (b":webhook" in key and b"webhooks" not in key):
                await client.delete(key)
        await client.delete(keys.webhooks_due())
        assert await store.restore_run("lost") == 2
        [(delivery, _)] = await until(lambda: client.zrange(keys.webhooks_due(), 0, -1, withscores=True))
        assert delivery.startswith(b"msg_")
    assert run.answer == "done"


# --- when it is sent again -------------------------------------------------------------------------------------------


def test_U11_by_default_a_message_is_sent_for_more_than_two_hours_and_up_to_three_days():
    waits = Settings().webhook_waits_s
    assert sum(waits[:4]) > 2 * 3600
    assert sum(waits) > 3 * 24 * 3600
    assert waits == (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_each_wait_is_as_planned_and_up_to_a_quarter_longer(chance):
    found = [wait_s((5, 300), number, retry_after_s=0, chance=chance) for number in (1, 2, 3)]
    assert found == [5 * (1 + JITTER * chance), 300 * (1 + JITTER * chance), None]


def test_a_receiver_may_ask_for_a_longer_wait_in_seconds_or_until_a_moment_but_for_no_more_than_a_day():
    assert asked_wait_s("120") == 120
    assert asked_wait_s(formatdate(time.time() + 600, usegmt=True)) == pytest.approx(600, abs=2)
    assert asked_wait_s("9" * 400) == asked_wait_s("9007199254740993") == 24 * 3600
    for nonsense in ("", "soon", "-5", "\u0665", "1e9", "Mon, 99 Nov 2026 00:00:00 GMT"):
        assert asked_wait_s(nonsense) == 0
    assert wait_s((5,), 1, retry_after_s=120, chance=0) == 120


async def test_retry_after_puts_a_message_off(settings, endpoints, receiver, outbox):
    receiver.status, receiver.headers = 429, {"retry-after": "3600"}
    endpoint, _ = await endpoints.add(receiver.url)
    async with answering(settings) as orchestrator:
        await orchestrator.run("?")
        [attempt] = await until(lambda: outbox.attempts(endpoint.endpoint_id))
    assert attempt.status == 429
    assert 3590 < attempt.next_unix_s - time.time() < 3600 * (1 + JITTER) + 1


async def test_U11_what_is_never_taken_is_given_up_listed_and_sent_again_when_somebody_says_so(
    settings, endpoints, receiver, outbox, client
):
    settings = settings.model_copy(update={"webhook_retry_s": "0.01 0.01"})
    receiver.status, receiver.body = 500, b"\x1b[31m<script>" + b"x" * 100_000
    _, secret = await endpoints.add(receiver.url, tenant="acme")
    async with answering(settings) as orchestrator:
        await orchestrator.run("?", tenant="acme")
        [dead] = await until(lambda: outbox.dead("acme"))
        assert dead.attempts == len(receiver.got) == 3
        assert dead.last.error == "it answered 500"
        assert len(dead.last.answer) == 200
        assert await outbox.dead("") == []
        with pytest.raises(WebhookNotFound):
            await outbox.replay(dead.owed.delivery_id, tenant="other")
        receiver.status = 200
        await outbox.replay(dead.owed.delivery_id, tenant="acme")
        await receiver.wait_for(4)
        await until(lambda: nothing_owed(client, settings))
    assert receiver.got[-1].id == receiver.got[0].id
    receiver.got[-1].verified(secret)
    assert await outbox.dead("acme") == []
    with pytest.raises(WebhookNotFound):
        await outbox.replay(dead.owed.delivery_id, tenant="acme")


async def test_an_endpoint_that_is_gone_is_sent_nothing_more(settings, endpoints, receiver, outbox):
    receiver.status = 410
    endpoint, _ = await endpoints.add(receiver.url)
    async with answering(settings) as orchestrator:
        await orchestrator.run("?")
        await until(lambda: is_disabled(endpoints, endpoint.endpoint_id))
        assert len(await outbox.dead("")) == 1
    await endpoints.enable(endpoint.endpoint_id, tenant="")
    async with answering(settings) as orchestrator:
        await orchestrator.run("?")
        await receiver.wait_for(2)


async def is_disabled(endpoints, endpoint_id):
    return (await endpoints.load(endpoint_id, tenant=None)).disabled == "it answered 410 (gone)"


async def test_a_redirect_is_not_followed(settings, endpoints, outbox):
    async with receiving() as other, receiving(Receiver(status=302, headers={"location": other.url})) as receiver:
        endpoint, _ = await endpoints.add(receiver.url)
        async with answering(settings) as orchestrator:
            await orchestrator.run("?")
            [attempt, *_] = await until(lambda: outbox.attempts(endpoint.endpoint_id))
        assert attempt.error == "it answered 302: redirects are not followed"
        assert other.got == []


async def drip(writer):
    """Begins an answer that never ends."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.05)


async def flood(writer):
    """An answer without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        await writer.drain()


async def garble(writer):
    writer.write(b"\x00\xff\r\nnothing of HTTP\r\n\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    ("behave", "error"),
    [
        (drip, "it did not answer in full within 0.3 s"),
        (garble, "it cannot be reached: RemoteProtocolError"),
        (flood, ""),  # it is taken with the first of it
    ],
)
async def test_what_a_receiver_does_to_its_answer_takes_little_time_and_memory(
    settings, endpoints, receiver, outbox, behave, error
):
    settings = settings.model_copy(update={"webhook_timeout_s": 0.3})
    receiver.behave = behave
    endpoint, _ = await endpoints.add(receiver.url)
    async with answering(settings) as orchestrator:
        await orchestrator.run("?")
        [attempt, *_] = await until(lambda: outbox.attempts(endpoint.endpoint_id))
    assert attempt.error == error


# --- secrets, and who has Redis alone --------------------------------------------------------------------------------


async def test_for_a_while_messages_are_signed_with_a_secret_and_the_one_before_it(settings, endpoints, receiver):
    endpoint, first = await endpoints.add(receiver.url)
    _, second = await endpoints.rotate(endpoint.endpoint_id, tenant="")
    async with answering(settings) as orchestrator:
        await orchestrator.run("?")
        [request] = await receiver.wait_for(1)
        assert request.verified(first) == request.verified(second)
        _, third = await endpoints.rotate(endpoint.endpoint_id, tenant="", overlap_s=0)
        await asyncio.sleep(0.3)  # an orchestrator looks at endpoints now and then
        await orchestrator.run("?")
        _, request = await receiver.wait_for(2)
    request.verified(third)
    for old in (first, second):
        with pytest.raises(WebhookVerificationError):
            request.verified(old)


async def test_a_secret_cannot_be_read_in_redis_nor_what_is_sent_be_made_up_there(
    settings, endpoints, receiver, client, outbox
):
    endpoint, secret = await endpoints.add(receiver.url)
    raw = Webhook(secret)._whsecret
    stored = (await client.hgetall(settings.keys.webhooks()))[endpoint.endpoint_id.encode()]
    assert secret[6:].encode() not in stored
    assert raw not in stored
    # Somebody with Redis and another secret writes an endpoint, and a message.
    liar = settings.model_copy(update={"secret": type(settings.secret)(new_secret())})
    forged = Outbox(client, liar, Seal(liar))
    keys = settings.keys
    async with answering(settings) as orchestrator:
        await orchestrator.run("?")
        [request] = await receiver.wait_for(1)
        name = f"msg_{'0' * 32}.{endpoint.endpoint_id}"
        await client.hset(keys.webhook(name), "m", forged._closed(endpoint, keys.webhook(name)))
        await client.set(keys.webhook("junk"), "of another type")
        await client.zadd(keys.webhooks_due(), {name: 0, "junk": 0, b"\xff\x00": 0})
        await until(lambda: only_owed(client, settings, name))
        await client.hset(keys.webhooks(), endpoint.endpoint_id, stored[:70] + b"x" + stored[71:])
        await asyncio.sleep(0.3)  # as above
        await orchestrator.run("?")
        assert await only_owed(client, settings, name)  # what is not believed goes when its key ends
    assert receiver.got == [request]


async def only_owed(client, settings, name):
    return await client.zrange(settings.keys.webhooks_due(), 0, -1) == [name.encode()]


async def test_a_change_of_the_fleets_secret_is_outlived_by_endpoints_and_by_what_is_owed(settings, endpoints, client):
    async with receiving() as receiver:
        _, secret = await endpoints.add(receiver.url)
    async with answering(settings) as orchestrator:
        await orchestrator.run("?")
        await until(lambda: client.zcard(settings.keys.webhooks_due()))
    changed = settings.model_copy(
        update={"secret": type(settings.secret)(new_secret()), "previous_secret": settings.secret}
    )
    async with Orchestrator(settings=changed):
        await until(lambda: is_resealed(client, changed))
        dropped = changed.model_copy(update={"previous_secret": type(settings.secret)("")})
    async with receiving(receiver), Orchestrator(settings=dropped):
        [request] = await receiver.wait_for(1)
        request.verified(secret)


async def is_resealed(client, changed):
    """Whether those who know only the new secret can read all."""
    alone = changed.model_copy(update={"previous_secret": type(changed.secret)("")})
    [(key, sealed)] = (await client.hgetall(changed.keys.webhooks())).items()
    due = await client.zrange(changed.keys.webhooks_due(), 0, -1)
    names = [changed.keys.webhook(each.decode()) for each in due]
    texts = [(f"{changed.keys.webhooks()}\0{key.decode()}", sealed)]
    texts += [(name, await client.hget(name, "m")) for name in names]
    try:
        return all(Seal(alone).open_kept(text, place) for place, text in texts)
    except Refused:
        return False
