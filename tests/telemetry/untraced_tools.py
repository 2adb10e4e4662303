"""Tools of workers that nobody traces."""

from __future__ import annotations

import sys

from toolfleet import tool


@tool(read_only=True)
async def what_is_imported() -> list[str]:
    """The modules of OpenTelemetry in this process."""
    return sorted(
        name for name in sys.modules if name.split(".")[0] == "opentelemetry" or name == "toolfleet.tracing.spans"
    )


@tool(read_only=True, queue="cpu")
def imported_in_a_child() -> list[str]:
    """The same in a pool of processes."""
    return sorted(
        name for name in sys.modules if name.split(".")[0] == "opentelemetry" or name == "toolfleet.tracing.spans"
    )
