"""What a tool asks a person while it runs: it waits, is answered once, and goes on with the answer."""

import asyncio
import json

import pytest
from fleets import HERE
from post import Post
from processes import kill, replenish, worker_of

from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.calls.direct_answer import DirectAnswers
from toolfleet.orchestrator.errors import InvalidAnswer, QuestionClosed, QuestionNotFound
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal

POOLS = {"io": 1, "cpu": 1}


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["question_tools", "fleet_tools"],
        pools=POOLS,
        environment=HERE,
        lease_s=3.0,
        heartbeat_s=0.5,
        shutdown_grace_s=0.2,
    ) as running:
        yield running


@pytest.fixture
async def post(fleet):
    post = Post(fleet.settings)
    yield post
    await post.aclose()


async def asked(orchestrator, call_id, message):
    """Wait until a call asks this."""
    async with asyncio.timeout(20):
        while True:
            for each in (await orchestrator.questions()).waiting:
                if each.call_id == call_id and each.message == message:
                    return each
            await asyncio.sleep(0.02)


async def in_the_queue(post):
    """How many calls wait in the queue or are with a worker: a message leaves with its result."""
    return sum([await post.client.xlen(post.keys.queue("io", level)) for level in (0, 3, 6)])


async def until_no_worker_has_it(post):
    async with asyncio.timeout(10):
        while await in_the_queue(post):
            await asyncio.sleep(0.02)


async def test_U3_a_tool_with_a_checkpoint_leaves_its_worker_until_it_is_answered_and_counts_one_attempt(
    post, orchestrator
):
    call = post.call("transfer")
    post.send(call)
    question = await asked(orchestrator, call.call_id, "Which account?")
    assert question.answer_schema == {"enum": ["savings", "checking"], "type": "string"}
    await until_no_worker_has_it(post)
    with pytest.raises(InvalidAnswer, match=r"\$: 'piggy bank' is not one of \['savings', 'checking'\]"):
        await orchestrator.answer(question.question_id, "piggy bank")
    await orchestrator.answer(question.question_id, "savings", by="ann")
    with pytest.raises(QuestionClosed, match="answered already by ann"):
        await orchestrator.answer(question.question_id, "checking", by="bob")
    await orchestrator.answer((await asked(orchestrator, call.call_id, "Are you sure?")).question_id, True)
    _, returned = await post.result()
    assert json.loads(returned.content) == ["savings", True, 2, 1]
    assert not (await orchestrator.questions()).waiting


class Unheard(DirectAnswers):
    """Writes answers, and loses the connection before it hears that they are stored."""

    async def _write(self, asked, said):
        assert await super()._write(asked, said)
        return False


async def test_U3_who_has_not_heard_that_an_answer_is_stored_finds_it_there_and_answers_nothing_else(
    fleet, post, orchestrator
):
    call = post.call("transfer")
    post.send(call)
    first = await asked(orchestrator, call.call_id, "Which account?")
    async with connect_async(fleet.settings) as client:
        seal = Seal(fleet.settings)
        unheard = Unheard.through(client, fleet.settings, seal, RunStore(client, fleet.settings, seal))
        taken = await unheard.answer(call.call_id, '"savings"', by="ann")
    assert taken.question_id == first.question_id
    await orchestrator.answer((await asked(orchestrator, call.call_id, "Are you sure?")).question_id, True)
    _, returned = await post.result()
    assert json.loads(returned.content)[:2] == ["savings", True]


async def test_U3_a_tool_without_a_checkpoint_keeps_its_place_and_its_clock_stands_still(post, orchestrator):
    call = post.call("book")
    post.send(call)
    question = await asked(orchestrator, call.call_id, "Which seat?")
    assert await in_the_queue(post) == 1
    await asyncio.sleep(0.5)  # longer than its time limit
    with pytest.raises(InvalidAnswer, match=r"\$: 'row' is a required property"):
        await orchestrator.answer(question.question_id, {"window": True})
    await orchestrator.answer(question.question_id, {"row": 9007199254740993})
    _, returned = await post.result()
    assert returned.content == "9007199254740993"


async def test_U3_after_the_answer_the_clock_goes_on(post, orchestrator):
    call = post.call("book_slowly")
    post.send(call)
    question = await asked(orchestrator, call.call_id, "Which seat?")
    await orchestrator.answer(question.call_id, {"row": 1})
    _, failed = await post.result()
    assert failed.kind == "timed_out"


@pytest.mark.parametrize(("tool", "queue"), [("book_on_thread", "io"), ("book_in_process", "cpu")])
async def test_U3_a_plain_function_asks_too(post, orchestrator, tool, queue):
    call = post.call(tool)
    post.send(call, queue=queue)
    question = await asked(orchestrator, call.call_id, "Which seat?")
    await orchestrator.answer(question.question_id, "12A")
    _, returned = await post.result()
    assert returned.content == "12A"


@pytest.mark.parametrize(
    ("tool", "says"), [("impatient", "without: nobody has answered"), ("impatient_elsewhere", "without, after waited")]
)
async def test_U3_a_question_expires_and_the_tool_may_go_on_without(post, orchestrator, tool, says):
    call = post.call(tool)
    post.send(call)
    _, returned = await post.result()
    assert returned.content.startswith(says)
    with pytest.raises(QuestionClosed, match="expired"):
        await orchestrator.answer(call.call_id, "late")


async def test_U3_who_declines_is_heard_by_the_tool(post, orchestrator):
    call = post.call("book")
    post.send(call)
    question = await asked(orchestrator, call.call_id, "Which seat?")
    await orchestrator.decline(question.question_id, "I stay at home")
    _, failed = await post.result()
    assert (failed.kind, failed.message) == ("error", "the question was not answered (Which seat?): I stay at home")


async def test_U3_a_worker_killed_while_its_tool_waits_elsewhere_costs_nothing(fleet, post, orchestrator):
    call = post.call("transfer")
    post.send(call)
    question = await asked(orchestrator, call.call_id, "Which account?")
    await until_no_worker_has_it(post)
    who = post.call("who_am_i")
    post.send(who)
    _, returned = await post.result()
    kill(worker_of(fleet, json.loads(returned.content)["pid"]))
    await orchestrator.answer(question.question_id, "checking")
    replenish(fleet, **POOLS)
    await orchestrator.answer((await asked(orchestrator, call.call_id, "Are you sure?")).question_id, False)
    _, returned = await post.result()
    assert json.loads(returned.content) == ["checking", False, 2, 1]


async def test_U3_a_call_that_comes_back_meets_its_limits_again(post, orchestrator):
    began = []
    sent = [asyncio.create_task(orchestrator.call("transfer_alone", {}, on_event=began.append)) for _ in range(2)]
    async with asyncio.timeout(20):
        # The second one starts although only one may run: the first waits for its answer elsewhere.
        while len(waiting := (await orchestrator.questions()).waiting) < 2:
            await asyncio.sleep(0.02)
    for question in waiting:
        await orchestrator.answer(question.question_id, "savings")
    running = [json.loads((await each).content) for each in sent]
    assert sorted(now for now, _ in running) == [1, 1]


async def test_U3_who_has_redis_and_no_secret_can_neither_ask_nor_answer(post, orchestrator):
    call = post.call("book")
    post.send(call)
    question = await asked(orchestrator, call.call_id, "Which seat?")
    key = post.keys.questions(call.call_id)
    sealed = await post.client.hget(key, "question:1")
    await post.client.hset(key, mapping={"said:1": b"0" * 64 + b'{"answer":"{\\"row\\":66}"}', "question:2": sealed})
    await post.client.hset(post.keys.questions("made.up.0"), "question:1", sealed)
    await post.client.zadd(post.keys.questions_of(""), {"made.up.0": 1})
    with pytest.raises(QuestionNotFound):
        await orchestrator.answer("made.up.0:1", {"row": 1})
    [listed] = (await orchestrator.questions()).waiting
    assert listed.question_id == question.question_id
    await orchestrator.answer(question.question_id, {"row": 3})
    _, returned = await post.result()
    assert returned.content == "3"
    await post.client.delete(post.keys.questions("made.up.0"))


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "https://example.org/schema"}])
async def test_U3_a_schema_that_nobody_could_answer_by_fails_the_call(post, schema):
    post.send(post.call("ask_badly", {"schema": schema}))
    _, failed = await post.result()
    assert "schema" in failed.message.lower()


async def test_U3_a_coroutine_that_would_block_its_loop_is_told_so(post):
    post.send(post.call("ask_on_loop"))
    _, failed = await post.result()
    assert "await ctx.ask" in failed.message
