"""Runs a call through its interceptors: those of the worker, those of the tool, then the tool itself.

Knows what an interceptor may do and nothing of which ones there are. Also finds the worker's own by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolfleet.calls import Failed, Returned, Submitted, ToolResult
from toolfleet.context import Context, within
from toolfleet.errors import InvalidSettings
from toolfleet.interceptors import ToolInterceptor, ToolInvocation
from toolfleet.tool import Tool
from toolfleet.toolbox import resolve
from toolfleet.workers.tool.results import record_of


async def run_through(
    chain: Sequence[ToolInterceptor],
    tool: Tool[..., Any],
    arguments: Mapping[str, Any],
    context: Context,
    invoke: Callable[[Mapping[str, Any]], Awaitable[Any]],
) -> ToolResult:
    """Return the result of `invoke(arguments)` after the whole chain. Raises what the tool or an interceptor raises.

    Arguments that an interceptor changed are checked before anything further in sees them.
    """

    async def step(position: int, checked: Mapping[str, Any], call: ToolInvocation) -> ToolResult:
        if call.arguments is not checked:
            checked = MappingProxyType(tool.check(call.arguments))
            call = ToolInvocation(call.spec, checked, call.context)
        if position == len(chain):
            return record_of(await invoke(checked), returns_nothing=tool.returns_nothing)
        answer = await chain[position](call, lambda call: step(position + 1, checked, call))
        return answer if isinstance(answer, Returned | Failed | Submitted) else record_of(answer)

    begun = MappingProxyType(arguments)
    with within(context):
        return record_of(await step(0, begun, ToolInvocation(tool.spec, begun, context)))


def with_attributes(result: ToolResult, context: Context) -> ToolResult:
    """The result with what interceptors and the tool put into `ctx.attributes`; what has no JSON form stays here."""
    if not context.attributes or not isinstance(result, Returned):
        return result
    shared = {}
    for name, value in context.attributes.items():
        try:
            shared[name] = to_jsonable_python(value, inf_nan_mode="null")
        except (PydanticSerializationError, ValueError, RecursionError):
            continue  # a connection or a clock that they share among themselves
    return result.model_copy(update={"attributes": shared | result.attributes})


def interceptors_of(names: Sequence[str]) -> tuple[ToolInterceptor, ...]:
    """Return the interceptors at `module:name`, in this order. Raises ToolModuleError, InvalidSettings."""
    return tuple(_interceptor(name) for name in names)


def _interceptor(name: str) -> ToolInterceptor:
    found = resolve(name, "an interceptor") if ":" in name else None
    if not callable(found) or isinstance(found, type | Tool):
        raise InvalidSettings(
            f"{name!r} is no interceptor: name an async function, or an object with __call__, as module:name"
        )
    return cast("ToolInterceptor", found)
