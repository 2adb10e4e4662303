"""The step of Celery's consumer blueprint that follows tools which come and go, and has the fleet know of each change.

On the asyncio pool they are followed on the tools' own loop, so that their calls may share what is followed; on the
others on a loop in a thread of the main process, whose children are told with each call. All that a change does happens
on Celery's thread, in an order in which no call is lost: the tools are here, the fleet hears of them, their lane is
read, and the one from before is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from celery import bootsteps

from toolfleet.logs import FactLog
from toolfleet.supervision import Kept, Supervisor, start_thread
from toolfleet.workers.celery.living_tools import LivingTools, Made, tell_of
from toolfleet.workers.celery.task import ToolTask

log = FactLog("toolfleet.workers")

AGAIN_S: Final = 5.0
"""How soon Celery's thread is asked again to take a change: what it was asked is forgotten with a lost connection."""

STOP_WITHIN_S: Final = 2.0


class FollowTools(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """Follows while the worker lives; a lost connection to the broker changes nothing."""

    # Stopped in reverse: before the pool, on whose loop it may run.
    requires = ("toolfleet.workers.celery.announce:AnnounceTools",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._kept: list[Kept] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, consumer: Any) -> None:
        """Begin to follow, if this worker has tools that come and go."""
        fleet = consumer.app.toolfleet
        if self._kept or not fleet.living.sources:
            return
        self._loop = getattr(consumer.pool, "loop", None) or _loop_of_its_own()
        self._kept = asyncio.run_coroutine_threadsafe(
            _followed(consumer, fleet.living, fleet.supervisor), self._loop
        ).result()

    def stop(self, consumer: Any) -> None:
        """Follow no more when the worker stops, and not when its connection is lost."""
        if consumer.blueprint.state != bootsteps.CLOSE or self._loop is None:
            return
        kept, self._kept = self._kept, []
        ended = [asyncio.run_coroutine_threadsafe(each.aclose(within_s=STOP_WITHIN_S), self._loop) for each in kept]
        for each in ended:
            try:
                each.result(STOP_WITHIN_S)
            except TimeoutError:
                log.info("following_not_ended")  # it ends with this process


async def _followed(consumer: Any, living: LivingTools, supervisor: Supervisor) -> list[Kept]:
    def work(at: int) -> Any:
        return living.sources[at].follow(partial(_tell, consumer, living, at))

    return [supervisor.keep("tools_followed", partial(work, at)) for at in range(len(living.sources))]


async def _tell(consumer: Any, living: LivingTools, at: int, written: Mapping[str, str]) -> None:
    """Return when Celery's thread has taken what there is now."""
    made = await asyncio.to_thread(living.make, at, written)
    taken: Future[None] = Future()

    def take() -> None:
        if not taken.done():
            try:
                _take(consumer, living, at, written, made)
            finally:
                taken.set_result(None)

    while not taken.done():
        consumer.call_soon(take)
        await asyncio.wait([asyncio.wrap_future(taken)], timeout=AGAIN_S)


def _take(consumer: Any, living: LivingTools, at: int, written: Mapping[str, str], made: Made) -> None:
    tasks = consumer.app.tasks

    def register(task: ToolTask) -> None:
        tasks.pop(task.name, None)
        consumer.app.register_task(task)

    change = living.take(at, written, made, register)
    for name in change.removed:
        tasks.pop(name, None)
    if any(change):
        tell_of(change)
        consumer.announcing.renew(consumer)


def _loop_of_its_own() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    start_thread("followed", loop.run_forever)
    return loop
