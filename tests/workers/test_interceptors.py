"""What stands around a tool, without a worker: which names are interceptors, and what a chain may not do."""

import asyncio
import time

import pytest

from toolfleet import Context, Returned, ToolError, tool
from toolfleet.calls import Effect, ToolCall
from toolfleet.errors import InvalidSettings, InvalidTool, ToolModuleError
from toolfleet.interceptors import Cache, ConcurrencyLimit, Mask, MemoryStore, Retry, TimeLimit, ToolPermission
from toolfleet.settings import Settings
from toolfleet.workers.tool.execute import execute
from toolfleet.workers.tool.interceptors import interceptors_of


def called(name, arguments="{}", seconds=60.0):
    return ToolCall(
        call_id="r.1.0", run_id="r", tool=name, arguments=arguments, deadline_unix_s=time.time() + seconds, reply_to="o"
    )


async def run(declared, arguments="{}", *around, seconds=60.0):
    call = called(declared.spec.name, arguments, seconds)
    return await execute(call, declared, Context.of(call), threads=None, interceptors=around)


@pytest.mark.parametrize(
    "name",
    ["surrounded_tools", "surrounded_tools:PNG", "surrounded_tools:Retry", "surrounded_tools:doubled"],
    ids=["a_module", "a_value", "a_class", "a_tool"],
)
def test_P1_what_is_no_interceptor_is_refused_by_name(name):
    with pytest.raises(InvalidSettings, match=f"'{name}' is no interceptor"):
        interceptors_of([name])


def test_P1_one_that_is_not_there_is_named():
    with pytest.raises(ToolModuleError, match="cannot load an interceptor from 'nowhere:nobody'"):
        interceptors_of(["nowhere:nobody"])


@pytest.mark.parametrize("stranger", [Retry, "watch", None], ids=["a_class", "text", "nothing"])
def test_P1_a_tool_refuses_what_is_no_interceptor(stranger):
    with pytest.raises(InvalidTool, match=r"tool f: .* is no interceptor"):

        @tool(interceptors=[stranger])
        def f(): ...


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(0),
        lambda: Retry(1, wait_s=2, max_wait_s=1),
        lambda: TimeLimit(0),
        lambda: ConcurrencyLimit(0),
        lambda: Cache(0),
        lambda: Cache(1, context="tenant"),
        lambda: ToolPermission(allow="tool"),
        lambda: Mask(["("]),
    ],
)
def test_P2_options_that_mean_nothing_are_refused(make):
    with pytest.raises(InvalidTool):
        make()


def test_R8_when_to_try_again_says_nothing_without_how_often():
    with pytest.raises(InvalidTool, match="retry_on says when to try again, but retries=0"):

        @tool(retry_on=OSError)
        def f(): ...


async def test_R8_each_wait_is_up_to_twice_the_last_one_and_half_of_it_is_chance(caplog):
    @tool(read_only=True, interceptors=[Retry(4, wait_s=0.01, max_wait_s=0.04)])
    async def down() -> None:
        raise OSError("down")

    for _ in range(8):
        await run(down)
    waits = [record.wait_s for record in caplog.records if record.message.startswith("call_tried_again")]
    longest = [0.01, 0.02, 0.04, 0.04] * 8
    assert len(waits) == len(longest)
    assert all(most / 2 <= wait_s <= most for wait_s, most in zip(waits, longest, strict=True))
    assert len(set(waits)) > 8


async def test_R8_each_try_begins_from_the_same_arguments():
    seen = []

    @tool(read_only=True, retries=2)
    async def greedy(items: list[int]) -> int:
        seen.append(list(items))
        raise OSError("again")

    await run(greedy, '{"items": [1, 2]}')
    assert seen == [[1, 2]] * 3


async def test_R8_without_a_list_what_the_author_says_to_the_model_is_final():
    tries = []

    @tool(read_only=True, retries=2)
    async def polite() -> None:
        tries.append(1)
        raise ToolError("no")

    assert (await run(polite)).message == "no"
    assert len(tries) == 1


async def test_R8_a_cancelled_wait_ends_the_call():
    waiting = asyncio.Event()

    async def watch(call, proceed):
        try:
            return await proceed(call)
        finally:
            waiting.set()

    @tool(read_only=True, interceptors=[Retry(5, wait_s=50, max_wait_s=50), watch])
    async def down() -> None:
        raise OSError("down")

    running = asyncio.create_task(run(down))
    await waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_P1_arguments_cannot_be_changed_behind_the_checks_back():
    async def sly(call, proceed):
        call.arguments["n"] = "many"
        return await proceed(call)

    @tool(read_only=True, interceptors=[sly])
    async def f(n: int) -> int:
        return n

    assert "does not support item assignment" in (await run(f, '{"n": 1}')).message


async def test_P1_a_default_that_is_not_of_its_type_survives_a_change_beside_it():
    async def more(call, proceed):
        return await proceed(call.with_arguments(n=2))

    @tool(read_only=True, interceptors=[more])
    async def f(n: int, unit: str = None) -> str:  # noqa: RUF013  # as authors write it
        return f"{n} {unit}"

    assert (await run(f, '{"n": 1}')).content == "2 None"


async def test_P1_no_interceptor_outlives_the_deadline():
    async def endless(call, proceed):
        await asyncio.Event().wait()

    @tool(read_only=True, interceptors=[endless])
    async def f() -> None: ...

    assert (await run(f, seconds=0.05)).kind == "timed_out"


async def test_P2_names_decide_who_may_run():
    @tool
    async def rm() -> None: ...

    @tool
    async def ls() -> None: ...

    guard = ToolPermission(allow=["ls", "rm"], deny={"rm": "not here"})
    assert (await run(ls, "{}", guard)).content == "Done"
    assert (await run(rm, "{}", guard)).message == "rm was not allowed: not here"
    assert "not among the tools" in (await run(rm, "{}", ToolPermission(allow=["ls"]))).message


async def test_P2_a_cache_in_memory_forgets_the_oldest():
    asked = []

    @tool(read_only=True, interceptors=[Cache(60, store=MemoryStore(max_entries=2))])
    async def ask(n: int) -> int:
        asked.append(n)
        return n

    for n in (1, 2, 1, 3, 1):
        await run(ask, f'{{"n": {n}}}')
    assert asked == [1, 2, 3, 1]


async def test_P2_a_cache_keeps_no_failure_and_nothing_that_changes_the_runs_state():
    asked = []

    @tool(read_only=True, interceptors=[Cache(60)])
    async def ask(n: int) -> Returned:
        asked.append(n)
        if n == 1:
            raise ToolError("not yet")
        return Returned(content="x", state={"n": n})

    for n in (1, 1, 2, 2):
        await run(ask, f'{{"n": {n}}}')
    assert asked == [1, 1, 2, 2]


def test_R9_what_has_no_effect_cannot_be_taken_back():
    @tool(read_only=True)
    def look(): ...

    with pytest.raises(InvalidTool, match="read_only, so there is nothing to compensate"):
        look.compensate(lambda call, result, ctx: None)


def test_R9_a_tool_says_that_it_can_be_taken_back():
    @tool
    def book(): ...

    assert not book.spec.compensates
    book.compensate(lambda call, result, ctx: None)
    assert book.spec.compensates
    assert book.spec.effect is Effect.ONCE


def test_P1_a_setting_names_interceptors_outermost_first():
    assert Settings(interceptors="a.b:c, d:e,").interceptor_names == ["a.b:c", "d:e"]
    assert Settings().interceptor_names == []
