"""The children of one worker, seen from its event loop: who is free, what each is at, another for each that is lost.

There are never more processes than slots: the next one is born when the last one is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import mmap
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar, cast

from toolfleet.logs import FactLog
from toolfleet.supervision import run_errand
from toolfleet.workers.children.child import Child, Lifetime
from toolfleet.workers.children.fork_server import Forked, ForkServer, ForkServerLost
from toolfleet.workers.children.words import READY, Answer, Job, Shared, Words, answer_of, packed
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.tool import child_processes as family

log = FactLog("toolfleet.workers")

T = TypeVar("T")

CLEAN_UP_S: Final = 2.0
"""How long a tool may clean up after it was told to stop."""

AGAIN_S: Final = 1.0
"""How soon another child is tried when one could not be forked, or did not live to be ready."""

BIRTHS_MAX: Final = 5
"""So many children in a row that end before they are ready, and it is not tried again: what they need is not there."""

OVERDUE_S: Final = 1.0
"""How much longer than it may take a child is let be: an async tool in it stops by itself, and says more."""

AHEAD_S: Final = 0.01
"""So much work may lie here beside what the children are at, so that a round trip to Redis brings many quick calls."""

AHEAD_MAX: Final = 64

PATIENCE_S: Final = 0.1
"""A call that waits here for longer than this goes back, to whoever has a free child: what came ahead of it is slow."""

STALE_S: Final = 1.0
"""A call that has waited here for so long may be another worker's by now: this process was frozen meanwhile."""

GO_WITHIN_S: Final = 2.0
"""How long children that have nothing to do may take to end with their worker."""


class ChildLost(Exception):
    """The process ended with its call."""

    def __init__(self, *, has_begun: bool) -> None:
        super().__init__("the process has ended")
        self.has_begun = has_begun
        """Whether it had begun with the call; if not, nothing has happened to that."""


class NoneFree(Exception):
    """All children have been at other calls for longer than was to be expected; nothing has happened to this one."""


class Overdue(Exception):
    """What the child is at takes longer than it may, and does not end by itself."""


class Waiting(NamedTuple):
    """A call that waits for a free child."""

    since_s: float
    child: asyncio.Future[Connected]
    is_patient: bool


class Connected(asyncio.Protocol):
    """One child, and what it is at."""

    def __init__(
        self,
        slot: int,
        pid: int,
        shared: Shared,
        tell: Callable[[Connected], None],
        on_thread: Callable[..., asyncio.Future[Any]],
    ) -> None:
        """`tell` is called when it is ready, and when it has ended; `on_thread` runs what blocks."""
        self.slot = slot
        self.pid = pid
        self.is_ready = False
        self.is_lost = False
        self.is_ending = False
        """Whether it is to take no call any more."""
        self._shared = shared
        self._tell = tell
        self._on_thread = on_thread
        self._words = Words()
        self._gone = asyncio.Event()
        self._job: tuple[Job, asyncio.Future[Answer]] | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._transport: asyncio.WriteTransport

    @property
    def at(self) -> Job | None:
        """What it is at."""
        return None if self._job is None else self._job[0]

    def has_begun(self, job: Job) -> bool:
        """Whether it has begun with a job."""
        return self._shared.begun == job.number

    def ask(self, job: Job, limit_s: float) -> asyncio.Future[Answer]:
        """Have it perform a call whose tool may take so long. The future has its answer, or ChildLost, or Overdue."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        if self.is_lost:
            answer.set_exception(ChildLost(has_begun=False))
        else:
            self._job = job, answer
            self._shared.due_s = time.monotonic() + limit_s  # what the last tool has left there may be in the way
            self._transport.write(packed(job))
            self._looking = loop.call_later(limit_s + OVERDUE_S, self._look)
        return answer

    def _look(self) -> None:
        """See whether its time is up: it knows when its tool has really begun, and how much that is granted."""
        if self._job is None or self._job[1].done():
            return
        due_s, now_s = self._shared.due_s, time.monotonic()
        if due_s and due_s + OVERDUE_S <= now_s:
            self._job[1].set_exception(Overdue())
        else:
            left_s = due_s - now_s if due_s else 0.0
            self._looking = asyncio.get_running_loop().call_later(left_s + OVERDUE_S, self._look)

    def _take_job(self) -> tuple[Job, asyncio.Future[Answer]] | None:
        """Return what it was at; it is at nothing then."""
        job, self._job = self._job, None
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        return job

    def end(self, *, within_s: float) -> asyncio.Future[None]:
        """End it with its call: it is told to stop, and killed if it takes longer. What is returned is done then.

        It takes no call any more, whether or not anybody waits for that.
        """
        self.is_ending = True
        return asyncio.shield(run_errand("end_of_child", self._end(within_s)))

    async def _end(self, within_s: float) -> None:
        if self.is_lost:
            return
        begun = await self._on_thread(family.descendants, self.pid)
        if within_s and not self._gone.is_set():
            self._shared.to_end = self._shared.begun
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._gone.wait()
        if not self._gone.is_set():
            begun += await self._on_thread(family.descendants, self.pid)  # what it has started meanwhile
        self._signal(signal.SIGKILL)
        family.kill(begun)
        await self._gone.wait()

    def _signal(self, number: int) -> None:
        if not self.is_lost:  # it is collected after that, and until then nobody else has its process's number
            with contextlib.suppress(ProcessLookupError):  # or by others, where the fork server is lost
                os.kill(self.pid, number)

    def close(self) -> None:
        """Let it end: it has no call."""
        self.is_ending = True
        self._transport.close()

    # --- told by the transport ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the pipe."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Take what it says."""
        for word in self._words.take(data):
            if word == READY:
                if not self.is_ready:
                    self.is_ready = True
                    self._tell(self)
            elif (asked := self._take_job()) is not None and not asked[1].done():
                self._settle(asked[1], word)

    def _settle(self, asked: asyncio.Future[Answer], word: bytes) -> None:
        try:
            answer = answer_of(word)
            if answer.is_last:
                self.close()
            asked.set_result(answer)
        except Exception as error:  # whatever a tool has written into the pipe of its process
            log.error("answer_not_read", exc_info=error)
            asked.set_exception(ChildLost(has_begun=True))
            self.end(within_s=0.0)

    def connection_lost(self, _error: Exception | None) -> None:
        """Take note that it has ended. What it said before has been heard."""
        self.is_lost = True
        self._gone.set()
        if (asked := self._take_job()) is not None and not asked[1].done():
            asked[1].set_exception(ChildLost(has_begun=self.has_begun(asked[0])))
        self._tell(self)


class Pace:
    """How many calls are done with in AHEAD_S, as the last ones went."""

    def __init__(self, children: int) -> None:
        self._children = children
        self._mean_s = math.inf
        self.ahead = 0
        """So many, or AHEAD_MAX."""

    def note(self, took_s: float) -> bool:
        """Take note of one call. Returns whether `ahead` has changed by much."""
        if took_s >= AHEAD_S or self._mean_s == math.inf:
            self._mean_s = took_s
        else:
            self._mean_s += (took_s - self._mean_s) / AHEAD_MAX
        before, ahead = self.ahead, min(AHEAD_MAX, int(self._children * AHEAD_S / self._mean_s))
        if ahead <= before <= 1.25 * ahead:
            return False
        self.ahead = ahead
        return ahead != before

    def forget(self) -> None:
        """Know nothing any more, and expect nothing."""
        self._mean_s, self.ahead = math.inf, 0


class Children:
    """The processes of a pool. Created on the main thread, before there is any other; used on one event loop."""

    def __init__(self, app: Any, hostname: str, number: int, lifetime: Lifetime) -> None:
        """Fork them."""
        memory = memoryview(mmap.mmap(-1, number * Shared.SIZE))
        self._shared = [Shared(memory[at : at + Shared.SIZE]) for at in range(0, len(memory), Shared.SIZE)]
        self._server = ForkServer(lambda pipe, slot: Child(app, hostname, self._shared[slot], lifetime).serve(pipe))
        self._born: list[Forked] = [self._server.fork(slot) for slot in range(number)]
        self._numbers = count(1)
        self._free: list[Connected] = []
        self._wanted: deque[Waiting] = deque()
        self._looking: asyncio.TimerHandle | None = None
        self._pace = Pace(number)
        self._all: dict[int, Connected] = {}
        self._news = app.toolfleet.living.news
        self._births_failed = 0
        self._threads = ThreadPoolExecutor(1, "children")
        """Ask the fork server, and look at processes: what else runs on threads here may wait for Redis."""
        self._begins_none = False
        self._stops = False
        self.give_up: Callable[[], None] = lambda: None
        """Called once there can be no children any more."""
        self.take_ahead: Callable[[int], None] = lambda _: None
        """Called with how many calls more than there are slots may come, as `ahead`."""

    async def open(self) -> None:
        """Connect with the children that were forked. Call it on the loop."""
        asyncio.get_running_loop().add_reader(self._server.life, self._has_lost_server)
        for slot, forked in enumerate(self._born):
            await self._connect(slot, forked)
        self._born.clear()

    @property
    def pids(self) -> list[int]:
        """The processes that there are now."""
        return [child.pid for child in tuple(self._all.values())]

    @property
    def ahead(self) -> int:
        """How many calls may lie here beside those that the children are at; less those that no child is there for."""
        return self._pace.ahead - (len(self._shared) - self.ready)

    @property
    def ready(self) -> int:
        """How many children have a call, or can take one."""
        return sum(child.is_ready and not (child.is_lost or child.is_ending) for child in tuple(self._all.values()))

    @property
    def at_work(self) -> dict[str, int]:
        """The processes of the calls that children are at, by call id."""
        at = [(child.at, child.pid) for child in tuple(self._all.values())]
        return {job.delivery.task_id: pid for job, pid in at if job is not None}

    @property
    def are_wanted(self) -> bool:
        """Whether calls wait for one that is free."""
        return bool(self._wanted)

    def job(self, delivery: Delivery, *, is_common: bool) -> Job:
        """Return what a child is asked to perform."""
        return Job(next(self._numbers), delivery, is_common, self._news.get(delivery.task))

    async def take(self, *, is_patient: bool = False) -> Connected:
        """Return a child that is free, once there is one; it is the caller's until `give`.

        Raises NoneFree after a moment, unless the caller is patient.
        """
        if self._stops or (self._begins_none and not is_patient):
            raise NoneFree
        if self._free:
            return self._free.pop()  # the one that was at work last, whose memory is in the processor's caches
        loop = asyncio.get_running_loop()
        wanted: asyncio.Future[Connected] = loop.create_future()
        self._wanted.append(Waiting(loop.time(), wanted, is_patient))
        if self._looking is None:
            self._looking = loop.call_later(PATIENCE_S, self._look)
        try:
            return await wanted
        except asyncio.CancelledError:
            if wanted.done() and not wanted.cancelled() and wanted.exception() is None:
                self.give(wanted.result())
            raise

    def give(self, child: Connected) -> None:
        """Take a child back. One that ends or has ended is replaced when it is gone."""
        if child.is_lost or child.is_ending:
            self.say_ahead()
            return
        now_s = asyncio.get_running_loop().time()
        while self._wanted:
            waiting = self._wanted.popleft()
            if waiting.child.done():
                continue
            if waiting.is_patient or waiting.since_s > now_s - STALE_S:
                waiting.child.set_result(child)
                return
            waiting.child.set_exception(NoneFree())
        self._free.append(child)

    def note_pace(self, took_s: float) -> None:
        """Take note of how long a child was at a call."""
        if self._pace.note(took_s):
            self.say_ahead()

    def say_ahead(self) -> None:
        """Say how many calls may come."""
        self.take_ahead(self.ahead)

    def _look(self) -> None:
        """Send away who has waited for too long."""
        loop = asyncio.get_running_loop()
        self._looking = None
        kept: deque[Waiting] = deque()
        while self._wanted and self._wanted[0].since_s <= loop.time() - PATIENCE_S:
            waiting = self._wanted.popleft()
            if waiting.child.done():
                continue
            if waiting.is_patient:
                kept.append(waiting)
            else:
                waiting.child.set_exception(NoneFree())
                self._pace.forget()
        self.say_ahead()
        self._wanted.extendleft(reversed(kept))
        if self._wanted:
            self._looking = loop.call_later(PATIENCE_S, self._look)

    def begin_none(self) -> None:
        """Begin with no call any more, but for those that are counted when they go back."""
        self._begins_none = True
        for waiting in self._wanted:
            if not (waiting.is_patient or waiting.child.done()):
                waiting.child.set_exception(NoneFree())

    async def aclose(self) -> None:
        """End all. What still has a call is killed."""
        self._stops = True
        asyncio.get_running_loop().remove_reader(self._server.life)
        left = [child.pid for child in self._all.values() if not child.is_lost]
        for child in tuple(self._all.values()):
            child.close()
        await self._on_thread(self._collect, left)

    def _collect(self, pids: Sequence[int]) -> None:
        give_up_s = time.monotonic() + GO_WITHIN_S
        try:
            for pid in pids:
                self._server.collect(pid, within_s=max(0.0, give_up_s - time.monotonic()))
        except ForkServerLost:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._server.close()

    async def _connect(self, slot: int, forked: Forked) -> None:
        child = Connected(slot, forked.pid, self._shared[slot], self._note, self._on_thread)
        self._all[slot] = child
        self._shared[slot].to_end, self._shared[slot].due_s = 0, 0.0
        forked.pipe.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: child, sock=forked.pipe)

    def _note(self, child: Connected) -> None:
        if not child.is_lost:
            self._births_failed = 0
            self.give(child)
        else:
            if child in self._free:
                self._free.remove(child)
            if not self._stops:
                run_errand("child_replaced", self._replace(child))
        self.say_ahead()

    async def _replace(self, lost: Connected) -> None:
        """Have another child in the place of one that has ended."""
        with contextlib.suppress(ForkServerLost):  # of which the loop hears as well
            while (status := await self._on_thread(self._server.collect, lost.pid)) is None:
                log.warning("process_not_ended", pid=lost.pid)
                await asyncio.sleep(AGAIN_S)
            if not lost.is_ending:
                log.warning("process_lost", pid=lost.pid, status=status)
            if not lost.is_ready:
                self._births_failed += 1
                if self._births_failed == BIRTHS_MAX:
                    log.error("processes_never_ready", ended=BIRTHS_MAX, status=status)
                    self.give_up()
                await asyncio.sleep(AGAIN_S)
            while not self._stops:
                try:
                    await self._connect(lost.slot, await self._on_thread(self._server.fork, lost.slot))
                except ForkServerLost:
                    raise
                except OSError as error:
                    log.warning("process_not_forked", error=str(error))
                    await asyncio.sleep(AGAIN_S)
                else:
                    return

    def _on_thread(self, work: Callable[..., T], *given: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def _has_lost_server(self) -> None:
        """Give up: nobody can make children any more, and those that there are may have ended with it."""
        asyncio.get_running_loop().remove_reader(self._server.life)
        log.error("fork_server_lost", pid=self._server.pid)
        self._stops = True
        while self._wanted:
            waiting = self._wanted.popleft()
            if not waiting.child.done():
                waiting.child.set_exception(NoneFree())
        self.give_up()
