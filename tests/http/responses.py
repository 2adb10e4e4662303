"""What a streamed response must be, event by event, by the official package's own types."""

from __future__ import annotations

from typing import Any

import openai
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

SENT_BY_OPENAI = {"store"}
"""Fields of a response that OpenAI sends, as its reference shows, and the package's type has forgotten."""

OURS = {"toolfleet"}
"""What OpenAI has no word for."""

ENDS = {"response.completed", "response.incomplete", "response.failed"}


def plain(events: list[Any]) -> list[dict[str, Any]]:
    """Events as they were sent, each held to the type that the package has for it, and to no field beyond it."""
    sent = [event.to_dict() for event in events]
    for event, each in zip(events, sent, strict=True):
        checked = EVENT.validate_python(each)
        assert type(checked) is type(event), each
        assert not set(_beyond(checked)) - SENT_BY_OPENAI - OURS, (each["type"], _beyond(checked))
    return sent


def _beyond(value: Any) -> list[str]:
    """The fields that the package's types do not have, at any depth."""
    if isinstance(value, list):
        return [name for each in value for name in _beyond(each)]
    if not isinstance(value, BaseModel):
        return []
    own = [name for field in type(value).model_fields for name in _beyond(getattr(value, field))]
    return [*own, *(value.model_extra or {})]


async def streamed(client: openai.AsyncOpenAI, **asked: Any) -> list[dict[str, Any]]:
    """The events of a new response, all of them."""
    return plain([event async for event in await client.responses.create(**asked, stream=True)])


async def rest_of(client: openai.AsyncOpenAI, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
    """The events of a stored response after this number."""
    more = {} if after is None else {"starting_after": after}
    return plain([event async for event in await client.responses.retrieve(response_id, stream=True, **more)])


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """The types of events, deltas that follow one another as one."""
    found: list[str] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if not (found and found[-1] == kind and kind.endswith("delta")):
            found.append(kind)
    return found


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["sequence_number"] for event in events]


def text_of(events: list[dict[str, Any]], item_id: str) -> str:
    """What the deltas of one message add up to."""
    return "".join(
        event["delta"]
        for event in events
        if event["type"] == "response.output_text.delta" and event["item_id"] == item_id
    )
