"""A session with one MCP server on one event loop. Knows no tool: whoever calls decides what a lost session means.

A server is a stranger: no message of it may be larger than `MAX_MESSAGE_BYTES`, and what its schemas ask to be done
with its results is tamed before the SDK does it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self, cast

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Tool

from toolfleet import ToolError
from toolfleet.logs import FactLog
from toolfleet.workers.packs.mcp_servers import line_guard
from toolfleet.workers.packs.mcp_servers.configuration import Server
from toolfleet.workers.packs.mcp_servers.schemas import tamed

log = FactLog("toolfleet.packs.mcp")

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""A result with pictures in it is large; what is larger ends the session."""

MAX_TOOLS: Final = 1000
"""Tools of one server; one that lists more is broken, and what it lists behind them is not even looked at."""

LIST_CHANGES: Final = frozenset({"notifications/tools/list_changed", "notifications/resources/list_changed"})


class News:
    """Whether a server may have other tools or resources than when it was last looked at. For one event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._has_come = asyncio.Event()

    def note(self) -> None:
        """Note that it may."""
        self.count += 1
        self._has_come.set()

    async def wait(self, for_s: float) -> None:
        """Return when there is some that nobody has waited for, or after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                await self._has_come.wait()
        self._has_come.clear()


class Watched:
    """A stream of incoming messages that remembers when it has ended, which the SDK tells only to who calls next.

    What listed tools say of their results is tamed on the way: the SDK checks every result against it, on this loop.
    That a list has changed is noted and goes no further: a server may say so ten thousand times a second.
    """

    def __init__(self, stream: Any, news: News) -> None:
        self._stream = stream
        self._news = news
        self.has_ended = False

    async def receive(self) -> Any:
        """The next message."""
        while self._is_news(message := await self._stream.receive()):
            pass
        return _believed(message)

    def _is_news(self, message: Any) -> bool:
        if getattr(getattr(message, "message", None), "method", None) not in LIST_CHANGES:
            return False
        self._news.note()
        return True

    async def aclose(self) -> None:
        """Stop listening."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            while self._is_news(message := await self._stream.__anext__()):
                pass
        except StopAsyncIteration:
            self.has_ended = True
            self._news.note()
            raise
        return _believed(message)

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
        self.news = News()

    async def client(self) -> Client:
        """A client whose server was there when last heard of. Raises ToolError."""
        async with self._opening:
            if self._client is None or self._has_ended:
                await self.close()
                self._client = await self._open()
                self.news.note()  # it may be another version of the server
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
            self.news.note()

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        """A session ends with an exception when its server is lost, and whoever called has heard of it."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            log.info("mcp_session_ended", server=self._name, reason=reason_of(error))

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
        raise ToolError(f"the MCP server {self._name} cannot be reached: {reason_of(keeper.exception())}")

    async def _keep(self, opened: asyncio.Future[Client], released: asyncio.Event) -> None:
        async with Client(self._transport()) as client:
            opened.set_result(client)
            await released.wait()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        async with self._streams() as (incoming, outgoing):
            self._incoming = Watched(incoming, self.news)
            yield self._incoming, outgoing

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        server = self._server
        if server.url is not None:
            timeout = httpx2.Timeout(self._connect_timeout_s, read=None)  # a call has its own limit
            async with (
                httpx2.AsyncClient(
                    headers={"accept-encoding": "identity"} | server.headers,
                    timeout=timeout,
                    event_hooks={"response": [_bound]},
                ) as http,
                streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
            ):
                yield streams
            return
        guard, arguments = line_guard.guarded(server.command or "", server.args, MAX_MESSAGE_BYTES)
        command = StdioServerParameters(command=guard, args=arguments, env=server.env or None, cwd=server.cwd)
        # Celery replaces sys.stderr by one that has no file descriptor.
        async with stdio_client(command, errlog=sys.__stderr__ or sys.stderr) as streams:
            yield streams


def _believed(message: Any) -> Any:
    """A message that lists tools only, each of which says nothing of its results that would be costly to check."""
    result = getattr(getattr(message, "message", None), "result", None)
    if isinstance(result, dict) and isinstance(result.get("tools"), list):
        listed = result["tools"]
        if len(listed) > MAX_TOOLS:
            log.warning("mcp_tools_left_out", listed=len(listed), taken=MAX_TOOLS)
        result["tools"] = [tool for tool in listed[:MAX_TOOLS] if _is_tool(tool)]
    return message


def _is_tool(tool: Any) -> bool:
    try:
        name = Tool.model_validate(tool, by_name=False).name
        _must_be_of_an_object(tool["inputSchema"])
    except ValueError as error:
        log.warning("mcp_tool_refused", tool=str(tool)[:100], reason=str(error)[:300])
        return False
    if "outputSchema" in tool:
        try:
            tool["outputSchema"] = tamed(tool["outputSchema"])
            _must_be_of_an_object(tool["outputSchema"])
        except ValueError as error:
            del tool["outputSchema"]
            log.warning("mcp_output_schema_ignored", tool=name[:100], reason=str(error))
    return True


def _must_be_of_an_object(schema: Any) -> None:
    """Raise ValueError for a schema that no version of the protocol takes."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError('a schema without {"type": "object"}')


async def _bound(response: httpx2.Response) -> None:
    """Let no answer over HTTP be read beyond what a message may have; of an event stream the SDK bounds each event."""
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise httpx2.RemoteProtocolError("the server compresses its answers, which it was not asked to")
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream))


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of an answer, up to those of a message."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_MESSAGE_BYTES
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.RemoteProtocolError(f"the server's answer has more than {MAX_MESSAGE_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def reason_of(error: BaseException | None) -> str:
    """The first thing that went wrong inside the SDK's task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".removesuffix(": ")
