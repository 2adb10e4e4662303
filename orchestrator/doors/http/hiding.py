"""What a key without the scope `payloads` is shown: where things stand, and of what passed through only how long it is.

Fields are named that may be shown; a field that nobody has thought of is hidden. Pure: knows neither HTTP nor Redis.
"""

from __future__ import annotations

from typing import Any, Final

import orjson


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHOWN: Final = _names("""
    type state status role kind id run_id call_id batch_id requested_id tool_call_id task_id parent_call_id
    root_run_id letter_id handle handles tool tools model agent worker queue pool service_tier system_fingerprint
    incomplete tenant subject by orchestrator_id offered direct agents background awaiting_approval sending masked
    interceptors slow priority media_type url events_url before after unit of told_low account effect queues level
    question_id schedule_id cron tz missed
""")
"""Fields whose texts, and lists of texts, are shown."""

RECORDS: Final = _names("""
    messages unheard message tool_calls calls runs result late_result refusal attempt approval terms limits price
    accounts usage spent fault media progress job left streamed awaiting_below children run call attempts batches
    waits_for approvals first_failure slowest total own below found handles lines questions answers answered
    schedules ticks sent
""")
"""Fields with records inside, or lists of them: these are looked into. A text in their place is hidden."""

BY_ID: Final = _names("results fetched")
"""Fields with a record for each call."""

WORDS: Final = _names("""
    deadlines_unix_s spent_by_tools calls input_details output_details provider_tools then handles by_state by_tool
""")
"""Fields with numbers, or words of ours, by names that are no payload."""

SPEAKERS: Final = frozenset({"system", "user", "assistant"})
"""Whose `name` is what somebody calls himself, and not a tool's."""


def hidden(value: Any) -> Any:
    """Return a document with all that is not named above replaced by how long it is."""
    match value:
        case dict():
            return {name: _field(name, each, value) for name, each in value.items()}
        case list():
            return [hidden(each) for each in value]
        case _:
            return veiled(value)


def hidden_json(text: bytes) -> bytes:
    """Return a JSON document likewise."""
    return orjson.dumps(hidden(orjson.loads(text)))


def veiled(value: Any) -> Any:
    """Return how long a value is, in its own form: a text as a text, others as an object or a list of one.

    What is empty hides nothing, and neither do a number, a yes or a no, which are our own outside of objects.
    """
    match value:
        case "" | None | bool() | int() | float():
            return value
        case str():
            return f"hidden ({len(value.encode())} bytes)"
        case dict() | list() if not value:
            return value
        case dict():
            return {"hidden": _size(value)}
        case _:
            return [{"hidden": _size(value)}]


def _size(value: Any) -> str:
    return f"hidden ({len(orjson.dumps(value))} bytes)"


def _field(name: str, value: Any, record: dict[str, Any]) -> Any:
    if name == "name" and isinstance(value, str):
        is_tools = record.get("role") not in SPEAKERS and "media_type" not in record
        return value if is_tools else veiled(value)
    if name in SHOWN and _is_plain(value):
        return value
    if name in WORDS and isinstance(value, dict) and all(_is_plain(each) for each in value.values()):
        return value
    if name in BY_ID and isinstance(value, dict):
        return {call_id: hidden(each) for call_id, each in value.items()}
    return hidden(value) if name in RECORDS else veiled(value)


def _is_plain(value: Any) -> bool:
    """Return whether it is a text or a number, or a list of these."""
    return not isinstance(value, dict) and (
        not isinstance(value, list) or all(not isinstance(each, dict | list) for each in value)
    )
