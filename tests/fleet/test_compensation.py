"""Effects that are taken back, as workers do it: once, with what was returned, never mistaken for the tool. Row R9."""

import json
from collections.abc import Iterator

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE, asking

from toolfleet import Failed, FailureKind, Returned
from toolfleet.calls import undo_id
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

KINDS = {"asyncio": ("--kind", "asyncio", "--concurrency", "8"), "prefork": ("--kind", "prefork", "--concurrency", "2")}


@pytest.fixture(scope="module", params=KINDS)
def fleet(request) -> Iterator[LocalFleet]:
    options = [*KINDS[request.param], "--queues", "io,cpu"]
    with LocalFleet(
        ["surrounded_tools"], pools={"io": 1}, environment=HERE, worker_options=options, namespace="undoing"
    ) as running:
        yield running


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


def undoing(post, call, result):
    return call.model_copy(update={"call_id": undo_id(call.call_id), "undoes": result})


async def test_R9_a_compensation_is_given_the_call_and_its_result(post, ledger):
    call = post.call("book", {"seat": "12A", "path": str(ledger)})
    post.send(call)
    _, booked = await post.result()
    post.send(undoing(post, call, booked))
    assert await post.result() == (undo_id(call.call_id), Returned(content="Done"))
    assert ledger.read_text() == "booked 12A\ncancelled T-12A\n"


async def test_R9_a_plain_function_compensates_too(post, ledger):
    call = post.call("reserve", {"car": "red", "path": str(ledger)})
    post.send(undoing(post, call, Returned(content="reserved red")), queue="cpu")
    assert (await post.result())[1] == Returned(content="the car is free again")
    assert ledger.read_text() == "undid reserved red\n"


async def test_R9_a_compensation_that_arrives_twice_runs_once(post, ledger):
    call = post.call("book", {"seat": "1", "path": str(ledger)})
    undo = undoing(post, call, Returned(content="booked", attributes={"ticket": "T-1"}))
    for _ in range(3):
        post.send(undo)
    await post.result()
    post.send(post.call("pay", {"amount": 1}))
    assert (await post.result())[1] == Returned(content="paid")
    assert ledger.read_text() == "cancelled T-1\n"


async def test_R9_a_compensation_that_fails_says_so(post, ledger):
    call = post.call("book", {"seat": "stuck", "path": str(ledger)})
    post.send(undoing(post, call, Returned(content="booked", attributes={"ticket": "T"})))
    _, failed = await post.result()
    assert failed.kind is FailureKind.ERROR
    assert failed.message.startswith("it cannot be cancelled any more")


async def test_R9_a_tool_that_cannot_be_taken_back_says_so(post):
    call = post.call("pay", {"amount": 1})
    post.send(undoing(post, call, Returned(content="paid")))
    assert (await post.result())[1] == Failed(kind=FailureKind.ERROR, message="pay has no compensate function")


# --- decided by the orchestrator -------------------------------------------------------------------------------------

DECLINED = "pay failed: the card was declined"


def trip(path, seat="12A", amount=500):
    return (
        ("1", "book", json.dumps({"seat": seat, "path": path})),
        ("2", "reserve", json.dumps({"car": "red", "path": path})),
        ("3", "pay", json.dumps({"amount": amount})),
    )


@pytest.fixture
async def converse(fleet):
    async def run(*calls, **options):
        model = WrittenModel((requesting(*calls), "tool_calls"))
        async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
            return await orchestrator.run("?", **options)

    return run


async def test_R9_when_a_call_fails_what_the_others_did_is_taken_back_the_last_one_first(converse, ledger):
    run = await converse(*trip(str(ledger)), compensate=True)
    booked, reserved, paid = (message.content for message in run.messages[2:5])
    assert booked == f"book had succeeded and was rolled back, because {DECLINED}"
    assert reserved == f"reserve had succeeded and was rolled back, because {DECLINED}"
    assert paid == "the card was declined"
    assert ledger.read_text().splitlines()[-2:] == ["undid reserved red", "cancelled T-12A"]
    assert len(ledger.read_text().splitlines()) == 4
    assert [call.result.kind for call in run.calls] == ["rolled_back", "rolled_back", "error"]


@pytest.mark.parametrize(("amount", "compensate"), [(5, True), (500, False)], ids=["none_failed", "not_asked_for"])
async def test_R9_nothing_is_taken_back_without_need_or_wish(converse, ledger, amount, compensate):
    run = await converse(*trip(str(ledger), amount=amount), compensate=compensate)
    assert sorted(ledger.read_text().splitlines()) == ["booked 12A", "reserved red"]
    assert run.messages[2].content == "booked 12A"


async def test_R9_what_cannot_be_taken_back_is_said_and_the_rest_is_taken_back(converse, ledger):
    run = await converse(*trip(str(ledger), seat="stuck"), compensate=True)
    assert run.calls[0].result.kind is FailureKind.IN_DOUBT
    assert "Rolling it back failed: it cannot be cancelled any more" in run.messages[2].content
    assert "undid reserved red" in ledger.read_text()


async def test_R9_calls_without_a_loop_are_taken_back_too(fleet, ledger):
    calls = [(name, json.loads(arguments)) for _, name, arguments in trip(str(ledger))]
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        results = await orchestrator.execute_results(asking(*calls), compensate=True)
    assert [result.kind for result in results] == ["rolled_back", "rolled_back", "error"]
    assert ledger.read_text().splitlines()[-1] == "cancelled T-12A"


async def test_R9_what_a_lost_orchestrator_has_taken_back_is_not_taken_back_again(post, converse, ledger):
    run_id = f"lost-{post.reply_to}"
    booking = post.call("book", {"seat": "12A", "path": str(ledger)}, run_id=run_id, call_id=f"{run_id}.1.0")
    post.send(undoing(post, booking, Returned(content="booked 12A", attributes={"ticket": "T-12A"})))
    await post.result()
    run = await converse(*trip(str(ledger)), compensate=True, run_id=run_id)
    assert ledger.read_text().count("cancelled T-12A") == 1
    assert run.calls[0].result.kind is FailureKind.ROLLED_BACK
