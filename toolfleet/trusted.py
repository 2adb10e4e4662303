"""Records made and changed without validation: values of our own, which are known to fit, need not be looked at again.

    _own_call = trusted(ToolCall)
    call = _own_call(call_id=…, run_id=…, …)

mypy checks such a call just as it checks one of the class; nobody does when it runs. So each value must be of its
field's very type, made here or validated before, and within the field's bounds. What a caller, a model, a worker or
Redis has said goes through the class itself. This is the only file that makes records in this way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from toolfleet.calls import Record

Fields = ParamSpec("Fields")
Made = TypeVar("Made", bound=Record)

_set: Final = object.__setattr__  # records are frozen


def trusted(record: Callable[Fields, Made]) -> Callable[Fields, Made]:
    """Return what makes records of this class unchecked, equal to those that the class makes, with the same JSON.

    It takes all fields that have no default, by name. What it makes counts every field as given (`model_fields_set`).
    """
    kind = cast("type[Made]", record)
    declared = kind.model_fields
    # In the order of the class, in which they are written as JSON; what has no default is always given.
    defaults = {name: field.default for name, field in declared.items()}
    factories = [(name, field.default_factory) for name, field in declared.items() if field.default_factory]
    names = set(defaults)

    def made_of(**fields: Any) -> Made:
        values = defaults | fields
        for name, factory in factories:
            if name not in fields:
                values[name] = cast("Callable[[], Any]", factory)()
        # One set of names for all of them: pydantic copies it before it changes it.
        return _made(kind, values, names)

    return cast("Callable[Fields, Made]", made_of)


def changed(record: Made, **fields: Any) -> Made:
    """Return the record with these values, as `model_copy` has it, at half its cost.

    What it knows besides its fields (a `cached_property`) goes along, so whoever changes what it follows from must say
    what it is then.
    """
    return _made(type(record), {**record.__dict__, **fields}, record.__pydantic_fields_set__ | fields.keys())


def _made(kind: type[Made], values: dict[str, Any], given: set[str]) -> Made:
    made = kind.__new__(kind)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", given)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made
