"""The work queue of one environment: claims sessions, so many at a time, and gives each back when it is done with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from toolfleet.errors import OperatorError
from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.hosted.performing import Performer
from toolfleet.orchestrator.doors.hosted.session import SessionWork
from toolfleet.orchestrator.doors.hosted.wire import Away, Refused, Wire, WorkItem
from toolfleet.supervision import failed

log = FactLog("toolfleet.hosted")

BETWEEN_POLLS_S: Final = 0.5
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 10.0

Tell = Callable[[str], None]


class EnvironmentRefused(OperatorError):
    """The API lets nobody with this key claim work of this environment."""


class Environment:
    """Serves one environment. `tell` hears, in words, of sessions that begin and end."""

    def __init__(
        self, wire: Wire, performer: Performer, *, sessions: int, grace_s: float, idle_s: float, tell: Tell
    ) -> None:
        self._wire = wire
        self._performer = performer
        self._free = asyncio.Semaphore(sessions)
        self._grace_s = grace_s
        self._idle_s = idle_s
        self._tell = tell

    async def serve(self, stop: asyncio.Event) -> None:
        """Claim and work until `stop`; then let calls end within the grace, and give the sessions back.

        Raises EnvironmentRefused when the API refuses to be polled; what was claimed before is given back then, too.
        """
        refused: Refused | None = None
        async with asyncio.TaskGroup() as sessions:
            while not stop.is_set():
                await _either(self._free.acquire(), stop)
                if stop.is_set():
                    break
                try:
                    item = await self._claim(stop)
                except Refused as error:
                    refused = error
                    stop.set()
                    break
                if item is None:
                    self._free.release()
                else:
                    sessions.create_task(self._work(item, stop))  # watched: it catches what it raises
        if refused is not None:
            raise EnvironmentRefused(f"the API refuses environment {self._wire.environment_id}: {refused}")

    async def _claim(self, stop: asyncio.Event) -> WorkItem | None:
        """Claim a session. Returns None when it is to stop before there is one; a claim unsaid is given out again."""
        pause_s = FIRST_PAUSE_S
        while not stop.is_set():
            try:
                item = await self._wire.poll()
                pause_s = FIRST_PAUSE_S
                if item is not None and not stop.is_set() and await self._acknowledged(item):
                    return item
                wait_s = BETWEEN_POLLS_S if item is None else 0.0
            except Away as away:
                log.warning("hosted_poll_unanswered", environment=self._wire.environment_id, error=str(away))
                wait_s, pause_s = pause_s, min(2 * pause_s, LAST_PAUSE_S)
            # Not in step with others who poll.
            await _either(asyncio.sleep(wait_s * random.uniform(0.5, 1.0)), stop)
        return None

    async def _acknowledged(self, item: WorkItem) -> bool:
        try:
            await self._wire.with_token(item.token).ack(item.id)
        except Refused as refused:
            log.warning("hosted_ack_refused", work=item.id, error=str(refused))
            return False
        return True

    async def _work(self, item: WorkItem, stop: asyncio.Event) -> None:
        """Work on one session to its end, whatever happens to it, and give it back unless it is another's."""
        wire = self._wire.with_token(item.token)
        work = SessionWork(item, wire, self._performer, idle_s=self._idle_s)
        self._tell(f"session {item.session_id}: claimed")
        try:
            await work.run(stop, grace_s=self._grace_s)
        except Exception as error:  # noqa: BLE001  # the other sessions go on
            failed("hosted session", error, session=item.session_id)
        finally:
            self._free.release()
        if work.is_lost:
            self._tell(f"session {item.session_id}: given up, its lease is lost")
            return
        try:
            await wire.stop(item.id)
        except (Away, Refused) as error:  # it has stopped already, or its lease lapses
            log.info("hosted_stop_unanswered", work=item.id, error=str(error))
        self._tell(f"session {item.session_id}: given back")


async def _either(waited: Coroutine[Any, Any, object], stop: asyncio.Event) -> None:
    """Wait for the one or the other; what has not happened by then is cancelled."""
    first = asyncio.create_task(waited)  # watched: awaited below
    second = asyncio.create_task(stop.wait())  # watched: likewise
    try:
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        first.cancel()
        second.cancel()
