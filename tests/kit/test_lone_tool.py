"""One tool without a fleet: its context, and a call that takes the worker's way."""

import asyncio

import pytest

from toolfleet import BadArguments, Context, Failed, Progress, Returned, ToolError, current_context, tool
from toolfleet.context import NoCallback
from toolfleet.errors import UnknownOption
from toolfleet.testing import call, context


@tool(read_only=True)
async def double(number: int, ctx: Context) -> int:
    """Double a number."""
    assert current_context() is ctx
    ctx.progress(0.5, "half of it")
    ctx.checkpoint({"so far": (number,)})
    return 2 * number


async def test_what_a_tool_says_is_kept_as_another_process_would_read_it():
    ctx = context(tool="double")
    assert await call(double, '{"number": 21}', ctx) == Returned(content="42")
    assert ctx.progressed == [Progress(fraction=0.5, message="half of it")]
    assert ctx.checkpoints == [{"so far": [21]}]


async def test_arguments_are_repaired_and_refused_as_a_worker_does_it():
    assert await call(double, "{number: 21,}") == Returned(content="42")
    refused = await call(double, {"number": "many"})
    assert isinstance(refused, Failed)
    assert refused.kind == "bad_arguments"
    with pytest.raises(BadArguments):
        double.bind('{"number": "many"}')


async def test_what_a_tool_raises_is_a_result():
    @tool(read_only=True)
    def broken() -> None:
        """Break."""
        raise ToolError("try tomorrow")

    assert await call(broken, {}) == Failed(kind="error", message="try tomorrow")


async def test_a_time_limit_ends_a_tool_as_on_a_worker():
    @tool(read_only=True)
    async def sleepy() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    late = await call(sleepy, {}, context(time_left_s=0.05))
    assert isinstance(late, Failed)
    assert late.kind == "timed_out"


async def test_interceptors_stand_around_the_tool_and_see_its_context():
    async def plus_one(made, proceed):
        made.attributes["by"] = made.context.context["who"]
        return await proceed(made.with_arguments(number=made.arguments["number"] + 1))

    result = await call(double, {"number": 1}, context(context={"who": "me"}), interceptors=[plus_one])
    assert (result.content, result.attributes) == ("4", {"by": "me"})


def test_a_context_is_as_redis_would_hand_it_over():
    ctx = context(context={"tenant": "acme", "rights": ("read",)}, state={"n": 1}, last_checkpoint=(1, 2), attempt=2)
    assert ctx.context == {"tenant": "acme", "rights": ["read"]}
    assert (ctx.state, ctx.last_checkpoint, ctx.attempt, ctx.idempotency_key) == ({"n": 1}, [1, 2], 2, "run.1.0")
    assert 0 < ctx.time_left_s <= 600


def test_a_cancelled_call_keeps_no_checkpoint():
    ctx = context()
    ctx.cancel()
    ctx.checkpoint(1)
    assert ctx.cancelled
    assert ctx.checkpoints == []


def test_the_address_for_a_callback_is_the_one_that_was_given():
    assert context(callback_url="https://fleet.example/done").callback_url == "https://fleet.example/done"
    with pytest.raises(NoCallback):
        _ = context().callback_url


def test_a_misspelt_option_is_refused():
    with pytest.raises(UnknownOption, match="did you mean 'attempt'"):
        context(attempts=2)
