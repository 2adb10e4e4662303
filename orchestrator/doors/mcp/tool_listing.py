"""Specs and results of the fleet to tools and results of MCP. Pure.

Instead of a typed tool's result a client may get where it is kept, if it is too large, and one that knows no tasks may
get a task's id: output schemas allow them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import mcp_types as types
import orjson

from toolfleet.artifacts import TEXT
from toolfleet.asking import QUESTIONS
from toolfleet.calls import Effect, Failed, MediaPart, Returned
from toolfleet.media import essence_of
from toolfleet.orchestrator.doors.mcp.kept import embedded, link_to
from toolfleet.orchestrator.models.names import legal_name
from toolfleet.orchestrator.tools.builtin import TASK_CANCEL, TASK_RESULT
from toolfleet.tool import ToolSpec

KIND_META: Final = "toolfleet/kind"
"""Where the kind of a failure stands, for programs; the model reads the message."""

_TICKET: Final = {
    "type": "object",
    "description": "The call takes longer: it goes on by itself, and task_result gets its result.",
    "properties": {"task_id": {"type": "string"}, "status": {"const": "running"}},
    "required": ["task_id", "status"],
}


_KEPT: Final = {
    "type": "object",
    "description": "The result is too large to be shown: read_result reads it.",
    "properties": {"artifact": {"type": "string"}, "status": {"const": "too_large"}},
    "required": ["artifact", "status"],
}


def offered_tool(spec: ToolSpec, *, knows_tasks: bool) -> types.Tool:
    """Return a tool as it is listed. Its effect becomes the hints by which hosts ask their users."""
    name = legal_name(spec.name)
    return types.Tool(
        name=name,
        title=None if name == spec.name else spec.name,
        description=spec.description,
        input_schema={"type": "object", **spec.input_schema},
        output_schema=_output_schema(spec, knows_tasks=knows_tasks),
        annotations=types.ToolAnnotations(
            read_only_hint=spec.effect is Effect.READ_ONLY,
            idempotent_hint=spec.effect.repeatable,
            # Nobody said that what it does can be taken back.
            destructive_hint=spec.effect is not Effect.READ_ONLY,
        ),
    )


def is_typed(spec: ToolSpec) -> bool:
    """Return whether its results are JSON objects: the only ones that every client takes as structured."""
    return spec.output_schema is not None and spec.output_schema.get("type") == "object"


def tool_result(result: Returned | Failed, spec: ToolSpec | None) -> types.CallToolResult:
    """Return a result in MCP's format, with links to those of its media that are not at hand.

    `spec` is None for a tool that no live worker serves any more.
    """
    if isinstance(result, Failed):
        return types.CallToolResult(
            content=[_text(result.message)], is_error=True, _meta={KIND_META: result.kind.value}
        )
    content = [_text(result.content), *_beside(result)]
    if spec is not None and not is_typed(spec):
        return types.CallToolResult(content=content, is_error=QUESTIONS in result.attributes)
    structured = _object(result.content) if result.artifact is None else _kept(result.artifact)
    return types.CallToolResult(
        content=content,
        structured_content=structured,
        # Cut, for example: a client that was promised an object takes nothing else as a success.
        is_error=spec is not None and structured is None,
    )


def still_running(tool: str, task_id: str, asks: str = "") -> types.CallToolResult:
    """Make the answer to a client that knows no tasks and whose call takes longer than it can wait.

    `asks` is what it asks a person elsewhere.
    """
    said = (
        f"{tool} is still running and goes on by itself: do not call it again. Its task_id is {task_id!r}. Get its "
        f"result with {TASK_RESULT}, or stop it with {TASK_CANCEL}."
    )
    if asks:
        said += f" It {asks}."
    return types.CallToolResult(content=[_text(said)], structured_content={"task_id": task_id, "status": "running"})


def text_result(value: Mapping[str, Any]) -> types.CallToolResult:
    """Make an answer of the server itself."""
    return types.CallToolResult(content=[_text(orjson.dumps(value).decode())])


def _output_schema(spec: ToolSpec, *, knows_tasks: bool) -> dict[str, Any] | None:
    if not is_typed(spec):
        return None
    # What the schema refers to has to stay at the root.
    own = dict(spec.output_schema or {})
    shared: dict[str, Any] = {name: own.pop(name) for name in ("$defs", "definitions") if name in own}
    others = [_KEPT] if knows_tasks else [_TICKET, _KEPT]
    return {"type": "object", "anyOf": [own, *others], **shared}


def _object(content: str) -> dict[str, Any] | None:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _kept(artifact: str) -> dict[str, Any]:
    return {"artifact": artifact, "status": "too_large"}


def _beside(result: Returned) -> Iterator[types.ContentBlock]:
    """Yield what is beside the text: the media, and links to what is too large to be shown."""
    if result.artifact is not None:
        yield link_to(result.artifact, TEXT)
    for part in result.media:
        if part.data:
            yield _shown(part)
        elif part.artifact is not None:
            yield link_to(part.artifact, part.media_type, part.name, part.size_bytes)


def _shown(part: MediaPart) -> types.ContentBlock:
    match essence_of(part.media_type).partition("/")[0]:
        case "image":
            return types.ImageContent(data=part.data, mime_type=part.media_type)
        case "audio":
            return types.AudioContent(data=part.data, mime_type=part.media_type)
        case _:
            return embedded(part.name, part.media_type, part.data)


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)
