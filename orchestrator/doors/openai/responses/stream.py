"""A response as it is followed: its events from any number on, stored and, where its model is asked here, live.

Whoever follows reads what is stored, so that a stream goes on after its client was cut off, or the server was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import orjson
from pydantic import ValidationError

from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.tail import Frame, event_bytes
from toolfleet.orchestrator.doors.openai.approvals import within_patience
from toolfleet.orchestrator.doors.openai.joining import Attended
from toolfleet.orchestrator.doors.openai.responses.body import PREFIX, response_of
from toolfleet.orchestrator.doors.openai.responses.events import Diverged, Event, ResponseEvents
from toolfleet.orchestrator.errors import IllegalTransition, RunNotFound
from toolfleet.orchestrator.run.events import RUN_EVENT, RunStarted
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.chain import FIRST
from toolfleet.skipped import skip


async def until_answered(door: Door, attended: Attended) -> AsyncGenerator[bytes, None]:
    """Yield the events of the response that a request waits for: until the last one it attends to its run.

    Like every request that waits it does not wait for a person for ever: then the run is cancelled, which says why.
    """
    async with _within_patience(door, attended), aclosing(events_of(door, attended.run_id)) as events:
        async for event in events:
            yield event
    attended.answered()


@asynccontextmanager
async def _within_patience(door: Door, attended: Attended) -> AsyncGenerator[None, None]:
    watching = asyncio.create_task(_until_impatient(door, attended))  # watched: it is ended below, whatever it says
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _until_impatient(door: Door, attended: Attended) -> None:
    with suppress(Problem):  # the run is cancelled then, and its events tell
        async with aclosing(within_patience(door, attended.run_id, attended.followed.updates())) as updates:
            async for _ in updates:
                pass


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
        return [*found, *(self._events.heard(live.turn, live.attempt, live.came_since) if live else ())]

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
