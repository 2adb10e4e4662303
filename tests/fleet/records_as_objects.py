"""What providers send, as pydantic's models: the reference that the readers of plain records are held against."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from toolfleet.orchestrator.models.foreign import READ_DEPTH
from toolfleet.strict_json import cut_to_depth


class Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @classmethod
    def read(cls, data: bytes) -> tuple[dict[str, Any] | None, str]:
        """The record without the fields that were not sent, or None and what does not fit."""
        try:
            return cls.model_validate_json(data).model_dump(exclude_unset=True), ""
        except ValidationError as error:
            refused = error
        try:
            odd = json.loads(cut_to_depth(data.decode(errors="replace"), READ_DEPTH))
            if odd is not None:
                return cls.model_validate(odd).model_dump(exclude_unset=True), ""
        except ValidationError as error:
            refused = error
        except ValueError:
            pass
        first = refused.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        return None, f"{place}: {first['msg'].split(' or instance of')[0]}"


class FunctionPiece(Record):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallPiece(Record):
    index: int | None = None
    id: str | None = None
    type: Any = None
    function: FunctionPiece = FunctionPiece()
    extra_content: dict[str, Any] | None = None


class ContentPart(Record):
    text: str | None = None


class Delta(Record):
    content: str | list[ContentPart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallPiece] | None = None
    annotations: Any = None


class Choice(Record):
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class ChatTokenCount(Record):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None
    server_tool_use: Any = None


class ChatCompletion(Record):
    choices: list[Choice] | None = None
    usage: ChatTokenCount | None = None
    model: str | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    error: Any = None


class Block(Record):
    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class StopDetails(Record):
    explanation: str | None = None


class BlockDelta(Record):
    model_config = ConfigDict(extra="allow")

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    container: Any = None


class MessagesTokenCount(Record):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    service_tier: str | None = None
    server_tool_use: Any = None


class WholeMessage(Record):
    model: str | None = None
    content: list[Block] | None = None
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    container: Any = None
    usage: MessagesTokenCount | None = None


class StreamEvent(Record):
    type: str
    index: int = 0
    message: WholeMessage | None = None
    content_block: Block | None = None
    delta: BlockDelta | None = None
    usage: MessagesTokenCount | None = None
    error: Any = None
