"""What a child process does: one call after the other, each to its end, until the worker has no more for it.

It performs a call as any worker does, with connections of its own. Only the result of a common call goes to the worker,
sealed, which settles many together. The tool runs on the child's main thread, where SIGTERM interrupts it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from typing import Any, NamedTuple, cast

import psutil
from celery.concurrency.prefork import process_destructor, process_initializer

from toolfleet.event_loop import new_event_loop
from toolfleet.logs import FactLog
from toolfleet.metrics.of_calls import CALLS
from toolfleet.supervision import run_errand
from toolfleet.workers.children.words import READY, Answer, Job, Shared, Words, framed, job_of, packed
from toolfleet.workers.perform.performer import Performer
from toolfleet.workers.perform.quick_calls import Done
from toolfleet.workers.tool import child_processes as family

log = FactLog("toolfleet.workers")


class Lifetime(NamedTuple):
    """How much one process performs before another takes its place, as Celery's worker has it for its own."""

    max_tasks: int | None = None
    max_memory_kib: int | None = None

    def is_over(self, tasks: int) -> bool:
        """Whether a process that has performed so many calls is to end."""
        if self.max_tasks is not None and tasks >= self.max_tasks:
            return True
        return self.max_memory_kib is not None and psutil.Process().memory_info().rss > 1024 * self.max_memory_kib


class SharedWatch:
    """Has the worker watch what keeps this process to itself, by the shared memory."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def begin(self, limit_s: float) -> None:
        """Have it watched from now."""
        self._shared.due_s = time.monotonic() + limit_s

    def end(self) -> None:
        """Have it watched no more."""
        self._shared.due_s = 0.0


class Child(asyncio.Protocol):
    """A process of the pool, after it was forked. What it is to perform comes on its loop, where the tools run, too."""

    def __init__(self, app: Any, hostname: str, shared: Shared, lifetime: Lifetime) -> None:
        """`shared` is what the worker sees, too."""
        self._app = app
        self._hostname = hostname
        self._shared = shared
        self._lifetime = lifetime
        self._performed = 0
        self._jobs = Words()
        self._is_told_to_end = False
        self._transport: asyncio.WriteTransport
        self._performer: Performer
        self._ended: asyncio.Future[None]

    def serve(self, pipe: socket.socket) -> None:
        """Perform calls until the worker closes the pipe, or ends this process."""
        process_initializer(self._app, self._hostname)
        signal.signal(signal.SIGTERM, self._end)
        # Not ignored, as it is until here: the programs that a tool starts would be born with that.
        signal.signal(signal.SIGQUIT, lambda *_: None)
        os.register_at_fork(
            before=lambda: _mask_sigterm(signal.SIG_BLOCK),
            after_in_parent=lambda: _mask_sigterm(signal.SIG_UNBLOCK),
            after_in_child=lambda: _be_no_child(pipe),
        )
        try:
            new_event_loop().run_until_complete(self._serve(pipe))
        finally:
            try:
                process_destructor(os.getpid(), 0)
            finally:
                family.kill(family.descendants(os.getpid()))

    async def _serve(self, pipe: socket.socket) -> None:
        fleet = self._app.toolfleet
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._performer = Performer(
            fleet.settings, fleet.tools, threads=None, interceptors=fleet.interceptors, watch=SharedWatch(self._shared)
        )
        pipe.setblocking(False)
        await loop.create_unix_connection(lambda: self, sock=pipe)
        self._transport.write(framed(READY))
        await self._ended

    # --- told by the transport ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the pipe."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Begin with the job that has come; the next one comes when this has its answer."""
        for word in self._jobs.take(data):
            run_errand("job", self._perform(job_of(word)))

    def connection_lost(self, _error: Exception | None) -> None:
        """End: the worker has no more to do for it, or is gone."""
        if not self._ended.done():
            self._ended.set_result(None)

    # --- a job -------------------------------------------------------------------------------------------------------

    async def _perform(self, job: Job) -> None:
        self._shared.begun = job.number
        self._shared.due_s = 0.0
        try:
            answer = await self._answer(job)
        except (Exception, asyncio.CancelledError):
            # Its worker waits for a word, and sees this process end.
            log.exception("call_not_performed", call_id=job.delivery.task_id, tool=job.delivery.task)
            self._is_told_to_end = True
        if self._is_told_to_end:
            self.connection_lost(None)  # whoever has told it to has settled the call
            return
        self._transport.write(packed(answer))

    async def _answer(self, job: Job) -> Answer:
        tool = job.delivery.task
        self._app.toolfleet.living.hear(tool, job.news)
        before = CALLS.took_s(tool)
        done = await self._performer.quick.run(job.delivery) if job.is_common else None
        if done is None:
            done = Done(await self._performer.perform(job.delivery))
        ran_s, settled_s = (after - then for after, then in zip(CALLS.took_s(tool), before, strict=True))
        self._performed += 1
        return Answer(*done, ran_s, settled_s, is_last=self._lifetime.is_over(self._performed))

    def _end(self, *_: object) -> None:
        """End what runs as Celery does, by SystemExit; a tool may clean up then, and is killed if it takes too long.

        Only if the worker says so of this very job: a service that stops sends SIGTERM to all processes, and the worker
        lets calls end.
        """
        if self._shared.begun and self._shared.to_end == self._shared.begun:
            self._is_told_to_end = True
            raise SystemExit(-signal.SIGTERM)


def _mask_sigterm(how: signal.Sigmasks) -> None:
    signal.pthread_sigmask(how, [signal.SIGTERM])


def _be_no_child(pipe: socket.socket) -> None:
    """Let what a tool has forked end at SIGTERM, by which `multiprocessing` ends its pools, and not hold our pipe.

    What a child does at SIGTERM is written in Python, and would wait behind a lock that a pool's process waits for; one
    that comes before this has it end at once. Its worker knows by the end of the pipe that a child has died.
    """
    if pipe.fileno() >= 0:
        os.close(pipe.detach())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _mask_sigterm(signal.SIG_UNBLOCK)
