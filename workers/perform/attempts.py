"""The spans of attempts at calls, each below that of its call and linked to the message that brought it.

A tool runs with its attempt as the current span, and with what the caller has carried along. An attempt that goes on
for longer than a moment is shown at once by a short span, as its own is exported only when it ends; where it was is
kept in Redis then, so that whoever has the call after a loss records what was lost and is linked to it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import redis.asyncio

from toolfleet.calls import Failed, Progress, Returned, Submitted, ToolCall
from toolfleet.errors import Refused, RetryAfter
from toolfleet.keys import CLAIM_GRACE_S, Keys
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.supervision import start_thread
from toolfleet.tool import ToolSpec
from toolfleet.tracing.conventions import (
    ATTEMPT,
    CALL,
    DESTINATION,
    MESSAGE_ID,
    MESSAGING,
    MESSAGING_OPERATION,
    MESSAGING_TYPE,
    OUTCOME,
    RUN,
    SYSTEM,
    TENANT,
    TOOL,
    WORKER,
    outcome_of,
)
from toolfleet.tracing.ended import Ended
from toolfleet.tracing.trace import at_span, ids_of, is_sampled, span_of_sending
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.newest import NewestOfEach, SendingLoop
from toolfleet.workers.perform.endings import Interruption

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing

log = FactLog("toolfleet.workers")

SHOWN_AFTER_S: Final = 1.0
"""An attempt that has run for so long is shown before it ends."""


class Earlier(NamedTuple):
    """What is known of an attempt before this one: its span, its delivery count, and when it began."""

    traceparent: str
    number: int
    began_unix_s: float

    @property
    def text(self) -> bytes:
        """As it is kept."""
        return f"{self.traceparent} {self.number} {self.began_unix_s}".encode()

    def ended(self, call: ToolCall, spec: ToolSpec, outcome: str, error_type: str) -> Ended:
        """Return the span of the attempt, for whoever records it in its stead."""
        return Ended(
            f"process {spec.queue}",
            call.traceparent or "",
            attributes_of(call, spec) | {ATTEMPT: self.number, OUTCOME: outcome},
            self.began_unix_s,
            time.time(),
            kind="consumer",
            span_id=ids_of(self.traceparent)[1],
            error_type=error_type,
            links=(sending_of(call),),
            tracestate=call.tracestate,
        )

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Return what was kept. Raises ValueError."""
        traceparent, number, began_unix_s = text.decode().split(" ")
        return cls(traceparent, int(number), float(began_unix_s))


class Killed(NamedTuple):
    """A call that was ended from outside, with what is said of it."""

    call: ToolCall
    spec: ToolSpec
    failure: Failed


class Begun(NamedTuple):
    """An attempt that has run for a moment: what is kept of it, and what is shown."""

    call: ToolCall
    attempt: Earlier
    span: Ended


class Attempts:
    """Traces the attempts of one event loop."""

    def __init__(
        self, tracing: Tracing, loop: SendingLoop, client: redis.asyncio.Redis, keys: Keys, seal: Seal
    ) -> None:
        """`client` belongs to `loop`, which no tool may block."""
        self.tracing = tracing
        self._client = client
        self._keys = keys
        self._seal = seal
        self._kept: NewestOfEach[Begun] = NewestOfEach(loop, self._keep, is_owed=False)
        self._unshown: deque[Attempt] = deque()
        self._arrived = threading.Condition()
        self._watches = False

    async def at(self, delivery: Delivery, call: ToolCall, spec: ToolSpec, traceparent: str) -> Attempt:
        """Return an attempt at a call whose trace is recorded, to be entered while its tool runs."""
        attempt = Attempt(self, delivery, call, spec, traceparent)
        if not delivery.is_new:
            attempt.earlier = await self.earlier(delivery, call, spec)
        return attempt

    async def earlier(self, delivery: Delivery, call: ToolCall, spec: ToolSpec) -> Earlier | None:
        """Return the attempt before this one, if it was shown; one that was lost with its worker is recorded now."""
        if delivery.is_new or call.traceparent is None or not is_sampled(call.traceparent):
            return None
        try:
            found = self._read(await self._client.get(self.key(call.call_id)), call.call_id)
        except COMMAND_FAILED:
            return None  # the call itself waits for Redis; this is worth no waiting
        if found is not None:
            self._note_lost(delivery, call, spec, found)
        return found

    def key(self, call_id: str) -> str:
        """Return where the newest attempt is kept that was shown."""
        return self._keys.attempt(call_id)

    def _note_lost(self, delivery: Delivery, call: ToolCall, spec: ToolSpec, earlier: Earlier) -> None:
        """Record an attempt that ended with its worker, in its stead: what its tool did stands below it."""
        if delivery.deliveries > earlier.number:  # else it was handed back, and has recorded itself
            self.tracing.record(earlier.ended(call, spec, "lost", "crashed"))

    # --- attempts that go on ---------------------------------------------------------------------------------------

    def show_later(self, attempt: Attempt) -> None:
        """Have an attempt shown once it has run for a moment."""
        with self._arrived:
            self._unshown.append(attempt)
            if not self._watches:
                self._watches = True
                start_thread("attempts", self._watch)
            elif len(self._unshown) == 1:
                self._arrived.notify()

    def _watch(self) -> None:
        while True:
            with self._arrived:
                while not self._unshown:
                    self._arrived.wait()
                due_s = self._unshown[0].due_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            while self._unshown and self._unshown[0].due_s <= time.monotonic():
                attempt = self._unshown.popleft()
                if not attempt.is_over:
                    self.show(attempt.begun())

    def show(self, begun: Begun) -> None:
        """Keep where an attempt is, until its call is over, and then say that it has begun."""
        self._kept.put(begun.call.call_id, begun)

    async def _keep(self, newest: dict[str, Begun]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for call_id, begun in newest.items():
            key = self.key(call_id)
            ttl_s = max(1, int(begun.call.deadline_unix_s - time.time())) + CLAIM_GRACE_S
            pipeline.set(key, self._seal.close_kept(begun.attempt.text, key), ex=ttl_s)
        try:
            await pipeline.execute()
        finally:
            # Not before: whoever sees it may count on the attempt being told of when its worker is lost.
            for begun in newest.values():
                self.tracing.record(begun.span)
            self.tracing.flush_soon()

    def _read(self, sealed: Any, call_id: str) -> Earlier | None:
        return read_earlier(self._seal, sealed, self.key(call_id))


class Attempt:
    """One attempt: the current span for its body."""

    def __init__(
        self,
        attempts: Attempts,
        delivery: Delivery,
        call: ToolCall,
        spec: ToolSpec,
        traceparent: str,
    ) -> None:
        self._attempts = attempts
        self._delivery = delivery
        self._call = call
        self._spec = spec
        self._parent = traceparent
        self.earlier: Earlier | None = None
        """The attempt before this one, as far as anything is known of it."""
        self._span: Any = None
        self._token: Any = None
        self._ended = ""
        self._error_type = ""
        self.is_over = False
        self._began_unix_s = 0.0
        self.due_s = 0.0

    def __enter__(self) -> Self:
        tracing, call = self._attempts.tracing, self._call
        self._began_unix_s = time.time()
        links = (sending_of(call), *([self.earlier.traceparent] if self.earlier else []))
        self._span = tracing.open(
            f"process {self._spec.queue}",
            self._parent,
            self._attributes(),
            tracestate=call.tracestate,
            kind="consumer",
            links=links,
        )
        self._token = tracing.attach_span(self._span, call.baggage)
        self.due_s = time.monotonic() + (0.0 if self._spec.long_running else SHOWN_AFTER_S)
        self._attempts.show_later(self)
        return self

    def reporting(self, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return what reports progress and notes it as an event of this attempt."""
        span = self._span
        shows_content = self._attempts.tracing.shows_content

        def noted(progress: Progress) -> None:
            about: dict[str, str | float] = {"fraction": progress.fraction}
            if shows_content and progress.message:
                about["message"] = progress.message
            span.add_event("progress", about)
            report(progress)

        return noted

    def ended(self, result: Returned | Failed | Submitted) -> None:
        """Note what the attempt has come to."""
        self._ended, self._error_type = outcome_of(result)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        tracing = self._attempts.tracing
        tracing.detach(self._token)
        self.is_over = True
        if error is not None:
            self._ended, self._error_type = outcome_of_error(error)
        self._span.set_attribute(OUTCOME, self._ended)
        tracing.end(self._span, self._error_type)

    def begun(self) -> Begun:
        """Return what is shown of this attempt while it goes on: a short span that says that it has begun."""
        own, began = self._attempts.tracing.name_of(self._span), self._began_unix_s
        span = Ended(
            f"begin {self._spec.name}",
            self._parent,
            self._attributes(),
            began,
            began,
            links=(own,),
            tracestate=self._call.tracestate,
        )
        return Begun(self._call, Earlier(own, self._delivery.deliveries, began), span)

    def _attributes(self) -> dict[str, str | int]:
        about = attributes_of(self._call, self._spec)
        return {**about, ATTEMPT: self._delivery.deliveries, WORKER: self._delivery.worker}


def attributes_of(call: ToolCall, spec: ToolSpec) -> dict[str, Any]:
    """Return what is the same in each attempt at a call."""
    about = {
        MESSAGING: SYSTEM,
        MESSAGING_OPERATION: "process",
        MESSAGING_TYPE: "process",
        DESTINATION: spec.queue,
        MESSAGE_ID: call.call_id,
        TOOL: spec.name,
        RUN: call.run_id,
        CALL: call.call_id,
    }
    return {**about, TENANT: call.tenant} if call.tenant else about


def sending_of(call: ToolCall) -> str:
    """Return the span of the message that brought the call."""
    return at_span(call.traceparent or "", span_of_sending(call.call_id))


def outcome_of_error(error: BaseException) -> tuple[str, str]:
    """Return what an attempt has come to that was interrupted: it did as it was told, or waits for its turn."""
    if isinstance(error, RetryAfter):
        return "rate_limited", ""
    return ("handed_back" if Interruption.SHUTDOWN in error.args else "cancelled"), ""


def read_earlier(seal: Seal, sealed: Any, key: str) -> Earlier | None:
    """Return the attempt that is kept under a key; None where there is none that can be believed."""
    if not isinstance(sealed, bytes):
        return None
    try:
        return Earlier.read(seal.open_kept(sealed, key))
    except (Refused, ValueError) as error:
        log.warning("attempt_refused", key=key, reason=str(error))
        return None


def record_killed(tracing: Tracing, client: redis.Redis, keys: Keys, seal: Seal, killed: Killed) -> None:
    """Record the attempt of a process that was ended with its call, if it was shown. Blocks briefly."""
    key = keys.attempt(killed.call.call_id)
    earlier = read_earlier(seal, client.get(key), key)
    if earlier is not None:
        tracing.record(earlier.ended(killed.call, killed.spec, *outcome_of(killed.failure)))
