"""The step of Celery's consumer blueprint that owns a worker's poller. A worker without tools for it starts nothing.

On the asyncio pool the functions run on the tools' own loop, so that they may share a client with them; on the others
on a loop in a thread of the main process.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from celery import bootsteps

from toolfleet.logs import FactLog
from toolfleet.supervision import start_thread
from toolfleet.workers.jobs.poller import GIVE_BACK_WITHIN_S, STOP_WITHIN_S, Poller, tools_with_jobs
from toolfleet.workers.tool.threads import ToolThreads

log = FactLog("toolfleet.workers")

CLOSE_WITHIN_S: Final = STOP_WITHIN_S + 3 * GIVE_BACK_WITHIN_S


class PollJobs(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """Polls while the worker lives; a lost connection to the broker changes nothing."""

    # Stopped in reverse: before the pool, on whose loop it may run.
    requires = ("celery.worker.consumer.tasks:Tasks", "toolfleet.workers.celery.stopping:LetCallsEnd")

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._poller: Poller | None = None
        self._threads: ToolThreads | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, consumer: Any) -> None:
        """Begin to poll if this worker serves a tool that has a function for its jobs."""
        fleet = consumer.app.toolfleet
        queues = {queue.name for queue in consumer.task_consumer.queues}
        tools = {name: tool for name, tool in tools_with_jobs(fleet.tools).items() if tool.spec.queue in queues}
        if self._poller is not None or not tools:
            return
        self._loop = getattr(consumer.pool, "loop", None) or _loop_of_its_own()
        self._threads = ToolThreads(fleet.settings.max_polls, _no_thread_is_left)
        begun = asyncio.run_coroutine_threadsafe(
            Poller.begin(fleet.settings, tools, self._threads, fleet.supervisor), self._loop
        )
        self._poller = begun.result()

    def stop(self, consumer: Any) -> None:
        """End polling when the worker stops, and not when its connection is lost."""
        if consumer.blueprint.state != bootsteps.CLOSE or self._poller is None:
            return
        assert self._loop is not None  # noqa: S101  # they are set together
        assert self._threads is not None  # noqa: S101  # as above
        closed = asyncio.run_coroutine_threadsafe(self._poller.aclose(), self._loop)
        try:
            closed.result(CLOSE_WITHIN_S)
        except TimeoutError:
            log.warning("poller_not_closed")  # the leases of its jobs end by themselves
        self._threads.shutdown()
        self._poller = None


def _no_thread_is_left() -> None:
    log.error("poller_out_of_threads", why="polls hang, and others can have no thread, or none that gets on")


def _loop_of_its_own() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    start_thread("jobs", loop.run_forever)
    return loop
