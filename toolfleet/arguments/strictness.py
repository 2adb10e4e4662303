"""What a model may write for a type: pydantic's validation, made strict where leniency would guess.

A pass over pydantic's compiled schema, so that it also holds inside the author's own models. Knows no tools.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic_core import PydanticCustomError, PydanticKnownError, SchemaValidator, core_schema

from toolfleet.arguments.exact_numbers import WrittenNumber

INEXACT_FLOAT: Final = 2**53
"""From here on a float no longer names one integer: 9007199254740993.0 arrives as ...992."""

# What a schema node holds beside schemas: values of the author's, which may look like schemas.
_VALUES: Final = frozenset({
    "cls", "config", "default", "expected", "function", "members", "metadata", "pattern", "ref", "serialization",
})  # fmt: skip

_OBJECTS: Final = frozenset({"model", "dataclass", "typed-dict"})


def strict_validator(model: type[BaseModel], *, extra: Literal["forbid", "ignore"]) -> SchemaValidator:
    """Return a validator of `model` for JSON that a language model wrote.

    Numbers may be written as strings, and a string as a number, because nothing is lost. `"true"` is no boolean and
    `true` no number; a float is an integer only while it names exactly one; NaN and infinity are refused; the strings
    of an enum or a Literal match without regard to case. `extra` holds for every object whose class does not say
    itself what becomes of members that it does not know.
    """
    schema = _tightened(model.__pydantic_core_schema__, extra)
    # Nested models bring validators of their own; using those would bypass what was tightened inside them. The
    # parameter is pydantic-core's own way to say so, since pydantic 2.13; without it every declaration would fail.
    return SchemaValidator(schema, _use_prebuilt=False)


def has_decimals(model: type[BaseModel]) -> bool:
    """Whether any value of the model is a Decimal."""
    return _holds(model.__pydantic_core_schema__, "decimal")


def _holds(node: Any, kind: str) -> bool:
    if isinstance(node, list | tuple):
        return any(_holds(item, kind) for item in node)
    if not isinstance(node, dict):
        return False
    return node.get("type") == kind or any(_holds(item, kind) for key, item in node.items() if key not in _VALUES)


def _tightened(node: Any, extra: str) -> Any:
    """Return a copy of a schema node, tightened. The original belongs to the author's classes and stays as it is."""
    if isinstance(node, list | tuple):
        return type(node)(_tightened(item, extra) for item in node)
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if not isinstance(kind, str):  # schemas by name: fields, or the choices of a union
        return {name: _tightened(item, extra) for name, item in node.items()}
    tight = {key: item if key in _VALUES else _tightened(item, extra) for key, item in node.items()}
    if kind in _OBJECTS:
        tight["config"] = {"extra_fields_behavior": extra} | node.get("config", {})
    tighten = _TIGHTEN.get(kind)
    return tighten(tight) if tighten else tight


def _tighten_bool(schema: dict[str, Any]) -> dict[str, Any]:
    return schema | {"strict": True}


def _tighten_str(schema: dict[str, Any]) -> dict[str, Any]:
    return {"coerce_numbers_to_str": True} | schema


def _tighten_int(schema: dict[str, Any]) -> dict[str, Any]:
    return _checked_before(schema, _integer_candidate)


def _tighten_float(schema: dict[str, Any]) -> dict[str, Any]:
    return _checked_before({"allow_inf_nan": False} | schema, _float_candidate)


def _tighten_decimal(schema: dict[str, Any]) -> dict[str, Any]:
    return _checked_before(schema, _decimal_candidate)


def _tighten_enum(schema: dict[str, Any]) -> dict[str, Any]:
    members: list[Enum] = schema["members"]
    spelled = {member.name: member.value for member in members}
    spelled |= {member.value: member.value for member in members if isinstance(member.value, str)}
    return _checked_before(schema, _spelling_corrector(spelled))


def _tighten_literal(schema: dict[str, Any]) -> dict[str, Any]:
    expected = [value.value if isinstance(value, Enum) else value for value in schema["expected"]]
    spelled = {value: value for value in expected if isinstance(value, str)}
    return _checked_before(schema, _spelling_corrector(spelled)) if spelled else schema


_TIGHTEN: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "bool": _tighten_bool,
    "str": _tighten_str,
    "int": _tighten_int,
    "float": _tighten_float,
    "decimal": _tighten_decimal,
    "enum": _tighten_enum,
    "literal": _tighten_literal,
}


def _checked_before(schema: dict[str, Any], check: Callable[[Any], Any]) -> dict[str, Any]:
    """`schema` behind `check`. The reference moves outward, or those who refer to it would pass the check by."""
    inner = dict(schema)
    ref = inner.pop("ref", None)
    return dict(core_schema.no_info_before_validator_function(check, inner, ref=ref))


def _integer_candidate(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("int_type")
    if isinstance(value, float) and abs(value) >= INEXACT_FLOAT:
        raise PydanticCustomError("int_inexact", "Input should be a valid integer, written without point or exponent")
    return value


def _float_candidate(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("float_type")
    return value


def _decimal_candidate(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("decimal_type")
    return value.written if isinstance(value, WrittenNumber) else value


def _spelling_corrector(spelled: dict[str, Any]) -> Callable[[Any], Any]:
    """A function that turns a string into the legal value that it spells in another case, if it spells just one."""
    legal = frozenset(value for value in spelled.values() if isinstance(value, str))
    by_folded: dict[str, Any] = {}
    ambiguous: set[str] = set()
    for name, value in spelled.items():
        folded = name.casefold()
        if by_folded.setdefault(folded, value) != value:
            ambiguous.add(folded)

    def corrected(value: Any) -> Any:
        if not isinstance(value, str) or value in legal:
            return value
        folded = value.casefold()
        return value if folded in ambiguous else by_folded.get(folded, value)

    return corrected
