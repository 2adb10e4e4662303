"""The tools of MCP servers, over stdio and Streamable HTTP: listed when the worker starts, called where it is.

Every worker holds connections of its own, one for each server, opened at the first call and again after a loss. How a
tool is delivered and repeated is the fleet's matter: here its hints become an effect, and nothing is called twice.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import httpx2
from mcp import Client, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool as RemoteTool,
    ToolAnnotations,
)
from pydantic import ValidationError

from toolfleet import Context, Media, Tool, ToolError
from toolfleet.catalog import BUILT_IN_NAMES
from toolfleet.docstrings import words
from toolfleet.errors import InvalidMedia, InvalidTool
from toolfleet.handwritten import hand_written
from toolfleet.logs import FactLog
from toolfleet.toolbox import by_name
from toolfleet.workers.packs.mcp_servers.configuration import Server, servers_in
from toolfleet.workers.packs.mcp_servers.connection import Connection, reason_of
from toolfleet.workers.packs.mcp_servers.schemas import TooCostly, tamed
from toolfleet.workers.packs.pack_settings import PackSettings, Seconds, for_pack, read_pack_settings

log = FactLog("toolfleet.packs.mcp")

MAX_NAME_CHARS: Final = 64
"""What providers take. The tail is kept: it is the tool's own name, the head only the server's."""

MARK_CHARS: Final = 6

MAX_TOOLS: Final = 1000
"""Tools of one server; one that goes on listing is broken."""

MAX_TYPE_CHARS: Final = 100

MAX_DESCRIPTION_CHARS: Final = 8000
"""Of one tool. Each model that is offered it reads it, with every turn."""


class McpSettings(PackSettings):
    """Which servers, and how long they may take."""

    model_config = for_pack("mcp")

    config: Path
    """A JSON file of the form {"mcpServers": {name: {"command": …} or {"url": …}}}, as other MCP clients read it."""

    connect_timeout_s: Seconds = 30.0
    """How long a server may take to start, shake hands and list its tools."""

    call_timeout_s: Seconds = 120.0
    """How long one call may take, unless the server's entry has a `timeout_s` of its own."""


class Remote:
    """One server as its tools see it: a connection for each event loop of this process."""

    def __init__(self, name: str, server: Server, settings: McpSettings) -> None:
        self._name = name
        self._server = server
        self._connect_timeout_s = settings.connect_timeout_s
        self._call_timeout_s = server.timeout_s or settings.call_timeout_s
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, Connection] = WeakKeyDictionary()

    async def listed(self) -> list[RemoteTool]:
        """All tools that the server has now. Raises ToolError."""
        connection = self._connection()
        client = await connection.client()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                found, cursor = await self._page(client, None)
                while cursor and len(found) < MAX_TOOLS:
                    more, cursor = await self._page(client, cursor)
                    found += more
        except TimeoutError:
            raise ToolError(f"the MCP server {self._name} did not list its tools in time") from None
        except MCPError as error:
            raise ToolError(f"the MCP server {self._name} does not list its tools: {error.message}") from None
        finally:
            await connection.close()
        return found

    @staticmethod
    async def _page(client: Client, cursor: str | None) -> tuple[list[RemoteTool], str | None]:
        page = await client.list_tools(cursor=cursor)
        return list(page.tools), page.next_cursor

    def tool(self, remote: RemoteTool) -> Tool[..., Any]:
        """A tool of the fleet that calls the server's. Raises InvalidTool."""
        try:
            input_schema = tamed(remote.input_schema)
        except TooCostly as error:
            raise InvalidTool(f"tool {remote.name}: its schema cannot be used: {error}") from None
        hints = remote.annotations or ToolAnnotations()
        read_only = hints.read_only_hint is True
        repeatable = read_only or hints.idempotent_hint is True

        async def call(arguments: dict[str, Any], ctx: Context) -> Given:
            return await self.call(remote.name, arguments, ctx, repeatable=repeatable)

        return hand_written(
            {
                "name": self.name_of(remote.name),
                "description": _shortened(remote.description or hints.title or remote.title or words(remote.name)),
                "input_schema": input_schema,
                "output_schema": remote.output_schema,
                "read_only": read_only,
                "idempotent": hints.idempotent_hint is True,
                "queue": self._server.queue,
                "tags": ("mcp", self._name),
            },
            call,
        )

    def name_of(self, tool: str) -> str:
        """The name of a tool in the fleet: prefixed; of one that is too long, a mark of its own and its tail."""
        prefix = f"{self._name}_" if self._server.prefix is None else self._server.prefix
        name = f"{prefix}{tool}"
        if len(name) <= MAX_NAME_CHARS:
            return name
        # Two long names may have one tail.
        mark = hashlib.sha256(name.encode()).hexdigest()[:MARK_CHARS]
        return f"{mark}_{name[-(MAX_NAME_CHARS - MARK_CHARS - 1) :]}"

    async def call(self, name: str, arguments: dict[str, Any], ctx: Context, *, repeatable: bool) -> Given:
        """Call a tool of the server; what it gave, for a model. Raises ToolError.

        A call during which the server was lost is repeated once if that does no harm.
        """
        connection = self._connection()
        client = await connection.client()
        try:
            return await self._asked(client, name, arguments, ctx)
        except Lost as lost:
            connection.lost(client)
            if not repeatable:
                raise ToolError(
                    f"the MCP server {self._name} was lost during the call ({lost}): it may or may not have happened"
                ) from None
        log.warning("mcp_server_lost", server=self._name, call_id=ctx.call_id, run_id=ctx.run_id)
        client = await connection.client()
        try:
            return await self._asked(client, name, arguments, ctx)
        except Lost as lost:
            connection.lost(client)
            raise ToolError(f"the MCP server {self._name} was lost during the call, twice: {lost}") from None

    async def _asked(self, client: Client, name: str, arguments: dict[str, Any], ctx: Context) -> Given:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            ctx.progress(progress / total if total else 0.0, message or "")

        try:
            result = await client.call_tool(
                name, arguments, read_timeout_seconds=self._call_timeout_s, progress_callback=on_progress
            )
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise ToolError(
                    f"{name} of the MCP server {self._name} gave no answer within {self._call_timeout_s:g} s"
                ) from None
            if error.code in LOST or isinstance(error.__cause__, httpx2.TransportError):
                raise Lost(error.message) from None
            raise ToolError(f"the MCP server {self._name} refused {name}: {error.message}") from None
        except (httpx2.TransportError, OSError) as error:
            raise Lost(reason_of(error)) from None
        except ValidationError:
            raise ToolError(f"the MCP server {self._name} answered {name} with what is no result") from None
        return given_by(result)

    def _connection(self) -> Connection:
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            self._connections[loop] = Connection(self._name, self._server, connect_timeout_s=self._connect_timeout_s)
        return self._connections[loop]


class Lost(Exception):  # no error of anybody's: decided above, by the tool's effect
    """The connection ended before the answer came."""


LOST: Final = frozenset({CONNECTION_CLOSED})


Given = str | list[str | Media]
"""What a tool of a server gave: a text or, where there are pictures and the like, texts and these, in order."""


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
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _part(block: Any) -> str | Media:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent() | AudioContent():
            return _media(block.type, block.data, block.mime_type)
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=BlobResourceContents() as blob):
            return _media(f"resource {blob.uri}", blob.blob, blob.mime_type or "application/octet-stream")
        case ResourceLink():
            return f"[resource {block.uri}: {block.description or block.title or block.name}]"
    return f"[{getattr(block, 'type', type(block).__name__)}, not shown]"


def _media(what: str, base64_text: str, media_type: str) -> str | Media:
    """The bytes and what they are; of what a server has made up, what it says that it is."""
    try:
        return Media(base64.b64decode(base64_text, validate=True), media_type)
    except (ValueError, InvalidMedia):
        return f"[{what}: {media_type[:MAX_TYPE_CHARS]}, not shown: it cannot be read]"


def _shortened(description: str) -> str:
    if len(description) <= MAX_DESCRIPTION_CHARS:
        return description
    return f"{description[:MAX_DESCRIPTION_CHARS]}… (cut: {len(description)} characters)"


# --- all servers ------------------------------------------------------------------------------------------------------


def tools_of_servers(settings: McpSettings) -> dict[str, Tool[..., Any]]:
    """The tools that the configured servers have now, by name. Raises InvalidSettings, ToolError, DuplicateTool."""
    remotes = {name: (server, Remote(name, server, settings)) for name, server in servers_in(settings.config).items()}

    async def all_listed() -> list[list[RemoteTool]]:
        return await asyncio.gather(*(remote.listed() for _, remote in remotes.values()))

    # On a thread: whoever imports this may have an event loop running.
    with ThreadPoolExecutor(1) as thread:
        listed = thread.submit(asyncio.run, all_listed()).result()
    found = [
        tool
        for (server, remote), tools in zip(remotes.values(), listed, strict=True)
        for tool in _imported(remote, [each for each in tools if server.offers(each.name)])
    ]
    return by_name(found)


def _imported(remote: Remote, tools: list[RemoteTool]) -> Iterator[Tool[..., Any]]:
    """Those of a server's tools that can be offered, each name once; of the others the log tells why not."""
    taken = set(BUILT_IN_NAMES)
    for each in tools:
        name = remote.name_of(each.name)
        try:
            if name in taken:
                raise InvalidTool(f"tool {name}: the name is taken, by a built-in tool or another one of this server")
            yield remote.tool(each)
            taken.add(name)
        except InvalidTool as error:
            log.warning("mcp_tool_refused", tool=each.name[:100], reason=str(error)[:500])


# At `info`, every request is logged with its URL, and some servers are given their key there.
logging.getLogger("httpx2").setLevel(logging.WARNING)

globals().update(tools_of_servers(read_pack_settings(McpSettings)))
