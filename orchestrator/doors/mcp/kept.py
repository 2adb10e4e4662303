"""What was too large for a result, in MCP's words: links to it in results, and its contents for those who may read it.

A resource that is not the caller's is one that does not exist. Sends nothing.
"""

from __future__ import annotations

import base64
import re
from typing import Final
from urllib.parse import quote

import mcp_types as types

from toolfleet.media import bytes_of, is_text
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.callers import Caller

ARTIFACT: Final = "toolfleet://artifacts/{artifact}"

ARTIFACT_TEMPLATE: Final = types.ResourceTemplate(
    uri_template=ARTIFACT,
    name="artifact",
    title="A large result",
    description="What was too large for the result of a call: a text, an image, another document.",
)

_ARTIFACT: Final = re.compile(r"toolfleet://artifacts/(?P<artifact>[0-9a-f]{64})")


def link_to(artifact: str, media_type: str, name: str = "", size_bytes: int | None = None) -> types.ResourceLink:
    """Return where something large is read."""
    uri = ARTIFACT.format(artifact=artifact)
    return types.ResourceLink(uri=uri, name=name or artifact, mime_type=media_type, size=size_bytes)


async def artifact_contents(
    orchestrator: Orchestrator, uri: str, caller: Caller
) -> types.TextResourceContents | types.BlobResourceContents | None:
    """Return the artifact that a URI names; None if it is no URI of an artifact.

    Raises ArtifactNotFound for one that is not there, or not this caller's; StoreUnreachable.
    """
    named = _ARTIFACT.fullmatch(uri)
    if named is None:
        return None
    found = await orchestrator.artifact(named["artifact"], tenant=caller.tenant)
    return contents_of(uri, found.media_type, await found.read())


def embedded(name: str, media_type: str, data: str) -> types.EmbeddedResource:
    """Return a document that travels with a result; `data` is base64."""
    uri = f"toolfleet:media/{quote(name or 'unnamed')}"
    return types.EmbeddedResource(resource=contents_of(uri, media_type, bytes_of(data)))


def contents_of(uri: str, media_type: str, data: bytes) -> types.TextResourceContents | types.BlobResourceContents:
    """Return a document as text where it is one, for hosts that show it to a model, and else as it is."""
    if is_text(media_type):
        try:
            return types.TextResourceContents(uri=uri, text=data.decode(), mime_type=media_type)
        except UnicodeDecodeError:
            pass  # in another encoding, or not what it says
    return types.BlobResourceContents(uri=uri, blob=base64.b64encode(data).decode(), mime_type=media_type)
