"""Keeps secrets out of what a call leaves behind: its result, its error, and so the logs of both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from pydantic import SecretBytes, SecretStr

from toolfleet import masks
from toolfleet.calls import Failed, Returned
from toolfleet.errors import InvalidTool, ToolError
from toolfleet.interceptors.protocol import Proceed, ToolInvocation
from toolfleet.masks import MASK
from toolfleet.misspelt import exact

SHAPES: Final = (
    r"(?<=Bearer )[A-Za-z0-9._~+/-]{8,}=*",
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*-----END [A-Z ]*PRIVATE KEY-----",
    r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",
)
"""Tokens and keys that can be told by their looks: bearer tokens, OpenAI, GitHub, AWS, JWT, PEM, passwords in URLs."""

MIN_SECRET_CHARS: Final = 4
"""A secret argument that is shorter would mask half of every text."""


class MaskedError(Exception):
    """Stands for a tool's error whose text held a secret; it has its traceback and not its cause."""


@exact()
class Mask:
    """Puts "***" in the place of secrets in results and errors.

    Those are: what looks like a token (`SHAPES`), what fits the author's own `patterns`, and the values of the call's
    secret arguments (`Secret()`, `SecretStr`) wherever they come up again.
    """

    def __init__(self, patterns: Iterable[str] = (), *, shapes: Iterable[str] = SHAPES) -> None:
        wanted = [*shapes, *patterns]
        try:
            self._shapes = re.compile("|".join(f"(?:{each})" for each in wanted) or r"(?!)")
        except re.error as error:
            raise InvalidTool(f"Mask: one of {wanted} is no regular expression: {error}") from None

    async def __call__(self, call: ToolInvocation, proceed: Proceed, /) -> Any:
        """Return the result, or the error, without secrets. `call.attributes` is masked too."""
        long_enough = {text for text in _secrets_of(call) if len(text) >= MIN_SECRET_CHARS}
        own = sorted(long_enough, key=len, reverse=True)  # one may be a part of another
        try:
            result = await proceed(call)
        except Exception as error:
            said = str(error)
            masked = self._text(said, own)
            if masked == said:
                raise
            kind = ToolError if isinstance(error, ToolError) else MaskedError
            raise kind(masked).with_traceback(error.__traceback__) from None
        call.attributes.update(self._value(dict(call.attributes), own))
        match result:
            case Returned():
                return result.model_copy(
                    update={
                        "content": self._text(result.content, own),
                        "attributes": self._value(result.attributes, own),
                    }
                )
            case Failed():
                return result.model_copy(update={"message": self._text(result.message, own)})
            case _:
                return result

    def _text(self, text: str, own: list[str]) -> str:
        for secret in own:
            text = text.replace(secret, MASK)
        return self._shapes.sub(MASK, text)

    def _value(self, value: Any, own: list[str]) -> Any:
        match value:
            case str():
                return self._text(value, own)
            case dict():
                return {name: self._value(item, own) for name, item in value.items()}
            case list() | tuple():
                return [self._value(item, own) for item in value]
            case _:
                return value


def _secrets_of(call: ToolInvocation) -> Iterator[str]:
    """Yield the texts that the call's secret arguments consist of."""
    if not masks.has_secrets(call.spec.input_schema):
        return
    marked = masks.masked(dict(call.arguments), call.spec.input_schema)
    for name, value in call.arguments.items():
        yield from _hidden(value, marked.get(name))


def _hidden(value: Any, marked: Any) -> Iterator[str]:
    """Yield the texts in `value` that are masked in `marked`."""
    match value, marked:
        case (dict() | Mapping(), dict()):
            for name in value:
                yield from _hidden(value[name], marked.get(name))
        case (list() | tuple(), list()):
            for item, its_mark in zip(value, marked, strict=False):
                yield from _hidden(item, its_mark)
        case _ if marked == MASK:
            yield from _texts(value)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts that a secret consists of."""
    if isinstance(value, SecretStr | SecretBytes):
        value = value.get_secret_value()
    match value:
        case bool() | None:
            return
        case bytes():
            yield value.decode("utf-8", "replace")
        case str() | int() | float():
            yield str(value)
        case Mapping():
            yield from chain.from_iterable(map(_texts, value.values()))
        case list() | tuple() | set() | frozenset():
            yield from chain.from_iterable(map(_texts, value))
        case _:
            # A model: its secrets are known by their type, and its other fields are ordinary words.
            parts = vars(value).values() if hasattr(value, "__dict__") else ()
            secret = (each for each in parts if isinstance(each, SecretStr | SecretBytes) or hasattr(each, "__dict__"))
            yield from chain.from_iterable(map(_texts, secret))
