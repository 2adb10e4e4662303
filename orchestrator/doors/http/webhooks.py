"""Webhooks over HTTP: the tenant's endpoints, what came of attempts at them, and the messages that were given up."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool

from toolfleet.orchestrator.doors.http.access import PayloadReader, Runner
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.problems import ProblemDetails
from toolfleet.orchestrator.doors.http.records import RunBody
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.webhooks.addresses import MAX_URL_CHARS
from toolfleet.orchestrator.webhooks.endpoints import DESCRIPTION_MAX
from toolfleet.orchestrator.webhooks.records import SUBSCRIBABLE, DeadWebhook, Endpoint, WebhookAttempt, WebhookEvent

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=JsonRoute)

ADDED: Final[dict[str, Any]] = {
    "endpoint_id": "we_5d0c2f6b9a1e4c37",
    "url": "https://hooks.example.com/toolfleet",
    "events": ["run.completed", "run.failed"],
    "content": False,
    "description": "billing",
    "disabled": "",
    "created_unix_s": 1767225600.0,
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
}

UNKNOWN: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ProblemDetails, "description": "No such endpoint"}}
NOT_DEAD: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ProblemDetails, "description": "No such message"}}


def _subscribable(events: list[WebhookEvent]) -> list[WebhookEvent]:
    for event in events:
        if event not in SUBSCRIBABLE:
            raise ValueError(
                f"{event} is nothing that an endpoint is told by itself: there are {', '.join(SUBSCRIBABLE)}"
            )
    return events


class EndpointAsked(RunBody):
    """An endpoint to add."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"url": "https://hooks.example.com/toolfleet", "events": ["run.completed", "run.failed"]}]
        },
    )

    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS)] = Field(
        description="https://… on the public internet, or on a network that the fleet's settings name."
    )
    events: Annotated[list[WebhookEvent], AfterValidator(_subscribable)] = Field(
        default=[*SUBSCRIBABLE],
        description="What it is told of each run; with none of them, only what happens to runs that name it.",
        json_schema_extra={"items": {"type": "string", "enum": [event.value for event in SUBSCRIBABLE]}},
    )
    content: StrictBool = Field(
        default=False, description="Also send what was said: answers, reasons, arguments, questions, results."
    )
    description: Annotated[str, Field(max_length=DESCRIPTION_MAX)] = ""


class EndpointView(BaseModel):
    """An endpoint, without its secret."""

    endpoint_id: str
    url: str
    events: list[WebhookEvent]
    content: bool
    description: str
    disabled: str = Field(description="Why nothing is sent there any more; empty where it is.")
    created_unix_s: float

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointView:
        """Make it of an endpoint."""
        return cls.model_validate({name: getattr(endpoint, name) for name in EndpointView.model_fields})


class EndpointWithSecret(EndpointView):
    """An endpoint with the secret that its messages are signed with from now on."""

    model_config = ConfigDict(json_schema_extra={"examples": [ADDED]})

    secret: str = Field(description="Shown here and never again.")

    @classmethod
    def made(cls, endpoint: Endpoint, secret: str) -> EndpointWithSecret:
        """Make it of both."""
        return cls(**EndpointView.of(endpoint).model_dump(), secret=secret)


class EndpointList(BaseModel):
    """The tenant's endpoints, the oldest first."""

    endpoints: list[EndpointView]


class AttemptView(BaseModel):
    """One attempt to deliver a message."""

    delivery_id: str
    event: WebhookEvent
    about: str = Field(description="The run or the call.")
    number: int = Field(description="The how-manieth attempt at this message.")
    at_unix_s: float
    took_s: float
    status: int | None = Field(description="What the receiver answered; null where it did not.")
    error: str = Field(description="Why it is not delivered; empty where it is.")
    answer: str = Field(description="What the receiver said about that, at most 200 characters.")
    next_unix_s: float | None = Field(description="When it is sent again; null where it is not.")

    @classmethod
    def of(cls, attempt: WebhookAttempt) -> AttemptView:
        """Make it of an attempt."""
        return cls.model_validate({name: getattr(attempt, name) for name in cls.model_fields})


class EndpointStanding(BaseModel):
    """An endpoint, and the newest attempts at it."""

    endpoint: EndpointView
    attempts: list[AttemptView]


class DeadView(BaseModel):
    """A message that was given up."""

    delivery_id: str
    endpoint_id: str
    event: WebhookEvent
    about: str
    attempts: int
    given_up_unix_s: float
    error: str = Field(description="Why the last attempt failed.")

    @classmethod
    def of(cls, dead: DeadWebhook) -> DeadView:
        """Make it of one."""
        owed = dead.owed
        return cls(
            delivery_id=owed.delivery_id,
            endpoint_id=owed.endpoint_id,
            event=owed.event,
            about=owed.about,
            attempts=dead.attempts,
            given_up_unix_s=dead.given_up_unix_s,
            error=dead.last.error if dead.last else "its endpoint is disabled",
        )


class DeadList(BaseModel):
    """The messages of a tenant that were given up, the newest first."""

    dead: list[DeadView]


class DeadWanted(RunBody):
    """How many messages to list."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50


class Rotation(RunBody):
    """How a secret is replaced."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"overlap_s": 3600}]})

    overlap_s: Annotated[float, Field(strict=True, ge=0, le=7 * 24 * 3600)] = Field(
        default=24 * 3600.0, description="How long messages are signed with the secret before it, too."
    )


class Replayed(BaseModel):
    """A message that is due again."""

    delivery_id: str


@router.post("", status_code=HTTPStatus.CREATED)
async def add(asked: EndpointAsked, grant: Runner, door: Through) -> EndpointWithSecret:
    """Add an endpoint of the tenant. Its secret is shown in this answer and never again."""
    endpoint, secret = await door.looking.webhooks.endpoints.add(
        asked.url,
        tenant=grant.tenant,
        events=[event for event in SUBSCRIBABLE if event in asked.events],
        content=asked.content,
        description=asked.description,
        by=grant.who,
    )
    return EndpointWithSecret.made(endpoint, secret)


@router.get("")
async def list_endpoints(grant: PayloadReader, door: Through) -> EndpointList:
    """List the tenant's endpoints, the oldest first."""
    found = await door.looking.webhooks.endpoints.of_tenant(grant.tenant)
    return EndpointList(endpoints=[EndpointView.of(each) for each in found])


@router.get("/dead")
async def list_dead(wanted: Annotated[DeadWanted, Query()], grant: PayloadReader, door: Through) -> DeadList:
    """List the tenant's messages that were given up, the newest first."""
    found = await door.looking.webhooks.outbox.dead(grant.tenant, wanted.limit)
    return DeadList(dead=[DeadView.of(each) for each in found])


@router.post("/dead/{delivery_id}/replay", responses=NOT_DEAD)
async def replay(delivery_id: str, grant: Runner, door: Through) -> Replayed:
    """Send a message again that was given up, under the id that it has."""
    await door.looking.webhooks.outbox.replay(delivery_id, tenant=grant.tenant)
    return Replayed(delivery_id=delivery_id)


@router.get("/{endpoint_id}", responses=UNKNOWN)
async def show(endpoint_id: str, grant: PayloadReader, door: Through) -> EndpointStanding:
    """Show an endpoint, and what came of the newest attempts at it."""
    webhooks = door.looking.webhooks
    endpoint = await webhooks.endpoints.load(endpoint_id, tenant=grant.tenant)
    attempts = await webhooks.outbox.attempts(endpoint_id)
    return EndpointStanding(endpoint=EndpointView.of(endpoint), attempts=[AttemptView.of(each) for each in attempts])


@router.delete("/{endpoint_id}", responses=UNKNOWN)
async def remove(endpoint_id: str, grant: Runner, door: Through) -> EndpointView:
    """Take an endpoint away; what is owed to it is not sent any more."""
    return EndpointView.of(await door.looking.webhooks.endpoints.remove(endpoint_id, tenant=grant.tenant))


@router.post("/{endpoint_id}/rotate", responses=UNKNOWN)
async def rotate(endpoint_id: str, asked: Rotation, grant: Runner, door: Through) -> EndpointWithSecret:
    """Give an endpoint a new secret. For a while messages have two signatures, one by each."""
    made = await door.looking.webhooks.endpoints.rotate(endpoint_id, tenant=grant.tenant, overlap_s=asked.overlap_s)
    return EndpointWithSecret.made(*made)


@router.post("/{endpoint_id}/enable", responses=UNKNOWN)
async def enable(endpoint_id: str, grant: Runner, door: Through) -> EndpointView:
    """Send to an endpoint again that had answered 410 (gone)."""
    return EndpointView.of(await door.looking.webhooks.endpoints.enable(endpoint_id, tenant=grant.tenant))


@router.post("/{endpoint_id}/test", responses=UNKNOWN)
async def send_test(endpoint_id: str, grant: Runner, door: Through) -> AttemptView:
    """Send an endpoint a message of the type webhook.test now, once; the answer says what came of it."""
    webhooks = door.looking.webhooks
    return AttemptView.of(await webhooks.test(await webhooks.endpoints.load(endpoint_id, tenant=grant.tenant)))
