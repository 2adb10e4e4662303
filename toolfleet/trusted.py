"""Records made and changed without validation: values of our own, which are known to fit, need not be looked at again.

    _own_call = trusted(ToolCall)
    call = _own_call(call_id=…, run_id=…, …)

mypy checks such a call just as it checks one of the class; nobody does when it runs. So each value must be of its
field's very type, made here or validated before, and within the field's bounds. What a caller, a model, a worker or
Redis has said goes through the class itself. This is the only file that makes records in this way, and the only one
that knows of their set of given fields, which those that pydantic makes have one each of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from toolfleet.calls import Record

Fields = ParamSpec("Fields")
Made = TypeVar("Made", bound=Record)

_MAKER: Final = """
def made_of(*, {parameters}):
    made = new(kind)
    set_values(made, {{{values}}})
    set_given(made, given)
    set_extra(made, None)
    set_private(made, None)
    return made
"""
"""As the standard library writes the `__init__` of a dataclass. One function for all kinds of records, which puts
their values together in dicts, takes twice as long; a common call has five such records."""

_SLOTS: Final = BaseModel.__dict__
_SETTERS: Final[dict[str, Any]] = {  # records are frozen
    "set_values": _SLOTS["__dict__"].__set__,
    "set_given": _SLOTS["__pydantic_fields_set__"].__set__,
    "set_extra": _SLOTS["__pydantic_extra__"].__set__,
    "set_private": _SLOTS["__pydantic_private__"].__set__,
}
_set_values, _set_given, _set_extra, _set_private = _SETTERS.values()


def trusted(record: Callable[Fields, Made]) -> Callable[Fields, Made]:
    """Return what makes records of this class unchecked, equal to those that the class makes, with the same JSON.

    It takes all fields that have no default, by name. What it makes counts every field as given (`model_fields_set`).
    """
    kind = cast("type[Made]", record)
    fields = kind.model_fields
    # One set of names for all of them: pydantic copies it before it changes it.
    known: dict[str, Any] = {**_SETTERS, "new": object.__new__, "kind": kind, "given": set(fields), "unsaid": object()}
    for name, field in fields.items():
        known[f"default_{name}"] = field.default_factory or field.default
    source = _MAKER.format(
        parameters=", ".join(_parameter(name, field) for name, field in fields.items()),
        # In the order of the class, in which they are written as JSON.
        values=", ".join(f"{name!r}: {_value(name, field)}" for name, field in fields.items()),
    )
    exec(source, known)  # noqa: S102  # it is made of nothing but the names of our own fields
    return cast("Callable[Fields, Made]", known["made_of"])


def _parameter(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return name
    return f"{name}=unsaid" if field.default_factory else f"{name}=default_{name}"


def _value(name: str, field: FieldInfo) -> str:
    return f"default_{name}() if {name} is unsaid else {name}" if field.default_factory else name


def changed(record: Made, **fields: Any) -> Made:
    """Return the record with these values, as `model_copy` has it, at half its cost.

    What it knows besides its fields (a `cached_property`) goes along, so whoever changes what it follows from must say
    what it is then.
    """
    made, given, names = object.__new__(type(record)), record.__pydantic_fields_set__, fields.keys()
    _set_values(made, {**record.__dict__, **fields})
    _set_given(made, given if names <= given else given | names)  # shared, as above
    _set_extra(made, None)
    _set_private(made, None)
    return made


def counting_all_as_given(kind: type[Made]) -> Callable[[Made], None]:
    """Return what makes a record of just this class one that counts every field as given, as `trusted` has it.

    So all such records share one set, where each that was read has one of its own: of half its size, and one more
    object for the passes of the garbage collector. For records of which thousands are kept.
    """
    given = set(kind.model_fields)

    def count(record: Made) -> None:
        _set_given(record, given)

    return count
