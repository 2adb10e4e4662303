"""What the page's routes share in one server: who looks on at what, and who has tried to sign in."""

from __future__ import annotations

from typing import cast

from fastapi import Request

from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.page.live import LiveRuns
from toolfleet.orchestrator.doors.page.looks import Looks
from toolfleet.orchestrator.doors.page.overviews import Overviews
from toolfleet.orchestrator.doors.page.run_sight import RunSights
from toolfleet.orchestrator.doors.page.signing_in import Attempts


class PageState:
    """One for each server; nothing in it would be missed after a restart."""

    def __init__(self, door: Door) -> None:
        self.attempts = Attempts()
        self.looks = Looks(door)
        self.overviews = Overviews(door, self.looks)
        self.live_runs = LiveRuns(door)
        self.sights = RunSights(door)


async def page_of(request: Request) -> PageState:
    """Return what the page's routes share. For FastAPI's dependencies."""
    return cast("PageState", request.app.state.page)
