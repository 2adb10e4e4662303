"""What the suite for pools in Python asks of cancels, time, leases, losses and stops, of workers in other languages."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from post import Post
from processes import kill, until_gone

from tests.languages.conftest import LANGUAGES
from toolfleet.calls import Progress
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.fleet.cancel import CancelRequest
from toolfleet.orchestrator.run.updates import CallProgressed

LEASE_S = 3.0
WAIT_S = 20
DOUBT = "may or may not have happened"


@pytest.fixture(scope="module")
def fleet(language):
    settings = {"lease_s": LEASE_S, "heartbeat_s": 0.5, "shutdown_grace_s": 1.0, "max_deliveries": 2}
    with language.fleet_of(2, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def patient(language):
    """One worker whose lease and grace last longer than any test."""
    with language.fleet_of(lease_s=600, shutdown_grace_s=60) as running:
        yield running


@pytest.fixture(autouse=True)
def two_workers(fleet, language):
    for _ in range(2 - len(fleet.alive())):
        language.start(fleet)
    fleet.workers[:] = fleet.alive()
    fleet.wait_until_ready()


def worker_of(fleet, actor):
    [worker] = [each for each in fleet.workers if each.pid == actor.pid]
    return worker


async def test_X2_a_cancelled_call_ends_and_its_tool_hears_of_it(begin, stage, orchestrator):
    answer = begin(
        ("play", {"stage": stage.path}), ("play_once", {"stage": stage.path}), ("play", {"stage": stage.path})
    )
    actors = {actor.call_id[-1]: actor for actor in [await stage.enters() for _ in range(3)]}
    unwanted = [CancelRequest(actors[n].call_id, "play", 0.0) for n in "01"]
    await orchestrator._services.canceller.cancel(unwanted)
    assert [await actors[n].leaves() for n in "01"] == ["cancelled", "cancelled"]
    actors["2"].returns("not me")
    doubt = f" Its effect {DOUBT}."
    assert await answer == [
        "play was cancelled while it ran.",
        f"play_once was cancelled while it ran.{doubt}",
        "not me",
    ]


async def test_X2_progress_and_time(begin, orchestrator):
    heard = []
    answer = await begin(("long_job", {"steps": 4}), on_event=heard.append)
    assert answer == ['{"steps":4}']
    told = [event for event in heard if isinstance(event, CallProgressed)]
    assert told[-1].message.startswith("step ")
    [deaf] = await begin(("deaf", {}))
    assert deaf.startswith("deaf did not finish within 0.1 s. It does not listen to its ")
    [late] = await begin(("hurried", {}), timeout_s=0.2)
    assert "did not finish within 0." in late


async def test_X2_the_last_that_a_tool_says_is_told_before_its_result(fleet):
    async with Post(fleet.settings) as post:
        post.send(post.call("long_job", {"steps": 2}), queue="io")  # ends before the second is due to be told
        assert (await post.progress())[-1] == Progress(fraction=1, message="step 2")


async def test_X2_a_tool_that_blocks_its_loop_beyond_the_lease_keeps_its_calls(begin, stage):
    answer = begin(("play_once", {"stage": stage.path}), ("play", {"stage": stage.path}))
    first, second = await stage.enters(), await stage.enters()
    first._direct({"spin": 1.5 * LEASE_S})
    first.returns("at last")
    second.returns("too")
    assert sorted(await answer) == ["at last", "too"]
    assert len(stage.actors) == 2


async def test_X2_a_killed_workers_calls_are_repeated_or_in_doubt(fleet, language, begin, stage):
    answer = begin(("play", {"stage": stage.path}))
    first = await stage.enters()
    first._direct({"checkpoint": {"row": 9007199254740993 // 2}})
    first.progresses(0.5, "kept")
    await asyncio.sleep(0.2)  # the stage hears nothing of what is stored
    kill(worker_of(fleet, first))
    second = await stage.enters()
    assert (second.call_id, second.seen["attempt"], second.seen["key"]) == (first.call_id, 2, first.call_id)
    assert second.seen["checkpoint"] == {"row": 9007199254740993 // 2}
    second.returns("survived")
    assert await answer == ["survived"]
    language.start(fleet)
    fleet.wait_until_ready()
    once = begin(("play_once", {"stage": stage.path}))
    actor = await stage.enters()
    kill(worker_of(fleet, actor))
    [content] = await once
    assert DOUBT in content
    assert len(stage.actors) == 3


async def test_X2_a_worker_that_stops_ends_what_it_can_and_hands_back_the_rest(fleet, begin, stage):
    answer = begin(("play", {"stage": stage.path}))
    first = await stage.enters()
    worker = worker_of(fleet, first)
    worker.ask_to_stop()
    second = await stage.enters()
    assert (second.call_id, second.seen["attempt"]) == (first.call_id, 1)  # handed back, which counts for nothing
    assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
    second.returns("by another")
    assert await answer == ["by another"]


async def test_X2_a_killed_workers_companion_has_its_calls_go_on_long_before_its_lease_ends(language, patient, stage):
    async with Orchestrator(settings=patient.settings) as orchestrator:
        called = asyncio.create_task(orchestrator.call("play", {"stage": stage.path}))
        first = await stage.enters()
        language.start(patient)
        patient.wait_until_ready()
        kill(worker_of(patient, first))
        patient.workers[:] = patient.alive()
        (await stage.enters()).returns("by another")
        assert (await called).content == "by another"


async def test_X2_what_runs_may_end_within_the_grace_and_a_second_signal_ends_it(patient, stage):
    async with Orchestrator(settings=patient.settings) as orchestrator:
        [worker] = patient.workers
        ended = asyncio.create_task(orchestrator.call("play_once", {"stage": stage.path}))
        doubted = asyncio.create_task(orchestrator.call("play_once", {"stage": stage.path}))
        actors = [await stage.enters(), await stage.enters()]
        worker.ask_to_stop()
        actors[0].returns("in peace")
        done, _ = await asyncio.wait([ended, doubted], return_when=asyncio.FIRST_COMPLETED)
        assert [each.result().content for each in done] == ["in peace"]
        os.kill(worker.pid, signal.SIGTERM)
        results = [await ended, await doubted]
        assert [DOUBT in getattr(each, "message", "") for each in results].count(True) == 1
        assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0
        until_gone(worker.pid)


BIG = 9007199254740993
ONLY_THERE = {
    LANGUAGES["typescript"]: {
        f"bigint {BIG}": ("kind_of", {"value": BIG}),
        "number 7": ("kind_of", {"value": 7}),
        str(2 * BIG): ("doubled", {"value": BIG}),
        "bad arguments for add: parameter 'a'": ("add", {"a": BIG, "b": 1}),
        "went on": ("stray", {}),
    },
    LANGUAGES["go"]: {
        f'{{"value":{10**30 + 1}}}': ("parsed_echo", {"value": 10**30 + 1}),
        str(BIG + 1): ("add", {"a": BIG, "b": 1}),
        "json: cannot unmarshal number 1180591620717411303424": ("add", {"a": 2**70, "b": 1}),
        "The arguments of add do not fit": ("add", '{"a": 1e999999999, "b": 1}'),
        "tool failed: broken": ("fail", {"kind": "panic", "text": "broken"}),
    },
}


async def test_X2_large_integers_survive_both_ways_and_what_each_language_has_of_its_own(language, begin):
    assert await begin(("echo", {"value": [BIG, {"deep": -BIG}]})) == [f'[{BIG},{{"deep":{-BIG}}}]']
    expected = ONLY_THERE[language]
    for content, wanted in zip(await begin(*expected.values()), expected, strict=True):
        assert content.startswith(wanted)
