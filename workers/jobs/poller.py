"""Asks about jobs that are due: claims them, runs the tools' functions, says what follows. One poller for each worker.

Runs on an event loop that no tool blocks. Knows nothing of Celery, nor of what is said about a job in Redis.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, Self

from toolfleet.calls import Progress, Returned
from toolfleet.connections import connect_async
from toolfleet.context import Context, within
from toolfleet.fitting import Fitting
from toolfleet.log_subject import log_about_call
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.supervision import Kept, Supervisor, run_errand
from toolfleet.tool import Tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery.progress import ProgressReporter
from toolfleet.workers.delivery.settle import Outcome
from toolfleet.workers.jobs.decide import (
    Claimed,
    Deed,
    End,
    Verdict,
    after_answer,
    after_cancelling,
    after_error,
    after_failed_cancelling,
    given_up,
    without_cancelling,
)
from toolfleet.workers.jobs.schedule import Schedule
from toolfleet.workers.tool.threads import ToolThreads

log = FactLog("toolfleet.workers")

MIN_PAUSE_S: Final = 0.05
"""Jobs that come due within this are claimed together: hundreds a second would be a script call each."""

REDIS_AWAY_S: Final = 1.0
"""The wait after a claim that Redis did not answer."""

STOP_WITHIN_S: Final = 2.0
"""How long polls may take to end when the worker stops; then their jobs are given back."""

GIVE_BACK_WITHIN_S: Final = 2.0
"""How long Redis may take to hear of it; the lease does the same later."""


def tools_with_jobs(tools: Mapping[str, Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """The tools whose jobs a worker has something to do for."""
    return {name: tool for name, tool in tools.items() if tool.hooks.get("poll") or tool.hooks.get("cancel")}


class Poller:
    """Deals with the jobs of some tools, which are all from `tools_with_jobs`."""

    def __init__(self, settings: Settings, tools: Mapping[str, Tool[..., Any]], threads: ToolThreads) -> None:
        """Create it on its loop. `threads` runs blocking functions."""
        self._settings = settings
        self._tools = tools
        self._threads = threads
        self._client = connect_async(settings)
        seal = Seal(settings)
        self._schedule = Schedule(self._client, settings, seal, list(tools))
        self._fitting = Fitting(self._client, settings)
        self._progress = ProgressReporter(asyncio.get_running_loop(), self._client, settings.keys, seal)
        self._dealing: set[asyncio.Task[None]] = set()
        self._looking: Kept | None = None
        self._closing = asyncio.Event()

    @classmethod
    async def begin(
        cls, settings: Settings, tools: Mapping[str, Tool[..., Any]], threads: ToolThreads, supervisor: Supervisor
    ) -> Self:
        """A poller at work on the running loop."""
        poller = cls(settings, tools, threads)
        poller._looking = supervisor.keep("job_poller", poller._look_forever)
        return poller

    async def aclose(self) -> None:
        """Claim nothing more, let polls end for a moment, give the rest back."""
        self._closing.set()
        self._threads.begin_no_more("shutdown")
        if self._looking is not None:
            # Not cancelled: what a claim under way brings would wait for its lease to end.
            await self._looking.ended(within_s=GIVE_BACK_WITHIN_S)
            await self._looking.aclose(within_s=GIVE_BACK_WITHIN_S)
        if self._dealing:
            await asyncio.wait(self._dealing, timeout=STOP_WITHIN_S)
        for task in self._dealing:
            task.cancel()
        if self._dealing:
            await asyncio.wait(self._dealing, timeout=GIVE_BACK_WITHIN_S)
        await self._client.aclose()

    async def _look_forever(self) -> None:
        while not self._closing.is_set():
            room = self._settings.max_polls - len(self._dealing)
            if room <= 0:
                await asyncio.wait(self._dealing, return_when=asyncio.FIRST_COMPLETED)
                continue
            pause_s = await self._look(room)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)

    async def _look(self, room: int) -> float:
        """Claim what is due and begin with it. Returns the seconds until it is worth looking again."""
        try:
            due = await self._schedule.claim(room)
        except COMMAND_FAILED as error:
            log.warning("jobs_not_claimed", error=str(error))
            return REDIS_AWAY_S
        for job in due.jobs:
            # A bug of ours: the lease brings the job up again.
            task = run_errand("job", self._deal_with(job))
            self._dealing.add(task)
            task.add_done_callback(self._dealing.discard)
        tick_s = self._settings.poll_tick_s
        return tick_s if due.next_in_s is None else min(tick_s, max(MIN_PAUSE_S, due.next_in_s))

    async def _deal_with(self, job: Claimed) -> None:
        call = job.record.call
        log_about_call(call.run_id, call.call_id, call.traceparent)
        try:
            verdict = await self._verdict(job)
        except asyncio.CancelledError as cancelled:
            # A thread goes on until the process ends; there the lease must end first.
            if isinstance(cancelled, _NotAsked) or inspect.iscoroutinefunction(self._function(job)):
                await self._schedule.give_back(job)
            raise
        if isinstance(verdict, End) and isinstance(verdict.result, Returned):
            verdict = End(await self._fitting.fit_returned(verdict.result, job.record.call))
        if await self._schedule.settle(job, verdict) is not Outcome.SETTLED:
            log.info("job_verdict_dropped", call_id=job.record.call.call_id)

    async def _verdict(self, job: Claimed) -> Verdict:
        """Ask, or tell to stop. Raises CancelledError only: what a tool's author wrote may raise anything."""
        is_poll = job.deed is Deed.POLL
        function = self._function(job)
        if function is None:
            return self._without(job)
        try:
            answer = await self._ask(job, function)
            if not is_poll:
                return after_cancelling(job)
            if isinstance(answer, Progress):
                self._progress.of(job.record.call)(answer)
            return after_answer(job, answer, self._settings)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if isinstance(cancelled, _NotAsked) or task is None or task.cancelling():
                raise
            error: BaseException = cancelled  # the function's own
        except BaseException as raised:  # noqa: BLE001  # a tool's author wrote it: SystemExit and MemoryError too
            error = raised
        call = job.record.call
        log.warning(
            "poll_failed" if is_poll else "cancel_failed",
            call_id=call.call_id,
            run_id=call.run_id,
            tool=call.tool,
            exc_info=error,
        )
        decide = after_error if is_poll else after_failed_cancelling
        return decide(job, error, self._settings, random.random)

    def _without(self, job: Claimed) -> Verdict:
        """It is too late, or the function was there when the tool submitted or this was asked for: it is not here."""
        if job.deed is Deed.GIVE_UP:
            return given_up(job)
        if job.deed is Deed.POLL:
            error = LookupError(f"{job.record.call.tool} has no poll function in this worker")
            return after_error(job, error, self._settings, random.random)
        return without_cancelling(job)

    def _function(self, job: Claimed) -> Callable[..., Any] | None:
        """The tool's function for what is to be done, if there is one and it is not too late."""
        if job.deed is Deed.GIVE_UP:
            return None
        return self._tools[job.record.call.tool].hooks.get("poll" if job.deed is Deed.POLL else "cancel")

    async def _ask(self, job: Claimed, function: Callable[..., Any]) -> object:
        """What the tool's function says. Raises whatever it raises, and TimeoutError."""
        call = job.record.call
        # Not beyond the deadline, unless it is the deadline that calls it off.
        left_s = call.deadline_unix_s - job.now_unix_s if job.deed is Deed.POLL else self._settings.poll_timeout_s
        limit_s = min(left_s, self._settings.poll_timeout_s)
        context = Context.of(call, attempt=job.state.polls + 1, report=self._progress.of(call))
        arguments = (*self._tools[call.tool].receiver, job.record.external_id, context)
        with within(context):
            if inspect.iscoroutinefunction(function):
                async with asyncio.timeout(limit_s):
                    return await function(*arguments)
            asking = _Asking()
            running = self._threads.run(function, *arguments, when_it_begins=asking.begin)
            # watched: its result is taken, or it is cancelled and ended
            asking.task = asyncio.create_task(asking.outcome(running))
            return await self._until_done(job, asking, limit_s)

    async def _until_done(self, job: Claimed, asking: _Asking, limit_s: float) -> object:
        """The answer of a function on a thread, which nothing can stop: the job is held for as long as it takes.

        Otherwise it would be asked about twice at once. Once a limit is passed, the answer is not waited for any more
        when the deadline is passed too, for then nobody will ask again.
        """
        waited_s = 0.0
        left_s = job.record.call.deadline_unix_s - job.now_unix_s
        while True:
            done, _ = await asyncio.wait({asking.task}, timeout=limit_s)
            if done:
                return asking.answer()
            if asking.has_begun:
                waited_s += limit_s
                if waited_s >= left_s:
                    asking.task.cancel()
                    raise TimeoutError(f"no answer within {waited_s:.3g} s")
                log.warning("poll_blocks", call_id=job.record.call.call_id, waited_s=waited_s)
            if await self._schedule.hold(job) is not Outcome.SETTLED:
                asking.task.cancel()
                raise TimeoutError("the job was given to another worker")


class _NotAsked(asyncio.CancelledError):
    """The worker stops, and no thread had begun to ask."""


class _Asking:
    """A function of a tool's author on its way to a thread, or there."""

    task: asyncio.Task[tuple[Any, BaseException | None]]

    def __init__(self) -> None:
        self.has_begun = False

    def begin(self) -> None:
        """Take note that a thread has it."""
        self.has_begun = True

    async def outcome(self, running: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
        """Return what it returns, or what it raises: a task that raises SystemExit would end the loop."""
        try:
            return await running, None
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # raised again where the answer is wanted
            return None, error

    def answer(self) -> object:
        """Return what it has returned. Raises what it has raised."""
        if self.task.cancelled() and not self.has_begun:
            raise _NotAsked
        answer, error = self.task.result()
        if error is not None:
            raise error
        return answer
