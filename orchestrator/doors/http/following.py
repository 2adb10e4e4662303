"""Runs as the clients of one API process follow them: one reading of each, for any number of clients at once.

A run that is worked on here is told as it happens; of any other the sealed history is read whenever there is news of
it, so that nobody who can only write to Redis puts words into an answer. Whoever comes later hears all from the
beginning. Knows nothing of HTTP, nor of who may follow what.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.http.tail import Behind, Tail
from toolfleet.orchestrator.errors import OrchestratorClosed, RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.updates import (
    CallAwaitsApproval,
    CallProgressed,
    CallsRequested,
    CallYielded,
    ReplyBegan,
    RunBegan,
    RunEnded,
    RunUpdate,
    TextArrived,
)
from toolfleet.orchestrator.run.value import Run
from toolfleet.supervision import Errands, run_errand

log = FactLog("toolfleet.http")

Hear = Callable[[RunUpdate], None]

ABANDONED: Final = "nobody waits for it any more"
"""Why a run was cancelled whose clients have all hung up."""

AGAIN_S: Final = 0.5
"""How long after Redis was away a run is read again."""

END_ERRANDS_S: Final = 3.0

REPLIED: Final = b"event: model_replied\n"
SENT: Final = b"event: calls_sent\n"
ASKS_A_PERSON: Final = b'"awaiting_approval":["'
HEAD_BYTES: Final = 100
"""Where in a frame its kind stands."""


class Followed:
    """One run: what has happened to it so far, and whoever listens to the rest."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.clients = 0
        self.task: asyncio.Task[None] | None = None
        self._told: list[str | RunUpdate] = []
        self._reply_at = 0
        """Where what is told of the reply begins that its model writes now."""
        self._news = asyncio.Event()
        self._is_begun = False
        self._has_news = False
        self._is_live = False
        self._error: BaseException | None = None

    @property
    def is_worked_on_here(self) -> bool:
        """Whether it was begun here, and is told as it happens."""
        return self._is_live

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be told."""
        return self._error is not None or (bool(self._told) and isinstance(self._told[-1], RunEnded))

    @property
    def ended(self) -> Run | None:
        """The run, once it has ended."""
        last = self._told[-1] if self._told else None
        return last.run if isinstance(last, RunEnded) else None

    def hear(self, update: RunUpdate) -> None:
        """Take what has happened. Must not block: the run itself calls it."""
        # Of progress, and of what tools yield, there is no end, and it is all kept for whoever comes later.
        if self.is_over or isinstance(update, CallProgressed | CallYielded):
            return
        self._is_live |= isinstance(update, RunBegan)
        self._has_news |= not isinstance(update, RunBegan | ReplyBegan)
        if isinstance(update, ReplyBegan):
            self._begin_reply(update)
        # A long answer is tens of thousands of pieces: as text they are a tenth of what they are as records.
        self._told.append(update.text if isinstance(update, TextArrived) else update)
        self._ring()

    def _begin_reply(self, update: ReplyBegan) -> None:
        """Take back what was heard of a reply that is begun anew: whoever comes later is not told of it."""
        if update.attempt:
            for at in range(self._reply_at, len(self._told)):
                if isinstance(self._told[at], str):
                    self._told[at] = ""  # in its place, because each client knows how many it has heard
        self._reply_at = len(self._told)

    def forget(self) -> None:
        """Hear nothing more of it, and let go of what was heard: nobody listens."""
        self._error = self._error or OrchestratorClosed(f"run {self.run_id} is not followed any more")
        self._told.clear()

    def begun(self) -> None:
        """Note that the run is stored."""
        self._is_begun = True
        self._ring()

    def fail(self, error: BaseException) -> None:
        """End the listening: nobody can tell how the run goes on."""
        if not self.is_over:
            self._error = error
            self._ring()

    async def until_begun(self) -> None:
        """Wait until the run is stored. Raises what kept it from that."""
        while not self._is_begun:
            if self._error is not None:
                raise self._error
            await self._news.wait()

    async def until_news(self) -> None:
        """Wait until more has happened than that it began: a word, a call, the end."""
        while not self.is_over and not self._has_news:
            await self._news.wait()

    async def updates(self) -> AsyncGenerator[RunUpdate, None]:
        """Yield all that happens from the beginning, `RunEnded` last. Raises RunNotFound, OrchestratorClosed."""
        if not self.is_worked_on_here:
            yield RunBegan(run_id=self.run_id)
        at = 0
        while True:
            while at < len(self._told):
                told = self._told[at]
                at += 1
                yield TextArrived(run_id=self.run_id, text=told) if isinstance(told, str) else told
                if isinstance(told, RunEnded):
                    return
            if self._error is not None:
                raise self._error
            await self._news.wait()

    def _ring(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Followings:
    """The runs that are followed in this process. Close it, or what it begins outlives its server."""

    def __init__(self, orchestrator: Orchestrator, tail: Tail) -> None:
        self._orchestrator = orchestrator
        self._tail = tail
        self._followed: dict[str, Followed] = {}
        self._errands = Errands("left_runs")
        self._graces: dict[asyncio.TimerHandle, None] = {}

    def find(self, run_id: str) -> Followed | None:
        """Return a run that is followed here already, None for any other."""
        return self._followed.get(run_id)

    async def begin(self, run_id: str, start: Callable[[Hear], Awaitable[object]]) -> Followed:
        """Follow a run that `start` begins; of several who come at once one begins it. Raises what `start` raises.

        `start` may find the run stored already, and worked on elsewhere: then it is followed from there.
        """
        followed = self._followed.get(run_id)
        if followed is not None:
            await followed.until_begun()
            return followed
        followed = self._followed[run_id] = Followed(run_id)
        try:
            await start(followed.hear)
        except BaseException as error:
            del self._followed[run_id]
            stopped = OrchestratorClosed(f"run {run_id} was not begun before its server stopped")
            followed.fail(stopped if isinstance(error, asyncio.CancelledError) else error)
            raise
        followed.begun()
        self._look_after(followed)
        return followed

    async def join(self, run_id: str, run: Run | None = None) -> Followed:
        """Follow a run that is stored, or about to be; `run` is how it stands, where that is known."""
        followed = self._followed.get(run_id)
        if followed is not None:
            await followed.until_begun()
            return followed
        followed = Followed(run_id)
        followed.begun()
        if run is not None and run.state.is_terminal:
            _Telling(followed).tell(run)
            followed.hear(RunEnded(run=run))
        else:
            self._followed[run_id] = followed
            self._look_after(followed)
        return followed

    def leave(self, followed: Followed, *, for_good: bool) -> None:
        """Count a client less. What nobody here listens to is not followed any more.

        But one that is worked on here and may be come back to (not left `for_good`) is heard on: only here are its
        pieces known.
        """
        followed.clients -= 1
        if not followed.clients and (for_good or not followed.is_worked_on_here) and followed.task is not None:
            followed.task.cancel()
            followed.forget()
            self._forget(followed)

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the requests; it is waited for, for a moment, when this server stops."""
        self._errands.run(work)

    def do_later(self, after_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The same after a while; never, when this server stops before."""

        def begin() -> None:
            self._graces.pop(timer, None)
            self.do(work())

        timer = asyncio.get_running_loop().call_later(after_s, begin)
        self._graces[timer] = None

    async def cancel(self, run_id: str) -> None:
        """Cancel a run that nobody waits for. One that has ended, or cannot be reached, stays as it is."""
        try:
            await self._orchestrator.cancel(run_id, ABANDONED)
        except (RunNotOpen, RunNotFound):
            pass  # it has ended meanwhile
        except StoreUnreachable as error:
            log.warning("run_not_cancelled", run_id=run_id, error=str(error))

    async def aclose(self) -> None:
        """Follow nothing any more. Runs that are left for a while go on; whoever has their model takes them over."""
        for timer in self._graces:
            timer.cancel()
        await self._errands.aclose(within_s=END_ERRANDS_S)
        tasks = [followed.task for followed in self._followed.values() if followed.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- how it is followed -------------------------------------------------------------------------------------

    def _look_after(self, followed: Followed) -> None:
        follow = self._until_ended if followed.is_worked_on_here else self._from_stored
        followed.task = run_errand("followed_run", self._follow(followed, follow))

    async def _follow(self, followed: Followed, follow: Callable[[Followed], Awaitable[None]]) -> None:
        try:
            await follow(followed)
        except (RunNotFound, OrchestratorClosed) as error:
            followed.fail(error)
        finally:
            followed.fail(OrchestratorClosed(f"run {followed.run_id} did not end before its server stopped"))
            self._forget(followed)

    def _forget(self, followed: Followed) -> None:
        if self._followed.get(followed.run_id) is followed:
            del self._followed[followed.run_id]

    async def _until_ended(self, followed: Followed) -> None:
        followed.hear(RunEnded(run=await self._orchestrator.wait(followed.run_id)))

    async def _from_stored(self, followed: Followed) -> None:
        """Tell of a run what its history says, a reply at a time; its tail only rings the bell."""
        telling = _Telling(followed)
        is_over = False
        while not is_over:
            with suppress(Behind, StoreUnreachable):
                async with aclosing(self._tail.listen(followed.run_id)) as frames:
                    async for frame in frames:
                        if _is_news(frame.data):
                            telling.tell(await self._orchestrator.get(followed.run_id))
                is_over = True
            if not is_over:
                await asyncio.sleep(AGAIN_S)
        run = await self._orchestrator.wait(followed.run_id)
        telling.tell(run)
        followed.hear(RunEnded(run=run))


def _is_news(frame: bytes) -> bool:
    """Return whether an event may have brought what is told of a run that is worked on elsewhere."""
    kind = frame[:HEAD_BYTES]
    return REPLIED in kind or (SENT in kind and ASKS_A_PERSON in frame)


class _Telling:
    """Tells of a run by how it stands, each thing once."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._replies = 0
        self._waiting: set[str] = set()

    def tell(self, run: Run) -> None:
        """Tell of the replies that are new, and of the calls that wait for a person by now."""
        replies = run.replies
        for turn, reply in enumerate(replies[self._replies :], self._replies + 1):
            self._followed.hear(ReplyBegan(run_id=run.run_id, turn=turn))
            if reply.content:
                self._followed.hear(TextArrived(run_id=run.run_id, text=reply.content))
            if reply.tool_calls:
                self._followed.hear(CallsRequested(run_id=run.run_id, turn=turn, calls=len(reply.tool_calls)))
        self._replies = max(self._replies, len(replies))
        for call in run.awaiting_approval:
            if call.call_id not in self._waiting:
                self._waiting.add(call.call_id)
                self._followed.hear(
                    CallAwaitsApproval(
                        run_id=run.run_id, call_id=call.call_id, tool=call.tool, arguments=call.arguments
                    )
                )
