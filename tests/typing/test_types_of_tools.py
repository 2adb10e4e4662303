"""Checked by mypy: `@tool` keeps the type of the function. Run by pytest as well, so that it stays true."""

from collections.abc import Coroutine
from typing import Any, assert_type

from toolfleet import Context, Returned, Tool, tool
from toolfleet.calls import ToolCall
from toolfleet.interceptors import Proceed, Retry, ToolInvocation


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(read_only=True, retries=1, retry_on=OSError)
async def fetch(url: str, ctx: Context | None = None) -> str:
    return url


async def watch(call: ToolInvocation, proceed: Proceed) -> Any:
    return await proceed(call)


@tool(interceptors=[watch, Retry(1, OSError)], convert=lambda value: f"{value:.2f}")
def measured(unit: str) -> float:
    return float(len(unit))


@measured.compensate
def unmeasured(call: ToolCall, result: Returned, ctx: Context) -> None: ...


class Counter:
    @tool
    def count(self, by: int) -> int:
        return by

    @staticmethod
    @tool
    def double(n: int) -> int:
        return 2 * n


def test_a_tool_returns_what_its_function_returns() -> None:
    assert_type(add(1, b=2), int)
    assert add(1) == 2


async def test_an_async_tool_is_awaited() -> None:
    assert_type(fetch("x"), Coroutine[Any, Any, str]).close()
    assert_type(await fetch("x"), str)


def test_what_stands_around_a_tool_does_not_change_its_type() -> None:
    assert_type(measured("m"), float)
    assert measured("mm") == 2


def test_a_method_loses_self() -> None:
    bound = Counter().count
    assert_type(bound(3), int)
    assert_type(Counter.double(2), int)
    assert isinstance(bound, Tool)


def test_wrong_calls_are_errors_of_type() -> None:
    def never_called() -> None:
        add("1")  # type: ignore[arg-type]  # the ignore is an error if mypy finds nothing here
        add(1, c=2)  # type: ignore[call-arg]  # it is refused
        Counter().count("3")  # type: ignore[arg-type]  # it is refused
        tool(read_only="yes")  # type: ignore[call-overload]  # it is refused

    assert callable(never_called)
