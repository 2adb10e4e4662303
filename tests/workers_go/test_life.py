"""How a worker in Go lives, and how it is lost (X2)."""

import asyncio
import os
import secrets
import signal
import subprocess
from collections import Counter

import pytest

from tests.workers_go.conftest import announced, go_worker, wait_until
from tests.workers_go.test_conformance import asking
from toolfleet.connections import connect, connect_async
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings, new_secret
from toolfleet.wire import Seal

LEASE_S = 3.0


@pytest.fixture
def hasty(redis_server, monkeypatch) -> Settings:
    """Settings by which a lost worker is missed soon."""
    monkeypatch.setenv("TOOLFLEET_LEASE_S", str(LEASE_S))
    return Settings(
        redis_url=redis_server.url,
        namespace=f"test-{secrets.token_hex(4)}",
        secret=new_secret(),
        lease_s=LEASE_S,
        heartbeat_s=0.5,
    )


def lines(ledger) -> Counter[str]:
    return Counter(ledger.read_text().splitlines()) if ledger.exists() else Counter()


async def began(ledger, count: int = 1) -> None:
    await asyncio.to_thread(
        wait_until, lambda: sum(line.startswith(("began", "step")) for line in lines(ledger)) >= count
    )


async def test_X2_killed_a_call_with_an_effect_ends_in_doubt_and_others_go_on_elsewhere(hasty, program, tmp_path):
    once, again, steps = tmp_path / "once", tmp_path / "again", tmp_path / "steps"
    async with Orchestrator(settings=hasty) as orchestrator:
        with go_worker(hasty, program, is_killed=True) as first:
            asked = asyncio.create_task(
                orchestrator.execute(
                    asking(
                        ("sleep_once", {"seconds": 60, "ledger": str(once)}),
                        ("sleep_again", {"seconds": 0.5, "ledger": str(again)}),
                        ("steps", {"steps": 8, "ledger": str(steps)}),
                    )
                )
            )
            await began(once), await began(again), await began(steps, 3)
            first.send_signal(signal.SIGSTOP)  # before the half second is over, then killed
            first.kill()
            first.wait()
        with go_worker(hasty, program):
            doubtful, repeated, went_on = await asked
    assert doubtful.is_error
    assert "may or may not have happened" in doubtful.content
    assert repeated.content == "slept 0.5 s"
    attempt, step = went_on.content.removeprefix("attempt ").split(" began at step ")
    assert int(attempt) == 2
    assert int(step) >= 2
    assert sum(lines(once).values()) == 1
    # The step that was under way when the worker was killed may be done twice, none else.
    assert sum(lines(steps).values()) <= 9


async def test_X2_a_busy_processor_does_not_lose_the_lease(hasty, program):
    async with Orchestrator(settings=hasty) as orchestrator:
        with go_worker(hasty, program), go_worker(hasty, program):
            spins = [("spin", {"seconds": 2 * LEASE_S})] * 4
            messages = await orchestrator.execute(asking(*spins, ("who_am_i", {})))
    assert [message.content for message in messages[:4]] == ["spun"] * 4


async def test_X2_a_cancelled_call_is_stopped(settings, program, tmp_path):
    ledger = tmp_path / "ledger"
    async with Orchestrator(settings=settings) as orchestrator:
        with go_worker(settings, program):
            run = asyncio.create_task(orchestrator.call("sleep_once", {"seconds": 60, "ledger": str(ledger)}))
            await began(ledger)
            [line] = lines(ledger)
            await orchestrator.cancel_call(line.split()[1])
            result = await run
            await asyncio.to_thread(wait_until, lambda: "stopped" in str(lines(ledger)))
    assert result.kind == "cancelled"


async def test_X2_stopped_it_ends_its_calls_and_takes_nothing_new(settings, program, tmp_path):
    ledger = tmp_path / "ledger"
    async with Orchestrator(settings=settings) as orchestrator:
        with go_worker(settings, program) as process:
            asked = asyncio.create_task(orchestrator.call("sleep_once", {"seconds": 2, "ledger": str(ledger)}))
            await began(ledger)
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(wait_until, lambda: not announced(settings))
            assert (await asked).content == "slept 2 s"
            assert process.wait(30) == 0
    assert sorted(line.split()[0] for line in lines(ledger)) == ["began", "ended"]


async def test_X2_a_second_signal_hands_back_what_may_be_repeated_uncounted_and_ends_the_rest_in_doubt(
    settings, program, tmp_path
):
    ledger = tmp_path / "ledger"
    async with Orchestrator(settings=settings) as orchestrator:
        with go_worker(settings, program) as process:
            asked = asyncio.create_task(orchestrator.call("sleep_again", {"seconds": 3, "ledger": str(ledger)}))
            once = asyncio.create_task(orchestrator.call("sleep_once", {"seconds": 3, "ledger": str(ledger)}))
            await began(ledger, 2)
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(wait_until, lambda: not announced(settings))
            process.send_signal(signal.SIGTERM)  # the second ends it at once
            process.wait(10)
            assert (await once).kind == "in_doubt"
            with go_worker(settings, program):
                assert (await asked).attempt.number == 1


async def test_X2_progress_is_heard(settings, program, tmp_path):
    ledger = tmp_path / "ledger"
    async with connect_async(settings) as client, Orchestrator(settings=settings) as orchestrator:
        with go_worker(settings, program):
            asked = asyncio.create_task(orchestrator.call("steps", {"steps": 4, "ledger": str(ledger)}))
            await began(ledger, 2)
            [key] = [key async for key in client.scan_iter(f"{settings.namespace}:progress:*")]
            call_id = key.decode().rpartition(":")[2]
            progress = Seal(settings).open_progress(await client.get(key), call_id)
            await asked
    assert progress.message.startswith("step ")
    assert 0 < progress.fraction <= 1


async def test_X2_junk_and_strangers_are_buried_and_the_rest_goes_on(settings, program):
    async with connect_async(settings) as client, Orchestrator(settings=settings) as orchestrator:
        with go_worker(settings, program):
            await orchestrator.execute(asking(("echo", {"value": 1})))
            stream = f"{settings.namespace}:queue:io:3"
            await client.xadd(stream, {"b": "junk"})
            await client.xadd(
                stream,
                {"b": '[["{}","' + 64 * "0" + '"],{},{}]', "h": '{"id":"a","task":"echo"}', "p": "{}", "id": "a"},
            )
            await asyncio.to_thread(wait_until, lambda: dead_letters(settings) == 2)
            [message] = await orchestrator.execute(asking(("echo", {"value": 2})))
    assert message.content == "2"


def dead_letters(settings) -> int:
    client = connect(settings)
    try:
        return client.xlen(settings.keys.dead_letters())
    finally:
        client.close()


def test_X2_what_cannot_begin_says_why(settings, program):
    def words(**environment):
        ended = subprocess.run(
            [program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=30, check=False
        )
        assert ended.returncode == 1
        return ended.stderr

    assert "redis://, rediss:// and unix:// are understood" in words(TOOLFLEET_REDIS_URL="http://:secret@x/")
    refused = words(TOOLFLEET_REDIS_URL="redis://:hidden-word@127.0.0.1:1/0")
    assert "Redis does not answer" in refused
    assert "hidden-word" not in refused
    with go_worker(settings, program):
        address = {"TOOLFLEET_REDIS_URL": settings.redis_url, "TOOLFLEET_NAMESPACE": settings.namespace}
        assert "use another TOOLFLEET_SECRET than this process" in words(**address, TOOLFLEET_SECRET="x" * 40)


async def test_X2_killed_again_and_again_nothing_is_lost_and_no_effect_happens_twice(hasty, program, tmp_path):
    ledger = tmp_path / "ledger"
    async with Orchestrator(settings=hasty) as orchestrator:
        calls = [("sleep_once", {"seconds": 0.05, "ledger": str(ledger)})] * 300
        asked = asyncio.create_task(orchestrator.execute(asking(*calls)))
        for kills in range(1, 4):
            with go_worker(hasty, program, is_killed=True):
                await began(ledger, 50 * kills)
        with go_worker(hasty, program):
            messages = await asked
    counted = lines(ledger)
    assert [message.tool_call_id for message in messages] == [f"call-{n}" for n in range(300)]
    assert set(counted.values()) == {1}, "a call began or ended twice"
    ended = sum(line.startswith("ended") for line in counted)
    succeeded = sum(not message.is_error for message in messages)
    assert succeeded <= ended
    assert all("may or may not have happened" in message.content for message in messages if message.is_error)
    assert 300 - succeeded <= 150, "each kill leaves no more in doubt than ran"
