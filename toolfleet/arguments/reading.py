"""Reads arguments for a function's signature: JSON text -> typed values in one compiled pass.

The hot path of every call is `TypedReader.read`; all else here is built once, or runs only when a call is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from pydantic_core import ErrorDetails, ValidationError

from toolfleet import masks
from toolfleet.arguments import complaints
from toolfleet.arguments.exact_numbers import loses_digits, read_exactly
from toolfleet.arguments.parsing import NotAnObject, not_json
from toolfleet.arguments.repair import decoded
from toolfleet.arguments.strictness import has_decimals, strict_validator
from toolfleet.errors import BadArguments
from toolfleet.signature import Signature


class TypedReader:
    """Reads the arguments of one tool."""

    def __init__(
        self, tool: str, signature: Signature, schema: dict[str, Any], *, extra: Literal["forbid", "ignore"]
    ) -> None:
        """`schema` is what the model was told, and says which values are secret."""
        self.tool = tool
        self._schema = schema
        self._names = signature.names
        fields = signature.model.model_fields.values()
        self._wire_names = [field.alias or name for field, name in zip(fields, self._names, strict=True)]
        validator = strict_validator(signature.model, extra=extra)
        self._validate, self._validate_values = validator.validate_json, validator.validate_python
        self._has_decimals = has_decimals(signature.model)
        self._defaults = {name: field.default for field, name in zip(fields, self._names, strict=True)}

    def read(self, text: str) -> dict[str, Any]:
        """Return the typed arguments by parameter name. Raises NotAnObject or BadArguments."""
        try:
            filled = self._validate(text)
            if self._has_decimals and loses_digits(text):
                filled = self._validate_values(read_exactly(text))
        except ValidationError as error:
            raise self._refusal(error, lambda: decoded(text)) from None
        # The model's fields are the parameters, in their order.
        return dict(zip(self._names, filled.__dict__.values(), strict=True))

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Typed arguments by parameter name, checked once more. Raises BadArguments."""
        wire_names = dict(zip(self._names, self._wire_names, strict=True))
        # A default need not be of its parameter's type, so it is left to be filled in again.
        given = {
            wire_names.get(name, name): value
            for name, value in values.items()
            if name not in wire_names or value is not self._defaults[name]
        }
        try:
            filled = self._validate_values(given)
        except ValidationError as error:
            refusal = self._refusal(error, lambda: given)
            raise refusal if isinstance(refusal, BadArguments) else BadArguments(self.tool, str(refusal)) from None
        return dict(zip(self._names, filled.__dict__.values(), strict=True))

    def _refusal(self, error: ValidationError, sent: Callable[[], Any]) -> BadArguments | NotAnObject:
        details = error.errors(include_url=False)
        if any(not detail["loc"] for detail in details):
            return _why_not_an_object(details[0], is_secret=masks.has_secrets(self._schema))
        arguments = sent()
        shown = masks.masked(arguments, self._schema) if masks.has_secrets(self._schema) else arguments
        return BadArguments(
            self.tool,
            complaints.listed(self._complaint(detail, shown) for detail in details),
            parameters=(str(detail["loc"][0]) for detail in details),
        )

    def _complaint(self, detail: ErrorDetails, shown: Any) -> str:
        """`shown`: the arguments, with secrets masked."""
        location, here = _location(detail["loc"], shown)
        match detail["type"]:
            case "missing" | "missing_argument" | "missing_keyword_only_argument":
                return complaints.missing([*location, detail["loc"][-1]])
            case "extra_forbidden" | "unexpected_keyword_argument":
                parents, _ = _location(detail["loc"][:-1], shown)
                name = masks.shown_name(str(detail["loc"][-1]), self._schema)
                return complaints.unknown([*parents, name], () if parents else self._wire_names)
            case kind if here != detail["input"] and masks.has_secrets(self._schema):
                # Only pydantic's own words are known to say nothing of the value.
                reason = detail["msg"] if kind in _OWN_WORDS else "it is not accepted"
                return complaints.unfit(location, here, reason)
            case _:
                return complaints.unfit(location, detail["input"], detail["msg"])


_OWN_WORDS: Final = frozenset({
    "string_type", "string_too_short", "string_too_long", "string_pattern_mismatch", "int_type", "int_parsing",
    "float_type", "float_parsing", "bool_type", "dict_type", "list_type", "model_type", "model_attributes_type",
})  # fmt: skip
"""Kinds of complaint whose text is the same for every value."""


def _location(loc: tuple[int | str, ...], arguments: Any) -> tuple[list[int | str], Any]:
    """The steps that lead somewhere in the arguments, and where: pydantic also names union members and validators."""
    here, steps = arguments, []
    for step in loc:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            continue
        steps.append(step)
    return steps, here


def _why_not_an_object(detail: ErrorDetails, *, is_secret: bool) -> NotAnObject:
    if detail["type"] == "json_invalid":
        return not_json(detail["ctx"]["error"])
    if is_secret:
        return NotAnObject("not a JSON object")
    return NotAnObject(f"not a JSON object but {complaints.shown(detail['input'])}")
