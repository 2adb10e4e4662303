"""What tools log is kept by call and attempt, on every pool: bounded, masked, at no cost where nothing is logged."""

from __future__ import annotations

import asyncio
import time

import pytest
from fleets import HERE
from post import Post
from processes import kill, replenish, worker_of

from toolfleet.call_log import close_part, encoded_line, rank_of
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.status.call_logs import CallLogReader
from toolfleet.settings import Settings
from toolfleet.wire import Seal
from toolfleet.workers.delivery.call_logs import KEEP

SECRET = "the-secret-of-this-fleet-0123456789"
POOLS = {"io": 2, "cpu": 1}


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["logging_tools"], pools=POOLS, environment=HERE, lease_s=3.0, heartbeat_s=0.5, secret=SECRET
    ) as running:
        yield running


@pytest.fixture
async def post(fleet):
    replenish(fleet, **POOLS)
    post = Post(fleet.settings)
    yield post
    await post.aclose()


def reader_of(post):
    return CallLogReader(post.client, post.settings, post.seal)


async def logged(post, tool, arguments=None, *, queue="io"):
    """The log of a call, read the moment that its result is there."""
    call = post.call(tool, arguments)
    post.send(call, queue=queue)
    await post.result()
    return await reader_of(post).of(call.call_id)


def texts(log):
    return [line.text for attempt in log.attempts for line in attempt.lines]


async def test_the_lines_of_a_call_are_there_with_its_result(post):
    [attempt] = (log := await logged(post, "talkative")).attempts
    assert [(line.level, line.logger, line.text) for line in attempt.lines] == [
        ("info", "shop.orders", "order 9007199254740993 taken"),
        ("warning", "shop.orders", "from a thread"),
        ("info", "shop.tasks", "by Celery's logger"),
    ]
    assert attempt.attempt == 1
    assert attempt.worker.startswith("io")
    assert log.lost == 0
    assert 0 < await post.client.ttl(post.keys.call_log(log.call_id)) <= 60 + 24 * 3600


async def test_so_they_are_on_threads_and_in_processes(post):
    assert texts(await logged(post, "on_thread")) == ["on a thread of tools"]
    assert texts(await logged(post, "in_process", queue="cpu")) == ["in a process", "by Celery's logger"]


async def test_so_they_are_in_celerys_pool_of_threads():
    with LocalFleet(
        ["logging_tools"], pools={"io": 1}, environment=HERE, worker_options=("--kind", "threads")
    ) as running:
        post = Post(running.settings)
        try:
            assert texts(await logged(post, "on_thread")) == ["on a thread of tools"]
            assert texts(await logged(post, "talkative"))[:2] == ["order 9007199254740993 taken", "from a thread"]
        finally:
            await post.aclose()


async def test_what_a_tool_raised_stands_behind_what_it_logged(post):
    first, raised = texts(await logged(post, "raises"))
    assert first == "about to fail"
    assert raised.startswith("tool_raised\nTraceback")
    assert raised.endswith("KeyError: 'no such order'")


async def test_a_call_that_logs_nothing_leaves_nothing(post):
    log = await logged(post, "silent")
    assert not log.attempts
    assert not await post.client.exists(post.keys.call_log(log.call_id))


async def test_of_many_lines_the_newest_are_kept_and_the_others_counted(post):
    log = await logged(post, "odd", {"kind": "many"})
    kept = texts(log)
    assert 180 <= len(kept) <= 220
    assert kept == [f"line {n}" for n in range(500 - len(kept), 500)]
    assert log.lost == 500 - len(kept)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("long", "x" * 2000 + "…"),
        ("bytes", "\ufffd \x1b[2J \u202e <script>alert(1)</script> \x00"),
        ("misfit", "%d items (its arguments do not fit: TypeError)"),
    ],
)
async def test_whatever_a_tool_logs_it_is_kept_as_text_of_bounded_length(post, kind, found):
    assert texts(await logged(post, "odd", {"kind": kind})) == [found]


async def test_no_secret_is_in_a_line_neither_of_the_settings_nor_of_the_arguments(post):
    log = await logged(post, "sign_in", {"user": "ada", "token": "hunter-two"})
    assert texts(log) == ["ada signs in with ***", "connecting to ***"]


async def test_what_runs_outside_of_any_call_is_nobodys(post):
    assert not (await logged(post, "leaves_one_behind")).attempts


async def until_logged(post, call_id, count):
    async with asyncio.timeout(20):
        while len((log := await reader_of(post).of(call_id)).attempts) < count:  # Redis tells nobody
            await asyncio.sleep(0.02)
    return log


async def test_the_lines_of_a_killed_worker_stand_before_those_of_the_next_attempt(fleet, post, stage):
    call = post.call("long", {"stage": stage.path})
    post.send(call)
    first = await stage.enters()
    assert texts(await until_logged(post, call.call_id, 1)) == ["first word"]  # while it runs
    kill(worker_of(fleet, first.pid))
    (await stage.enters()).returns("done")
    await post.result()
    lost, ended = (await reader_of(post).of(call.call_id)).attempts
    assert [line.text for line in lost.lines] == ["first word"]
    assert [line.text for line in ended.lines] == ["first word", "last word"]
    assert [lost.attempt, ended.attempt] == [1, 2]
    assert lost.worker != ended.worker


async def say_late(post, call_id):
    """Write a line of an attempt before the first, as a worker would that was stopped and woke up too late."""
    key, now_s = post.keys.call_log(call_id), time.time()
    about = {"attempt": 0, "worker": "stale", "began_unix_s": now_s}
    part = close_part(post.seal, key, about, [encoded_line(now_s, "info", "x", "late")], int(now_s * 1e6))
    await post.client.register_script(KEEP)(args=[200, 16384, key, 60, 0, 1, rank_of(0, now_s), part])
    return await reader_of(post).of(call_id)


async def test_what_an_earlier_attempt_says_late_stands_with_it_and_before_the_others(post):
    before = await logged(post, "talkative")
    stale, *others = (await say_late(post, before.call_id)).attempts
    assert [line.text for line in stale.lines] == ["late"]
    assert tuple(others) == before.attempts


async def test_it_takes_no_place_from_what_later_attempts_have_said(post):
    before = await logged(post, "odd", {"kind": "many"})
    after = await say_late(post, before.call_id)
    assert after.attempts == before.attempts
    assert after.lost == before.lost + 1


async def test_what_nobody_of_the_fleet_has_sealed_is_no_line(fleet, post):
    log = await logged(post, "talkative")
    key, other = post.keys.call_log(log.call_id), post.keys.call_log("another.1.0")
    about = {"attempt": 1, "worker": "w", "began_unix_s": 1.0}
    line = [encoded_line(1.0, "info", "x", "forged")]
    stranger = Seal(Settings(redis_url="redis://127.0.0.1:1/0", secret="somebody-elses-secret-0123456789"))
    for forged in (close_part(stranger, key, about, line, 1), close_part(post.seal, other, about, line, 2), b"junk"):
        await post.client.zadd(key, {forged: rank_of(1, 2.0)})
    await post.client.zadd(key, {b"": 1e308})
    found = await reader_of(post).of(log.call_id)
    assert found.attempts == log.attempts
    assert found.lost <= 1e9


async def test_junk_in_the_place_of_a_log_is_replaced_and_holds_up_no_call(post):
    call = post.call("talkative")
    await post.client.set(post.keys.call_log(call.call_id), "junk", ex=60)
    assert not (await reader_of(post).of(call.call_id)).attempts
    post.send(call)
    await post.result()
    assert len(texts(await reader_of(post).of(call.call_id))) == 3


async def test_nothing_is_kept_where_it_is_switched_off_and_less_where_a_higher_level_is_set():
    for level, kept in (("off", []), ("warning", ["from a thread"])):
        with LocalFleet(["logging_tools"], pools={"io": 1}, environment=HERE, call_log_level=level) as running:
            post = Post(running.settings)
            try:
                assert texts(await logged(post, "talkative")) == kept
            finally:
                await post.aclose()
