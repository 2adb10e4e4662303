"""Results as one client is shown them: with the media that are kept elsewhere, in what its revision understands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import mcp_types as types
from mcp_types.version import is_version_at_least

from toolfleet.calls import Failed, Returned
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.kept import embedded
from toolfleet.orchestrator.doors.mcp.tool_listing import tool_result
from toolfleet.tool import ToolSpec

KNOWS_AUDIO: Final = "2025-03-26"
KNOWS_LINKS: Final = "2025-06-18"


@dataclass(frozen=True, slots=True)
class Showing:
    """Shows results to one client, who speaks a revision of the protocol, for its tenant."""

    orchestrator: Orchestrator
    tenant: str
    version: str

    async def result(self, result: Returned | Failed, spec: ToolSpec | None) -> types.CallToolResult:
        """Return a result for this client; `spec` as for `tool_result`. Raises StoreUnreachable."""
        shown = tool_result(await self.orchestrator.with_media(result, tenant=self.tenant), spec)
        return shown.model_copy(update={"content": list(_understood(shown.content, self.version))})


def _understood(content: Sequence[types.ContentBlock], version: str) -> Iterator[types.ContentBlock]:
    """Yield what a revision has a word for: a client would refuse all of a result for one block that it has not."""
    for block in content:
        match block:
            case types.ResourceLink() if not is_version_at_least(version, KNOWS_LINKS):
                continue  # the text names what it links to
            case types.AudioContent() if not is_version_at_least(version, KNOWS_AUDIO):
                yield embedded("", block.mime_type, block.data)
            case _:
                yield block
