"""Schedules over HTTP: made, listed, shown, paused, resumed, removed, and run at once. Each tenant has its own."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from starlette.responses import Response

from toolfleet.messages import Message, UserMessage
from toolfleet.orchestrator.doors.http.access import Reader, Runner
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails
from toolfleet.orchestrator.doors.http.records import RunAccepted, SomeWanted, without
from toolfleet.orchestrator.doors.http.runs import Through, accepted, admit, json_of, tools_for
from toolfleet.orchestrator.options import RunOptions, options_given
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.orchestrator.schedules.records import MOST_MISSED, Missed, Tick
from toolfleet.orchestrator.schedules.shown import ScheduleStanding, standing_of
from toolfleet.orchestrator.schedules.ticks import MAX_CRON_CHARS

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], route_class=JsonRoute)

EXAMPLE: Final = ScheduleStanding(
    schedule_id="s3fa1c2b09d77",
    cron="0 8 * * 1-5",
    tz="Europe/Berlin",
    model="gpt-5-mini",
    messages=(UserMessage(content="What is new since yesterday?"),),
    options={"timeout_s": 600.0},
    missed="once",
    at_most=100,
    tenant="acme",
    subject="ada",
    by="key of ada",
    made_unix_s=1767225600.0,
    is_paused=False,
    next_unix_s=1767337200,
    owed=0,
    ticks=(Tick(tick_unix_s=1767250800, run_id="s3fa1c2b09d77-20260101T070000Z"),),
).model_dump(mode="json")

SHOWN: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"application/json": {"example": EXAMPLE}}}}
UNKNOWN: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ProblemDetails, "description": "No such schedule"}}


class ScheduleRequest(AskedTerms):
    """What is asked when: a question, or a conversation that ends with one, and every option that a run has."""

    model_config = ConfigDict(
        defer_build=False,
        json_schema_extra={
            "oneOf": [without("messages", required=["question"]), without("question", required=["messages"])],
            "examples": [
                {"cron": "0 8 * * 1-5", "tz": "Europe/Berlin", "question": "What is new since yesterday?"},
                {"cron": "*/15 * * * *", "question": "Is the queue short?", "missed": "once", "timeout_s": 600},
            ],
        },
    )

    cron: Annotated[str, Field(min_length=9, max_length=MAX_CRON_CHARS)] = Field(
        description="Minute, hour, day, month, weekday; six fields begin with seconds.", examples=["0 8 * * 1-5"]
    )
    tz: Annotated[str, Field(max_length=100)] = Field(
        default="UTC", description="The time zone by whose clock it ticks.", examples=["Europe/Berlin"]
    )
    question: Annotated[str, Field(min_length=1)] | None = None
    messages: Annotated[tuple[Message, ...], Field(min_length=1)] | None = None
    model: str | None = Field(
        default=None, description="What the orchestrators have that work on its runs; this one's model by default."
    )
    missed: Missed = Field(
        default="skip",
        description="What becomes of ticks at which no orchestrator was there: none, one run, or a run for each.",
    )
    at_most: Annotated[StrictInt, Field(ge=1, le=MOST_MISSED)] = Field(
        default=100, description="For how many missed ticks a run begins with `all`: the newest."
    )


class ScheduleList(BaseModel):
    """The schedules of a tenant, the newest first."""

    schedules: list[ScheduleStanding]
    after: str | None = Field(description="What the next page is asked for with; null behind the last schedule.")


@router.post("", status_code=HTTPStatus.CREATED, response_model=ScheduleStanding)
async def add(asked: ScheduleRequest, grant: Runner, door: Through) -> Response:
    """Make a schedule: from now on each tick of it begins a run of your tenant, until it is paused or removed."""
    if (asked.question is None) == (asked.messages is None):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "give a question or messages, one of them")
    options: RunOptions = options_given(asked)
    options["tools"] = await tools_for(grant, asked.tools, door)
    options["tenant"], options["subject"], options["by"] = grant.tenant, grant.subject, grant.who
    made = await door.orchestrator.schedules.add(
        asked.cron,
        asked.messages or asked.question or "",
        tz=asked.tz,
        missed=asked.missed,
        at_most=asked.at_most,
        model=asked.model,
        **options,
    )
    headers = {"location": f"/v1/schedules/{made.schedule_id}"}
    return json_of(standing_of(made), HTTPStatus.CREATED, headers)


@router.get("")
async def list_schedules(grant: Reader, door: Through, wanted: Annotated[SomeWanted, Query()]) -> ScheduleList:
    """List the tenant's schedules, the newest first: when each ticks next, and what its last ticks have begun."""
    found = await door.orchestrator.schedules.list(tenant=grant.tenant, limit=wanted.limit, after=wanted.after)
    return ScheduleList(schedules=[standing_of(each) for each in found.schedules], after=found.after or None)


@router.get("/{schedule_id}", responses={**SHOWN, **UNKNOWN})
async def show(schedule_id: str, grant: Reader, door: Through) -> ScheduleStanding:
    """Tell how a schedule stands."""
    return standing_of(await door.orchestrator.schedules.get(schedule_id, tenant=grant.tenant))


@router.post("/{schedule_id}/pause", responses={**SHOWN, **UNKNOWN})
async def pause(schedule_id: str, grant: Runner, door: Through) -> ScheduleStanding:
    """Begin no runs any more, until it is resumed. Those that have begun go on."""
    return standing_of(await door.orchestrator.schedules.pause(schedule_id, tenant=grant.tenant))


@router.post("/{schedule_id}/resume", responses={**SHOWN, **UNKNOWN})
async def resume(schedule_id: str, grant: Runner, door: Through) -> ScheduleStanding:
    """Go on with the next tick. Those while it was paused do not count as missed."""
    return standing_of(await door.orchestrator.schedules.resume(schedule_id, tenant=grant.tenant))


@router.post("/{schedule_id}/run", status_code=HTTPStatus.ACCEPTED, response_model=RunAccepted, responses={**UNKNOWN})
async def run(schedule_id: str, grant: Runner, door: Through, request: Request) -> Response:
    """Begin a run of it now, besides its ticks."""
    await door.orchestrator.schedules.get(schedule_id, tenant=grant.tenant)
    options: RunOptions = {"run_id": getattr(request.state, "derived_id", None)}
    await admit(door, grant, request, options)
    begun = await door.orchestrator.schedules.run(schedule_id, tenant=grant.tenant, run_id=options["run_id"])
    return json_of(accepted(begun), HTTPStatus.ACCEPTED, {"location": f"/v1/runs/{begun}"})


@router.delete("/{schedule_id}", status_code=HTTPStatus.NO_CONTENT, response_class=Response, responses={**UNKNOWN})
async def remove(schedule_id: str, grant: Runner, door: Through) -> None:
    """Forget a schedule. The runs that it has begun go on, and stay stored."""
    await door.orchestrator.schedules.remove(schedule_id, tenant=grant.tenant)
