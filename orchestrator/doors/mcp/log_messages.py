"""Log messages to clients: which they want, and in which words what happens to a call is told.

Clients of the newest revision say it with each request (`_meta["io.modelcontextprotocol/logLevel"]`), earlier ones for
their session (`logging/setLevel`). Whoever has said nothing is sent nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, get_args

import mcp_types as types
from mcp.server import Server
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolfleet.calls import Failed, Returned
from toolfleet.orchestrator.run.updates import CallProgressed, CallStarted, CallSubmitted, RunUpdate

Context = ServerRequestContext[Any, Any]

LEVELS: Final[tuple[types.LoggingLevel, ...]] = get_args(types.LoggingLevel)
"""From the least to the most severe."""

_STATE: Final = "toolfleet.log_level"


class LogMessage(NamedTuple):
    """One of them: how severe it is, which tool it is about, and what is said."""

    level: types.LoggingLevel
    tool: str
    data: dict[str, Any]

    def notification(self) -> types.LoggingMessageNotification:
        """Return it as it is sent."""
        params = types.LoggingMessageNotificationParams(level=self.level, logger=self.tool, data=self.data)
        return types.LoggingMessageNotification(params=params)


def serve_log_levels(server: Server[None]) -> None:
    """Answer `logging/setLevel`."""
    # Not by the constructor's parameter, which warns that the newest revision has no such method.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)


async def _set_level(ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
    _connection(ctx).state[_STATE] = params.level
    return types.EmptyResult()


def wanted_levels(ctx: Context) -> frozenset[str]:
    """Return the levels that this request's client wants to hear."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return frozenset(allowed_log_levels(ctx.protocol_version, ctx.meta))
    lowest = _connection(ctx).state.get(_STATE)
    return frozenset() if lowest is None else frozenset(LEVELS[LEVELS.index(lowest) :])


def message_of(event: RunUpdate) -> LogMessage | None:
    """Return what a client is told of something that happened to its call; None for what is no news to it."""
    match event:
        case CallStarted():
            return LogMessage("debug", event.tool, {"message": "sent to the workers", "call_id": event.call_id})
        case CallProgressed():
            return progress_message(event.tool, event.call_id, event.fraction, event.message)
        case CallSubmitted():
            return LogMessage("notice", event.tool, {"message": "goes on by itself", "call_id": event.call_id})
        case _:
            return None


def end_message(tool: str, call_id: str, result: Returned | Failed) -> LogMessage:
    """Return what is told of a call's end: a failure as a warning."""
    if isinstance(result, Failed):
        return LogMessage("warning", tool, {"message": result.message, "kind": result.kind.value, "call_id": call_id})
    return LogMessage("debug", tool, {"message": "returned", "call_id": call_id})


def progress_message(tool: str, call_id: str, fraction: float, message: str) -> LogMessage:
    """Return what is told of a call's progress: as `info` what its tool says, as `debug` a bare number."""
    data = {"message": message, "progress": fraction, "call_id": call_id}
    return LogMessage("info" if message else "debug", tool, data)


def _connection(ctx: Context) -> Connection:
    # The SDK hands out no public way to what outlives the request.
    return ctx.session._connection
