"""What clients send and get, as the OpenAPI document shows it.

Unknown fields are refused: they would be typing errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, WithJsonSchema

from toolfleet.calls import Effect, Failed, Returned, Submitted
from toolfleet.catalog import Announcement
from toolfleet.messages import Message
from toolfleet.orchestrator.fleet.queues import QueueStanding
from toolfleet.orchestrator.run.limits import WholeNumber
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import LONGEST_S, MOST_TURNS, AskedTerms, Patience
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.store.run_pages import CURSOR
from toolfleet.orchestrator.store.run_store import Head
from toolfleet.tool import ToolSpec

Seconds = Annotated[float, Field(strict=True), Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
Json = dict[str, Any]


def without(name: str, *, required: Sequence[str] = ()) -> Json:
    """Return a schema for what leaves this out, or says nothing in it, and has the others."""
    nothing = {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]}
    others = {other: {"not": {"type": "null"}} for other in required}
    return {"properties": {name: nothing, **others}, "required": list(required)}


Place = Annotated[
    WholeNumber, Field(ge=0, le=MOST_TURNS), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MOST_TURNS})
]
"""How many of something there were: 3.0 is such a number, "3" and true are none."""


class RunBody(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(extra="forbid")


class RunRequest(AskedTerms):
    """A run to begin: a question, or a conversation that ends with one, and every option that a run has."""

    model_config = ConfigDict(
        defer_build=False,
        json_schema_extra={
            "oneOf": [without("messages", required=["question"]), without("question", required=["messages"])],
            "examples": [
                {"question": "What is the square root of 2?"},
                {
                    "messages": [
                        {"role": "system", "content": "Answer in one word."},
                        {"role": "user", "content": "Which is the largest planet?"},
                    ],
                    "tools": [],
                    "timeout_s": 60,
                },
            ],
        },
    )

    question: Annotated[str, Field(min_length=1)] | None = None
    messages: Annotated[tuple[Message, ...], Field(min_length=1)] | None = None
    model: str | None = Field(default=None, description="Which orchestrators work on it; this one's model by default.")
    stream: StrictBool = Field(default=False, description="Answer with the run's events, as they happen.")


class RunAccepted(BaseModel):
    """A run that is stored, and will go on whoever is lost."""

    run_id: str = Field(examples=["9f8a2c51d03e4b67"])
    state: State
    url: str = Field(examples=["/v1/runs/9f8a2c51d03e4b67"])
    events_url: str = Field(examples=["/v1/runs/9f8a2c51d03e4b67/events"])


class RunSummary(BaseModel):
    """A run as lists show it."""

    run_id: str
    state: State
    model: str
    title: str
    turn: int
    calls: int
    awaiting_approval: int
    """How many of its calls a person has to decide about."""
    started_unix_s: float
    updated_unix_s: float

    @classmethod
    def of(cls, head: Head) -> RunSummary:
        """Make it of a run's head, without who works on the run."""
        return cls(**{name: getattr(head, name) for name in cls.model_fields})


class RunsWanted(RunBody):
    """Which runs to list."""

    state: list[State] = Field(default=[], description="Only runs in one of these states.")
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    before: Annotated[str, Field(max_length=400)] = Field(
        default="",
        description="`before` of the page that you have.",
        json_schema_extra={"pattern": f"^({CURSOR.pattern})?$", "examples": [""]},
    )


class RunList(BaseModel):
    """A page of runs, the newest first."""

    runs: list[RunSummary]
    before: str | None = Field(
        description="What the next page is asked for with; null behind the last run. Where only some states are asked "
        "for, a page may have fewer runs than `limit` and still not be the last."
    )


class SomeWanted(RunBody):
    """How many to list, and from where on."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    after: Annotated[str, Field(max_length=400)] = Field(
        default="",
        description="`after` of the page that you have.",
        json_schema_extra={"pattern": f"^({CURSOR.pattern})?$", "examples": [""]},
    )


class HandlesWanted(SomeWanted):
    """Which handles to list."""

    open: bool = Field(default=False, description="Only those whose calls go on.")


class CallsAsked(RunBody):
    """Which calls of a run to tell of."""

    tool: list[str] = Field(default=[], description="Only calls of one of these tools.")
    state: list[CallState] = Field(default=[], description="Only calls in one of these states.")
    error: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="Only calls that have failed with a text that contains this."
    )
    after: Annotated[str, Field(max_length=400)] = Field(default="", description="`after` of the page that you have.")
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class CancelBody(RunBody):
    """Why something is not wanted any more."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "no longer needed"}]})

    reason: Annotated[str, Field(max_length=1000)] = "cancelled by request"


class GoOnRequest(RunBody):
    """What is said to a run: to one at work, whose model reads it next, or to one that has ended, which goes on."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "anyOf": [without("question"), without("messages")],
            "examples": [{"question": "And of 3?"}, {"messages": []}, {"question": "Stop that.", "interrupt": True}],
        },
    )

    question: Annotated[str, Field(min_length=1)] | None = None
    messages: list[Message] | None = None
    interrupt: StrictBool = Field(default=False, description="Call off first what a run at work waits for.")
    if_ended: Literal["go_on", "refuse"] = Field(
        default="go_on", description="What becomes of it where the run has ended: the run goes on with it, or 409."
    )


class ForkRequest(RunBody):
    """Where a run is begun anew, and with what."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"turn": 1, "question": "And in metres?"}, {"turn": 0}]}
    )

    turn: Place = Field(
        description="The last turn whose reply, and the results of whose calls, the new run begins with; 0: none."
    )
    question: Annotated[str, Field(min_length=1)] | None = None
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Another model than that run has; some orchestrator must have it."
    )
    messages: list[Message] | None = Field(
        default=None, description="What stands in the place of the conversation of until then."
    )


class RetryBody(RunBody):
    """How a call that has failed is made again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}, {"force": True}]})

    force: StrictBool = Field(default=False, description="Also a call whose effect may happen twice.")


class ApprovalRequest(RunBody):
    """A person's decision about one call."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"call_id": "9f8a2c51d03e4b67.1.0", "granted": True}]},
    )

    call_id: str
    granted: StrictBool
    arguments: Json | Annotated[str, Field(min_length=2)] | None = Field(
        default=None,
        description="Other arguments to run it with: an object or, to be taken to the digit as it stands, one as text.",
    )
    reason: Annotated[str, Field(max_length=1000)] = ""
    digest: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = Field(
        default="",
        description="The `digest` of the call as you were shown it: where its arguments are others by now, 409.",
    )


class ToolView(BaseModel):
    """A tool as live workers offer it."""

    name: str
    description: str
    input_schema: Json
    output_schema: Json | None
    effect: Effect
    queue: str
    long_running: bool
    background: Literal["model"] | None = Field(
        description="`model`: a call with the argument `run_in_background` true is a handle at once."
    )
    timeout_s: float | None
    patience_s: float | None
    requires_approval: bool
    tags: tuple[str, ...]
    version: int = Field(description="The highest live version, which new runs and direct calls get; 0 without.")
    versions: tuple[int, ...] = Field(description="All that are live, where the tool has versions.")

    @classmethod
    def of(cls, spec: ToolSpec, versions: Iterable[int] = ()) -> ToolView:
        """Make it of a tool's spec: what a caller has to know of the tool."""
        said = {name: getattr(spec, name) for name in cls.model_fields if name != "versions"}
        return cls(**said, versions=tuple(versions))


class ToolList(BaseModel):
    """The tools that live workers serve, by name."""

    tools: list[ToolView]


class CallRequest(RunBody):
    """One call of a tool."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"arguments": {"expression": "2 + 2"}}, {"arguments": {}, "patience_s": 0}]},
    )

    arguments: Json = Field(default_factory=dict)
    patience_s: Patience | None = Field(
        default=None, description="How long to wait for the result; then you get a handle. At most a minute."
    )
    context: Json = Field(default_factory=dict, description="Your own JSON, handed to the tool.")
    timeout_s: Seconds | None = Field(default=None, description="When the call expires.")


CallResult = Annotated[Returned | Failed, Field(discriminator="type")]


class SubmittedBody(BaseModel):
    """A call that goes on by itself."""

    type: Literal["submitted"] = "submitted"
    handle: str
    url: str = Field(examples=["/v1/handles/8sJ1…"])
    poll_after_s: float
    message: str

    @classmethod
    def of(cls, submitted: Submitted) -> SubmittedBody:
        """Make it of a result, with the address at which the call can be asked about."""
        return cls(
            handle=submitted.handle,
            url=f"/v1/handles/{submitted.handle}",
            poll_after_s=submitted.poll_after_s,
            message=submitted.message,
        )


class Completed(BaseModel):
    """A job elsewhere whose end was taken note of."""

    call_id: str
    status: Literal["completed"] = "completed"


class WorkerView(BaseModel):
    """One live worker."""

    worker: str
    pool: str
    concurrency: int
    queues: tuple[str, ...]
    started_unix_s: float
    tools: list[str]
    ailing: tuple[str, ...] = ()
    """Which of its own listeners are down now."""

    @classmethod
    def of(cls, announced: Announcement) -> WorkerView:
        """Make it of what the worker announces, with the names of its tools only."""
        return cls(
            worker=announced.worker,
            pool=announced.pool,
            concurrency=announced.concurrency,
            queues=announced.queues,
            started_unix_s=announced.started_unix_s,
            tools=sorted(spec.name for spec in announced.tools),
            ailing=announced.ailing,
        )


class WorkerList(BaseModel):
    """The live workers, by name."""

    workers: list[WorkerView]


class QueueList(BaseModel):
    """The queues, by name."""

    queues: list[QueueStanding]


class Health(BaseModel):
    """How this process is."""

    status: Literal["ok"] = "ok"
