"""Reads arguments for a function's signature: JSON text -> typed values in one compiled pass.

The hot path of every call is `TypedReader.read`; all else here is built once, or runs only when a call is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic_core import ErrorDetails, ValidationError

from toolfleet import complaints
from toolfleet.arguments import BadArguments, NotAnObject, not_json
from toolfleet.repair import decoded
from toolfleet.signature import Signature
from toolfleet.strictness import strict_validator


class TypedReader:
    """Reads the arguments of one tool."""

    def __init__(self, tool: str, signature: Signature, *, extra: Literal["forbid", "ignore"]) -> None:
        self.tool = tool
        self._names = signature.names
        fields = signature.model.model_fields.values()
        self._wire_names = [field.alias or name for field, name in zip(fields, self._names, strict=True)]
        self._validate = strict_validator(signature.model, extra=extra).validate_json

    def read(self, text: str) -> dict[str, Any]:
        """The typed arguments by parameter name. Raises NotAnObject or BadArguments."""
        try:
            filled = self._validate(text)
        except ValidationError as error:
            raise self._refusal(error, text) from None
        # The model's fields are the parameters, in their order.
        return dict(zip(self._names, filled.__dict__.values(), strict=True))

    def _refusal(self, error: ValidationError, text: str) -> BadArguments | NotAnObject:
        details = error.errors(include_url=False)
        if any(not detail["loc"] for detail in details):
            return _why_not_an_object(details[0])
        arguments = decoded(text)
        return BadArguments(
            self.tool,
            complaints.listed(self._complaint(detail, arguments) for detail in details),
            parameters=(str(detail["loc"][0]) for detail in details),
        )

    def _complaint(self, detail: ErrorDetails, arguments: Any) -> str:
        location = list(_location(detail["loc"], arguments))
        match detail["type"]:
            case "missing" | "missing_argument" | "missing_keyword_only_argument":
                return complaints.missing([*location, detail["loc"][-1]])
            case "extra_forbidden" | "unexpected_keyword_argument":
                return complaints.unknown(location, self._wire_names if len(location) == 1 else ())
            case _:
                return complaints.unfit(location, detail["input"], detail["msg"])


def _location(loc: tuple[int | str, ...], arguments: Any) -> Iterator[int | str]:
    """The steps that lead somewhere in the arguments: pydantic also names union members and its own validators."""
    here = arguments
    for step in loc:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            continue
        yield step


def _why_not_an_object(detail: ErrorDetails) -> NotAnObject:
    if detail["type"] == "json_invalid":
        return not_json(detail["ctx"]["error"])
    return NotAnObject(f"not a JSON object but {complaints.shown(detail['input'])}")
