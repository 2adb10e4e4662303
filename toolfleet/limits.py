"""What the calls of a tool may not exceed in the whole fleet: how many start in a time, and how many run at once.

Pure records, in three steps: `ToolLimits` is declared and announced with the tool; `gates` makes of it, for one call,
the gates that this call has to pass; the transport keeps them shut and open by the server's clock.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, StrictFloat, StrictInt

from toolfleet.calls import Record


def _whole(value: Any) -> Any:
    """Return 3 for 3.0, which JSON and its schemas do not tell apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[StrictInt, BeforeValidator(_whole)]


class KeyFrom(Record):
    """Where a limit's key comes from: calls with equal keys share the limit.

    `fleet`: one limit for all calls of the tool. `tenant`: one for each tenant, as the fleet knows it. `context` and
    `argument`: one for each value of that `name`, in the caller's context or in the arguments.
    """

    source: Literal["fleet", "tenant", "context", "argument"] = "fleet"
    name: str = ""


class Rate(Record):
    """At most `burst` starts at once, and after them `per_s` a second (token bucket)."""

    per_s: StrictFloat = Field(gt=0)
    burst: Count = Field(default=1, ge=1)
    key: KeyFrom = KeyFrom()


class Concurrency(Record):
    """At most `at_once` calls between their start and their end."""

    at_once: Count = Field(ge=1)
    key: KeyFrom = KeyFrom()


class ToolLimits(Record):
    """The limits that a tool is declared with; None: without."""

    rate: Rate | None = None
    concurrency: Concurrency | None = None


class Gate(NamedTuple):
    """A limit as one call meets it. Calls with the same kind, tool and value share it.

    On the wire a JSON array of these fields in this order, in the message's field `gates`.
    """

    kind: Literal["rate", "concurrency"]
    tool: str
    value: str
    """The key's value as people read it: "tenant=acme"; empty where all calls of the tool share the gate."""
    amount: float
    """Starts a second, or calls at once."""
    burst: int
    """Starts at once; 0 for concurrency."""
