"""What of a server is offered: its tools, and two for its resources, by the names that they have in the fleet.

Each is written down as a text that any process of a worker can make the tool of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from mcp_types import Tool as RemoteTool, ToolAnnotations

from toolfleet import Context, Tool
from toolfleet.catalog import BUILT_IN_NAMES
from toolfleet.docstrings import words
from toolfleet.errors import InvalidTool
from toolfleet.handwritten import hand_written
from toolfleet.logs import FactLog
from toolfleet.workers.packs.mcp_servers.configuration import Server
from toolfleet.workers.packs.mcp_servers.given import Given
from toolfleet.workers.packs.mcp_servers.remote import Listed, Remote
from toolfleet.workers.packs.mcp_servers.resource_tools import RESOURCE_TOOLS, ResourceTool
from toolfleet.workers.packs.mcp_servers.schemas import TooCostly, tamed

log = FactLog("toolfleet.packs.mcp")

MAX_NAME_CHARS: Final = 64
"""What providers take. The tail is kept: it is the tool's own name, the head only the server's."""

MARK_CHARS: Final = 6

MAX_DESCRIPTION_CHARS: Final = 8000
"""Of one tool. Each model that is offered it reads it, with every turn."""

WRITTEN: Final = frozenset({"name", "title", "description", "input_schema", "output_schema", "annotations"})
"""What makes a tool what it is; whatever else a server says of it may change with each list."""

Act = Callable[[dict[str, Any], Context], Awaitable[Given]]


class Offers:
    """What is offered of one server."""

    def __init__(self, name: str, server: Server, remote: Remote) -> None:
        self._name = name
        self._server = server
        self._remote = remote

    def written(self, listed: Listed) -> Iterator[tuple[str, str]]:
        """Yield what is offered of this, by name and as it is written down; of the others the log tells why not."""
        taken = set(BUILT_IN_NAMES)
        for remote_name, text in self._all_written(listed):
            name = self._name_of(remote_name)
            if name in taken:
                reason = f"tool {name}: the name is taken, by a built-in tool or another one of this server"
                log.warning("mcp_tool_refused", tool=remote_name[:100], reason=reason[:500])
                continue
            taken.add(name)
            yield name, text

    def _all_written(self, listed: Listed) -> Iterator[tuple[str, str]]:
        for each in listed.tools:
            if self._server.offers(each.name):
                said = each.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(WRITTEN))
                said["description"] = _shortened(each.description or "")
                yield each.name, json.dumps({"server": self._name, "tool": said})
        for kind in RESOURCE_TOOLS if listed.has_resources else ():
            if self._server.offers(kind):
                yield kind, json.dumps({"server": self._name, "resources": kind})

    def made_of(self, written: Mapping[str, Any]) -> Tool[..., Any]:
        """A tool of the fleet that calls the server's. Raises InvalidTool."""
        if "resources" in written:
            return self._of_resources(RESOURCE_TOOLS[written["resources"]])
        theirs = RemoteTool.model_validate(written["tool"], by_name=False)
        try:
            input_schema = tamed(theirs.input_schema)
        except TooCostly as error:
            raise InvalidTool(f"tool {theirs.name}: its schema cannot be used: {error}") from None
        hints = theirs.annotations or ToolAnnotations()
        read_only = hints.read_only_hint is True
        repeatable = read_only or hints.idempotent_hint is True
        described = {
            "name": self._name_of(theirs.name),
            "description": theirs.description or hints.title or theirs.title or words(theirs.name),
            "input_schema": input_schema,
            "output_schema": theirs.output_schema,
            "read_only": read_only,
            "idempotent": hints.idempotent_hint is True,
        }

        async def act(arguments: dict[str, Any], ctx: Context) -> Given:
            return await self._remote.call(theirs.name, arguments, ctx, repeatable=repeatable)

        return self._tool(described, act)

    def _of_resources(self, kind: ResourceTool) -> Tool[..., Any]:
        described = {
            "name": self._name_of(kind.name),
            "description": kind.description.format(server=self._name),
            "input_schema": kind.input_schema,
            "read_only": True,
        }
        act = self._remote.read if kind.reads else self._remote.page
        return self._tool(described, act)

    def _tool(self, described: dict[str, Any], act: Act) -> Tool[..., Any]:
        """A tool of the fleet, whatever it does: all have one source, so none of them is another one's rival."""

        async def call(arguments: dict[str, Any], ctx: Context) -> Given:
            return await act(arguments, ctx)

        return hand_written({**described, "queue": self._server.queue, "tags": ("mcp", self._name)}, call)

    def _name_of(self, tool: str) -> str:
        """The name of a tool in the fleet: prefixed; of one that is too long, a mark of its own and its tail."""
        prefix = f"{self._name}_" if self._server.prefix is None else self._server.prefix
        name = f"{prefix}{tool}"
        if len(name) <= MAX_NAME_CHARS:
            return name
        # Two long names may have one tail.
        mark = hashlib.sha256(name.encode()).hexdigest()[:MARK_CHARS]
        return f"{mark}_{name[-(MAX_NAME_CHARS - MARK_CHARS - 1) :]}"


def _shortened(description: str) -> str:
    if len(description) <= MAX_DESCRIPTION_CHARS:
        return description
    return f"{description[:MAX_DESCRIPTION_CHARS]}… (cut: {len(description)} characters)"
