"""What `@tool` is told about limits -> the record that is announced: "10/s", a burst, and where a key comes from.

Decides what means something and says in one line what does not. Which gates a call meets is decided in `gates`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolfleet import masks
from toolfleet.context import FromContext
from toolfleet.errors import InvalidTool
from toolfleet.limits import Concurrency, KeyFrom, Rate, ToolLimits
from toolfleet.misspelt import exact

UNITS_S: Final = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}
"""What a rate may be per."""

MAX_PER_S: Final = 1e6
MAX_AT_ONCE: Final = 1_000_000
MAX_NAME_CHARS: Final = 100

_RATE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*([a-z]+)\s*")
_EXAMPLES: Final = '"10/s", "600/min", "5/h" or "100/day"'


@dataclass(frozen=True, slots=True)
class FromTenant:
    """A limit's key: calls of one tenant share it, as the fleet knows the tenant; those of nobody's share one, too.

    `FromContext("tenant")` is something else: what the caller claims.
    """


@exact()
@dataclass(frozen=True, slots=True)
class FromArgument:
    """A limit's key: calls with the same value of one argument share it: `FromArgument("city")`."""

    name: str


Key = FromTenant | FromContext | FromArgument
"""Where a limit's key may come from."""


def limits_of(
    *, rate: object, burst: object, rate_key: object, concurrency: object, concurrency_key: object, schema: Any
) -> ToolLimits | None:
    """Return the limits of a tool with this input schema; None for none. Raises InvalidTool, which names the option."""
    declared = ToolLimits(
        rate=_rate(rate, burst, rate_key, schema), concurrency=_concurrency(concurrency, concurrency_key, schema)
    )
    return None if declared == ToolLimits() else declared


def per_s(text: object, option: str = "rate") -> float:
    """Return how many a second a rate allows, as "10/s" says it. Raises InvalidTool."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise InvalidTool(f'{option}={text!r} does not say per what: write "{text:g}/s" or "{text:g}/min"')
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[2] not in UNITS_S:
        raise InvalidTool(f"{option}={_shown(text)} is no rate: write {_EXAMPLES}")
    amount = float(found[1]) / UNITS_S[found[2]]
    if not 0 < amount <= MAX_PER_S:
        raise InvalidTool(f"{option}={_shown(text)}: more than 0 and at most {MAX_PER_S:,.0f} a second can be kept")
    return amount


def count(value: object, option: str) -> int:
    """Return a number of calls at once. Raises InvalidTool for what is none."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_AT_ONCE:
        raise InvalidTool(f"{option}={_shown(value)}: a whole number from 1 to {MAX_AT_ONCE:,} is needed")
    return value


def _rate(rate: object, burst: object, key: object, schema: Any) -> Rate | None:
    if rate is None:
        for option, value in (("burst", burst), ("rate_key", key)):
            if value is not None:
                raise InvalidTool(f"{option} is given without rate, so it limits nothing: add rate={_EXAMPLES[:6]}")
        return None
    amount = per_s(rate)
    return Rate(per_s=amount, burst=1 if burst is None else count(burst, "burst"), key=_key(key, "rate_key", schema))


def _concurrency(at_once: object, key: object, schema: Any) -> Concurrency | None:
    if at_once is None:
        if key is not None:
            raise InvalidTool("concurrency_key is given without concurrency, so it limits nothing: add concurrency=5")
        return None
    return Concurrency(at_once=count(at_once, "concurrency"), key=_key(key, "concurrency_key", schema))


def _key(key: object, option: str, schema: Any) -> KeyFrom:
    match key:
        case None:
            return KeyFrom()
        case FromTenant():
            return KeyFrom(source="tenant")
        case FromContext(key=name):
            return KeyFrom(source="context", name=_name(name, option))
        case FromArgument(name=name):
            return KeyFrom(source="argument", name=_argument(_name(name, option), option, schema))
        case type() if key in (FromTenant, FromContext, FromArgument):
            raise InvalidTool(f"{option}={key.__name__}: call it, {key.__name__}(…)")
        case _ if callable(key):
            raise InvalidTool(
                f"{option} is a function, which only workers have, and a limit is kept before a worker is chosen: "
                'use FromTenant(), FromContext("…") or FromArgument("…")'
            )
        case _:
            raise InvalidTool(
                f'{option}={_shown(key)} is no key: use FromTenant(), FromContext("…") or FromArgument("…"), or leave '
                "it out for one limit for the whole fleet"
            )


def _name(name: object, option: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise InvalidTool(f"{option}: {_shown(name)} is no name: 1 to {MAX_NAME_CHARS} printable characters are")
    return name


def _argument(name: str, option: str, schema: Any) -> str:
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    if name not in properties:
        there = ", ".join(properties) or "none"
        raise InvalidTool(f"{option}=FromArgument({name!r}): the tool has no such argument; it has {there}")
    if masks.has_secrets({"properties": {name: properties[name]}, "$defs": schema.get("$defs", {})}):
        raise InvalidTool(f"{option}=FromArgument({name!r}): it is a secret, and a limit's key is shown to operators")
    return name


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_NAME_CHARS else f"{text[:MAX_NAME_CHARS]}…"


def cache_s(seconds: object, *, read_only: bool, schema: Any) -> float | None:
    """Return for how long results are given again; None for never. Raises InvalidTool."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidTool(f"cache_s={_shown(seconds)}: seconds, more than 0, are needed")
    if not read_only:
        raise InvalidTool("cache_s is for tools that change nothing: add read_only=True, or leave it out")
    if isinstance(schema, Mapping) and masks.has_secrets(schema):
        raise InvalidTool("cache_s: an argument is a secret, so its results are not kept: leave cache_s out")
    return float(seconds)
