"""The page within the API's application: its routes, and what they share."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, FastAPI

from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.page import (
    actions,
    batches,
    call,
    dead,
    finding,
    jobs,
    open_calls,
    overview,
    runs,
    schedules,
    signing_in,
    static_files,
    tools,
    tree,
    webhooks,
)
from toolfleet.orchestrator.doors.page.state import PageState

ROUTERS: Final[tuple[APIRouter, ...]] = (
    overview.router,
    runs.router,
    call.router,
    open_calls.router,
    actions.router,
    tools.router,
    tree.router,
    dead.router,
    jobs.router,
    batches.router,
    webhooks.router,
    schedules.router,
    finding.router,
    signing_in.router,
    static_files.router,
)


def serve_page(app: FastAPI, door: Door) -> None:
    """Let the page's routes find what they share, while the application runs."""
    app.state.page = PageState(door)
