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


async def until_answered(attended: Attended, following: Following) -> AsyncGenerator[bytes, None]:
    """Yield the events of the response that a request waits for: until the last one it attends to its run.

    Like every request that waits it does not wait for a person for ever: then the run is cancelled, which says why.
    """
    async with _within_patience(attended), aclosing(following.events()) as events:
        async for event in events:
            yield event
    attended.answered()


@asynccontextmanager
async def _within_patience(attended: Attended) -> AsyncGenerator[None, None]:
    watching = asyncio.create_task(_until_impatient(attended))  # watched: it is ended below, whatever it says
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _until_impatient(attended: Attended) -> None:
    with suppress(Problem):  # the run is cancelled then, and its events tell
        async with aclosing(within_patience(attended.door, attended.run_id, attended.followed.updates())) as updates:
            async for _ in updates:
                pass


class Following:
    """One stream of a response, at its place in the history of the run."""

    def __init__(self, door: Door, run_id: str) -> None:
        self._door = door
        self._run_id = run_id
        self._live = door.live.of(run_id)
        self._events: ResponseEvents | None = None
        self._listener = door.tail.listener()
        if self._live is not None:
            self._live.tell(self._listener)

    async def events(self, *, after: int = -1) -> AsyncGenerator[bytes, None]:
        """Yield the events with numbers above this one, stored and to come, until the response has ended.

        Raises StoreUnreachable, and Behind for a listener that is too slow: the stream breaks off, and can be resumed.
        """
        try:
            async with aclosing(self._door.tail.listen(self._run_id, after=FIRST, listener=self._listener)) as frames:
                async for frame in frames:
                    for event in await self._told(frame):
                        if event["sequence_number"] > after:
                            yield _bytes(event)
        except Diverged:
            yield self._error("its stored text is not the one that was streamed: read the response as it is")

    def farewell(self) -> bytes:
        """Return the last event of a stream whose server stops."""
        return self._error("this server stops: ask another for the rest, with stream and starting_after")

    async def _told(self, frame: Frame) -> list[Event]:
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

    def _error(self, why: str) -> bytes:
        """Return an error as an event. It has the number of the last one told: what is stored goes on behind that."""
        number = max(0, self._events.last_number) if self._events else 0
        message = f"{PREFIX}{self._run_id}: {why}"
        return _bytes(
            {"type": "error", "sequence_number": number, "code": "server_error", "message": message, "param": None}
        )


def _bytes(event: dict[str, Any]) -> bytes:
    return event_bytes(event["type"], orjson.dumps(event))
