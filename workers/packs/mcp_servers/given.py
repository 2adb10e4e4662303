"""What a server has given, as a model reads it: texts as they are, bytes as media. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from toolfleet import Media, ToolError
from toolfleet.errors import InvalidMedia

MAX_TYPE_CHARS: Final = 100

MAX_URI_SHOWN: Final = 200

Given = str | list[str | Media]
"""A text or, where there are pictures and the like, texts and these, in order."""


def given_by(result: CallToolResult) -> Given:
    """What a model reads of a result: structured content as JSON, texts as they are, media as media.

    Raises ToolError when the result is an error.
    """
    parts = [_part(block) for block in result.content]
    if result.is_error:
        said = "\n".join(part if isinstance(part, str) else part.part.described for part in parts)
        raise ToolError(said.strip() or "the tool failed and did not say why")
    if result.structured_content is not None:
        # Its JSON is in a text block as well, for clients that know no structured content.
        media = [part for part, block in zip(parts, result.content, strict=True) if not isinstance(block, TextContent)]
        parts = [json.dumps(result.structured_content, ensure_ascii=False), *media]
    return _joined(parts)


def read_of(contents: Iterable[TextResourceContents | BlobResourceContents]) -> Given:
    """What a model reads of a resource; where it has several parts, each under its own URI."""
    found = list(contents)
    parts: list[str | Media] = []
    for each in found:
        if len(found) > 1:
            parts.append(f"[{str(each.uri)[:MAX_URI_SHOWN]}]")
        parts.append(_resource(each))
    return _joined(parts)


def _joined(parts: list[str | Media]) -> Given:
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _part(block: Any) -> str | Media:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent() | AudioContent():
            return _media(block.type, block.data, block.mime_type)
        case EmbeddedResource(resource=resource):
            return _resource(resource)
        case ResourceLink():
            return f"[resource {block.uri}: {block.description or block.title or block.name}]"
    return f"[{getattr(block, 'type', type(block).__name__)}, not shown]"


def _resource(resource: TextResourceContents | BlobResourceContents) -> str | Media:
    if isinstance(resource, TextResourceContents):
        return resource.text
    what = f"resource {str(resource.uri)[:MAX_URI_SHOWN]}"
    return _media(what, resource.blob, resource.mime_type or "application/octet-stream")


def _media(what: str, base64_text: str, media_type: str) -> str | Media:
    """The bytes and what they are; of what a server has made up, what it says that it is."""
    try:
        return Media(base64.b64decode(base64_text, validate=True), media_type)
    except (ValueError, InvalidMedia):
        return f"[{what}: {media_type[:MAX_TYPE_CHARS]}, not shown: it cannot be read]"
