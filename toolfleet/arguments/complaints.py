"""What is wrong with arguments, said to a model: which parameter, which value, what would be legal.

Knows the shapes of pydantic's and jsonschema's errors; must not know how arguments were read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from toolfleet.misspelt import nearest

MAX_COMPLAINTS: Final = 8
"""A model mends a few things at a time, and a list of a thousand items may be wrong a thousand times."""

MAX_VALUE_CHARS: Final = 80
"""Enough to recognise a value that the model wrote itself."""


def path(location: Iterable[str | int]) -> str:
    """Return a place in the arguments as a model writes it: `stops[0].city`."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def shown(value: Any) -> str:
    """Return a value as the model wrote it, cut to a recognisable length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"


def missing(location: Sequence[str | int]) -> str:
    """Return the complaint about a required parameter that is not there."""
    return f"required parameter {path(location)!r} is missing"


def unknown(location: Sequence[str | int], legal: Sequence[str]) -> str:
    """Return the complaint about an unknown argument; `legal` names those beside it, as far as known."""
    text = f"unknown argument {path(location)!r}"
    if close := nearest(str(location[-1]), legal):
        return f"{text} (did you mean {close[0]!r}?)"
    return f"{text} (there are {', '.join(map(repr, legal))})" if legal else text


def unfit(location: Sequence[str | int], value: Any, reason: str) -> str:
    """Return a value that does not fit its parameter."""
    return f"parameter {path(location)!r} is {shown(value)}: {reason[:1].lower()}{reason[1:]}"


def listed(complaints: Iterable[str]) -> str:
    """Several complaints as one sentence each; repeated ones once."""
    distinct = list(dict.fromkeys(complaints))
    more = [f"and {len(distinct) - MAX_COMPLAINTS} more"] if len(distinct) > MAX_COMPLAINTS else []
    return "; ".join(distinct[:MAX_COMPLAINTS] + more) + "."
