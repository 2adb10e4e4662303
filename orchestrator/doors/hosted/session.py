"""One claimed session: its events are heard, its tool uses performed, all at once, and their results posted once each.

Before a post the session is asked which results it has, and the lease is confirmed, so nothing is posted for another's
work, nor a second time when the answer to a post was lost. What was performed and not posted is found by who claims the
session next.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.hosted.lease import Lease, LeaseEnded
from toolfleet.orchestrator.doors.hosted.performing import Performer
from toolfleet.orchestrator.doors.hosted.results import first_post, refused_event, result_event
from toolfleet.orchestrator.doors.hosted.session_log import SessionLog, ToolUse
from toolfleet.orchestrator.doors.hosted.wire import Away, Refused, Wire, WorkItem

log = FactLog("toolfleet.hosted")

FIRST_PAUSE_S: Final = 0.2
LAST_PAUSE_S: Final = 5.0
SESSION_GONE: Final = frozenset({401, 403, 404, 410})
"""Of anything else that is refused, another result may be taken."""


class SessionWork:
    """The work on one session, from its claim to its end."""

    def __init__(self, item: WorkItem, wire: Wire, performer: Performer, *, idle_s: float) -> None:
        self._session_id = item.session_id
        self._wire = wire
        self._performer = performer
        self._idle_s = idle_s
        self._lease = Lease(wire, item.id)
        self._log = SessionLog()
        self._news = asyncio.Event()
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self._has_results = asyncio.Event()
        self._one_by_one = False
        self._replaced: set[str] = set()
        self._is_gone = False

    @property
    def is_lost(self) -> bool:
        """Whether the work may be another's by now."""
        return self._lease.is_lost

    async def run(self, stop: asyncio.Event, *, grace_s: float) -> None:
        """Work until the session has nothing more to do, its lease has ended, or `stop` and the grace after it."""
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(tasks))  # watched: the group raises what it does
            posting = tasks.create_task(self._post())  # watched: likewise
            beating = tasks.create_task(self._lease.keep())  # watched: likewise
            ended = tasks.create_task(self._lease.ended.wait())  # watched: likewise
            over = tasks.create_task(self._until_over())  # watched: likewise
            stopping = tasks.create_task(stop.wait())  # watched: likewise
            await asyncio.wait({ended, over, stopping}, return_when=asyncio.FIRST_COMPLETED)
            reading.cancel()
            if not ended.done() and not over.done():
                last = tasks.create_task(self._until_answered())  # watched: likewise
                await asyncio.wait({ended, last}, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
                last.cancel()
            for task in (posting, beating, ended, over, stopping, *self._calls.values()):
                task.cancel()

    # --- what the session says ----------------------------------------------------------------------------------

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        """Hear all that the session says, from its beginning, and begin what it asks for."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                # Connected first: what is said between the history and the stream would be missed otherwise.
                async with self._wire.listening(self._session_id) as events:
                    # All of it, before anything is begun: the result of a use stands behind it.
                    for event in await self._wire.history(self._session_id):
                        self._log.on(event)
                    self._begin(tasks)
                    async for event in events:
                        pause_s = FIRST_PAUSE_S
                        self._log.on(event)
                        self._begin(tasks)
            except Away as away:
                log.info("hosted_session_away", session=self._session_id, error=str(away))
            except Refused as refused:
                self._give_up_session(refused)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        self._news.set()
        for use in self._log.open:
            if use.id not in self._calls and self._performer.is_ours(use):
                self._calls[use.id] = tasks.create_task(self._perform(use))  # watched: the group raises what it does

    async def _perform(self, use: ToolUse) -> None:
        answer = await self._performer.perform(self._session_id, use)
        self._results[use.id] = result_event(use.id, answer)
        self._has_results.set()

    # --- what it is told ----------------------------------------------------------------------------------------

    async def _post(self) -> None:
        """Post what is there, for as long as the lease is ours."""
        pause_s = FIRST_PAUSE_S
        while True:
            await self._has_results.wait()
            try:
                await self._post_some()
                pause_s = FIRST_PAUSE_S
            except LeaseEnded:
                return
            except Away as away:  # it may have been taken: the next look tells
                log.warning("hosted_post_unanswered", session=self._session_id, error=str(away))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _post_some(self) -> None:
        """Post as many results as fit into a request; only what is open still, as the session itself says."""
        for event in await self._wire.results(self._session_id):
            self._log.on(event)
        self._forget_answered()
        post = first_post(list(self._results.values()))
        post = post[:1] if self._one_by_one else post
        if not post:
            return
        # After the look: a lease that is confirmed was ours all the while, so nobody else has posted since.
        await self._lease.confirm()
        try:
            await self._wire.send(self._session_id, post, within_s=max(0.1, self._lease.left_s))
        except Refused as refused:
            self._refused(post, refused)
        else:
            self._log.answered.update(event["custom_tool_use_id"] for event in post)
            log.info("hosted_results_posted", session=self._session_id, results=len(post))
        self._forget_answered()

    def _forget_answered(self) -> None:
        still_open = {use.id for use in self._log.open}
        self._results = {use_id: event for use_id, event in self._results.items() if use_id in still_open}
        if not self._results:
            self._has_results.clear()
        self._news.set()

    def _refused(self, post: list[dict[str, Any]], refused: Refused) -> None:
        """Find out which result is refused, and say so in its place; that refused too, it is dropped."""
        if refused.status in SESSION_GONE:
            self._give_up_session(refused)
        elif len(post) > 1:
            self._one_by_one = True
        else:
            use_id = post[0]["custom_tool_use_id"]
            log.error("hosted_result_refused", session=self._session_id, use=use_id, error=str(refused))
            if use_id in self._replaced:
                self._log.answered.add(use_id)
            else:
                self._replaced.add(use_id)
                self._results[use_id] = refused_event(use_id, refused.status)

    def _give_up_session(self, refused: Refused) -> None:
        log.error("hosted_session_refused", session=self._session_id, error=str(refused))
        self._is_gone = True
        self._results.clear()
        self._has_results.clear()
        self._news.set()

    # --- when it ends -------------------------------------------------------------------------------------------

    async def _until_over(self) -> None:
        """Return when the session has ended, or has said nothing for a while after its turn."""
        while not (self._log.is_over or self._is_gone):
            self._news.clear()
            may_end = self._log.turn_has_ended and not self._log.open
            try:
                await asyncio.wait_for(self._news.wait(), self._idle_s if may_end else None)
            except TimeoutError:
                return

    async def _until_answered(self) -> None:
        """Return when all that was begun here is answered."""
        while self._calls.keys() & {use.id for use in self._log.open} and not self._is_gone:
            self._news.clear()
            await self._news.wait()
