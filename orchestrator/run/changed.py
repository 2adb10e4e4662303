"""Records with other values in some of their fields, without pydantic's copying: a run has several in each turn."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from toolfleet.calls import Record

R = TypeVar("R", bound=Record)

_set: Final = object.__setattr__


def changed(record: R, **fields: Any) -> R:
    """The record with these values, which are not checked, as `model_copy` has it.

    What it knows besides its fields (a `cached_property`) goes along, so whoever changes what it follows from must say
    what it is then.
    """
    other = record.__class__.__new__(record.__class__)
    _set(other, "__dict__", {**record.__dict__, **fields})
    _set(other, "__pydantic_fields_set__", record.__pydantic_fields_set__ | fields.keys())
    _set(other, "__pydantic_extra__", None)
    _set(other, "__pydantic_private__", None)
    return other
