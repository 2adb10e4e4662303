"""The A2A agent at /a2a, behind the same keys as everything else here. Where its SDK is missing, it says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from fastapi import FastAPI

from toolfleet.orchestrator.doors.http.problems import said_to_be_missing

PATHS: Final = ("/.well-known/agent-card.json", "/a2a", "/a2a/{rest:path}")


def import_a2a() -> None:
    """Import A2A's records, where they are there: that takes a moment, which `serve_a2a` then has no need of."""
    if find_spec("a2a") is not None:
        import_module("toolfleet.orchestrator.doors.a2a.routes")
        import_module("toolfleet.orchestrator.doors.a2a.telling")


@asynccontextmanager
async def serve_a2a(app: FastAPI) -> AsyncIterator[None]:
    """Serve A2A from here to the end of the block, and see what its tasks have to tell."""
    if find_spec("a2a") is None:
        with said_to_be_missing(app, "A2A", "a2a", *PATHS):
            yield
        return
    from toolfleet.orchestrator.doors.a2a.routes import routes  # noqa: PLC0415  # an extra
    from toolfleet.orchestrator.doors.a2a.telling import Telling  # noqa: PLC0415  # as above

    own, telling = routes(), Telling(app.state.door)
    app.router.routes.extend(own)
    telling.start()
    try:
        yield
    finally:
        await telling.aclose()
        for route in own:
            app.router.routes.remove(route)
