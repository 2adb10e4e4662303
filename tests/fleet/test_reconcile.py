"""A lost call with an effect, whose tool can find out what became of it."""

import asyncio
import os
import signal

import pytest
from fleets import HERE
from post import Post
from processes import WAIT_S, ask_to_stop, kill, replenish, until_gone, worker_of

from toolfleet.calls import Failed, FailureKind
from toolfleet.local.fleet import LocalFleet

POOL = {"pay": "io", "pay_on_thread": "io", "pay_in_process": "cpu"}
PAID = "paid under {}, as attempt 2 found"


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["effect_tools"],
        pools={"io": 2, "cpu": 2},
        environment=HERE,
        lease_s=3.0,
        heartbeat_s=0.5,
        max_deliveries=3,
        shutdown_grace_s=0.2,
    ) as running:
        yield running


@pytest.fixture
async def begin(fleet, stage):
    """Start one call; a task whose result is the call's."""
    replenish(fleet, io=2, cpu=2)
    post = Post(fleet.settings)

    def begun(tool, verdict):
        call = post.call(tool, {"stage": stage.path, "verdict": verdict})
        post.send(call, queue=POOL[tool], claim=60)
        return asyncio.create_task(post.result())

    yield begun
    await post.aclose()


@pytest.mark.parametrize("tool", POOL)
async def test_an_effect_that_is_found_to_have_happened_is_the_result_and_not_repeated(fleet, begin, stage, tool):
    answer = begin(tool, "paid")
    actor = await stage.enters()
    kill(worker_of(fleet, actor.pid))
    assert (await answer)[1].content == PAID.format(actor.call_id)
    assert len(stage.actors) == 1


@pytest.mark.parametrize("tool", POOL)
async def test_an_effect_that_is_found_not_to_have_happened_is_brought_about(fleet, begin, stage, tool):
    answer = begin(tool, "not done")
    first = await stage.enters()
    kill(worker_of(fleet, first.pid))
    second = await stage.enters()
    assert (second.call_id, second.seen["attempt"]) == (first.call_id, 2)
    second.returns("paid after all")
    assert (await answer)[1].content == "paid after all"


async def test_what_the_tool_found_to_have_failed_has_failed(fleet, begin, stage):
    answer = begin("pay", "bounced")
    kill(worker_of(fleet, (await stage.enters()).pid))
    _, failed = await answer
    assert failed == Failed(kind=FailureKind.ERROR, message="the bank said no")


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ("broken", "because its reconcile function raised OSError: the bank is closed"),
        ("unsure", "because its reconcile function returned a str, not Returned, Failed or NotDone"),
    ],
)
async def test_what_nobody_can_find_out_is_in_doubt_and_says_why(fleet, begin, stage, verdict, reason):
    answer = begin("pay", verdict)
    kill(worker_of(fleet, (await stage.enters()).pid))
    _, failed = await answer
    assert failed.kind is FailureKind.IN_DOUBT
    assert "may or may not have happened" in failed.message
    assert reason in failed.message
    assert any("reconcile_undecided" in worker.log_path.read_text() for worker in fleet.workers)


@pytest.mark.parametrize("tool", ["pay", "pay_in_process"])
async def test_a_worker_that_is_lost_while_it_asks_leaves_the_question_to_the_next(fleet, begin, stage, tool, tmp_path):
    replenish(fleet, io=3, cpu=2)
    answer = begin(tool, str(tmp_path / "died"))
    actor = await stage.enters()
    kill(worker_of(fleet, actor.pid))
    third = await stage.enters()
    assert third.seen["attempt"] == 3
    third.returns("paid at last")
    assert (await answer)[1].content == "paid at last"


async def test_a_question_that_kills_every_worker_is_given_up_in_doubt(fleet, begin, stage):
    answer = begin("pay_in_process", "deadly")
    actor = await stage.enters()
    kill(worker_of(fleet, actor.pid))
    assert "may or may not have happened" in (await answer)[1].message
    assert len(stage.actors) == 1


@pytest.mark.parametrize("tool", ["pay", "pay_in_process"])
async def test_any_number_of_orderly_restarts_is_no_crash(fleet, begin, stage, tool):
    answer = begin(tool, "not done")
    for _ in range(fleet.settings.max_deliveries + 1):
        actor = await stage.enters()
        stopping = worker_of(fleet, actor.pid)
        ask_to_stop(stopping)
        await asyncio.to_thread(stopping.process.wait, WAIT_S)
        await asyncio.to_thread(replenish, fleet, io=2, cpu=2)
    (await stage.enters()).returns("paid at last")
    assert (await answer)[1].content == "paid at last"


@pytest.mark.parametrize("verdict", ["paid", "not done"])
async def test_a_lost_child_process_is_asked_about_like_a_lost_worker(fleet, begin, stage, verdict):
    answer = begin("pay_in_process", verdict)
    first = await stage.enters()
    os.kill(first.pid, signal.SIGKILL)
    if verdict == "not done":
        (await stage.enters()).returns("paid after all")
    assert (await answer)[1].content == ("paid after all" if verdict == "not done" else PAID.format(first.call_id))


@pytest.mark.parametrize("tool", ["pay", "pay_in_process"])
async def test_a_worker_that_stops_in_the_midst_of_an_effect_leaves_the_question_to_another(fleet, begin, stage, tool):
    answer = begin(tool, "paid")
    actor = await stage.enters()
    worker = worker_of(fleet, actor.pid)
    ask_to_stop(worker)
    assert (await answer)[1].content == PAID.format(actor.call_id)
    assert await asyncio.to_thread(worker.process.wait, 20) == 0
    until_gone(actor.pid)
    assert len(stage.actors) == 1
