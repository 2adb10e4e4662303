"""One stream of a run's events, from its place in the run's history to its end, or to what a person has to say.

Whoever is cut off asks again, with the same request: the run goes on meanwhile, and its events are told again, or from
any number on (`Last-Event-ID`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    Message as Shown,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
)
from ag_ui.core.events import RunFinishedInterruptOutcome
from ag_ui.encoder import EventEncoder
from pydantic import ValidationError

from toolfleet.messages import Usage
from toolfleet.orchestrator.doors.agui.endings import ending_of, usage_of
from toolfleet.orchestrator.doors.agui.events import RunEvents, Told
from toolfleet.orchestrator.doors.agui.interrupts import (
    NotAsStored,
    may_wait,
    must_be_as_stored,
    shown_call,
    waiting_in,
)
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.tail import EventListener, Frame
from toolfleet.orchestrator.errors import IllegalTransition, RunNotFound
from toolfleet.orchestrator.run.events import RUN_EVENT, RunStarted
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.store.chain import FIRST
from toolfleet.skipped import skip

PROTOCOL: Final = "1.0"

LOOK_EVERY_S: Final = 2.0
"""How often it is looked whether a run's tools ask somebody something."""

CUSTOM: Final = {"call_progressed": "toolfleet:progress", "call_yielded": "toolfleet:pieces"}
"""What is told of running calls, which AG-UI has no events for."""

ASKS: Final = "call_asks"

NOT_TOLD: Final = frozenset({"type", "run_id", "call_id"})

ENCODER: Final = EventEncoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What one request follows: a run of ours, from its beginning or from where it was interrupted."""

    run_id: str
    thread_id: str
    asked_as: str
    """The run's id as the client has it."""
    parent_run_id: str | None = None
    after: int = 0
    """The number of the event that it goes on behind."""
    last_event: int | None = None
    """The number of the last event that a client has which goes on with a stream that was cut."""
    given: Sequence[Shown] = ()
    """The client's messages without those of this run."""
    has: Sequence[Shown] = field(default=(), repr=False)
    """Those of this run that it has."""


class Following:
    """The events of one leg as server-sent events."""

    def __init__(self, door: Door, leg: Leg) -> None:
        self._door = door
        self._leg = leg
        self._live = door.live.of(leg.run_id)
        self._events: RunEvents | None = None
        self._from = leg.after if leg.last_event is None else leg.last_event
        self._is_open = False
        """Whether the client has the beginning of this stream, or of the one that it goes on with."""
        self._used_before = Usage()
        self._has_looked = False
        self._looked_s = -LOOK_EVERY_S
        self._listener = door.tail.listener()
        if self._live is not None:
            self._live.tell(self._listener, of_calls=True)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events, stored and to come. Raises StoreUnreachable, and Behind for a listener that is too slow."""
        listening = self._door.tail.listen(self._leg.run_id, after=FIRST, listener=self._listener)
        async with aclosing(listening) as frames:
            with _Waking(self._listener):
                async for frame in frames:
                    yield b"".join(self._told(frame))
                    if (end := await self._end(frame)) is not None:
                        yield end
                        return
        yield self._lost("nothing more is known of it: it was deleted, or this server cannot read it")

    def farewell(self) -> bytes:
        """Return the last event of a stream whose server stops: else it would be taken for the end of the run."""
        return error("server-stops", "this server stops, and the run goes on: send the same request again")

    # --- what is told -----------------------------------------------------------------------------------------------

    def _told(self, frame: Frame) -> list[bytes]:
        """Return what a frame brings, and what is live by now."""
        found = self._stored(frame) if frame.id else []
        events = self._events
        if events is None:
            return []
        sent = self._opened(events) + self._sent(events, found, is_stored=True)
        if (live := self._live) is not None:
            heard = events.heard(live.turn, live.attempt, live.came_since)
            sent += self._sent(events, heard, is_stored=False)
        if not frame.id and self._is_open:
            sent += _custom(frame)
        return sent

    def _stored(self, frame: Frame) -> list[Told]:
        try:
            event = RUN_EVENT.validate_json(frame.event, extra="ignore")
            if self._events is None:
                self._events = RunEvents(event, self._leg.given) if isinstance(event, RunStarted) else None
                return []
            if isinstance(event, RunStarted) or self._events.run.state.is_terminal:
                return []  # what comes after a run's end is another request's
            return self._events.take(event)
        except (ValidationError, IllegalTransition) as error_:
            skip("event", error_, entry_id=frame.id)
            return []

    def _opened(self, events: RunEvents) -> list[bytes]:
        """Return what a stream begins with, once its place in the history is reached."""
        leg = self._leg
        if events.last_number <= leg.after:
            self._used_before = events.run.usage
        if self._is_open or events.last_number < self._from:
            return []
        if leg.last_event is None:
            return self._beginning(events)
        self._is_open = leg.last_event == leg.after  # it has the beginning, and no more
        return []

    def _beginning(self, events: RunEvents, *, is_anew: bool = False, has_step: bool = False) -> list[bytes]:
        leg, self._is_open = self._leg, True
        started = RunStartedEvent(
            thread_id=leg.thread_id,
            run_id=leg.asked_as,
            protocol_version=PROTOCOL,
            parent_run_id=leg.parent_run_id,
            metadata={"toolfleet": {"runId": leg.run_id}},
        )
        *first, last = [started, *events.opened(leg.has, is_anew=is_anew, has_step=has_step)]
        # Who has only some of these has nothing yet: so the last one alone can be gone on from.
        return [*(encoded(each) for each in first), encoded(last, max(self._from, leg.after))]

    def _sent(self, events: RunEvents, found: Sequence[Told], *, is_stored: bool) -> list[bytes]:
        """Return what of this the client does not have."""
        sent: list[bytes] = []
        for told in found:
            if told.is_numbered and told.number > self._from and not self._is_open:
                # What it goes on from was taken back, and has no number any more: it is shown what stands.
                if is_stored:
                    self._from = found[-1].number
                    return [*sent, *self._beginning(events, is_anew=True)]
                sent += self._beginning(events, is_anew=True, has_step=True)
            if not told.is_numbered:
                sent += [encoded(told.event)] if self._is_open else []
            elif told.number == self._from:
                self._is_open = True
            elif told.number > self._from:
                sent += [encoded(told.event, told.number)]
        return sent

    # --- how it ends ------------------------------------------------------------------------------------------------

    async def _end(self, frame: Frame) -> bytes | None:
        """Return what the stream ends with; None while it goes on."""
        if (events := self._events) is None:
            return None
        try:
            if events.run.state.is_terminal:
                must_be_as_stored(events.run, await self._door.orchestrator.get(self._leg.run_id))
                return self._ended(events)
            waiting = await self._waiting(events, frame)
        except RunNotFound:
            return self._lost("it was deleted")
        except NotAsStored:
            return self._lost("what was told here is not what is stored of it: forget that, and read the run itself")
        return self._interrupted(events, waiting) if waiting else None

    def _lost(self, why: str) -> bytes:
        return error("run-lost", f"run {self._leg.run_id}: {why}")

    def _ended(self, events: RunEvents) -> bytes:
        leg, number = self._leg, events.last_number + 1
        if number <= self._from:
            return (
                b"" if number == self._from else error("unknown-event", f"no event of this run has the id {self._from}")
            )
        return encoded(ending_of(events.run, leg.thread_id, leg.asked_as, self._used_before), number)

    async def _waiting(self, events: RunEvents, frame: Frame) -> list[Interrupt]:
        """Return what the run waits for a person with, as far as it was told by now."""
        run = events.run
        if not self._is_open or run.state is State.THINKING:
            return []
        may_ask = bool(run.calls_under_way) and self._is_time_to_look(frame)
        if not (may_ask or may_wait(run)):
            return []
        return await waiting_in(self._door, run, events.last_number, asked=may_ask)

    def _is_time_to_look(self, frame: Frame) -> bool:
        """Return whether its tools may ask something that was not seen: when they say so or, as nobody may, at times.

        Of a run that is worked on here they say so; only what they have asked before this stream has to be looked for.
        """
        if kind_of(frame) == ASKS:
            return True
        now_s = time.monotonic()
        if (self._live is not None and self._has_looked) or now_s - self._looked_s < LOOK_EVERY_S:
            return False
        self._has_looked, self._looked_s = not frame.id, now_s
        return True

    def _interrupted(self, events: RunEvents, waiting: list[Interrupt]) -> bytes:
        leg = self._leg
        finished = RunFinishedEvent(
            thread_id=leg.thread_id,
            run_id=leg.asked_as,
            outcome=RunFinishedInterruptOutcome(interrupts=waiting),
            usage=usage_of(events.run, self._used_before),
            metadata={"toolfleet": {"runId": leg.run_id}},
        )
        return b"".join(map(encoded, [*events.closed(), finished]))


class _Waking:
    """Wakes a listener now and then, while the block lasts: that a tool asks something is no event of the history."""

    def __init__(self, listener: EventListener) -> None:
        self._listener = listener
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._wake)

    def __exit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        self._listener.wake()
        self.__enter__()


def kind_of(frame: Frame) -> str:
    """Return what kind of event a frame has."""
    return frame.data.partition(b"\n")[0].removeprefix(b"event: ").decode()


def _custom(frame: Frame) -> list[bytes]:
    """Return what a running call says of itself."""
    if (name := CUSTOM.get(kind_of(frame))) is None:
        return []
    said: dict[str, Any] = orjson.loads(frame.event)
    value = {"toolCallId": shown_call(said["call_id"]), "callId": said["call_id"]}
    return [
        encoded(
            CustomEvent(name=name, value={**value, **{key: each for key, each in said.items() if key not in NOT_TOLD}})
        )
    ]


def encoded(event: BaseEvent, number: int | None = None) -> bytes:
    """Return an event as it is sent, with its number as the `id`."""
    id_line = b"" if number is None else b"id: %d\n" % number
    return id_line + ENCODER.encode(event).encode("utf-8", "replace")


def error(code: str, message: str) -> bytes:
    """Return what ends a stream that cannot go on."""
    return encoded(RunErrorEvent(message=message, code=code))
