"""Several things that a worker over HTTPS says at once: what the server makes of them, and what the client sends."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.http.fleet_of_doors import served
from tests.work.remote import Remote, calling, offered, spec
from toolfleet.calls import Returned
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.work import MAX_CALLS, Ack, Acked, ResultSaid, Settled
from toolfleet.workers.over.batches import Answer, Batches, Spoken
from toolfleet.workers.over.client import BATCH_BYTES, KeyRefused, Stale, TooLarge, Unreachable, WorkClient


@pytest.fixture
async def laptop(api):
    key, _ = await api.door.keyring.add("laptop", scopes=(Scope.WORK,), tools=("a",))
    worker = Remote(api.url, key)
    assert (await worker.announce(spec("a", effect="read_only"), concurrency=50)).status_code == 200
    await offered(api, "a")
    yield worker
    await worker.http.aclose()


async def polled(api, worker, count):
    """So many calls, and their offers in the same order."""
    calls = {f"{n}": calling(api, "a", text=f"{n}") for n in range(count)}
    offers: dict[str, str] = {}
    while len(offers) < count:
        for offer in await worker.poll():
            offers[json.loads(offer["call"]["arguments"])["text"]] = offer["offer"]
    return [(calls[n], offers[n]) for n in calls]


def ack(offer):
    return {"what": "ack", "said": {"offer": offer}}


def result(attempt, content):
    return {"what": "result", "said": {"attempt": attempt, "result": {"type": "returned", "content": content}}}


# --- the server -------------------------------------------------------------------------------------------------------


async def test_X5_each_of_a_batch_is_answered_as_if_it_had_come_alone(api, laptop):
    (one, offer), (two, other) = await polled(api, laptop, 2)
    answered = (await laptop.say("batch", items=[ack(offer), ack("nonsense"), ack(other)])).json()
    assert answered["v"] == 1
    first, wrong, second = answered["items"]
    assert (first["status"], wrong["status"], second["status"]) == (200, 404, 200)
    assert wrong["body"]["type"] == "urn:toolfleet:problem:not-your-call"
    attempts = [first["body"]["attempt"], second["body"]["attempt"]]

    said = [result(attempts[0], "one"), result(attempts[1], "two"), result(attempts[0], "another")]
    said += [{"what": "result", "said": {"attempt": attempts[0], "result": {"type": "returned", "content": 5}}}]
    items = (await laptop.say("batch", items=said)).json()["items"]
    # The first and the third are of one attempt: whichever came first counts.
    assert sorted([items[0]["status"], items[2]["status"]]) == [200, 409]
    assert items[1] == {"status": 200, "body": {"v": 1, "call_id": second["body"]["call_id"], "repeated": False}}
    assert items[3]["status"] == 422
    assert "content" in items[3]["body"]["detail"]
    assert await two == Returned(content="two")
    assert (await one).content in {"one", "another"}


@pytest.mark.parametrize(
    "items", [[], [ack("x")] * (MAX_CALLS + 1), [{"what": "announce", "said": {}}], [{"what": "ack"}]]
)
async def test_X5_what_is_no_batch_is_refused_whole(laptop, items):
    refused = await laptop.say("batch", items=items)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:toolfleet:problem:invalid-request")


async def test_X5_a_key_settles_nothing_of_anothers_in_a_batch(api, laptop):
    [(call, offer)] = await polled(api, laptop, 1)
    attempt = await laptop.begin({"offer": offer})
    key, _ = await api.door.keyring.add("other", scopes=(Scope.WORK,), tools=("a",))
    other = Remote(api.url, key, name="other")
    answers = (await other.say("batch", items=[result(attempt, "stolen"), ack(offer)])).json()["items"]
    assert [each["status"] for each in answers] == [404, 404]
    await other.http.aclose()
    await laptop.returned(attempt, "own")
    assert await call == Returned(content="own")


# --- the client -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def client(api, laptop):
    client = WorkClient(api.url, laptop.http.headers["authorization"].removeprefix("Bearer "))
    yield client
    await client.aclose()


async def test_X5_one_result_for_which_a_batch_is_refused_takes_no_other_along(api, laptop, client):
    """It is nested as deep as a request may be, and in a batch deeper."""
    deep: object = "bottom"
    for _ in range(58):
        deep = [deep]
    calls = await polled(api, laptop, 3)
    acked = await asyncio.gather(*(client.say("ack", Ack(offer=offer), Acked, for_s=5) for _, offer in calls))
    results = [Returned(content=f"{n}", state={"deep": deep} if n == 1 else {}) for n in range(3)]
    said = [ResultSaid(attempt=each.attempt, result=result) for each, result in zip(acked, results, strict=True)]
    settled = await asyncio.gather(*(client.say("result", each, Settled, for_s=5) for each in said))
    assert [each.repeated for each in settled] == [False, False, False]
    assert [await call for call, _ in calls] == results


async def test_X5_what_is_refused_in_a_batch_is_raised_as_if_it_had_come_alone(api, laptop, client):
    [(_, offer)] = await polled(api, laptop, 1)
    good, bad = await asyncio.gather(
        client.say("ack", Ack(offer=offer), Acked, for_s=5),
        client.say("ack", Ack(offer="nonsense"), Acked, for_s=5),
        return_exceptions=True,
    )
    assert isinstance(good, Acked)
    assert isinstance(bad, Stale)


class OldServer:
    """A server that acknowledges what it is offered, and knows of no batches unless told how to answer them."""

    def __init__(self, batch_status=404):
        self.paths: list[str] = []
        self.batch_status = batch_status

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            for _ in range(2):
                await send({"type": (await receive())["type"] + ".complete"})
            return
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message["body"]
        self.paths.append(scope["path"])
        if scope["path"].endswith("/batch"):
            problem = {"type": "urn:toolfleet:problem:not-found", "detail": "no"}
            await self._answer(send, self.batch_status, problem if self.batch_status == 404 else {})
        else:
            await asyncio.sleep(0.05)
            await self._answer(send, 200, {"call_id": json.loads(body)["offer"], "attempt": "x", "lease_s": 1.0})

    @staticmethod
    async def _answer(send, status, document):
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})


async def acked(client, count, for_s=5.0):
    return await asyncio.gather(
        *(client.say("ack", Ack(offer=f"{n}"), Acked, for_s=for_s) for n in range(count)), return_exceptions=True
    )


async def test_X5_a_server_that_knows_no_batches_is_asked_for_one_once():
    server = OldServer()
    async with served(server) as (url, _):
        client = WorkClient(url, "tf_key")
        for _ in range(3):
            assert [each.call_id for each in await acked(client, 5)] == ["0", "1", "2", "3", "4"]
        await client.aclose()
    assert server.paths.count("/v1/work/batch") == 1
    assert server.paths.count("/v1/work/ack") == 15


async def test_X5_what_a_proxy_refuses_says_nothing_of_the_server():
    server = OldServer(413)
    async with served(server) as (url, _):
        client = WorkClient(url, "tf_key")
        for _ in range(2):
            assert [each.call_id for each in await acked(client, 2)] == ["0", "1"]
        await client.aclose()
    assert server.paths.count("/v1/work/batch") == 2


@pytest.mark.parametrize(
    ("status", "raised"), [(200, Unreachable), (503, Unreachable), (429, Unreachable), (403, KeyRefused)]
)
async def test_X5_a_batch_that_is_refused_as_any_request_would_be_is_not_sent_in_pieces(status, raised):
    server = OldServer(status)
    async with served(server) as (url, _):
        client = WorkClient(url, "tf_key")
        found = await acked(client, 5, for_s=0)
        await client.aclose()
    assert server.paths == ["/v1/work/batch"]
    assert all(isinstance(each, raised) for each in found), found


async def test_X5_who_speaks_alone_and_what_is_large_needs_no_batch():
    server = OldServer()
    async with served(server) as (url, _):
        client = WorkClient(url, "tf_key")
        await acked(client, 1)
        large = Ack.model_construct(offer=BATCH_BYTES * "x")
        await asyncio.gather(*(client.say("ack", large, Acked, for_s=5) for _ in range(2)))
        client.max_body_bytes = BATCH_BYTES
        with pytest.raises(TooLarge):
            await client.say("ack", large, Acked, for_s=5)
        await client.aclose()
    assert server.paths == 3 * ["/v1/work/ack"]


# --- what goes together -----------------------------------------------------------------------------------------------


class Line:
    """A line to somewhere on which what is sent is answered when a test says so."""

    def __init__(self):
        self.sent: list[list[bytes]] = []
        self.may_answer = asyncio.Event()

    async def send(self, batch):
        self.sent.append([spoken.body for spoken in batch])
        await self.may_answer.wait()
        return [Answer(200, {}, spoken.body) for spoken in batch]


def said(batches, *bodies):
    return [asyncio.create_task(batches.answer(Spoken("ack", body))) for body in bodies]


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_is_said_at_once_goes_together_and_what_comes_later_is_not_kept_waiting():
    line = Line()
    batches = Batches(line.send, max_bytes=10)
    first = said(batches, b"1", b"2")
    await until(lambda: line.sent == [[b"1", b"2"]])
    second = said(batches, b"3", b"4")
    await until(lambda: line.sent[1:] == [[b"3", b"4"]])  # though nothing of the first is answered
    line.may_answer.set()
    assert [(await each).content for each in (*first, *second)] == [b"1", b"2", b"3", b"4"]


async def test_a_batch_has_no_more_bytes_and_no_more_items_than_it_may():
    line = Line()
    line.may_answer.set()
    batches = Batches(line.send, max_bytes=10)
    answers = await asyncio.gather(*said(batches, b"123456", b"7890", b"1", b"x" * 20, b"2"))
    assert line.sent == [[b"123456", b"7890"], [b"1"], [b"x" * 20], [b"2"]]
    assert answers[3].content == b"x" * 20
    line.sent.clear()
    await asyncio.gather(*said(Batches(line.send, max_bytes=10_000), *([b"1"] * (MAX_CALLS + 1))))
    assert [len(each) for each in line.sent] == [MAX_CALLS, 1]


async def test_too_few_answers_leave_nobody_waiting_and_who_has_left_says_nothing():
    sent = []

    async def short(batch):
        sent.append([spoken.body for spoken in batch])
        return [Answer(200, {}, b"") for _ in batch[1:]]

    batches = Batches(short, max_bytes=10)
    first, second, left = said(batches, b"1", b"2", b"3")
    await asyncio.sleep(0)
    left.cancel()
    found = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in found] == [ConnectionError, ConnectionError]
    assert sent == [[b"1", b"2"]]


async def test_whoever_waits_hears_that_a_batch_failed_or_was_cancelled_and_the_next_one_goes():
    async def fail(batch):
        raise ConnectionResetError("gone")

    failing = Batches(fail, max_bytes=10)
    found = await asyncio.gather(*said(failing, b"1", b"2"), return_exceptions=True)
    assert [type(each) for each in found] == [ConnectionResetError, ConnectionResetError]

    line = Line()
    batches = Batches(line.send, max_bytes=10)
    waiting, left = said(batches, b"1", b"2")
    await until(lambda: line.sent)
    left.cancel()
    for task in asyncio.all_tasks() - {asyncio.current_task(), waiting}:
        task.cancel()
    with pytest.raises(ConnectionAbortedError):
        await waiting
    line.may_answer.set()
    [again] = said(batches, b"3")
    assert (await again).content == b"3"
