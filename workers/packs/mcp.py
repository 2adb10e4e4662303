"""The tools of MCP servers, over stdio and Streamable HTTP: listed when the worker starts, called where it is.

Every worker holds connections of its own, one for each server, opened at the first call and again after a loss. How a
tool is delivered and repeated is the fleet's matter: here its hints become an effect, and nothing is called twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Self
from weakref import WeakKeyDictionary

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
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
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolfleet import Context, Tool, ToolError
from toolfleet.docstrings import words
from toolfleet.errors import InvalidSettings, InvalidTool
from toolfleet.logs import FactLog
from toolfleet.toolbox import by_name, hand_written
from toolfleet.workers.packs.pack_settings import PackSettings, Seconds, for_pack, read_pack_settings

log = FactLog("toolfleet.packs.mcp")

MAX_NAME_CHARS: Final = 64
"""What providers take. The tail is kept: it is the tool's own name, the head only the server's."""

MARK_CHARS: Final = 6

MAX_TOOLS: Final = 1000
"""Tools of one server; one that goes on listing is broken."""

VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpSettings(PackSettings):
    """Which servers, and how long they may take."""

    model_config = for_pack("mcp")

    config: Path
    """A JSON file of the form {"mcpServers": {name: {"command": …} or {"url": …}}}, as other MCP clients read it."""

    connect_timeout_s: Seconds = 30.0
    """How long a server may take to start, shake hands and list its tools."""

    call_timeout_s: Seconds = 120.0
    """How long one call may take, unless the server's entry has a `timeout_s` of its own."""


class Server(BaseModel):
    """One entry of the configuration. What other clients write there besides is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: Path | None = None

    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)

    disabled: bool = False
    prefix: str | None = None
    """What its tools' names begin with; None: the server's name and an underscore. "" for none."""

    include: tuple[str, ...] = ("*",)
    """Patterns of the names, as the server gives them, that are offered."""

    exclude: tuple[str, ...] = ()
    """Patterns of those that are not."""

    queue: str | None = None
    """The queue of its tools: a server that keeps state between calls belongs to one worker with a queue of its own."""

    timeout_s: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _has_one_transport(self) -> Server:
        if (self.command is None) == (self.url is None):
            raise ValueError('either "command" (stdio) or "url" (Streamable HTTP) is needed')
        return self

    def offers(self, tool: str) -> bool:
        """Whether a tool is to be imported."""
        return any(fnmatchcase(tool, pattern) for pattern in self.include) and not any(
            fnmatchcase(tool, pattern) for pattern in self.exclude
        )


# --- connections ------------------------------------------------------------------------------------------------------


class Watched:
    """A stream of incoming messages that remembers when it has ended, which the SDK tells only to who calls next."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.has_ended = False

    async def receive(self) -> Any:
        """The next message."""
        return await self._stream.receive()

    async def aclose(self) -> None:
        """Stop listening."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self.has_ended = True
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)

    @property
    def last_context(self) -> Any:
        """The context variables of the sender, which the SDK passes on."""
        return getattr(self._stream, "last_context", None)


class Connection:
    """A session with one server on one event loop, in the keeping of a task of its own.

    The SDK's contexts must be left by the task that entered them, and calls come and go.
    """

    def __init__(self, name: str, server: Server, *, connect_timeout_s: float) -> None:
        self._name = name
        self._server = server
        self._connect_timeout_s = connect_timeout_s
        self._opening = asyncio.Lock()
        self._client: Client | None = None
        self._incoming: Watched | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._released = asyncio.Event()

    async def client(self) -> Client:
        """A client whose server was there when last heard of. Raises ToolError."""
        async with self._opening:
            if self._client is None or self._has_ended:
                await self.close()
                self._client = await self._open()
            return self._client

    async def close(self) -> None:
        """End the session; the next call opens another."""
        keeper, self._keeper, self._client = self._keeper, None, None
        self._released.set()
        if keeper is not None:
            await asyncio.wait({keeper})

    def lost(self, client: Client) -> None:
        """Take note that this client's server is gone; a later one's is not."""
        if client is self._client:
            self._client = None

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        """A session ends with an exception when its server is lost, and whoever called has heard of it."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            log.info("mcp_session_ended", server=self._name, reason=_reason(error))

    @property
    def _has_ended(self) -> bool:
        return self._keeper is None or self._keeper.done() or self._incoming is None or self._incoming.has_ended

    async def _open(self) -> Client:
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._released = asyncio.Event()
        # watched: `_ended` tells of it
        keeper = self._keeper = asyncio.create_task(self._keep(opened, self._released), name=f"mcp {self._name}")
        keeper.add_done_callback(self._ended)
        either: set[asyncio.Future[Any]] = {keeper, opened}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED, timeout=self._connect_timeout_s)
        except asyncio.CancelledError:
            keeper.cancel()
            raise
        if opened.done():
            return opened.result()
        if not keeper.done():
            keeper.cancel()
            raise ToolError(f"the MCP server {self._name} did not answer within {self._connect_timeout_s:g} s")
        raise ToolError(f"the MCP server {self._name} cannot be reached: {_reason(keeper.exception())}")

    async def _keep(self, opened: asyncio.Future[Client], released: asyncio.Event) -> None:
        async with Client(self._transport()) as client:
            opened.set_result(client)
            await released.wait()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        async with self._streams() as (incoming, outgoing):
            self._incoming = Watched(incoming)
            yield self._incoming, outgoing

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        server = self._server
        if server.url is not None:
            timeout = httpx2.Timeout(self._connect_timeout_s, read=None)  # a call has its own limit
            async with (
                httpx2.AsyncClient(headers=server.headers, timeout=timeout) as http,
                streamable_http_client(server.url, http_client=http) as streams,
            ):
                yield streams
            return
        command = StdioServerParameters(
            command=server.command or "", args=list(server.args), env=server.env or None, cwd=server.cwd
        )
        # Celery replaces sys.stderr by one that has no file descriptor.
        async with stdio_client(command, errlog=sys.__stderr__ or sys.stderr) as streams:
            yield streams


def _reason(error: BaseException | None) -> str:
    """The first thing that went wrong inside the SDK's task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".removesuffix(": ")


# --- tools ------------------------------------------------------------------------------------------------------------


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
        if _refers_outside(remote.input_schema):
            raise InvalidTool(f"tool {remote.name}: its schema refers to another document")
        hints = remote.annotations or ToolAnnotations()
        read_only = hints.read_only_hint is True
        repeatable = read_only or hints.idempotent_hint is True

        async def call(arguments: dict[str, Any], ctx: Context) -> str:
            return await self.call(remote.name, arguments, ctx, repeatable=repeatable)

        return hand_written(
            {
                "name": self.name_of(remote.name),
                "description": remote.description or hints.title or remote.title or words(remote.name),
                "input_schema": remote.input_schema,
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

    async def call(self, name: str, arguments: dict[str, Any], ctx: Context, *, repeatable: bool) -> str:
        """Call a tool of the server; what it gave, as text for a model. Raises ToolError.

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

    async def _asked(self, client: Client, name: str, arguments: dict[str, Any], ctx: Context) -> str:
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
            raise Lost(_reason(error)) from None
        except ValidationError:
            raise ToolError(f"the MCP server {self._name} answered {name} with what is no result") from None
        return text_of(result)

    def _connection(self) -> Connection:
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            self._connections[loop] = Connection(self._name, self._server, connect_timeout_s=self._connect_timeout_s)
        return self._connections[loop]


class Lost(Exception):  # no error of anybody's: decided above, by the tool's effect
    """The connection ended before the answer came."""


LOST: Final = frozenset({CONNECTION_CLOSED})


def text_of(result: CallToolResult) -> str:
    """What a model reads of a result: structured content as JSON, texts as they are, of media what they are.

    Raises ToolError when the result is an error.
    """
    parts = [_part(block) for block in result.content]
    if result.is_error:
        raise ToolError("\n".join(filter(None, parts)).strip() or "the tool failed and did not say why")
    if result.structured_content is not None:
        # Its JSON is in a text block as well, for clients that know no structured content.
        media = [part for part, block in zip(parts, result.content, strict=True) if not isinstance(block, TextContent)]
        return "\n".join([json.dumps(result.structured_content, ensure_ascii=False), *media])
    return "\n".join(parts)


def _part(block: Any) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent() | AudioContent():
            return f"[{block.type}: {block.mime_type}, {_decoded_bytes(block.data)} bytes, not shown]"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=BlobResourceContents() as blob):
            return f"[resource {blob.uri}: {blob.mime_type or 'binary'}, {_decoded_bytes(blob.blob)} bytes, not shown]"
        case ResourceLink():
            return f"[resource {block.uri}: {block.description or block.title or block.name}]"
    return f"[{getattr(block, 'type', type(block).__name__)}, not shown]"


def _decoded_bytes(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _refers_outside(schema: Any) -> bool:
    """Whether a stranger's schema would have to be fetched from somewhere to be used."""
    if isinstance(schema, Mapping):
        reference = schema.get("$ref", "#")
        return (isinstance(reference, str) and not reference.startswith("#")) or any(
            _refers_outside(value) for value in schema.values()
        )
    return isinstance(schema, Sequence) and not isinstance(schema, str) and any(map(_refers_outside, schema))


# --- configuration ----------------------------------------------------------------------------------------------------


def servers_in(path: Path) -> dict[str, Server]:
    """The servers that a configuration file enables; `${NAME}` stands for a variable. Raises InvalidSettings."""
    try:
        entries = json.loads(path.read_bytes())["mcpServers"]
        servers = {name: Server.model_validate(_filled_in(entry, path)) for name, entry in entries.items()}
    except OSError as error:
        raise InvalidSettings(f"TOOLFLEET_MCP_CONFIG: {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidSettings(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}".replace(": :", ":")
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidSettings(f'{path} is not of the form {{"mcpServers": {{name: {{…}}}}}}') from None
    return {name: server for name, server in servers.items() if not server.disabled}


def _filled_in(value: Any, path: Path) -> Any:
    match value:
        case str():
            return VARIABLE.sub(lambda found: _variable(found.group(1), path), value)
        case list():
            return [_filled_in(item, path) for item in value]
        case dict():
            return {key: _filled_in(item, path) for key, item in value.items()}
    return value


def _variable(name: str, path: Path) -> str:
    if name not in os.environ:
        raise InvalidSettings(f"{path} uses ${{{name}}}, and there is no such variable")
    return os.environ[name]


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
    for each in tools:
        try:
            yield remote.tool(each)
        except InvalidTool as error:
            log.warning("mcp_tool_refused", tool=each.name, reason=str(error))


# At `info`, every request is logged with its URL, and some servers are given their key there.
logging.getLogger("httpx2").setLevel(logging.WARNING)

globals().update(tools_of_servers(read_pack_settings(McpSettings)))
