"""What workers say to the fleet over HTTPS, and what they are answered: `/v1/work`, version 1.

Plain records, for the door, for what stands behind it (`workers/gateway`) and for our own client (`workers/over`).
What is added to them may be left out, and a field that is not known is not looked at; what may not be is another
version (`v`), which is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator

from toolfleet.calls import TOOL_RESULT, Failed, Progress, Returned, Submitted
from toolfleet.declaration import ToolSpec
from toolfleet.errors import CallerError

WORK_VERSION: Final = 1
MAX_TOOLS: Final = 64
"""How many tools one worker may announce: each has a queue of its own, and a poll looks at all of them."""

MAX_POLL_S: Final = 30.0
MAX_CALLS: Final = 100
"""How many calls one poll may bring, and how many attempts one heartbeat may name at a time."""

MAX_TOKEN_CHARS: Final = 200_000
TOOL_NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
EXAMPLE_NAME: Final = "laptop-1"
EXAMPLE_OFFER: Final = "eyJjYWxsIjoi…"
WORKER_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MAX_TIMES: Final = 1000

Token = Annotated[str, Field(min_length=1, max_length=MAX_TOKEN_CHARS)]


class Said(BaseModel):
    """What a worker sends: a field that this version does not know is not looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    v: Literal[1] = 1
    """The version of what is spoken here."""


def shown(**example: Any) -> ConfigDict:
    """Return a record's settings with what one says, for the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [example]})


class OfWorker(Said):
    """Of a worker that has announced itself."""

    worker: Annotated[str, Field(pattern=WORKER_NAME)]
    """Its own name, which no other process of its key has."""


class Announce(OfWorker):
    """What a worker serves. It replaces what was announced under the same name."""

    model_config = shown(
        worker=EXAMPLE_NAME, tools=[{"name": "add", "description": "Add.", "input_schema": {"type": "object"}}]
    )

    tools: Annotated[tuple[ToolSpec, ...], Field(min_length=1, max_length=MAX_TOOLS)]
    """`queue` and `cache_s` of these are not looked at."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Where each tool is declared, as `module:function`: another version from the same place is a release of it."""
    concurrency: Annotated[int, Field(ge=1, le=MAX_TIMES)] = 1
    """How many calls it takes at a time."""
    started_unix_s: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None

    @field_validator("tools", mode="before")
    @classmethod
    def _without_the_unknown(cls, tools: Any) -> Any:
        """Newer workers may say more of a tool."""
        if not isinstance(tools, list):
            return tools
        return [ToolSpec.model_validate(tool, extra="ignore") if isinstance(tool, dict) else tool for tool in tools]


class Announced(BaseModel):
    """How a worker keeps what it has."""

    v: Literal[1] = 1
    heartbeat_s: float
    """How often it is to send a heartbeat while it has calls."""
    lease_s: float
    """Without one for this long its calls may be handed on."""
    ack_within_s: float
    """How soon a call that was polled must be acknowledged."""
    max_body_bytes: int
    """No request may be larger, and so no result."""
    grace_s: float
    """How long its fleet lets running calls end at a stop."""


class Poll(OfWorker):
    """A wish for calls."""

    model_config = shown(worker=EXAMPLE_NAME, calls=4, wait_s=20)

    calls: Annotated[int, Field(ge=1, le=MAX_CALLS)] = 1
    wait_s: Annotated[float, Field(strict=True, ge=0, le=MAX_POLL_S, allow_inf_nan=False)] = MAX_POLL_S


class WorkCall(BaseModel):
    """One call, as its worker is told of it."""

    model_config = ConfigDict(frozen=True)

    call_id: str
    """Also its idempotency key: the same in each attempt."""
    run_id: str
    tool: str
    arguments: str = Field(repr=False)
    """The JSON text that the model wrote, exactly."""
    attempt: int
    """Which delivery this is; more than 1 after a worker was lost."""
    deadline_unix_s: float
    deadline_in_s: float
    """The same, for clocks that differ."""
    context: dict[str, Any] = Field(default_factory=dict, repr=False)
    state: dict[str, Any] = Field(default_factory=dict, repr=False)
    tenant: str = ""
    subject: str = ""
    traceparent: str | None = None
    tracestate: str = ""
    baggage: str = Field(default="", repr=False)
    queue: str = ""
    """Which one it came by: what its span is called after."""
    undoes: Returned | None = Field(default=None, repr=False)
    """What the tool returned to the call that this one takes back; null for an ordinary call."""
    checkpoint: Any = Field(default=None, repr=False)
    """What an earlier attempt has kept last."""


class Offer(BaseModel):
    """A call that a worker may begin once it has acknowledged it."""

    offer: Token
    call: WorkCall


class Polled(BaseModel):
    """What a poll brings; nothing, if nothing came while it waited."""

    v: Literal[1] = 1
    calls: tuple[Offer, ...] = ()


class Ack(Said):
    """The attempt at a call that was offered begins now."""

    model_config = shown(offer=EXAMPLE_OFFER)

    offer: Token


class Acked(BaseModel):
    """The attempt has begun. Whatever is said of it from now on names `attempt`."""

    v: Literal[1] = 1
    call_id: str
    attempt: Token
    lease_s: float


class Heartbeat(OfWorker):
    """These attempts go on."""

    model_config = shown(worker=EXAMPLE_NAME, attempts=[EXAMPLE_OFFER])

    attempts: Annotated[tuple[Token, ...], Field(max_length=MAX_TIMES)] = ()


class Beaten(BaseModel):
    """How those attempts stand, by the ids of their calls."""

    v: Literal[1] = 1
    held: tuple[str, ...] = ()
    """Their leases were renewed."""
    cancelled: tuple[str, ...] = ()
    """Of these: nobody wants them any more. End them, and send a result of the kind `cancelled`."""
    lost: tuple[str, ...] = ()
    """These are another's by now, or have ended. Drop them: their results would be refused."""


class ProgressSaid(Said):
    """How far an attempt has come."""

    model_config = shown(attempt=EXAMPLE_OFFER, fraction=0.5, message="half of it")

    attempt: Token
    fraction: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
    message: Annotated[str, Field(max_length=10_000)] = ""

    @property
    def progress(self) -> Progress:
        """As the fleet knows it."""
        return Progress(fraction=self.fraction, message=self.message)


class CheckpointSaid(Said):
    """Where a further attempt would go on."""

    model_config = shown(attempt=EXAMPLE_OFFER, data={"done": 3})

    attempt: Token
    data: Any


class ResultSaid(Said):
    """What an attempt has come to."""

    model_config = shown(attempt=EXAMPLE_OFFER, result={"type": "returned", "content": "42"})

    attempt: Token
    result: Annotated[Returned | Failed | Submitted, Field(discriminator="type")]

    @field_validator("result", mode="before")
    @classmethod
    def _without_the_unknown(cls, result: Any) -> Any:
        """Newer workers may say more of a result."""
        return TOOL_RESULT.validate_python(result, extra="ignore") if isinstance(result, dict) else result


class Settled(BaseModel):
    """The result counts."""

    v: Literal[1] = 1
    call_id: str
    repeated: bool = False
    """It had been settled before, with the very same result."""


class BatchItem(BaseModel):
    """What might have been a request of its own."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    what: Literal["ack", "result"]
    said: dict[str, Any] = Field(repr=False)
    """The body of that request."""


class Batch(Said):
    """Several things that are said at once."""

    model_config = shown(items=[{"what": "ack", "said": {"offer": EXAMPLE_OFFER}}])

    items: Annotated[tuple[BatchItem, ...], Field(min_length=1, max_length=MAX_CALLS)]


class BatchAnswer(BaseModel):
    """How one of them is answered."""

    status: int
    """The status of an answer of its own."""
    body: dict[str, Any]
    """The body of that answer: a problem, if the status is none of success."""


class Batched(BaseModel):
    """The answers, in the order of what was said."""

    v: Literal[1] = 1
    items: tuple[BatchAnswer, ...]


class Release(OfWorker):
    """Calls that a worker gives back, at its end for instance."""

    model_config = shown(worker=EXAMPLE_NAME, attempts=[EXAMPLE_OFFER], leaves=True)

    offers: Annotated[tuple[Token, ...], Field(max_length=MAX_TIMES)] = ()
    attempts: Annotated[tuple[Token, ...], Field(max_length=MAX_TIMES)] = ()
    begun: StrictBool = False
    """Whether an effect of these attempts may have begun. Then they count, and what must not happen twice is in
    doubt."""
    after_s: Annotated[float, Field(strict=True, ge=0, le=24 * 3600, allow_inf_nan=False)] = 0.0
    """How long these attempts are to wait before anybody has them again, and with them what shares their limits."""
    leaves: StrictBool = False
    """Whether the worker ends: it is announced no more, and what it was offered goes back."""


class Released(BaseModel):
    """How many went back. What had gone elsewhere already is not among them."""

    v: Literal[1] = 1
    released: int


class Refusal(StrEnum):
    """Why something is refused."""

    NOT_YOURS = "not-your-call"
    """It names no call of this key."""
    STALE = "stale-attempt"
    """The call is another's by now, has ended, or was not acknowledged in time."""
    OTHER_RESULT = "other-result"
    """The attempt has ended with another result."""
    NOT_ANNOUNCED = "not-announced"
    """The worker is not announced, or no longer."""
    CLASH = "tool-clash"
    """Live workers serve another tool under this name."""
    TOOL_NOT_ALLOWED = "tool-not-allowed"
    """The key does not include a tool."""
    INVALID_TOOL = "invalid-tool"
    """A tool cannot be served as it is declared."""
    INVALID_RESULT = "invalid-result"
    """A result cannot be taken from here."""
    NO_STREAMS = "no-streams"
    """The fleet has a broker of another kind, which this cannot be served from."""
    KEY_GONE = "unauthorized"
    """The key was revoked meanwhile."""


class WorkRefused(CallerError):
    """What a worker asks for is refused."""

    def __init__(self, refusal: Refusal, message: str, **members: Any) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.members = members


class WorkerKey(NamedTuple):
    """Who speaks: the key, and what it may serve."""

    key_id: str
    tenant: str
    may_serve: Callable[[str], bool]


class WorkGate(Protocol):
    """What stands behind `/v1/work`. It keeps nothing in memory that another process would miss.

    Every method raises WorkRefused, and StoreUnreachable.
    """

    async def announce(self, key: WorkerKey, said: Announce) -> Announced:
        """Announce a worker's tools, for as long as it polls or sends heartbeats."""
        ...

    async def poll(
        self, key: WorkerKey, wanted: Poll, is_welcome: Callable[[], Awaitable[bool]], ends: Callable[[], bool]
    ) -> Polled:
        """Return calls as soon as there are any. Asks whether the key is still good, and whether this server ends."""
        ...

    async def ack(self, key: WorkerKey, said: Ack) -> Acked:
        """Begin the attempt at a call that was offered. Again, it answers the same."""
        ...

    async def heartbeat(self, key: WorkerKey, said: Heartbeat) -> Beaten:
        """Renew the leases of these attempts."""
        ...

    async def progress(self, key: WorkerKey, said: ProgressSaid) -> None:
        """Tell whoever waits how far a call has come."""
        ...

    async def checkpoint(self, key: WorkerKey, said: CheckpointSaid) -> None:
        """Keep where a further attempt would go on."""
        ...

    async def result(self, key: WorkerKey, said: ResultSaid) -> Settled:
        """Settle a call. The same result again is answered as before."""
        ...

    async def release(self, key: WorkerKey, said: Release) -> Released:
        """Take calls back, and the worker's announcement if it leaves."""
        ...

    async def aclose(self) -> None:
        """Let go of connections, and of what is done in the background."""
        ...
