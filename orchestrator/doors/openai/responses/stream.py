"""A response as it is followed: its events from any number on, stored and, where its model is asked here, live.

Whoever follows reads what is stored, so that a stream goes on after its client was cut off, or the server was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import orjson
from fastapi import Request
from pydantic import ValidationError

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.messages import Message
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.live_replies import LiveReply
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.tail import Frame, event_bytes
from toolfleet.orchestrator.doors.http.waiting import unless_left
from toolfleet.orchestrator.doors.openai.responses.body import PREFIX, response_of
from toolfleet.orchestrator.doors.openai.responses.events import Diverged, Event, ResponseEvents
from toolfleet.orchestrator.errors import IllegalTransition, RunNotFound, RunNotOpen
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.run.events import RUN_EVENT, RunStarted
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.chain import FIRST
from toolfleet.skipped import skip

log = FactLog("toolfleet.http")

LEFT: Final = "nobody waits for it any more"


async def begin(door: Door, messages: list[Message], options: RunOptions) -> str:
    """Begin the run of a response, whose reply may be followed live from here on. The only place that begins one."""
    live = LiveReply()
    run_id = await door.orchestrator.start(messages, on_event=live.hear, **options)
    door.live.keep(run_id, live)
    return run_id


async def end_of(request: Request, door: Door, run_id: str) -> Run:
    """Return a run once it has ended; it is cancelled when the client hangs up."""
    try:
        return await unless_left(request, door.orchestrator.wait(run_id))
    except (Problem, asyncio.CancelledError):
        await cancel_left(door, run_id)
        raise


async def while_heard(door: Door, run_id: str) -> AsyncGenerator[bytes, None]:
    """Yield the events of a response from its beginning; it is cancelled when nobody takes them any more."""
    is_over = False
    try:
        async with aclosing(events_of(door, run_id)) as events:
            async for event in events:
                yield event
        is_over = True
    finally:
        if not is_over:
            await cancel_left(door, run_id)


async def cancel_left(door: Door, run_id: str) -> None:
    """Cancel a run that nobody waits for any more, if it goes on."""
    try:
        await door.orchestrator.cancel(run_id, LEFT)
    except (RunNotOpen, RunNotFound):
        pass  # it has ended meanwhile
    except StoreUnreachable as error:
        log.warning("run_not_cancelled", run_id=run_id, error=str(error))


async def events_of(door: Door, run_id: str, *, after: int = -1) -> AsyncGenerator[bytes, None]:
    """Yield the events of a response with numbers above this one, stored and to come, until it has ended.

    Raises StoreUnreachable, and Behind for a listener that is too slow: the stream breaks off, and can be resumed.
    """
    following = _Following(door, run_id)
    try:
        async with aclosing(door.tail.listen(run_id, after=FIRST, listener=following.listener)) as frames:
            async for frame in frames:
                for event in await following.told(frame):
                    if event["sequence_number"] > after:
                        yield _bytes(event)
    except Diverged:
        yield _bytes(following.error("its stored text is not the one that was streamed: read the response as it is"))


class _Following:
    """One stream's place in the history of its run."""

    def __init__(self, door: Door, run_id: str) -> None:
        self._door = door
        self._run_id = run_id
        self._live = door.live.of(run_id)
        self._events: ResponseEvents | None = None
        self.listener = door.tail.listener()
        if self._live is not None:
            self._live.tell(self.listener)

    async def told(self, frame: Frame) -> list[Event]:
        """Return the events that a frame brings, and what is live by now. Raises Diverged, StoreUnreachable."""
        found = self._stored(frame) if frame.id else []
        if self._events is None:
            return found
        if found and self._events.run.state.is_terminal:
            await self._must_be_believed(self._events.run)
        live = self._live
        return [*found, *(self._events.heard(live.turn, live.attempt, live.said_since) if live else ())]

    def _stored(self, frame: Frame) -> list[Event]:
        try:
            event = RUN_EVENT.validate_json(frame.event, extra="ignore")
            if isinstance(event, RunStarted):
                self._events = ResponseEvents(event)
                return self._events.begun()
            return self._events.take(event) if self._events else []
        except (ValidationError, IllegalTransition) as error:
            # No part of the run, or one that a newer version has written: at the end it is compared with what is.
            skip("event", error, entry_id=frame.id)
            return []

    async def _must_be_believed(self, run: Run) -> None:
        """Raise Diverged unless the run that was told is the one that whoever asks for it is shown."""
        try:
            stored = await self._door.orchestrator.get(self._run_id)
        except RunNotFound:
            return  # it was deleted at its end
        if response_of(stored) != response_of(run):
            raise Diverged

    def error(self, why: str) -> Event:
        """Return an error as an event. It has the number of the last one told: what is stored goes on behind that."""
        number = self._events.last_number if self._events else -1
        message = f"{PREFIX}{self._run_id}: {why}"
        return {"type": "error", "sequence_number": number, "code": "server_error", "message": message, "param": None}


def _bytes(event: dict[str, Any]) -> bytes:
    return event_bytes(event["type"], orjson.dumps(event))
