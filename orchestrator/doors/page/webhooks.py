"""Webhooks: the tenant's endpoints with the newest attempts at each, and the messages that were given up."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.orchestrator.doors.http import webhooks as http_webhooks
from toolfleet.orchestrator.doors.http.access import PayloadReader, Runner
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.rendering import page

router = APIRouter(include_in_schema=False)

ATTEMPTS: Final = 5
DEAD: Final = 100


@router.get("/webhooks")
async def webhooks(request: Request, grant: PayloadReader, door: Through) -> Response:
    """Show where messages go, and what came of them."""
    desk = door.looking.webhooks
    endpoints = await desk.endpoints.of_tenant(grant.tenant)
    return await page(
        request,
        "webhooks.html",
        endpoints=[(each, await desk.outbox.attempts(each.endpoint_id, ATTEMPTS)) for each in endpoints],
        dead=await desk.outbox.dead(grant.tenant, DEAD),
        may_act=grant.may(Scope.RUN),
    )


@router.post("/webhooks/dead/{delivery_id}/replay")
async def replay(delivery_id: str, grant: Runner, door: Through) -> Response:
    """Send a message again that was given up."""
    await http_webhooks.replay(delivery_id, grant, door)
    return RedirectResponse("/webhooks", status_code=HTTPStatus.SEE_OTHER)
