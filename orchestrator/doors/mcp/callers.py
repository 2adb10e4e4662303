"""Who calls, and what they may call: decided by whoever opens the door, asked by the server. Knows no protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request


def _every_tool(_name: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who sends requests.

    Tasks belong to their `tenant`: for anybody else they do not exist. Tools read it as `ctx.tenant`, and `subject`,
    who asks, as `ctx.subject`. `may_call` is asked with a tool's name in the catalog; what it refuses is neither listed
    nor called. `context` is handed to the tools, hidden from the model.
    """

    tenant: str = ""
    subject: str = ""
    may_call: Callable[[str], bool] = _every_tool
    may_approve: bool = True
    """Whether they may call what needs a person's approval: whoever calls it has decided about it."""
    known_as: str = ""
    """Whom histories name who say that this caller has done something; "" where nobody is known."""
    context: Mapping[str, Any] = field(default_factory=dict)


ANYBODY: Final = Caller()
"""Whoever reaches the door: the process at the other end of a pipe, or this machine's users."""

CallerOf = Callable[[Request | None], Caller]
"""Who sent a request; None stands for the other end of a pipe. What it raises becomes the answer."""


def anybody(_request: Request | None) -> Caller:
    """Return the one caller that all requests come from, who may do everything."""
    return ANYBODY
