"""What an interceptor is: a function around a tool's call on its worker, which sees it go in and come out.

Holds the words only. Who runs a chain is the worker's matter; the orchestrator's own interceptors are others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from toolfleet.calls import ToolResult
from toolfleet.context import Context
from toolfleet.declaration import ToolSpec


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """A call on its way to its tool. `arguments` are typed as the tool gets them, by parameter name."""

    spec: ToolSpec
    arguments: Mapping[str, Any] = field(repr=False)
    context: Context

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.spec.name

    @property
    def attributes(self) -> dict[str, Any]:
        """What the interceptors of this call and its tool share; the caller gets it with the result."""
        return self.context.attributes

    def with_arguments(self, **changed: Any) -> ToolInvocation:
        """This call with other arguments; they are checked against the tool's declaration before it sees them."""
        return replace(self, arguments=MappingProxyType({**self.arguments, **changed}))


Proceed = Callable[[ToolInvocation], Awaitable[ToolResult]]
"""Goes on to the next interceptor, or to the tool. Raises what those raise, and BadArguments for changed arguments
that the tool does not take. May be called again, or not at all."""


class ToolInterceptor(Protocol):
    """An async function, or an object that is called like one.

    It returns what `proceed` gave it or anything else that a tool may return, and may raise what a tool may raise. One
    object serves all calls of a worker at the same time: what belongs to one call goes into `call.attributes`.
    """

    async def __call__(self, call: ToolInvocation, proceed: Proceed, /) -> Any:
        """Deal with one call."""
