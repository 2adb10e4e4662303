"""What a running tool may know about its call: who asks, how long is left, whom to tell about progress.

Holds values and two functions given by the worker; it must not know Redis, Celery or how calls are delivered.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, overload

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from toolfleet.calls import Progress, Spent, ToolCall
from toolfleet.errors import BadCheckpoint, BadQuestion, BadSpending, MissingFromContext, NoCallback, NoContext
from toolfleet.messages import Message
from toolfleet.misspelt import exact

if TYPE_CHECKING:
    from concurrent.futures import Future
    from datetime import timedelta

    from toolfleet.questions import Question, Said
    from toolfleet.sleeping import Sleep

log = logging.getLogger("toolfleet.context")

T = TypeVar("T")


MAX_CHECKPOINT_BYTES: Final = 65_536
"""A checkpoint says where to go on; what has been made so far belongs into a store of the tool's own."""

MOST_SPENT_USD: Final = 1_000_000.0
"""More than this at once is a slip: cents for dollars, or tokens for money."""


def _unkept(_context: Context, _checkpoint: bytes) -> None:
    """Drop the checkpoints of a call that no worker runs."""


def without_address(_call_id: str, _expires_unix_s: int) -> str:
    """Raise NoCallback, in a process to which nobody has told the address of the HTTP API."""
    raise NoCallback("no address of the HTTP API is known: set TOOLFLEET_PUBLIC_URL where the workers run")


def _unheard(_progress: Progress) -> None:
    """Drop the progress of a call that nobody watches."""


def _never() -> bool:
    return False


def _untold(_context: Context, _number: int, _piece: Any) -> None:
    """Tell nobody of what is yielded where nobody looks on."""


def _asks_nobody(context: Context, _: Question | Sleep, _is_blocking: bool) -> Future[Said]:  # noqa: FBT001  # as given
    """Raise BadQuestion, where nobody could be asked."""
    raise BadQuestion(
        f"nobody can be asked here, and nothing sleeps: call ctx.ask and ctx.sleep in {context.tool} itself, not in "
        "what polls, cancels, reconciles or compensates its calls, and not on a worker over HTTPS"
    )


# Not frozen: that makes each call's construction three times as slow, and a tool that changes its own harms itself.
@dataclass(slots=True, eq=False)
class Context:
    """One attempt at one call, as its tool sees it.

    `context` is the caller's own JSON, hidden from the model: whatever stands in it, the caller has claimed. Who asks
    is `tenant` and `subject`. `attributes` is shared by the interceptors around the tool and reaches the caller with
    the result.
    """

    call_id: str
    run_id: str
    tool: str
    deadline_unix_s: float
    attempt: int = 1
    """Which delivery this is; more than 1 after a worker was lost."""
    context: Mapping[str, Any] = field(default_factory=dict, repr=False)
    state: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the tools of the run share, as it was when the call was sent; `Returned(state=…)` adds to it."""
    attributes: dict[str, Any] = field(default_factory=dict, repr=False)
    report: Callable[[Progress], None] = _unheard
    is_cancelled: Callable[[], bool] = _never
    keep: Callable[[Context, bytes], None] = field(default=_unkept, repr=False)
    last_checkpoint: Any = field(default=None, repr=False)
    """What an earlier attempt at this call gave to `checkpoint` last; None if there was none."""
    address_of: Callable[[str, int], str] = field(default=without_address, repr=False)
    tries: int = 1
    """Which try of this attempt runs, where a failing tool is tried again (`retries`)."""
    tenant: str = ""
    """Whose call it is, as the key says that came with it, or trusted code (`run(tenant=…)`); "" for nobody's."""
    subject: str = ""
    """Who asks, by the same word: a key's subject. Neither the caller nor the model can set the two."""
    spendings: list[float] | None = field(default=None, repr=False)
    """What `spend` was told; None where nothing counts it."""
    put_question: Callable[[Context, Question | Sleep, bool], Future[Said]] = field(default=_asks_nobody, repr=False)
    """Where `ask` and `sleep` put what they want, and whether they block; what it returns has what was said."""
    tell_piece: Callable[[Context, int, Any], None] = field(default=_untold, repr=False)
    """Who is told of what the tool yields, by number; -1 says that it begins."""
    questions: int = 0
    """How many this attempt has asked."""
    made_checkpoint: bytes | None = field(default=None, repr=False)
    """The newest one that this attempt has made."""
    slept: dict[str, int] | None = field(default=None, repr=False)
    """How often this attempt has slept since each checkpoint."""
    clock: Any = field(default=None, repr=False)
    """What ends the attempt when its time is up; it stands still while a person is asked."""
    attempted: Any = field(default=None, repr=False)
    """What its worker knows of the attempt; nothing for tools."""

    @classmethod
    def of(
        cls,
        call: ToolCall,
        *,
        attempt: int | None = None,
        report: Callable[[Progress], None] = _unheard,
        is_cancelled: Callable[[], bool] = _never,
        keep: Callable[[Context, bytes], None] = _unkept,
        last_checkpoint: Any = None,
        address_of: Callable[[str, int], str] = without_address,
    ) -> Context:
        """Return the context of a call; `attempt` is the call's own unless the delivery knows better."""
        return cls(
            call_id=call.call_id,
            run_id=call.run_id,
            tool=call.tool,
            deadline_unix_s=call.deadline_unix_s,
            attempt=call.attempt if attempt is None else attempt,
            context=call.context,
            state=call.state,
            report=report,
            is_cancelled=is_cancelled,
            keep=keep,
            last_checkpoint=last_checkpoint,
            address_of=address_of,
            tenant=call.tenant,
            subject=call.subject,
        )

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this call: hand it to services that drop repeats."""
        return self.call_id

    @property
    def callback_url(self) -> str:
        """Where another system may POST the result of the job that this call submits; the address is signed.

        It is as good as the call itself and expires with it. Raises NoCallback without TOOLFLEET_PUBLIC_URL.
        """
        return self.address_of(self.call_id, int(self.deadline_unix_s))

    @property
    def conversation_id(self) -> str:
        """The caller's conversation; a run without one is a conversation of its own."""
        return str(self.context.get("conversation_id") or self.run_id)

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted. Blocking tools look here between two steps."""
        return self.is_cancelled()

    @property
    def time_left_s(self) -> float:
        """Seconds until the deadline; negative when it has passed."""
        return self.deadline_unix_s - time.time()

    @exact()
    def progress(self, fraction: float, message: str = "") -> None:
        """Tell whoever waits how far the call has come, from 0 to 1. Never blocks, never raises."""
        try:
            self.report(Progress(fraction=_within_bounds(fraction), message=str(message)))
        except Exception as error:  # noqa: BLE001  # a courtesy to the reader must not cost the tool its work
            log.warning("progress_not_reported: %r", error, extra={"call_id": self.call_id, "run_id": self.run_id})

    @exact()
    def spend(self, amount: float, unit: Literal["usd"] = "usd") -> None:
        """Say what the call has cost elsewhere, in US dollars; several sums add up.

        It counts once, with the call's result, against the budgets of its run, its tree of agents and its tenant: also
        where the tool fails or is cancelled after that, not where its worker or its process is lost. Raises
        BadSpending.
        """
        if unit != "usd":
            raise BadSpending(f"{self.tool} spends {unit!r}, and only US dollars are counted: spend(0.02, 'usd')")
        given: object = amount
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not 0 <= amount <= MOST_SPENT_USD:
            raise BadSpending(
                f"{self.tool} spends {amount!r:.100}, which is no sum: give US dollars from 0 to {MOST_SPENT_USD:g}"
            )
        if self.spendings is None:
            raise BadSpending(
                f"nothing counts what is spent here: call ctx.spend in {self.tool} itself, not in what polls, cancels, "
                "reconciles or compensates its calls"
            )
        self.spendings.append(float(amount))

    @property
    def spent(self) -> Spent | None:
        """What the tool has spent so far; None for nothing."""
        return Spent(cost=math.fsum(self.spendings)) if self.spendings else None

    @overload
    async def ask(self, message: str, /, *, key: str = "", expires_s: float | None = None) -> str: ...
    @overload
    async def ask(self, message: str, schema: type[T], /, *, key: str = "", expires_s: float | None = None) -> T: ...
    @overload
    async def ask(self, message: str, schema: Any, /, *, key: str = "", expires_s: float | None = None) -> Any: ...
    async def ask(self, message: str, schema: Any = str, /, *, key: str = "", expires_s: float | None = None) -> Any:
        """Ask a person, and wait for the answer: of this type, or any JSON that fits this JSON Schema.

        Of a tool that has made a checkpoint the attempt ends here, and gives its place to others: once there is an
        answer, the call begins again with its `last_checkpoint`, and this `ask` returns it. Any other tool keeps its
        place and waits. A question is known by its number in the call, or by `key`, so that nothing is asked twice: ask
        in the same order in each attempt, or give keys. The tool's `timeout_s` stands still meanwhile, the deadline of
        the call goes on. Raises Declined, QuestionExpired after `expires_s` or just before the deadline, BadAnswer,
        BadQuestion.
        """
        from toolfleet.questions import ask  # noqa: PLC0415  # loads an event loop, and few tools ask

        return await ask(self, message, schema, key, expires_s)

    @overload
    def ask_blocking(self, message: str, /, *, key: str = "", expires_s: float | None = None) -> str: ...
    @overload
    def ask_blocking(self, message: str, schema: type[T], /, *, key: str = "", expires_s: float | None = None) -> T: ...
    @overload
    def ask_blocking(self, message: str, schema: Any, /, *, key: str = "", expires_s: float | None = None) -> Any: ...
    def ask_blocking(self, message: str, schema: Any = str, /, *, key: str = "", expires_s: float | None = None) -> Any:
        """The same for a tool that is a plain function."""
        from toolfleet.questions import ask_blocking  # noqa: PLC0415  # as above

        return ask_blocking(self, message, schema, key, expires_s)

    async def sleep(self, duration: float | timedelta, /, *, key: str = "") -> None:
        """Go on after so many seconds, or a `timedelta`.

        Of a tool that has made a checkpoint the attempt ends here, and costs nothing while it sleeps: when its time has
        come, the call begins again with its `last_checkpoint`, and this `sleep` returns at once. Any other tool keeps
        its place and waits. A sleep is known by the newest checkpoint and its number since then, or by `key`. The
        tool's `timeout_s` stands still meanwhile, the deadline of the call goes on. Raises BadSleep for what is no
        time, or ends after that.
        """
        from toolfleet.sleeping import sleep  # noqa: PLC0415  # loads an event loop, and few tools sleep

        await sleep(self, duration, key)

    def sleep_blocking(self, duration: float | timedelta, /, *, key: str = "") -> None:
        """The same for a tool that is a plain function."""
        from toolfleet.sleeping import sleep_blocking  # noqa: PLC0415  # as above

        sleep_blocking(self, duration, key)

    @property
    def newest_checkpoint(self) -> bytes:
        """The text of the newest checkpoint, of this attempt or of the one before it; empty where there is none."""
        if self.made_checkpoint is None and self.last_checkpoint is not None:
            self.made_checkpoint = to_json(self.last_checkpoint)
        return self.made_checkpoint or b""

    @property
    def sleeps(self) -> dict[str, int]:
        """How often this attempt has slept since each checkpoint."""
        if self.slept is None:
            self.slept = {}
        return self.slept

    @exact()
    def checkpoint(self, data: Any) -> None:
        """Keep `data`, any JSON, for the attempt that follows if this worker is lost: its `last_checkpoint`.

        Returns at once. The newest is written within moments, or as soon as Redis is back; those that a newer one
        overtook are not, and one made in the very moment of the loss may be missing: do work first, then say so, and
        let repeating the last step be harmless. Calls that are not `long_running` find theirs after a loss only, not
        after an orderly restart of the worker. Raises BadCheckpoint.
        """
        try:
            text = to_json(data, inf_nan_mode="null")
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise BadCheckpoint(f"the checkpoint of {self.tool} has no JSON form: {error}") from error
        if len(text) > MAX_CHECKPOINT_BYTES:
            raise BadCheckpoint(
                f"the checkpoint of {self.tool} has {len(text)} bytes, and at most {MAX_CHECKPOINT_BYTES} are kept: "
                "store the work itself elsewhere, and keep here where it is"
            )
        if not self.cancelled:
            self.made_checkpoint = text
            self.keep(self, text)


def _within_bounds(fraction: float) -> float:
    """Into 0..1. The comparisons send NaN, which has no place in JSON, to 0."""
    return float(fraction) if 0 <= fraction <= 1 else float(fraction > 1)


_current: Final[ContextVar[Context]] = ContextVar("toolfleet_context")


def current_context() -> Context:
    """Return the context of the call that is running here. Raises NoContext where no tool runs.

    Works in a tool, in what it awaits, and in threads that it starts with `contextvars.copy_context()`, as
    `asyncio.to_thread` does.
    """
    try:
        return _current.get()
    except LookupError:
        raise NoContext("current_context() answers only while a tool is running for a call") from None


class within:  # noqa: N801  # used as a statement, `with within(context):`
    """Make `context` the current one for the body. A class, because a generator costs each call twice as much."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = _current.set(self._context)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


# --- parameters that the model never sees ----------------------------------------------------------------------------


@exact()
@dataclass(frozen=True, slots=True)
class FromContext:
    """Marks a parameter that is taken from the caller's context: `city: Annotated[str, FromContext("city")]`.

    The caller says what stands there, so it proves nothing: who asks is `ctx.tenant` and `ctx.subject`.
    """

    key: str

    def take(self, context: Context) -> Any:
        """Return the value in the context. Raises MissingFromContext."""
        try:
            return context.context[self.key]
        except KeyError:
            raise MissingFromContext(
                f"tool {context.tool} needs {self.key!r} in the context of the run, which has "
                f"{', '.join(map(repr, context.context)) or 'nothing'}"
            ) from None


@dataclass(frozen=True, slots=True)
class _FromConversation:
    """Marks the parameter that is the conversation's id."""

    def take(self, context: Context) -> str:
        return context.conversation_id


ConversationId = Annotated[str, _FromConversation()]
"""The type of a parameter that receives the id of the conversation and is not offered to the model."""

HISTORY: Final = "toolfleet.history"
"""Where in a call's context the conversation stands, for tools that want it."""

_MESSAGES: Final[TypeAdapter[tuple[Message, ...]]] = TypeAdapter(
    tuple[Message, ...], config=ConfigDict(defer_build=True)
)


@dataclass(frozen=True, slots=True)
class FromHistory:
    """Marks the parameter that is the conversation so far."""

    def take(self, context: Context) -> tuple[Message, ...]:
        """Return what was said before the reply that asked for the call; nothing for a call that no model asked for."""
        return _MESSAGES.validate_python(context.context.get(HISTORY, ()))


CallHistory = Annotated[tuple[Message, ...], FromHistory()]
"""The type of a parameter that receives the conversation so far and is not offered to the model."""

INJECTED: Final = (FromContext, _FromConversation, FromHistory)
"""The markers, for whoever reads a tool's signature."""
