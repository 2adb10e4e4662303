"""Errors of the fleet to errors of JSON-RPC, translated once, at the border. Tells nobody how the fleet is set up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from toolfleet.errors import CallerError, OperatorError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import UnknownTool

log = FactLog("toolfleet.mcp")


@contextmanager
def protocol_errors() -> Iterator[None]:
    """Turn errors of the block into MCP's. What the operator has to mend is logged, and told without addresses."""
    try:
        yield
    except UnknownTool:
        raise MCPError(INVALID_PARAMS, "Unknown tool: no live worker serves it") from None
    except CallerError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error
    except OperatorError as error:
        log.warning("mcp_request_failed", error=str(error))
        raise MCPError(INTERNAL_ERROR, "the fleet cannot be reached just now; try again") from error


def unknown_tool(name: str) -> MCPError:
    """Make the answer to a call of a tool that is not offered."""
    return MCPError(INVALID_PARAMS, f"Unknown tool: {name}")
