"""Clients that want to hear of changes: on `subscriptions/listen`, or on their session in the revisions before it.

Told are the list of tools, runs, and tasks. What is not the listener's is left out of what is acknowledged, as is what
goes beyond a stream's share. Nothing is told again: whoever was cut off listens anew and looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import mcp_types as types
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import x_mcp_header_map
from mcp.shared.subscriptions import event_to_notification
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.beside import Context
from toolfleet.orchestrator.doors.mcp.callers import Caller, CallerOf
from toolfleet.orchestrator.doors.mcp.resources import Resources, not_found
from toolfleet.orchestrator.doors.mcp.rpc_errors import protocol_errors
from toolfleet.orchestrator.doors.mcp.running_questions import Reader
from toolfleet.orchestrator.doors.mcp.task_news import TaskNews
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.models.names import legal_name
from toolfleet.orchestrator.run.value import Run
from toolfleet.supervision import run_errand, stop
from toolfleet.tool import ToolSpec

log = FactLog("toolfleet.mcp")

LOOK_EVERY_S: Final = 1.0
"""How often the catalog, and a run that somebody listens to, is compared with what clients were told."""

TELL_WITHIN_S: Final = 5.0
"""A client that does not read for this long misses that something has changed; it will not hold up the others."""

MOST_STREAMS: Final = 1024
MOST_WATCHED: Final = 16
"""How many runs, and how many tasks, one stream or session may listen to: each is looked at again and again."""

MOST_WAITING: Final = 256
"""A stream whose client has left so much unread is ended."""

NOT_THERE: Final = "not there"
FIXED: Final = "fixed"
"""How a resource stands that is none of the fleet's: as it always does."""

_STATE: Final = "toolfleet.watched"


class Listening:
    """Answers `subscriptions/listen`, `resources/subscribe` and `resources/unsubscribe`."""

    def __init__(
        self, orchestrator: Orchestrator, caller_of: CallerOf, resources: Resources, task_news: TaskNews
    ) -> None:
        self._orchestrator = orchestrator
        self._caller_of = caller_of
        self._resources = resources
        self._task_news = task_news
        self._streams: set[_Stream] = set()
        self._connections: set[Connection] = set()
        self.headed_schemas: dict[str, Mapping[str, Any]] = {}
        """The schemas of tools that have arguments sent in headers too, as the catalog was seen last."""

    def serve_on(self, server: Server[None]) -> None:
        """Answer the methods, and take note of sessions."""
        server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen)
        server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._meet)

    # --- streams ------------------------------------------------------------------------------------------------

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        if len(self._streams) >= MOST_STREAMS:
            raise MCPError(INTERNAL_ERROR, "too many clients listen here; try again later")
        asked = params.notifications
        stream = _Stream({SUBSCRIPTION_ID_META_KEY: ctx.request_id}, hears_tools=bool(asked.tools_list_changed))
        # Before anything is looked up: others ask at the same time.
        self._streams.add(stream)
        try:
            await self._serve(ctx, asked, stream)
        finally:
            self._streams.discard(stream)
        return types.SubscriptionsListenResult(_meta=stream.meta)

    async def _serve(self, ctx: Context, asked: types.SubscriptionFilter, stream: _Stream) -> None:
        caller = self._caller_of(ctx.request)
        stands = await self._theirs(asked.resource_subscriptions or (), caller)
        tickets = self._task_news.theirs(ctx, asked, caller)
        acknowledged = types.SubscriptionFilter(
            tools_list_changed=asked.tools_list_changed or None, resource_subscriptions=list(stands) or None
        )
        if tickets:
            acknowledged = self._task_news.acknowledged(acknowledged, tickets)
        work = [self._watch_runs(stands, caller, stream.resource_updated)] if stands else []
        reader = Reader.of(ctx, caller)
        work += [self._task_news.watch(ticket, reader, stream.meta, stream.put) for ticket in tickets]
        watching = [run_errand("mcp_watching", each) for each in work]
        try:
            await stream.send(ctx, acknowledged)
        finally:
            for each in watching:
                await stop(each)

    async def _theirs(self, uris: Iterable[str], caller: Caller) -> dict[str, object]:
        """Return those that this caller may read, as many as may be watched, and how they stand. Raises MCPError."""
        first = list(dict.fromkeys(uris))[:MOST_WATCHED]
        with protocol_errors():
            stands = {uri: await self._stand(uri, caller) for uri in first}
        return {uri: stand for uri, stand in stands.items() if stand is not NOT_THERE}

    async def _watch_runs(
        self, told: dict[str, object], caller: Caller, tell: Callable[[str], Awaitable[None]]
    ) -> None:
        """Tell of each change of these resources, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for uri, before in list(told.items()):
                try:
                    stand = await self._stand(uri, caller)
                except StoreUnreachable:
                    continue  # told once it can be seen again
                if stand != before:
                    told[uri] = stand
                    await tell(uri)

    async def _stand(self, uri: str, caller: Caller) -> object:
        """Return what changes whenever a resource does, which only runs do; NOT_THERE for one that cannot be read."""
        try:
            run = await self._resources.run(uri, caller)
        except RunNotFound:
            return NOT_THERE
        if run is not None:
            return _stand_of(run)
        return FIXED if await self._resources.is_beside(uri) else NOT_THERE

    def close_streams(self) -> None:
        """End every stream with its result: its client listens anew, perhaps elsewhere."""
        for stream in self._streams:
            stream.end()

    # --- sessions -----------------------------------------------------------------------------------------------

    async def _meet(self, ctx: Context, _params: types.NotificationParams) -> None:
        """Take note of a client of the handshake era; it hears of changes until its connection closes."""
        # The SDK hands out no public way to a connection that outlives the request.
        connection = ctx.session._connection
        self._connections.add(connection)
        connection.exit_stack.callback(self._connections.discard, connection)

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        connection, caller = ctx.session._connection, self._caller_of(ctx.request)
        watched = _watched(connection)
        if params.uri in watched:
            return types.EmptyResult()
        if len(watched) >= MOST_WATCHED:
            detail = f"a session subscribes to {MOST_WATCHED} resources at most: unsubscribe from another one first"
            raise MCPError(INVALID_PARAMS, detail)
        # Its place is taken before anything is looked up: a session's requests are answered at the same time.
        place = watched[params.uri] = _Place()
        try:
            stands = await self._theirs([params.uri], caller)
            if not stands:
                raise not_found(params.uri)
        except BaseException:
            if watched.get(params.uri) is place:
                del watched[params.uri]
            raise

        async def tell(uri: str) -> None:
            await _tell_within(connection, connection.send_resource_updated(uri))

        place.begin(self._watch_runs(stands, caller, tell))
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        place = _watched(ctx.session._connection).pop(params.uri, None)
        if place is not None:
            await place.leave()
        return types.EmptyResult()

    # --- the list of tools --------------------------------------------------------------------------------------

    async def watch_tools(self) -> None:
        """Compare the catalog with what was told, until cancelled."""
        told = None
        while True:
            try:
                offered = await self._orchestrator.catalog.offered()
            except StoreUnreachable as error:
                log.warning("catalog_unreadable", error=str(error))
            else:
                if offered != told:
                    self._look_for_headers(offered.values())
                if told is not None and offered != told:
                    await self._tell_tools()
                told = offered
            await asyncio.sleep(LOOK_EVERY_S)

    def _look_for_headers(self, specs: Iterable[ToolSpec]) -> None:
        self.headed_schemas.clear()
        for spec in specs:
            if x_mcp_header_map(spec.input_schema):
                self.headed_schemas[legal_name(spec.name)] = spec.input_schema

    async def _tell_tools(self) -> None:
        for stream in list(self._streams):
            await stream.tools_changed()
        connections = list(self._connections)
        await asyncio.gather(*(_tell_within(each, each.send_tool_list_changed()) for each in connections))


class _Stream:
    """What waits to be sent on one stream. Others put, its own request sends."""

    def __init__(self, meta: dict[str, Any], *, hears_tools: bool) -> None:
        self.meta = meta
        self._hears_tools = hears_tools
        self._waiting: asyncio.Queue[types.ServerNotification | None] = asyncio.Queue(MOST_WAITING)
        """None ends it."""
        self._is_over = False

    async def tools_changed(self) -> None:
        if self._hears_tools:
            await self.put(event_to_notification(ToolsListChanged(), self.meta))

    async def resource_updated(self, uri: str) -> None:
        await self.put(event_to_notification(ResourceUpdated(uri), self.meta))

    async def put(self, notification: types.ServerNotification) -> None:
        """Have it sent; a stream that is full ends, and its client listens anew."""
        try:
            self._waiting.put_nowait(notification)
        except asyncio.QueueFull:
            self._is_over = True

    def end(self) -> None:
        """Send nothing more: it ends once what is being sent has gone."""
        self._is_over = True
        with suppress(asyncio.QueueFull):
            self._waiting.put_nowait(None)

    async def send(self, ctx: Context, acknowledged: types.SubscriptionFilter) -> None:
        """Acknowledge, then send whatever is put until the client goes or does not keep up, or the server ends it."""
        params = types.SubscriptionsAcknowledgedNotificationParams(notifications=acknowledged, _meta=self.meta)
        first = types.SubscriptionsAcknowledgedNotification(params=params)
        await ctx.session.send_notification(first, related_request_id=ctx.request_id)
        while not self._is_over and (notification := await self._waiting.get()) is not None:
            await ctx.session.send_notification(notification, related_request_id=ctx.request_id)


class _Place:
    """One of the places of a session: what watches a resource for it, once it is known that it may be read."""

    def __init__(self) -> None:
        self._watching: asyncio.Task[None] | None = None
        self._is_left = False

    def begin(self, watch: Coroutine[Any, Any, None]) -> None:
        """Watch from now on, unless nobody wants it any more."""
        if self._is_left:
            watch.close()
        else:
            self._watching = run_errand("mcp_watching", watch)

    async def leave(self) -> None:
        """Watch no longer."""
        self._is_left = True
        if self._watching is not None:
            await stop(self._watching)


def _watched(connection: Connection) -> dict[str, _Place]:
    """Return what watches the resources of a session, by their URIs; all of it ends with the session."""
    if _STATE not in connection.state:
        watched: dict[str, _Place] = {}
        connection.state[_STATE] = watched

        async def leave_all() -> None:
            for place in list(watched.values()):
                await place.leave()

        connection.exit_stack.push_async_callback(leave_all)
    found: dict[str, _Place] = connection.state[_STATE]
    return found


async def _tell_within(connection: Connection, telling: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(TELL_WITHIN_S):
            await telling
    except TimeoutError:
        log.warning("mcp_client_does_not_read", session_id=connection.session_id)


def _stand_of(run: Run) -> tuple[object, ...]:
    decided = sum(call.approval is not None for call in run.calls)
    ended = sum(call.result is not None for call in run.calls)
    return run.state, run.turn, len(run.messages), len(run.calls), ended, decided, len(run.awaiting_below), run.answer
