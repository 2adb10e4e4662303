"""The circuit breaker: a model that has failed again and again is left alone for a while, then tried by one reply.

Pure but for `through_breaker` at the end, which reports what becomes of a stream of events. Written here because those
on PyPI (purgatory, circuitbreaker, aiobreaker, pybreaker; looked at in 2026) guard a function or a block: when half
open they let every waiting call through, or count a cancelled one as a failure, and a stream that has begun tells them
nothing. It knows neither HTTP nor attempts: a reply has failed when its retries are used up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import ModelRefused, ModelReplyInvalid, ModelUnreachable, ProviderSaid
from toolfleet.orchestrator.models.protocol import FinishReason, ModelEvent, ReplyComplete

log = FactLog(__name__)


class CircuitState(StrEnum):
    """Whether replies may be asked for."""

    CLOSED = "closed"
    """Every reply may be asked for."""
    OPEN = "open"
    """No reply may be asked for until the pause is over."""
    PROBING = "probing"
    """One reply is under way, which decides; no other may be asked for."""


class CircuitEvent(StrEnum):
    """What becomes of replies. A probe's events have their own names: the others began before the circuit opened."""

    ANSWERED = "answered"
    """A reply has come to its end."""
    FAILED = "failed"
    """A reply has failed, after its retries."""
    TRIED_AGAIN = "tried_again"
    """A reply has been let through after the pause."""
    PROBE_BEGAN = "probe_began"
    """The first event of the probe's reply: the model is back, though the reply may take minutes."""
    PROBE_FAILED = "probe_failed"
    """The probe has failed, after its retries."""
    PROBE_GIVEN_UP = "probe_given_up"
    """Cancelled by its caller before anything came."""


TRANSITIONS: Final[dict[CircuitState, dict[CircuitEvent, CircuitState]]] = {
    CircuitState.CLOSED: {
        CircuitEvent.ANSWERED: CircuitState.CLOSED,
        CircuitEvent.FAILED: CircuitState.CLOSED,  # or open, when it was one too many: see `Circuit.on`
    },
    CircuitState.OPEN: {
        CircuitEvent.ANSWERED: CircuitState.CLOSED,
        CircuitEvent.FAILED: CircuitState.OPEN,
        CircuitEvent.TRIED_AGAIN: CircuitState.PROBING,
    },
    CircuitState.PROBING: {
        CircuitEvent.ANSWERED: CircuitState.CLOSED,
        CircuitEvent.FAILED: CircuitState.PROBING,
        CircuitEvent.PROBE_BEGAN: CircuitState.CLOSED,
        CircuitEvent.PROBE_FAILED: CircuitState.OPEN,
        CircuitEvent.PROBE_GIVEN_UP: CircuitState.OPEN,
    },
}


@dataclass(frozen=True, slots=True)
class Circuit:
    """A breaker's state as a value. Times are those of one monotonic clock, in seconds."""

    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    """In a row, while closed."""
    open_until_s: float = 0.0

    def on(self, event: CircuitEvent, now_s: float, *, opens_after: int, open_s: float) -> Circuit:
        """Return the circuit after an event. Raises KeyError for one that cannot happen in its state: a bug."""
        after = replace(self, state=TRANSITIONS[self.state][event])
        match event:
            case CircuitEvent.ANSWERED:
                return Circuit()
            case CircuitEvent.PROBE_BEGAN:
                # On trial: should this very reply fail after all, the circuit opens again at once.
                return replace(after, failures=opens_after - 1)
            case CircuitEvent.PROBE_FAILED:
                return replace(after, failures=self.failures + 1, open_until_s=now_s + open_s)
            case CircuitEvent.FAILED if after.state is CircuitState.CLOSED:
                after = replace(after, failures=self.failures + 1)
                one_too_many = after.failures >= opens_after
                return replace(after, state=CircuitState.OPEN, open_until_s=now_s + open_s) if one_too_many else after
        return after

    def may_ask(self, now_s: float) -> bool:
        """Return whether a reply may be asked for now."""
        return self.state is CircuitState.CLOSED or (self.state is CircuitState.OPEN and now_s >= self.open_until_s)


class Breaker:
    """One model's circuit, for all who ask this model from one event loop. `opens_after=0` never opens it."""

    def __init__(self, name: str, *, opens_after: int, open_s: float, clock: Callable[[], float]) -> None:
        self._name = name
        self._opens_after = opens_after
        self._open_s = open_s
        self._clock = clock
        self._last_failure = ""
        self._probes = 0
        self.circuit = Circuit()

    def __repr__(self) -> str:
        return f"Breaker({self._name!r}, {self.circuit})"

    def admit(self) -> int:
        """Return the number of the probe that the reply about to be asked for is; 0 if it is none.

        Raises ModelUnreachable if no reply may be asked for now.
        """
        if not self.circuit.may_ask(self._clock()):
            left_s = max(0.0, self.circuit.open_until_s - self._clock())
            said = ProviderSaid(HTTPStatus.SERVICE_UNAVAILABLE, self._last_failure, retry_after_s=left_s)
            raise ModelUnreachable(self._refusal(), said)
        if self.circuit.state is CircuitState.CLOSED:
            return 0
        self._probes += 1
        self._move(CircuitEvent.TRIED_AGAIN)
        return self._probes

    def began(self, probe: int) -> None:
        """Note that the first event of a reply has come."""
        if self._is_under_way(probe):
            self._move(CircuitEvent.PROBE_BEGAN)

    def note_answer(self) -> None:
        """Note that a reply has come to its end."""
        self._move(CircuitEvent.ANSWERED)

    def note_failure(self, probe: int, reason: str) -> None:
        """Note that a reply has failed, after its retries."""
        self._last_failure = reason
        self._move(CircuitEvent.PROBE_FAILED if self._is_under_way(probe) else CircuitEvent.FAILED)

    def note_given_up(self, probe: int) -> None:
        """Note that the caller of a reply went away: no news of the model, but a probe must not keep others waiting."""
        if self._is_under_way(probe):
            self._move(CircuitEvent.PROBE_GIVEN_UP)

    def _is_under_way(self, probe: int) -> bool:
        """Return whether the circuit waits for this probe; another reply's answer may have closed it before."""
        return self.circuit.state is CircuitState.PROBING and probe == self._probes

    def _move(self, event: CircuitEvent) -> None:
        if not self._opens_after:
            return
        before = self.circuit
        self.circuit = before.on(event, self._clock(), opens_after=self._opens_after, open_s=self._open_s)
        if self.circuit.state is not before.state:
            log.warning("model.circuit", model=self._name, state=self.circuit.state.value, error=self._last_failure)

    def _refusal(self) -> str:
        return f"{self._name} is not asked {self._when()}; the last failure: {self._last_failure}"

    def _when(self) -> str:
        if self.circuit.state is CircuitState.PROBING:
            return "while one reply tries whether it works again"
        left_s = max(0.0, self.circuit.open_until_s - self._clock())
        at = datetime.now(UTC) + timedelta(seconds=left_s)
        return f"before {at:%H:%M:%S} UTC (in {left_s:.0f} s), since {self.circuit.failures} replies in a row failed"


async def through_breaker(
    ask: Callable[[], AsyncGenerator[Sequence[ModelEvent], None]], breaker: Breaker
) -> AsyncGenerator[Sequence[ModelEvent], None]:
    """Yield the events of one reply, those together that came together, if its model may be asked.

    What becomes of the reply is told to the breaker.

    A refusal (4xx) says nothing against the model, but proves a probe's point. Raises ModelUnreachable at once while
    the circuit is open, and whatever the reply itself raises.
    """
    probe = breaker.admit()
    has_begun = False
    try:
        async with aclosing(ask()) as heard:
            async for events in heard:
                if not has_begun:
                    has_begun = True
                    breaker.began(probe)
                if isinstance(events[-1], ReplyComplete):
                    _tell_end(breaker, probe, events[-1])
                yield events
    except ModelRefused:
        breaker.note_answer()
        raise
    except (ModelUnreachable, ModelReplyInvalid) as error:
        breaker.note_failure(probe, str(error))
        raise
    finally:
        breaker.note_given_up(probe)  # of no effect if it has ended in any of the ways above


def _tell_end(breaker: Breaker, probe: int, reply: ReplyComplete) -> None:
    if reply.finish_reason == FinishReason.INTERRUPTED:
        breaker.note_failure(probe, "its reply was broken off in the middle")
    else:
        breaker.note_answer()
