"""What a running tool may know about its call."""

import asyncio
import contextvars
import math
import threading
from typing import Annotated

import pytest

from toolfleet import Context, ConversationId, FromContext, Progress, current_context, tool
from toolfleet.calls import ToolCall
from toolfleet.context import MAX_CHECKPOINT_BYTES
from toolfleet.errors import BadCheckpoint, MissingFromContext, NoContext


def context(**more) -> Context:
    return Context(call_id="run.1.0", run_id="run", tool="f", deadline_unix_s=0, **more)


async def test_an_async_tool_and_what_it_awaits_find_their_context():
    async def inner() -> Context:
        await asyncio.sleep(0)
        return current_context()

    @tool
    async def f(ctx: Context) -> list[Context]:
        return [ctx, current_context(), await inner(), await asyncio.to_thread(current_context)]

    mine = context()
    assert await f.invoke(f.bind("{}"), mine) == [mine] * 4


async def test_concurrent_calls_do_not_see_each_other():
    meet = asyncio.Barrier(2)

    @tool
    async def f() -> Context:
        await meet.wait()
        return current_context()

    mine, other = context(), context()
    assert await asyncio.gather(f.invoke(f.bind(""), mine), f.invoke(f.bind(""), other)) == [mine, other]


def test_a_blocking_tool_finds_its_context_in_a_thread_that_it_starts():
    @tool
    def f() -> list[Context]:
        seen: list[Context] = []
        run = contextvars.copy_context().run
        thread = threading.Thread(target=lambda: seen.append(run(current_context)))
        thread.start()
        thread.join()
        return [current_context(), *seen]

    mine = context()
    assert f.invoke(f.bind("{}"), mine) == [mine, mine]


def test_outside_a_call_there_is_no_context_not_even_after_one():
    @tool
    def f():
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  # any text
        f.invoke(f.bind(""), context())
    with pytest.raises(NoContext):
        current_context()


def test_S3_injected_parameters_are_filled_from_the_context():
    @tool
    def f(
        city: str, ctx: Context, conversation: ConversationId, tenant: Annotated[str, FromContext("tenant")]
    ) -> tuple[str, Context, str, str]:
        return city, ctx, conversation, tenant

    mine = context(context={"tenant": "acme", "conversation_id": "c-7"})
    assert f.invoke(f.bind('{"city": "Rome"}'), mine) == ("Rome", mine, "c-7", "acme")


def test_S3_the_model_cannot_fill_an_injected_parameter():
    @tool(extra="ignore")
    def f(conversation: ConversationId) -> str:
        return conversation

    assert f.invoke(f.bind('{"conversation": "someone else\'s"}'), context()) == "run"


def test_a_run_without_a_conversation_is_one_of_its_own():
    assert context().conversation_id == "run"


def test_a_value_that_the_caller_forgot_is_named():
    @tool
    def f(tenant: Annotated[str, FromContext("tenant")]): ...

    with pytest.raises(MissingFromContext, match=r"needs 'tenant' .* which has 'user'"):
        f.invoke(f.bind(""), context(context={"user": "x"}))


def test_progress_reaches_the_report():
    heard: list[Progress] = []
    mine = context(report=heard.append)
    mine.progress(0.25, "reading")
    mine.progress(1)
    assert heard == [Progress(fraction=0.25, message="reading"), Progress(fraction=1)]


@pytest.mark.parametrize(("given", "heard"), [(-1, 0), (1.5, 1), (math.nan, 0), (math.inf, 1), (-math.inf, 0)])
def test_progress_is_kept_within_bounds(given, heard):
    reports: list[Progress] = []
    context(report=reports.append).progress(given)
    assert [each.fraction for each in reports] == [heard]


def test_progress_never_fails_a_tool(caplog):
    def broken(_progress: Progress) -> None:
        raise OSError("no connection")

    context(report=broken).progress(0.5)
    context().progress("half")  # type: ignore[arg-type]  # a mistake of the author's
    assert [record.message.split(":")[0] for record in caplog.records] == ["progress_not_reported"] * 2
    assert "no connection" in caplog.text


def test_the_idempotency_key_is_the_same_for_every_attempt():
    call = ToolCall(
        call_id="run.1.0", run_id="run", tool="f", arguments="{}", deadline_unix_s=9, reply_to="o", context={"a": 1}
    )
    first, second = Context.of(call), Context.of(call, attempt=2)
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.idempotency_key == second.idempotency_key == "run.1.0"
    assert (first.deadline_unix_s, first.context) == (9, {"a": 1})


def test_a_tool_sees_that_it_is_no_longer_wanted():
    wanted = threading.Event()
    mine = context(is_cancelled=wanted.is_set)
    assert not mine.cancelled
    wanted.set()
    assert mine.cancelled


def test_a_checkpoint_is_handed_over_as_json():
    kept: list[bytes] = []
    mine = context(keep=lambda _, text: kept.append(text))
    mine.checkpoint({"page": 7, "seen": {1}})
    assert kept == [b'{"page":7,"seen":[1]}']


@pytest.mark.parametrize(("data", "complaint"), [(object(), "no JSON form"), ("x" * MAX_CHECKPOINT_BYTES, "at most")])
def test_what_is_no_checkpoint_is_refused_by_name(data, complaint):
    with pytest.raises(BadCheckpoint, match=complaint):
        context().checkpoint(data)


def test_a_tool_that_nobody_waits_for_any_more_keeps_nothing():
    kept: list[bytes] = []
    context(keep=lambda _, text: kept.append(text), is_cancelled=lambda: True).checkpoint(1)
    assert kept == []
