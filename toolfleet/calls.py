"""The records that cross the wire: one call out, one result back.

Closed, frozen, versioned, JSON only. This module holds values; it must not know Redis, Celery, clocks or models.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from toolfleet.misspelt import check_options

WIRE_VERSION: Final = 1

MAX_VERSION: Final = 2**31 - 1
"""The highest version of a tool: a whole number in every language."""

_UNDO: Final = "-undo"
_UNSAID: Final = {"attempt": None, "repaired": None, "spent": None}


class Record(BaseModel):
    """A frozen value that refuses fields it does not know: with UnknownOption where it is made by hand."""

    # Built at first use: a module with tools imports many records and needs few.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    if not TYPE_CHECKING:  # which sees the fields, as pydantic's plugin tells it

        def __init__(self, /, **fields: Any) -> None:
            try:  # as `BaseModel` does it, without the way through it
                self.__pydantic_validator__.validate_python(fields, self_instance=self)
            except ValidationError as error:
                check_options(type(self).__name__, fields, type(self).model_fields)
                raise error from None

        # As on pydantic's own: what is read from JSON is not to go through Python for each record.
        __init__.__pydantic_base_init__ = True


class Effect(StrEnum):
    """What a repeat of a call would do."""

    READ_ONLY = "read_only"
    """The call changes nothing, so it may be repeated."""
    IDEMPOTENT = "idempotent"
    """A repeat with the same arguments has no further effect, so the call may be repeated."""
    ONCE = "once"
    """Neither: a repeat could do harm. The default, as in MCP's tool annotations."""

    @property
    def repeatable(self) -> bool:
        """Whether a call may be delivered again after its worker was lost."""
        return self is not Effect.ONCE


class FailureKind(StrEnum):
    """Why a call has no return value."""

    BAD_ARGUMENTS = "bad_arguments"
    """The arguments do not fit the tool's declaration; the tool did not run."""
    UNKNOWN_TOOL = "unknown_tool"
    """The run was not offered this tool, or no live worker serves it; nothing ran."""
    DENIED = "denied"
    """A person, a permission or an interceptor decided against the call."""
    ERROR = "error"
    """The tool raised, or returned what has no JSON form."""
    TIMED_OUT = "timed_out"
    """The tool took longer than its limit or its deadline allowed, and nobody waits for it any more."""
    EXPIRED = "expired"
    """The deadline passed before the tool began, or before a result came back."""
    CRASHED = "crashed"
    """The worker was lost in each of the deliveries that a call is allowed."""
    CANCELLED = "cancelled"
    """The call was cancelled, before it began or while it ran."""
    IN_DOUBT = "in_doubt"
    """The tool was interrupted: its effect may or may not have happened, and it was not run again."""
    LIMIT = "limit"
    """A limit of the run or of the fleet stood against the call; nothing ran."""
    ROLLED_BACK = "rolled_back"
    """The call succeeded and was taken back, because another call of its batch failed."""


class MediaPart(Record):
    """Something that is not text in a result: here as base64 in `data`, or kept under `artifact` if it is large.

    With neither, it was too large to be kept.
    """

    media_type: str
    size_bytes: Annotated[int, Field(ge=0, le=2**63 - 1)]
    name: str = ""
    data: str = Field(default="", repr=False)
    artifact: str | None = None

    @property
    def described(self) -> str:
        """What a model reads that cannot take it."""
        named = f" {self.name}" if self.name else ""
        where = ""
        if self.artifact:
            where = f", kept as artifact {self.artifact}"
        elif self.size_bytes and not self.data:
            where = ", too large to be kept"
        return f"[{self.media_type}{named}, {self.size_bytes} bytes{where}]"


class Attempt(Record):
    """The delivery that a call has ended with: which worker had it, its delivery count, and from when to when.

    `worker` is empty where another system did the work. A call that was never started, because it had expired for
    instance, began and ended at the same moment.
    """

    worker: str
    number: int
    began_unix_s: float
    ended_unix_s: float


class Spent(Record):
    """What a run has used up that answered a call, with all the runs below it; or what a tool has spent, as a cost."""

    input_tokens: Annotated[int, Field(ge=0)] = 0
    output_tokens: Annotated[int, Field(ge=0)] = 0
    cost: Annotated[float, Field(ge=0)] = 0.0
    calls: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """How many calls of each tool it has asked for."""


class ResultRecord(Record):
    """What results share. Two that say the same are equal, whoever has said it and whatever that has cost."""

    attempt: Attempt | None = Field(default=None, exclude_if=lambda attempt: attempt is None, repr=False)
    repaired: bool = Field(default=False, exclude_if=lambda repaired: not repaired, repr=False)
    """Whether the arguments were written badly, so that the tool was run with what was recovered of them."""
    spent: Spent | None = Field(default=None, exclude_if=lambda spent: spent is None, repr=False)
    """What it has cost, where an agent's run or the tool (`ctx.spend`) has said it. Of a tool only the cost counts."""

    def __eq__(self, other: object) -> bool:
        """Return whether both say the same."""
        return type(self) is type(other) and self.__dict__ | _UNSAID == other.__dict__ | _UNSAID

    def __hash__(self) -> int:
        """Equal ones have one hash. Raises TypeError for what holds a dict."""
        return hash((type(self), *(value for name, value in self.__dict__.items() if name not in _UNSAID)))


class Returned(ResultRecord):
    """The tool returned. `content` is what the model reads, and `media` if it can; the rest never reaches it.

    `artifact` names what `content` is only a preview of, see toolfleet.artifacts.
    """

    type: Literal["returned"] = "returned"
    content: str
    state: dict[str, Any] = Field(default_factory=dict)
    attributes: dict[str, Any] = Field(default_factory=dict)
    artifact: str | None = None
    media: tuple[MediaPart, ...] = Field(default=(), exclude_if=lambda media: not media)


class ToolCall(Record):
    """One requested tool call on its way to a worker.

    `call_id` is `{run_id}.{turn}.{position}` and also the Celery task id. `arguments` is the JSON text that the model
    wrote, unparsed: the worker that knows the tool validates it. `deadline_unix_s` counts from the request, so time in
    the queue counts; an expired call never starts. `context` is the caller's own JSON, hidden from the model.
    """

    v: Literal[1] = WIRE_VERSION
    call_id: str
    run_id: str
    tool: str
    arguments: str = Field(repr=False)  # may hold secrets, and a repr ends up in logs
    attempt: int = 1
    deadline_unix_s: float
    reply_to: str
    context: dict[str, Any] = Field(default_factory=dict, repr=False)
    state: dict[str, Any] = Field(default_factory=dict, repr=False)
    """What the tools of the run share, as it was when the call was sent."""
    traceparent: str | None = None
    """The span that it stands below, where its orchestrator is traced: believed because it is signed with the rest."""
    tracestate: str = Field(default="", exclude_if=lambda tracestate: not tracestate)
    baggage: str = Field(default="", exclude_if=lambda baggage: not baggage, repr=False)
    """What its caller has OpenTelemetry carry along; hidden from the model."""
    tenant: str = Field(default="", exclude_if=lambda tenant: not tenant)
    """Whose call it is. Said by whoever let the caller in, never by the caller."""
    subject: str = Field(default="", exclude_if=lambda subject: not subject)
    """Who asks, likewise."""
    undoes: Returned | None = Field(default=None, exclude_if=lambda undoes: undoes is None, repr=False)
    """What the tool returned to the call that this one takes back; None for an ordinary call."""
    version: Annotated[int, Field(ge=0, le=MAX_VERSION)] = Field(default=0, exclude_if=lambda version: not version)
    """The version of the tool that it is a call of, and of no other; 0 where its tool has none."""

    def is_for(self, version: int) -> bool:
        """Whether who serves this version of its tool may run it."""
        return self.version in (0, version)


class CallFrame(Record):
    """What a call says in each version, so that it can be passed on, and ended, by who does not read the rest."""

    v: Annotated[int, Field(gt=WIRE_VERSION, strict=True)]
    call_id: str
    run_id: str
    tool: str
    deadline_unix_s: float
    reply_to: str

    @property
    def call(self) -> ToolCall:
        """The same as a call of which no more is known."""
        return ToolCall(**self.model_dump(exclude={"v"}), arguments="")


class Failed(ResultRecord):
    """The call ended without a return value. `message` is written for the model to read."""

    type: Literal["failed"] = "failed"
    kind: FailureKind
    message: str


class Submitted(Record):
    """The work goes on elsewhere: ask again with `handle`, not before `poll_after_s`.

    A tool that started a job in another system returns one with that system's `external_id`; the fleet asks for it
    with the tool's `poll` function and gives the model a handle of its own.
    """

    type: Literal["submitted"] = "submitted"
    handle: str = ""
    external_id: str = ""
    poll_after_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    message: str = ""
    spent: Spent | None = Field(default=None, exclude_if=lambda spent: spent is None, repr=False)
    """What the tool has spent before it went on elsewhere; set from `ctx.spend`."""


class JobRecord(Record):
    """A job in another system that stands in for a call: how to ask for it, and whether anybody can.

    `poll_after_s` is the first wait; `polled` and `cancellable` say which functions the tool had when it submitted.
    """

    v: Literal[1] = WIRE_VERSION
    call: ToolCall
    external_id: str
    poll_after_s: float
    submitted_unix_s: float
    attempt: int = 1
    message: str = ""
    polled: bool
    cancellable: bool
    takes_state: bool = False
    """Whether its callback may set what the run's tools share."""
    spent: Spent | None = Field(default=None, exclude_if=lambda spent: spent is None)
    """What the tool had spent when it submitted the job; it counts at the job's end."""


class NotDone(Record):
    """What a tool's `reconcile` says when the call has had no effect: it may be run."""

    type: Literal["not_done"] = "not_done"


class Progress(Record):
    """How far a running call has come. Not a result: any number may precede the one result."""

    type: Literal["progress"] = "progress"
    fraction: Annotated[float, Field(ge=0, le=1)]
    message: str = ""


ToolResult = Annotated[Returned | Failed | Submitted, Field(discriminator="type")]
"""What a call ends in: exactly one of these for each call id."""

TOOL_RESULT: TypeAdapter[Returned | Failed | Submitted] = TypeAdapter(ToolResult, config=ConfigDict(defer_build=True))


def attempt_of(result: Returned | Failed | Submitted | None) -> Attempt | None:
    """Return the delivery that a call has ended with, None where no worker has ended it."""
    return None if result is None or isinstance(result, Submitted) else result.attempt


def call_id(run_id: str, turn: int, position: int) -> str:
    """Return the one join key of a call; also its Celery task id."""
    return f"{run_id}.{turn}.{position}"


def undo_id(call_id: str) -> str:
    """Return the id of the call that takes back what another one has done: of the same run, and one for each call."""
    return f"{call_id}{_UNDO}"


def undone_id(undo_id: str) -> str:
    """Return the call that is taken back."""
    return undo_id.removesuffix(_UNDO)


def run_of(call_id: str) -> str:
    """Return the run that a call belongs to."""
    return call_id.rsplit(".", 2)[0]
