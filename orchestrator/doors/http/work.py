"""`/v1/work`: workers that reach the fleet over HTTPS only, with a key that names their tools.

Who asks and how it is answered. What is done about it is the gate's business, which is found by its name: it is a part
of the workers, and the orchestrator must not import them.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Final, cast

import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response

from toolfleet.errors import ToolfleetError
from toolfleet.local.local_key import PREFIX
from toolfleet.orchestrator.doors.http.access import needs
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.door import Door, door_of
from toolfleet.orchestrator.doors.http.key_store import ApiKey, Grant, Scope
from toolfleet.orchestrator.doors.http.problems import (
    Problem,
    ProblemDetails,
    answer,
    on_bug,
    on_our_error,
    on_validation_error,
    path_of,
)
from toolfleet.orchestrator.doors.http.waiting import unless_left
from toolfleet.settings import Settings
from toolfleet.supervision import Supervisor
from toolfleet.work import (
    WORK_VERSION,
    Ack,
    Acked,
    Announce,
    Announced,
    Batch,
    Batched,
    BatchItem,
    Beaten,
    CheckpointSaid,
    Heartbeat,
    Poll,
    Polled,
    ProgressSaid,
    Refusal,
    Release,
    Released,
    ResultSaid,
    Settled,
    WorkerKey,
    WorkGate,
    WorkRefused,
)

GATE: Final = "toolfleet.workers.gateway.gate"

STATUSES: Final = {
    Refusal.NOT_YOURS: HTTPStatus.NOT_FOUND,
    Refusal.STALE: HTTPStatus.CONFLICT,
    Refusal.OTHER_RESULT: HTTPStatus.CONFLICT,
    Refusal.NOT_ANNOUNCED: HTTPStatus.PRECONDITION_FAILED,
    Refusal.CLASH: HTTPStatus.CONFLICT,
    Refusal.TOOL_NOT_ALLOWED: HTTPStatus.FORBIDDEN,
    Refusal.INVALID_TOOL: HTTPStatus.UNPROCESSABLE_ENTITY,
    Refusal.INVALID_RESULT: HTTPStatus.UNPROCESSABLE_ENTITY,
    Refusal.NO_STREAMS: HTTPStatus.NOT_IMPLEMENTED,
    Refusal.KEY_GONE: HTTPStatus.UNAUTHORIZED,
}

NOT_YOURS: Final[dict[int | str, dict[str, Any]]] = {
    404: {"model": ProblemDetails, "description": "It names no call that this key was given"}
}
STALE: Final[dict[int | str, dict[str, Any]]] = {
    **NOT_YOURS,
    409: {"model": ProblemDetails, "description": "The call has ended, or is another attempt's by now"},
}
NOT_ANNOUNCED: Final[dict[int | str, dict[str, Any]]] = {
    412: {"model": ProblemDetails, "description": "The worker is not announced, or no longer: announce it again"}
}


def open_gate(settings: Settings, supervisor: Supervisor, *, max_body_bytes: int) -> WorkGate:
    """Make what stands behind these routes, on the running loop."""
    gate = importlib.import_module(GATE)
    return cast("WorkGate", gate.open_gate(settings, supervisor, max_body_bytes=max_body_bytes))


async def _of_this_version(request: Request) -> None:
    """Raise Problem for what was written by a later major version, whatever else is in it."""
    try:
        body = await request.json()
    except ValueError:
        return  # which is told of where the body is read
    version = body.get("v", WORK_VERSION) if isinstance(body, dict) else WORK_VERSION
    if version != WORK_VERSION or isinstance(version, bool):
        raise Problem(
            HTTPStatus.BAD_REQUEST,
            f"this server speaks version {WORK_VERSION} of /v1/work, and the request says v = {str(version)[:50]}: "
            "use a worker of that version, or a newer server",
            code="contract-version",
            supported=[WORK_VERSION],
        )


router = APIRouter(prefix="/v1/work", tags=["work"], route_class=JsonRoute, dependencies=[Depends(_of_this_version)])


async def _key_of(grant: Annotated[Grant, Depends(needs(Scope.WORK))]) -> WorkerKey:
    key_id = grant.key_id if isinstance(grant, ApiKey) else "local"
    return WorkerKey(key_id, grant.tenant, grant.may_call)


async def _gate_of(request: Request) -> WorkGate:
    return cast("WorkGate", request.app.state.work)


Key = Annotated[WorkerKey, Depends(_key_of)]
Through = Annotated[WorkGate, Depends(_gate_of)]


async def on_refused(request: Request, error: Exception) -> Response:
    """Answer what the gate has refused."""
    refused = cast("WorkRefused", error)
    problem = Problem(STATUSES[refused.refusal], str(refused), code=refused.refusal.value, **refused.members)
    return answer(problem, path_of(request.scope))


@router.post("/announce", responses={409: {"model": ProblemDetails, "description": "Others serve another such tool"}})
async def announce(said: Announce, key: Key, gate: Through) -> Announced:
    """Say what a worker serves. It holds while the worker polls or sends heartbeats, and half a minute more."""
    return await gate.announce(key, said)


@router.post("/poll", responses=NOT_ANNOUNCED)
async def poll(
    wanted: Poll, request: Request, key: Key, gate: Through, door: Annotated[Door, Depends(door_of)]
) -> Polled:
    """Wait for calls, and take them as soon as there are any. Each must be acknowledged before it is begun."""
    return await unless_left(request, gate.poll(key, wanted, _welcome(request, door), lambda: door.is_closing))


@router.post("/ack", responses=STALE)
async def ack(said: Ack, key: Key, gate: Through) -> Acked:
    """Begin the attempt at a call. Run the tool only after this has answered; sent again, it answers the same."""
    return await gate.ack(key, said)


@router.post("/heartbeat", responses={**NOT_YOURS, **NOT_ANNOUNCED})
async def heartbeat(said: Heartbeat, key: Key, gate: Through) -> Beaten:
    """Keep the calls that a worker has, and learn which of them nobody wants, or are another's by now."""
    return await gate.heartbeat(key, said)


@router.post("/progress", status_code=HTTPStatus.NO_CONTENT, responses=STALE)
async def progress(said: ProgressSaid, key: Key, gate: Through) -> Response:
    """Tell whoever waits how far a call has come."""
    await gate.progress(key, said)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/checkpoint", status_code=HTTPStatus.NO_CONTENT, responses=STALE)
async def checkpoint(said: CheckpointSaid, key: Key, gate: Through) -> Response:
    """Keep where a further attempt would go on, if this one is lost."""
    await gate.checkpoint(key, said)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/result", responses=STALE)
async def result(said: ResultSaid, key: Key, gate: Through) -> Settled:
    """End a call. The same result again is answered as before; it counts once."""
    return await gate.result(key, said)


@router.post("/batch", response_model=Batched)
async def batch(said: Batch, request: Request, key: Key, gate: Through) -> Response:
    """Say several things at once. They are done side by side, and each is answered as if it had come alone."""
    answers = await asyncio.gather(*(_answer_to(item, request, key, gate) for item in said.items))
    items = [{"status": each.status_code, "body": orjson.Fragment(each.body)} for each in answers]
    return Response(orjson.dumps({"v": WORK_VERSION, "items": items}), media_type="application/json")


async def _answer_to(item: BatchItem, request: Request, key: WorkerKey, gate: WorkGate) -> Response:
    done: Acked | Settled
    try:
        if item.what == "ack":
            done = await gate.ack(key, Ack.model_validate(item.said))
        else:
            done = await gate.result(key, ResultSaid.model_validate(item.said))
    except ValidationError as error:
        wrong = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        return await on_validation_error(request, RequestValidationError(wrong))
    except WorkRefused as error:
        return await on_refused(request, error)
    except ToolfleetError as error:
        return await on_our_error(request, error)
    except Exception as error:  # noqa: BLE001  # the others are to have their answers
        return await on_bug(request, error)
    return Response(done.model_dump_json(), media_type="application/json")


@router.post("/release", responses=NOT_YOURS)
async def release(said: Release, key: Key, gate: Through) -> Released:
    """Give calls back, for others to have at once; at its end a worker leaves with it."""
    return await gate.release(key, said)


def _welcome(request: Request, door: Door) -> Callable[[], Any]:
    """Return what says whether whoever asked is still let in."""
    key = Headers(scope=request.scope).get("authorization", "").partition(" ")[2].strip()

    async def is_welcome() -> bool:
        if not key.startswith(PREFIX) or door.local_key.is_it(key):
            return True
        return await door.keyring.is_good(key)

    return is_welcome
