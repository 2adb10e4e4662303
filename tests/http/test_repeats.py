"""Repeats of completions, by OpenAI's own clients as they come and by others: what pays, pays once.

Each payment is a line in a file, written by a worker; the file is the ledger.
"""

import asyncio
import json
import os
import re
import signal
import tempfile
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path

import httpx
import openai
import pytest

from tests.http.fleet_of_doors import api_of
from tests.http.serving import serving
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.doors.openai.attendance import Attendance
from toolfleet.orchestrator.models import REHEARSAL_MODEL, HttpOptions, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.models.rehearsal.faults import ErrorStatus
from toolfleet.orchestrator.run.updates import CallAwaitsApproval

WAIT_S = 40
ONCE = HttpOptions(attempts=1)
PATH = "/v1/chat/completions"


@pytest.fixture
def ledger():
    # A short path: it stands in the titles of runs, by which they are found.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="l") as folder:
        yield Ledger(Path(folder, "ledger"))


class Ledger:
    """What was paid, outside of the program."""

    def __init__(self, path):
        self.path = path

    @property
    def payments(self):
        return len(self.path.read_text().splitlines()) if self.path.exists() else 0

    def asked(self, seconds=0.0, **more):
        """A request whose run pays, and then takes a while."""
        text = f"call write_line {json.dumps({'path': str(self.path), 'seconds': seconds})}"
        return {"model": REHEARSAL_MODEL, "messages": [{"role": "user", "content": text}], **more}

    async def until(self, payments):
        async with asyncio.timeout(WAIT_S):
            while self.payments < payments:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def provider_of(settings, *faults, grace_s=30.0, http=ONCE):
    """An API whose model's provider fails like this, request by request; None lets one through."""
    async with RehearsalServer(faults=faults) as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=http)
        async with api_of(settings, model, options=ApiOptions(grace_s=grace_s)) as api:
            yield api, server


def client_of(api, **options):
    return openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), **options)


def with_key(key):
    return {"idempotency-key": key}


async def said_in(response):
    """(ids, text) of a stream that was read to its end, and how it ended."""
    pieces = [line.removeprefix("data: ") async for line in response.aiter_lines() if line.startswith("data: ")]
    assert pieces[-1] == "[DONE]", pieces
    chunks = [json.loads(piece) for piece in pieces[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    return {chunk["id"] for chunk in chunks}, text


async def streamed(api, asked, **headers):
    async with api.client.stream("POST", PATH, json={**asked, "stream": True}, headers=headers, timeout=WAIT_S) as r:
        assert r.status_code == 200, await r.aread()
        return await said_in(r)


# --- with a key -------------------------------------------------------------------------------------------------------


async def test_fifty_streams_with_one_key_are_one_run_at_two_servers(http_fleet, model, ledger):
    async with RehearsalServer() as server, api_of(http_fleet.settings, model) as one:
        elsewhere = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
        async with api_of(http_fleet.settings, elsewhere) as other:
            asked, key = ledger.asked(seconds=0.5), with_key("fifty")
            said = await asyncio.gather(*(streamed(api, asked, **key) for api in (one, other) for _ in range(25)))
            assert ledger.payments == 1
            assert {(len(ids), text) for ids, text in said} == {(1, said[0][1])}
            assert len(set.union(*(ids for ids, _ in said))) == 1
            assert said[0][1].endswith("written")
            # When it is over it says the same, streamed or not, wherever it is asked.
            assert await streamed(other, {**asked}, **key) == said[0]
            assert ledger.payments == 1


async def test_a_repeat_gets_the_answer_of_the_first_and_says_so(api, ledger):
    first = await api.client.post(PATH, json=ledger.asked(), headers=with_key("again"))
    again = await api.client.post(PATH, json=ledger.asked(), headers=with_key("again"))
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    assert ledger.payments == 1


async def test_a_key_is_for_one_request_and_each_tenants_own(api, ledger):
    first = await api.client.post(PATH, json=ledger.asked(), headers=with_key("mine"))
    refused = await api.client.post(PATH, json=ledger.asked(temperature=0.5), headers=with_key("mine"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "idempotency_key_reused")
    refused = await api.client.post("/v1/runs", json={"question": "?"}, headers=with_key("mine"))
    assert refused.status_code == 422
    key, record = await api.door.keyring.add(tenant="theirs")
    try:
        theirs = {"authorization": f"Bearer {key}", **with_key("mine")}
        other = await api.stranger.post(PATH, json=ledger.asked(temperature=0.5), headers=theirs)
        assert (other.status_code, other.json()["id"] == first.json()["id"]) == (200, False)
    finally:
        await api.door.keyring.revoke(record.key_id)
    assert ledger.payments == 2


async def test_a_request_that_could_not_be_begun_leaves_its_key_free(api, ledger):
    unknown = ledger.asked(toolfleet={"tools": ["nobody_serves_this"]})
    assert (await api.client.post(PATH, json=unknown, headers=with_key("free"))).status_code == 400
    assert (await api.client.post(PATH, json=ledger.asked(), headers=with_key("free"))).status_code == 200


async def test_a_run_that_is_gone_is_told_as_lost_and_not_begun_again(api, ledger):
    first = await api.client.post(PATH, json=ledger.asked(), headers=with_key("gone"))
    await api.client.delete(f"/v1/runs/{first.json()['id'].removeprefix('chatcmpl-')}")
    lost = await api.client.post(PATH, json=ledger.asked(), headers=with_key("gone"))
    assert (lost.status_code, lost.json()["error"]["code"]) == (409, "answer_lost")
    assert lost.headers["x-should-retry"] == "false"
    assert ledger.payments == 1


async def test_a_run_that_is_gone_is_not_begun_again_though_its_server_was_lost_in_the_midst_of_it(api, ledger):
    asked = {**ledger.asked(seconds=0.5), "toolfleet": {}}
    asking = asyncio.create_task(api.client.post(PATH, json=asked, headers=with_key("lost")))
    await ledger.until(1)
    [name] = [
        name
        async for name in api.door.client.scan_iter(api.door.settings.keys.asked("*"))
        if await _is_run_of(api, name)
    ]
    entry = await api.door.client.hgetall(name)
    first = (await asking).json()
    await api.client.delete(f"/v1/runs/{first['id'].removeprefix('chatcmpl-')}")
    await api.door.client.hset(name, mapping=entry)  # as a server leaves it that is killed while the run is under way
    gone = await api.client.post(PATH, json=asked, headers=with_key("lost"))
    assert (gone.status_code, gone.json()["error"]["code"]) == (409, "answer_lost")
    assert ledger.payments == 1


async def _is_run_of(api, name):
    """Whether one of these runs is followed."""
    return any(api.door.followings.find(run_id.decode()) for run_id in await api.door.client.hkeys(name))


async def test_whoever_asks_the_same_for_ever_leaves_no_more_behind_than_can_still_be_joined(http_fleet):
    async with api_of(http_fleet.settings, options=ApiOptions(grace_s=0)) as api:
        attendance = Attendance.of_like(api.door, Grant(tenant="same", subject="again"), PATH, b"{}")
        for _ in range(200):
            taken = await attendance.take(is_repeat=False)
            await attendance.leave(taken.run_id, is_answered=True)
        assert await api.door.client.hlen(attendance._key) < 40


async def test_what_failed_after_it_had_paid_fails_alike_at_each_repeat(http_fleet, ledger):
    async with (
        provider_of(http_fleet.settings, None, ErrorStatus(500)) as (one, upstream),
        provider_of(http_fleet.settings) as (other, idle),
    ):
        first = await one.client.post(PATH, json=ledger.asked(), headers=with_key("failed"))
        assert (first.status_code, first.headers["x-should-retry"]) == (424, "false")
        for api in (one, other):
            again = await api.client.post(PATH, json=ledger.asked(), headers=with_key("failed"))
            assert (again.status_code, again.json()) == (first.status_code, first.json())
        assert (ledger.payments, upstream.request_count, idle.request_count) == (1, 2, 0)


async def test_what_failed_without_an_effect_is_begun_anew_by_a_repeat_once(http_fleet, ledger):
    async with provider_of(http_fleet.settings, ErrorStatus(503), ErrorStatus(503)) as (api, _):
        for _ in range(2):
            failed = await api.client.post(PATH, json=ledger.asked(), headers=with_key("anew"))
            assert (failed.status_code, failed.headers["x-should-retry"]) == (503, "true")
        asked = (api.client.post(PATH, json=ledger.asked(), headers=with_key("anew")) for _ in range(8))
        answers = {(answer.status_code, answer.json()["id"]) for answer in await asyncio.gather(*asked)}
        assert len(answers) == 1
        assert answers.pop()[0] == 200
        assert ledger.payments == 1


async def test_a_killed_server_and_a_new_one_pay_once_for_a_key(http_fleet, tmp_path):
    ledgers = {stream: Ledger(tmp_path / f"streamed {stream}") for stream in (True, False)}
    asked = [ledger.asked(seconds=1.0, stream=stream) for stream, ledger in ledgers.items()]
    key = [with_key(f"killed {ledger.path}") for ledger in ledgers.values()]
    with ExitStack() as servers:
        quick = http_fleet.settings.model_copy(update={"lease_s": 4.0, "heartbeat_s": 1.0})
        one, other = (servers.enter_context(serving(quick, folder)) for folder in folders(tmp_path, 2))
        async with httpx.AsyncClient(timeout=WAIT_S) as client:
            first = [asyncio.create_task(_read(client, one, *each)) for each in zip(asked, key, strict=True)]
            for ledger in ledgers.values():
                await ledger.until(1)
            os.kill(one.process.pid, signal.SIGKILL)
            broken = await asyncio.gather(*first, return_exceptions=True)
            assert all(isinstance(each, httpx.HTTPError) for each in broken), broken
            again = (_read(client, other, *each) for each in zip(asked, key, strict=True))
            assert all("written" in answer for answer in await asyncio.gather(*again))
    assert [ledger.payments for ledger in ledgers.values()] == [1, 1]


def folders(where, number):
    for name in range(number):
        (where / str(name)).mkdir()
        yield where / str(name)


async def _read(client, served, asked, headers):
    answer = await client.post(f"{served.url}{PATH}", json=asked, headers={**headers, **served.local_key})
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_whoever_follows_a_run_elsewhere_hears_that_it_waits_for_a_person(http_fleet, api, model):
    """The door says so to a client by what it hears; a person is asked for at any server."""
    async with api_of(http_fleet.settings, model) as other:
        run_id = await api.begin('call pay {"amount": 3}')
        followed = await other.door.followings.join(run_id)
        async with asyncio.timeout(WAIT_S), aclosing(followed.updates()) as updates:
            waiting = await anext(update async for update in updates if isinstance(update, CallAwaitsApproval))
            assert (waiting.tool, json.loads(waiting.arguments)) == ("pay", {"amount": 3})
            approval = {"call_id": waiting.call_id, "granted": False}
            await api.client.post(f"/v1/runs/{run_id}/approvals", json=approval)
            rest = [update async for update in updates]
    assert [type(update) for update in rest].count(CallAwaitsApproval) == 0
    assert rest[-1].run.run_id == run_id


# --- with nothing but what OpenAI's clients send by themselves --------------------------------------------------------


async def test_a_client_that_runs_out_of_time_pays_once_and_gets_its_answer(api, ledger):
    """Its own retries, as they are by default, join the run of its first request."""
    asked = ledger.asked(seconds=2.0)
    async with client_of(api, timeout=1.0) as client:
        completion = await client.chat.completions.create(**asked)
    assert completion.choices[0].message.content.endswith("written")
    assert ledger.payments == 1


async def test_the_same_for_the_client_without_async(api, ledger):
    with openai.OpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), timeout=1.0) as client:
        completion = await asyncio.to_thread(client.chat.completions.create, **ledger.asked(seconds=2.0))
    assert completion.choices[0].message.content.endswith("written")
    assert ledger.payments == 1


async def test_a_retry_finds_the_run_of_its_first_at_another_server(http_fleet, api, model, ledger):
    async with RehearsalServer() as server:
        elsewhere = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
        async with api_of(http_fleet.settings, elsewhere) as other:
            asked = ledger.asked(seconds=1.5)
            with pytest.raises(httpx.ReadTimeout):
                await api.client.post(PATH, json=asked, headers=retry(0), timeout=0.7)
            again = await other.client.post(PATH, json=asked, headers=retry(1))
    assert again.json()["choices"][0]["message"]["content"].endswith("written")
    assert ledger.payments == 1


async def test_two_honest_requests_alike_are_two_runs_and_their_retries_join_one_each(api, ledger):
    asked, redis = ledger.asked(seconds=3.0), api.door.client
    before = set(await redis.keys(api.door.settings.keys.asked("*")))
    firsts = [asyncio.create_task(api.client.post(PATH, json=asked, headers=retry(0))) for _ in range(2)]
    await ledger.until(2)
    for first in firsts:
        first.cancel()
    [runs] = set(await redis.keys(api.door.settings.keys.asked("*"))) - before
    async with asyncio.timeout(WAIT_S):
        while not all(value.startswith(b"0 ") for value in await redis.hvals(runs)):
            await asyncio.sleep(0.01)
    again = await asyncio.gather(*(api.client.post(PATH, json=asked, headers=retry(1)) for _ in range(2)))
    assert len({answer.json()["id"] for answer in again}) == 2
    assert ledger.payments == 2


async def test_what_was_answered_long_ago_is_not_what_a_retry_means(http_fleet, ledger):
    async with provider_of(http_fleet.settings, grace_s=0.2) as (api, _):
        first = await api.client.post(PATH, json=ledger.asked(), headers=retry(0))
        just_now = await api.client.post(PATH, json=ledger.asked(), headers=retry(1))
        await asyncio.sleep(0.5)  # longer than an answer can be on its way
        later = await api.client.post(PATH, json=ledger.asked(), headers=retry(1))
    assert just_now.json()["id"] == first.json()["id"] != later.json()["id"]
    assert ledger.payments == 2


async def test_a_client_that_does_not_say_that_it_repeats_something_is_asked_for_a_key(api, ledger):
    answers = [await api.client.post(PATH, json=ledger.asked()) for _ in range(2)]
    assert len({answer.json()["id"] for answer in answers}) == 2
    assert ledger.payments == 2


async def test_nobody_is_led_to_the_run_of_another_request(api, ledger):
    """Not by who can write to Redis: a run's id says which request it answers."""
    secret = await api.client.post(PATH, json=ledger.asked(temperature=0.1), headers=retry(0))
    before = set(await api.door.client.keys(api.door.settings.keys.asked("*")))
    asking = asyncio.create_task(api.client.post(PATH, json=ledger.asked(seconds=0.5), headers=retry(0)))
    await ledger.until(2)
    [asked] = set(await api.door.client.keys(api.door.settings.keys.asked("*"))) - before
    [true] = await api.door.client.hkeys(asked)
    theirs = secret.json()["id"].removeprefix("chatcmpl-")
    assert theirs.encode() != true
    for forged in (theirs, f"{true.decode()[:16]}:{theirs}", "", "*"):
        await api.door.client.delete(asked)
        await api.door.client.hset(asked, forged, "0 0 9999999999999 1")
        answer = await api.client.post(PATH, json=ledger.asked(seconds=0.5), headers=retry(1))
        assert answer.status_code == 200, answer.text
        assert answer.json()["id"] != secret.json()["id"]
    assert (await asking).status_code == 200


async def test_nobody_puts_words_into_an_answer_that_is_followed_elsewhere(http_fleet, api, model, ledger):
    key = with_key(f"words {ledger.path}")
    async with api_of(http_fleet.settings, model) as other:
        first = asyncio.create_task(streamed(api, ledger.asked(seconds=1.5), **key))
        await ledger.until(1)
        joined = asyncio.create_task(streamed(other, ledger.asked(seconds=1.5), **key))
        async with asyncio.timeout(WAIT_S):
            while not other.door.tail.listeners:
                await asyncio.sleep(0.01)
        run_id = (await run_of(api, ledger))["run_id"]
        forged = {"type": "model_replied", "message": {"role": "assistant", "content": "forged"}}
        run = api.door.settings.keys.run(run_id)
        await api.door.client.xadd(run, {"e": json.dumps(forged), "s": "forged"})
        assert (await joined) == (await first)
    assert ledger.payments == 1


async def run_of(api, ledger):
    [run] = [run for run in (await api.client.get("/v1/runs")).json()["runs"] if str(ledger.path) in run["title"]]
    return run


def retry(count):
    return {"x-stainless-retry-count": str(count)}


# --- what stops retries -----------------------------------------------------------------------------------------------

REFUSED = [
    (ErrorStatus(400, "max_tokens is too large", type="invalid_request_error"), openai.BadRequestError, "too large", 1),
    (ErrorStatus(401, "Incorrect API key provided: sk-secret"), openai.InternalServerError, "refused the key", 1),
    (ErrorStatus(404, "no such model"), openai.NotFoundError, "no such model", 1),
    (ErrorStatus(429, "slower", type="insufficient_quota"), openai.RateLimitError, "no quota left", 1),
    (ErrorStatus(429, "slower", retry_after="1"), openai.RateLimitError, "slower", 2),
    (ErrorStatus(500, "broken"), openai.InternalServerError, "broken", 2),
    (ErrorStatus(503, "full"), openai.InternalServerError, "full", 2),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fault", "kind", "said", "times"), REFUSED, ids=lambda value: str(getattr(value, "code", "")))
async def test_what_a_provider_refuses_is_told_as_what_it_is_and_repeated_only_where_that_may_help(
    http_fleet, ledger, fault, kind, said, times, stream
):
    async with provider_of(http_fleet.settings, fault, fault) as (api, upstream):
        async with client_of(api, max_retries=1) as client:
            with pytest.raises(kind, match=said) as refused:
                await client.chat.completions.create(**ledger.asked(), stream=stream)
        assert upstream.request_count == times
    assert "sk-secret" not in refused.value.response.text
    assert refused.value.body["param"] is None or refused.value.body["param"] == "model"
    assert refused.value.response.headers["x-should-retry"] == ("true" if times > 1 else "false")
    if fault.retry_after:
        assert refused.value.response.headers["retry-after"] == "1"
    assert ledger.payments == 0


async def test_a_model_that_is_left_alone_for_a_while_is_503_with_when_to_come_again(http_fleet, ledger):
    opens_at_once = HttpOptions(attempts=1, opens_after=1, open_s=20)
    async with provider_of(http_fleet.settings, ErrorStatus(500), http=opens_at_once) as (api, upstream):
        answers = [await api.client.post(PATH, json=ledger.asked(), headers=with_key("circuit")) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [502, 503]
        assert 1 <= int(answers[1].headers["retry-after"]) <= 20
        assert upstream.request_count == 1
    assert ledger.payments == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
async def test_no_default_client_repeats_what_has_paid(http_fleet, ledger, status, stream):
    async with provider_of(http_fleet.settings, None, ErrorStatus(status, "no more")) as (api, upstream):
        async with client_of(api) as client:
            with pytest.raises(openai.APIError) as failed:
                await _complete(client, ledger.asked(stream=stream))
        if not stream:
            assert failed.value.response.headers["x-should-retry"] == "false"
            # What the other clients go by: none of them takes these for a passing fault.
            assert failed.value.status_code == (400 if status == 400 else 424)
        assert failed.value.body["message"]
        assert failed.value.body["type"]
        assert (ledger.payments, upstream.request_count) == (1, 2)


async def _complete(client, asked):
    said = await client.chat.completions.create(**asked)
    return [piece async for piece in said] if asked["stream"] else said


async def test_a_rate_limit_that_passes_is_got_over_by_the_clients_own_retry(http_fleet, ledger):
    limited = ErrorStatus(429, "slower", retry_after="1")
    async with provider_of(http_fleet.settings, limited) as (api, _), client_of(api) as client:
        completion = await client.chat.completions.create(**ledger.asked())
    assert completion.choices[0].message.content.endswith("written")
    assert ledger.payments == 1


async def test_a_run_that_somebody_cancels_is_not_begun_again(api, ledger):
    async with client_of(api) as client:
        asking = asyncio.create_task(client.chat.completions.create(**ledger.asked(seconds=30)))
        await ledger.until(1)
        run_id = (await run_of(api, ledger))["run_id"]
        await api.client.post(f"/v1/runs/{run_id}/cancel", json={"reason": "enough of it"})
        with pytest.raises(openai.APIStatusError, match="was cancelled: enough of it") as cancelled:
            await asking
    assert cancelled.value.status_code == 424
    assert ledger.payments == 1


# --- hanging up -------------------------------------------------------------------------------------------------------


async def end_of(api, ledger):
    return await api.ended((await run_of(api, ledger))["run_id"])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("says", [None, "x-stainless-retry-count", "idempotency-key"])
async def test_a_run_whose_client_has_left_for_good_is_cancelled(http_fleet, ledger, says, stream):
    headers = {} if says is None else retry(0) if says != "idempotency-key" else with_key(f"left {ledger.path}")
    async with provider_of(http_fleet.settings, grace_s=0.3) as (api, _):
        asked = ledger.asked(seconds=50, stream=stream)
        asking = asyncio.create_task(api.client.post(PATH, json=asked, headers=headers))
        await ledger.until(1)
        asking.cancel()
        run = await end_of(api, ledger)
        assert (run["state"], run["reason"]) == ("cancelled", "nobody waits for it any more")
        if says == "idempotency-key":  # it has paid, so a repeat is told so
            again = await api.client.post(PATH, json=asked, headers=headers)
            assert (again.status_code, again.headers["x-should-retry"]) == (424, "false")
    assert ledger.payments == 1


async def test_a_run_that_somebody_has_joined_is_not_cancelled_when_the_first_leaves(http_fleet, model, ledger):
    key = with_key(f"joined {ledger.path}")
    async with provider_of(http_fleet.settings, grace_s=0.3) as (one, _), api_of(http_fleet.settings, model) as other:
        first = asyncio.create_task(streamed(one, ledger.asked(seconds=2.0), **key))
        await ledger.until(1)
        joined = asyncio.create_task(streamed(other, ledger.asked(seconds=2.0), **key))
        await asyncio.sleep(0.3)
        first.cancel()
        assert (await joined)[1].endswith("written")
    assert ledger.payments == 1


async def test_whoever_comes_and_goes_meanwhile_has_a_moment_of_their_own(http_fleet, ledger):
    key = with_key(f"meanwhile {ledger.path}")
    async with provider_of(http_fleet.settings, grace_s=1.0) as (api, _):
        asked = ledger.asked(seconds=3.0)
        for _ in range(4):  # each stays away for less than a moment, all together for more
            asking = asyncio.create_task(api.client.post(PATH, json=asked, headers=key))
            await ledger.until(1)
            await asyncio.sleep(0.2)
            asking.cancel()
            await asyncio.sleep(0.4)
        answer = await api.client.post(PATH, json=asked, headers=key)
    assert (answer.status_code, ledger.payments) == (200, 1)


async def test_a_server_that_stops_leaves_the_run_of_a_client_that_may_come_back(http_fleet, model, ledger):
    key = with_key(f"stopped {ledger.path}")
    asked = ledger.asked(seconds=2.0)
    async with api_of(http_fleet.settings, model) as other:
        async with httpx.AsyncClient(timeout=WAIT_S) as client:
            async with provider_of(http_fleet.settings, grace_s=0.0) as (one, _):
                headers = {**key, "authorization": one.client.headers["authorization"]}
                first = asyncio.create_task(
                    client.post(f"{one.url}{PATH}", json={**asked, "stream": True}, headers=headers)
                )
                await ledger.until(1)
            assert "this server stops" in (await first).text.splitlines()[-2]
        assert (await streamed(other, asked, **key))[1].endswith("written")
    assert ledger.payments == 1


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_who_joins_is_held_to_the_limits_of_their_key(http_fleet, model, ledger):
    settings = http_fleet.settings.model_copy(update={"api_listeners": 2, "api_running_runs": 1})
    async with api_of(settings, model) as api:
        # A key and a tenant of their own: those of other tests may have runs that go on, which count for the fleet.
        owner = f"limited {ledger.path}"
        secret, _ = await api.door.keyring.add(owner, tenant=owner)
        api.client.headers["authorization"] = f"Bearer {secret}"
        asked, key = ledger.asked(seconds=1.5, stream=True), with_key("limits")
        two = [asyncio.create_task(streamed(api, asked, **key)) for _ in range(2)]
        await ledger.until(1)
        third = await api.client.post(PATH, json=asked, headers=key)
        assert (third.status_code, third.json()["limit"]) == (429, "api_listeners")
        # One run is all that this key may have, and it is one.
        assert (await api.client.post(PATH, json={**asked, "stream": False}, headers=retry(0))).status_code == 429
        assert len({text for _, text in await asyncio.gather(*two)}) == 1
    assert ledger.payments == 1


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (ErrorStatus(401, message="no key like sk-of-the-server"), "server_error", "refused the key of this server"),
        (ErrorStatus(429), "rate_limit_exceeded", "had no effect"),
        (ErrorStatus(400, message="no such thing"), "invalid_prompt", "no such thing"),
    ],
)
async def test_a_response_says_why_it_failed_as_a_completion_does(http_fleet, fault, code, words):
    async with provider_of(http_fleet.settings, fault, fault) as (api, _):
        told = (await api.client.post(PATH, json=hello("messages"))).json()["error"]
        response = (await api.client.post("/v1/responses", json=hello("input"))).json()
    assert (response["status"], response["error"]["code"]) == ("failed", code)
    message = response["error"]["message"]
    assert words in message
    assert "sk-of-the-server" not in message
    assert without_run(message) == without_run(told["message"])


def hello(field):
    return {"model": REHEARSAL_MODEL, field: [{"role": "user", "content": "hello"}]}


def without_run(message):
    return re.sub(r"run \w+|127[.]0[.]0[.]1:\d+", "", message)
