"""The fleet over HTTP: its workers, whether this process is well, and figures for Prometheus."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.access import Admin, Reader
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.metrics import CONTENT_TYPE, exposition
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails
from toolfleet.orchestrator.doors.http.records import Health, QueueList, WorkerList, WorkerView
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.fleet.queues import QueueStanding

router = APIRouter(tags=["fleet"])

READY_WITHIN_S: Final = 2.0

NOT_READY: Final[dict[int | str, dict[str, Any]]] = {
    503: {
        "model": ProblemDetails,
        "description": "Redis does not answer, a listener of this process is down, or it is stopping",
    }
}


@router.get("/v1/workers")
async def workers(grant: Reader, door: Through) -> WorkerList:
    """List the live workers."""
    views = [WorkerView.of(announced) for announced in await door.orchestrator.catalog.workers()]
    return WorkerList(
        workers=[
            view.model_copy(update={"tools": [tool for tool in view.tools if grant.may_call(tool)]}) for view in views
        ]
    )


@router.get("/v1/queues")
async def queues(_grant: Admin, door: Through) -> QueueList:
    """Tell how the queues stand that live workers serve: what waits, runs, and how many there is room for."""
    orchestrator = door.orchestrator
    return QueueList(queues=await orchestrator.queues.standing(await orchestrator.catalog.workers()))


@router.get("/v1/queues/{queue}")
async def queue(
    queue: Annotated[str, Path(min_length=1, max_length=200)], _grant: Admin, door: Through
) -> QueueStanding:
    """Tell how one queue stands; one that nobody has ever used stands at zero."""
    orchestrator = door.orchestrator
    workers = [worker for worker in await orchestrator.catalog.workers() if queue in worker.queues]
    found = await orchestrator.queues.standing(workers, named=[queue])
    return next(each for each in found if each.queue == queue)


@router.head("/healthz", include_in_schema=False)  # as some load balancers ask
@router.get("/healthz", responses={503: {"model": ProblemDetails, "description": "A listener of this process is down"}})
async def healthz(door: Through) -> Health:
    """Tell whether this process answers, and hears what it lives by."""
    _must_hear(door)
    return Health()


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=NOT_READY)
async def readyz(door: Through) -> Health:
    """Tell whether requests should be sent here: Redis answers, and this process is not stopping."""
    if door.is_closing:
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "this process is stopping")
    _must_hear(door)
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await door.client.ping()
    except TimeoutError:
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, f"Redis did not answer within {READY_WITHIN_S:g} s") from None
    return Health()


def _must_hear(door: Door) -> None:
    if ailing := door.orchestrator.ailing:
        said = "; ".join(f"{name} is down ({why})" for name, why in ailing.items())
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{said}: it begins again by itself, and the log tells more",
            code="listener-down",
            listeners=sorted(ailing),
        )


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
async def metrics(_grant: Admin, door: Through) -> Response:
    """Tell figures in Prometheus's text format."""
    return Response(await exposition(door), headers={"content-type": CONTENT_TYPE})
