"""Looks once a second which schedules are due, and begins the runs of their ticks: one command, however many there are.

A tick is decided and written down before its run begins, and the run's id follows from it. So whoever is killed in
between, whoever comes next begins the same run, which there is once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from toolfleet.errors import CallerError, StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.errors import InvalidSchedule, ScheduleNotFound
from toolfleet.orchestrator.loop.control import RunControl
from toolfleet.orchestrator.options import RunOptions, options_given
from toolfleet.orchestrator.schedules.kept import Kept, KeptSchedules
from toolfleet.orchestrator.schedules.records import Schedule, Tick
from toolfleet.orchestrator.schedules.ticks import tick_text
from toolfleet.outages import until_redis_is_back
from toolfleet.points import Point, reached
from toolfleet.settings import Settings
from toolfleet.supervision import Kept as KeptUp, Supervisor, failed

log = FactLog("toolfleet.orchestrator")

LOOK_EVERY_S: Final = 1.0
"""How late a tick may be where nothing is wrong."""


async def begin_tick(control: RunControl, schedule: Schedule, run_id: str, tick_unix_s: int) -> Tick:
    """Begin the run of a tick, unless it is stored already. Returns what has come of it. Raises StoreUnreachable."""
    terms = schedule.terms
    asked_as = {"schedule": schedule.schedule_id, "tick": tick_text(tick_unix_s)}
    options: RunOptions = {**options_given(terms), "tenant": terms.tenant, "subject": terms.subject}
    options |= {"run_id": run_id, "asked_as": asked_as, "by": f"schedule {schedule.schedule_id}"}
    try:
        await control.submit(schedule.messages, options, model=schedule.model)
    except StoreUnreachable:
        raise
    except CallerError as error:  # its budget is spent, or nobody serves a tool that it names
        return Tick(tick_unix_s=tick_unix_s, reason=str(error)[:500])
    return Tick(tick_unix_s=tick_unix_s, run_id=run_id)


class Ticking:
    """Keeps the schedules of a fleet ticking, from `start` to `aclose`. Any number of orchestrators may."""

    def __init__(self, kept: KeptSchedules, control: RunControl, settings: Settings, supervisor: Supervisor) -> None:
        self._kept = kept
        self._control = control
        self._grace_s = settings.schedule_grace_s
        self._knows_another_secret = bool(settings.previous_secret.get_secret_value())
        self._supervisor = supervisor
        self._task: KeptUp | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = self._supervisor.keep("schedules", self._tick_for_ever)

    async def aclose(self) -> None:
        """Stop. What is in hand, another orchestrator goes on with."""
        if self._task is not None:
            await self._task.aclose()

    async def _tick_for_ever(self) -> None:
        if self._knows_another_secret:
            sealed = await until_redis_is_back(self._kept.seal_anew)
            log.info("schedules_sealed_anew", schedules=sealed)
            self._knows_another_secret = False
        while True:
            try:
                await self._tick()
            except StoreUnreachable as error:
                log.info("schedules_not_looked_at", error=str(error))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _tick(self) -> None:
        """Take what is due until nothing is."""
        while True:
            due = await self._kept.take()
            for each in due.schedules:
                await self._go_on_with(each, due.now_unix_s)
            if not due.schedules:
                return

    async def _go_on_with(self, kept: Kept, now_unix_s: float) -> None:
        """Begin what a schedule owes up to now. One that cannot be read keeps no other from it."""
        schedule_id, began_s = kept.schedule.schedule_id, time.monotonic()
        try:
            decided = kept.schedule.decided(now_unix_s, self._grace_s)
            due_unix_s = now_unix_s + self._kept.given_s if decided.owed else decided.next_unix_s()
            reached(Point.SCHEDULE_TAKEN, schedule_id)
            written = await self._kept.save(kept, decided, due_unix_s=due_unix_s)
            reached(Point.TICK_DECIDED, schedule_id)
            while written is not None and written.schedule.owed:
                held_until_unix_s = now_unix_s + time.monotonic() - began_s + self._kept.given_s
                written = await self._begin_next(written.schedule, held_until_unix_s)
        except StoreUnreachable:
            raise
        except (InvalidSchedule, ScheduleNotFound) as error:
            log.warning("schedule_does_not_tick", schedule_id=schedule_id, error=str(error))
        except Exception as error:  # noqa: BLE001  # whatever stands in one schedule, the others tick
            failed("schedule", error, schedule_id=schedule_id)

    async def _begin_next(self, schedule: Schedule, held_until_unix_s: float) -> Kept:
        tick = schedule.owed[0]
        told = await begin_tick(self._control, schedule, schedule.run_of(tick), tick)
        reached(Point.TICK_BEGUN, schedule.schedule_id)
        log.info("schedule_ticked", schedule_id=schedule.schedule_id, run_id=told.run_id, reason=told.reason)

        def noted(now: Schedule) -> Schedule:
            return now.told(told) if tick in now.owed else now

        return await self._kept.change(schedule.schedule_id, noted, tenant=None, held_until_unix_s=held_until_unix_s)
