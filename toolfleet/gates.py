"""The gates that one call has to pass, made of what its tool declares. Pure; decided where a call is sent.

Knows specs and calls, and not where gates are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from toolfleet.calls import ToolCall
from toolfleet.declaration import ToolSpec
from toolfleet.limits import Gate, KeyFrom

VALUE_CHARS: Final = 80
"""A key's value is kept whole up to here; a longer one is kept shortened, and told from others by its digest."""

SHOWN_CHARS: Final = 40
DIGEST_CHARS: Final = 16


def gates_of(call: ToolCall, spec: ToolSpec) -> tuple[Gate, ...]:
    """Return what a call of this tool has to pass, concurrency first: what waits for a start is to hold no slot.

    Arguments are read only where a limit needs one. What is not there, or cannot be read, is the empty value: those
    calls share a limit too.
    """
    limits = spec.limits
    if limits is None:
        return ()
    gates: list[Gate] = []
    if (concurrency := limits.concurrency) is not None:
        value = _value(concurrency.key, call, spec)
        gates.append(Gate("concurrency", call.tool, value, float(concurrency.at_once), 0))
    if (rate := limits.rate) is not None:
        gates.append(Gate("rate", call.tool, _value(rate.key, call, spec), rate.per_s, rate.burst))
    return tuple(gates)


@lru_cache(maxsize=256)  # all calls of a tool and a key have the same text
def places_of(text: str) -> tuple[str, ...]:
    """Return the names of the gates at which a call has a place that has passed these, by the text of its message.

    Anybody may have written that: what tells of no gate is none.
    """
    try:
        gates = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ()
    names = []
    for gate in gates if isinstance(gates, list) else ():
        match gate:
            case ["concurrency", str() as tool, str() as value, *_]:
                names.append(f"concurrency|{tool}|{value}")
    return tuple(names)


def _value(key: KeyFrom, call: ToolCall, spec: ToolSpec) -> str:
    """Return a key's value with its source, so that what a caller claims never reads as what the fleet knows."""
    match key.source:
        case "fleet":
            return ""
        case "tenant":
            return f"tenant={shortened(call.tenant)}"
        case "context":
            return f"context.{key.name}={shortened(_text_of(call.context.get(key.name)))}"
        case "argument":
            return f"argument.{key.name}={shortened(_text_of(_argument(key.name, call, spec)))}"


def _argument(name: str, call: ToolCall, spec: ToolSpec) -> Any:
    """Return what the model wrote for a parameter, or its default; None where there is neither."""
    properties = spec.input_schema.get("properties")
    declared = properties.get(name) if isinstance(properties, Mapping) else None
    default = declared.get("default") if isinstance(declared, Mapping) else None
    value = _arguments(call).get(name, default)
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")) and not _takes_text(declared):
        return _structure(value)
    return value


def _takes_text(declared: object) -> bool:
    """Whether a parameter may be a text. What a worker finds to be none it reads again as JSON."""
    if not isinstance(declared, Mapping):
        return True
    if isinstance(choices := declared.get("anyOf") or declared.get("oneOf"), list):
        return any(_takes_text(choice) for choice in choices)
    kind = declared.get("type")
    return "string" in kind if isinstance(kind, list) else kind == "string" or (kind is None and "$ref" not in declared)


def _structure(text: str) -> Any:
    """Return the list or object that was sent as a text, as a worker reads it; else the text."""
    from toolfleet.arguments.parsing import DEFAULT_LIMITS, structure_in  # noqa: PLC0415  # as below

    structure = structure_in(text, DEFAULT_LIMITS)
    return text if structure is None else structure


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    try:
        read = orjson.loads(call.arguments or "{}")
    except orjson.JSONDecodeError:
        read = None
    if not isinstance(read, dict):
        read = _recovered(call)
    return read if isinstance(read, dict) else {}


def _recovered(call: ToolCall) -> Any:
    """Read what was written badly as its worker will. Nothing, where nobody can: then the tool does not run."""
    from toolfleet.arguments.parsing import DEFAULT_LIMITS  # noqa: PLC0415  # loads the repair of JSON, for those alone
    from toolfleet.arguments.text import readable  # noqa: PLC0415  # likewise
    from toolfleet.errors import BadArguments  # noqa: PLC0415  # likewise

    try:
        return orjson.loads(readable(call.tool, call.arguments, DEFAULT_LIMITS))
    except (BadArguments, orjson.JSONDecodeError):
        return {}


def _text_of(value: Any) -> str:
    """The same text for values that are equal; one for nothing, null and the empty text."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # a number beyond 64 bits
        return repr(value)


def shortened(text: str) -> str:
    """Return a value as it stands in a key: whole, or its beginning and a digest."""
    if len(text) <= VALUE_CHARS:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGEST_CHARS]
    return f"{text[:SHOWN_CHARS]}…{digest}"
