"""Tools that yield: what comes is seen as it comes, in order, and the result is its sum."""

import asyncio
import json

import pytest
from fleets import HERE
from post import Post
from processes import kill, replenish, worker_of

from toolfleet.call_news import open_news
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.run.updates import CallYielded
from toolfleet.tool import tool

POOLS = {"io": 1, "cpu": 1}


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["question_tools", "fleet_tools"], pools=POOLS, environment=HERE, lease_s=3.0, heartbeat_s=0.5
    ) as running:
        yield running


@pytest.fixture
async def post(fleet):
    post = Post(fleet.settings)
    yield post
    await post.aclose()


async def heard_of(post, call_id):
    """All that was told of a call's pieces."""
    entries = await post.client.xrange(post.keys.replies(post.reply_to))
    return [
        open_news(post.seal, fields[b"n"], call_id)
        for _, fields in entries
        if b"n" in fields and fields[b"c"].decode() == call_id
    ]


async def until_heard(post, call_id, *, text):
    async with asyncio.timeout(20):
        while "".join(each.text for each in await heard_of(post, call_id)) != text:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("name", "queue"), [("recite", "io"), ("recite_on_thread", "io"), ("recite_in_process", "cpu")]
)
async def test_U14_the_result_is_the_sum_and_each_piece_is_told_before_it(post, name, queue):
    call = post.call(name, {"words": ["A ", "☃ ", "\x1b[31m ", "9007199254740993"]})
    post.send(call, queue=queue)
    _, returned = await post.result()
    assert returned.content == "A ☃ \x1b[31m 9007199254740993"
    heard = await heard_of(post, call.call_id)
    assert "".join(each.text for each in heard) == returned.content
    assert [each.first for each in heard] == [sum(each.count for each in heard[:at]) for at in range(len(heard))]
    assert not any(each.voids for each in heard)


async def test_U14_whoever_looks_on_sees_pieces_while_the_tool_goes_on(orchestrator, stage):
    seen: asyncio.Queue[CallYielded] = asyncio.Queue()

    def look(event):
        if isinstance(event, CallYielded):
            seen.put_nowait(event)

    call = asyncio.create_task(
        orchestrator.call("recite", {"words": ["one ", "two ", "three"], "stage": stage.path}, on_event=look)
    )
    actor = await stage.enters()
    text = ""
    async with asyncio.timeout(20):
        while text != "one two ":
            text += (await seen.get()).text
    assert not call.done()
    actor.returns("on")
    assert (await call).content == "one two three"
    assert (await seen.get()).text == "three"


async def test_U14_a_lost_worker_begins_again_and_says_that_what_came_before_is_void(fleet, post, stage):
    call = post.call("recite", {"words": ["one ", "two"], "stage": stage.path})
    post.send(call)
    first = await stage.enters()
    await until_heard(post, call.call_id, text="one ")
    kill(worker_of(fleet, first.pid))
    replenish(fleet, **POOLS)
    (await stage.enters()).returns("on")
    _, returned = await post.result()
    assert returned.content == "one two"
    heard = await heard_of(post, call.call_id)
    assert (heard[0].attempt, heard[0].voids) == (1, False)
    begun_anew = [each for each in heard if each.attempt == 2]
    assert begun_anew[0].voids
    assert not any(each.voids for each in begun_anew[1:])
    assert "".join(each.text for each in begun_anew) == "one two"


async def test_U14_a_hundred_thousand_pieces_cost_few_commands_and_bounded_memory(post):
    before = await post.client.info("commandstats")
    call = post.call("count_out", {"pieces": 100_000})
    post.send(call)
    _, returned = await post.result()
    after = await post.client.info("commandstats")
    assert returned.artifact or returned.content == "x" * 100_000
    heard = await heard_of(post, call.call_id)
    assert all(len(each.text) <= 65_536 for each in heard)
    calls = {
        name: after[f"cmdstat_{name}"]["calls"] - before.get(f"cmdstat_{name}", {"calls": 0})["calls"]
        for name in ("xadd", "expire")
    }
    assert calls["xadd"] < 100, calls


async def test_U14_pieces_that_are_no_texts_make_a_list_and_what_is_not_declared_is_refused(post):
    post.send(post.call("squares", {"below": 3}))
    _, returned = await post.result()
    assert json.loads(returned.content) == [{"of": 0, "is": 0}, {"of": 1, "is": 1}, {"of": 2, "is": 4}]
    post.send(post.call("mixed"))
    _, failed = await post.result()
    assert "mixed yields texts, and a int" in failed.message


async def test_U14_a_call_that_is_cancelled_in_the_midst_closes_its_generator(orchestrator, tmp_path):
    begun: asyncio.Queue[str] = asyncio.Queue()

    def look(event):
        if isinstance(event, CallYielded):
            begun.put_nowait(event.call_id)

    call = asyncio.create_task(orchestrator.call("endless", {"path": str(tmp_path / "end")}, on_event=look))
    async with asyncio.timeout(20):
        call_id = await begun.get()
    await orchestrator.cancel_call(call_id)
    assert (await call).kind == "cancelled"
    assert (tmp_path / "end").read_text() == "closed"


def test_U14_what_a_tool_yields_says_what_its_result_is():
    @tool
    async def texts():
        """Yield."""
        yield "a"

    @tool
    def numbers():
        """Yield."""
        yield 1

    numbers.__wrapped__.__annotations__["return"] = "Iterator[int]"
    assert texts.spec.output_schema == {"type": "string"}
    assert texts.spec.queue == "io"
