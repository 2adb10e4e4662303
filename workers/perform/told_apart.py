"""Values that a tool is called with, as JSON in which no two of them look the same that a tool could tell apart.

Not what a model's author would send over a wire: that leaves fields out, and writes several values as one text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import AnyUrl, BaseModel

_WHOLE: Final = (
    *(bytes, datetime, date, time, timedelta, Decimal, UUID, PurePath, AnyUrl),
    *(IPv4Address, IPv6Address, IPv4Network, IPv6Network),
)
"""Their `repr` says all of them."""


def told_apart(value: Any) -> Any:
    """Return JSON that stands for a value. Raises TypeError for a value that may hide something."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) in (int, float):
        return {"number": repr(value)}  # all of its digits, and what no JSON has
    if isinstance(value, Enum):
        return _named(value, value.name)
    if isinstance(value, _WHOLE):
        return _named(value, repr(value))
    return _parts(value)


def _parts(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _named(value, [_members(value.__dict__), told_apart(value.model_extra), _private(value)])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _named(value, _members({each.name: getattr(value, each.name) for each in dataclasses.fields(value)}))
    if isinstance(value, Mapping):
        return _named(value, _members(value))
    if isinstance(value, (list, tuple)):
        return _named(value, [told_apart(each) for each in value])
    if isinstance(value, (set, frozenset)):
        return _named(value, _sorted(told_apart(each) for each in value))
    raise TypeError(f"{type(value).__qualname__} may hide what a tool sees of it")


def _private(model: BaseModel) -> Any:
    return told_apart(model.__pydantic_private__ or {})


def _members(members: Mapping[Any, Any]) -> Any:
    """Return pairs, as keys of a mapping need not be texts."""
    return {"members": _sorted([told_apart(name), told_apart(each)] for name, each in members.items())}


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda value: orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def _named(value: object, said: Any) -> dict[str, Any]:
    kind = type(value)
    return {"type": f"{kind.__module__}.{kind.__qualname__}", "is": said}
