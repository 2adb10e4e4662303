"""Effects that are taken back, as workers do it: once, with what was returned, never mistaken for the tool. Row R9."""

from collections.abc import Iterator

import pytest
from fleets import HERE
from post import Post

from toolfleet import Failed, FailureKind, Returned
from toolfleet.calls import undo_id
from toolfleet.local import LocalFleet

KINDS = {"asyncio": ("--kind", "asyncio", "--concurrency", "8"), "prefork": ("--kind", "prefork", "--concurrency", "2")}


@pytest.fixture(scope="module", params=KINDS)
def fleet(request) -> Iterator[LocalFleet]:
    options = [*KINDS[request.param], "--queues", "io,cpu"]
    with LocalFleet(
        ["surrounded_tools"], pools={"io": 1}, environment=HERE, worker_options=options, namespace="undoing"
    ) as running:
        yield running


@pytest.fixture
async def post(fleet):
    post = Post(fleet.settings)
    yield post
    await post.aclose()


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
