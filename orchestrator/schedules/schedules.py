"""What people do with schedules: make one, look, pause, resume, remove, and begin a run at once.

Says what may be asked; when it is asked, `ticking.py` sees to.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, Unpack

import redis.asyncio

from toolfleet.messages import Message
from toolfleet.misspelt import exact
from toolfleet.orchestrator.errors import InvalidSchedule
from toolfleet.orchestrator.loop.control import RunControl
from toolfleet.orchestrator.options import RunOptions, conversation, terms_of
from toolfleet.orchestrator.schedules.kept import KeptSchedules, SchedulePage
from toolfleet.orchestrator.schedules.records import MOST_MISSED, Missed, Schedule
from toolfleet.orchestrator.schedules.ticking import begin_tick
from toolfleet.orchestrator.schedules.ticks import Cron
from toolfleet.orchestrator.store.leases import living
from toolfleet.settings import Settings
from toolfleet.wire import Seal

MAX_BYTES: Final = 65_536
"""What a schedule may hold, its question and options together: it is kept for good, and asked again and again."""

NOT_OF_SCHEDULES: Final = ("run_id", "asked_as", "output_type")
"""Options that one run has, and none of many."""


class Schedules:
    """The schedules of a fleet. Every method raises StoreUnreachable; with a `tenant`, others' are not found."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, control: RunControl) -> None:
        self._client = client
        self._settings = settings
        self._control = control
        self._kept = KeptSchedules(client, settings, seal)

    @exact(RunOptions)
    async def add(
        self,
        cron: str,
        question: str | Sequence[Message],
        *,
        tz: str = "UTC",
        missed: Missed = "skip",
        at_most: int = 100,
        model: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Schedule:
        """Ask this whenever the clock says so, each time in a run of its own, from the next tick on.

        `cron` has five fields, or six with seconds first; `tz` is a name as "Europe/Berlin". `missed` says what becomes
        of ticks at which no orchestrator was there: "skip" them, "once" begins one run for the newest, "all" one for
        each of the newest `at_most`. `model` is what an orchestrator must have that is there now; without it, that of
        this one, or the only one there is. Raises InvalidSchedule, InvalidOption, UnknownTool.
        """
        ticks = Cron.read(cron, tz)
        now_unix_s = await self._kept.now_unix_s()
        _must_not_be_too_often(ticks, now_unix_s, self._settings.schedule_min_s)
        by = options.pop("by", "")
        if wrong := [name for name in NOT_OF_SCHEDULES if options.get(name) is not None]:
            raise InvalidSchedule(f"{wrong[0]} is of one run: leave it out")
        if missed not in {"skip", "once", "all"}:
            raise InvalidSchedule(f"missed={missed!r}: skip, once and all can be said of missed ticks")
        if not 1 <= at_most <= MOST_MISSED:
            raise InvalidSchedule(f"at_most={at_most}: 1 to {MOST_MISSED} missed ticks can be made up for")
        messages = conversation(question)
        if not messages or question == "":
            raise InvalidSchedule("nothing is asked: give a question")
        schedule = Schedule(
            schedule_id=self._settings.id_prefix + f"s{secrets.token_hex(6)}",
            cron=ticks.expression,
            tz=ticks.zone.key,
            messages=messages,
            model=await self._served(model),
            terms=terms_of(options),
            missed=missed,
            at_most=at_most,
            by=by or "somebody",
            made_unix_s=now_unix_s,
            decided_unix_s=int(now_unix_s),
        )
        size = len(schedule.model_dump_json().encode())
        if size > MAX_BYTES:
            raise InvalidSchedule(
                f"the question and its options have {size} bytes, and a schedule at most {MAX_BYTES}: keep what is "
                "long where a tool can read it"
            )
        await self._control.offering.must_be_clear(schedule.terms.tools, ())
        await self._kept.add(schedule)
        return schedule

    @exact()
    async def list(self, *, tenant: str = "", limit: int = 50, after: str = "") -> SchedulePage:
        """Return a tenant's schedules page by page, the newest first. Raises BadCursor."""
        return await self._kept.page(tenant=tenant, limit=limit, after=after)

    @exact()
    async def get(self, schedule_id: str, *, tenant: str | None = None) -> Schedule:
        """Return a schedule as it stands. Raises ScheduleNotFound."""
        return (await self._kept.load(schedule_id, tenant=tenant)).schedule

    @exact()
    async def pause(self, schedule_id: str, *, tenant: str | None = None) -> Schedule:
        """Begin no runs any more until `resume`. Those that have begun go on. Raises ScheduleNotFound."""
        return (await self._kept.change(schedule_id, Schedule.paused, tenant=tenant)).schedule

    @exact()
    async def resume(self, schedule_id: str, *, tenant: str | None = None) -> Schedule:
        """Go on with the next tick; those meanwhile do not count as missed. Raises ScheduleNotFound."""
        now_unix_s = await self._kept.now_unix_s()

        def resumed(schedule: Schedule) -> Schedule:
            return schedule.resumed(now_unix_s) if schedule.is_paused else schedule

        return (await self._kept.change(schedule_id, resumed, tenant=tenant)).schedule

    @exact()
    async def remove(self, schedule_id: str, *, tenant: str | None = None) -> Schedule:
        """Forget a schedule; the runs that it has begun go on. Returns what it was. Raises ScheduleNotFound."""
        return await self._kept.remove(schedule_id, tenant=tenant)

    @exact()
    async def run(self, schedule_id: str, *, tenant: str | None = None, run_id: str | None = None) -> str:
        """Begin a run of it now, besides its ticks; the run's id. Raises ScheduleNotFound, and what `submit` raises."""
        schedule = await self.get(schedule_id, tenant=tenant)
        tick = int(await self._kept.now_unix_s())
        begun = await begin_tick(self._control, schedule, run_id or f"{schedule_id}-now-{secrets.token_hex(4)}", tick)
        if not begun.run_id:
            raise InvalidSchedule(f"no run was begun: {begun.reason}")
        await self._kept.change(schedule_id, lambda now: now.told(begun), tenant=tenant)
        return begun.run_id

    async def _served(self, model: str | None) -> str:
        """Return the model that is meant. Raises InvalidSchedule where no orchestrator has it."""
        there = {each.model for each in await living(self._client, self._settings) if each.model}
        own = None if self._control.model is None else self._control.model.name
        chosen = model or (own if own in there else None) or (min(there) if len(there) == 1 else None)
        if chosen in there:
            return str(chosen)
        known = f"there are {', '.join(sorted(there))}" if there else "none is there: start `toolfleet orchestrator`"
        if chosen is None and there:
            raise InvalidSchedule(f"say which model is to answer: {known}")
        raise InvalidSchedule(f"no orchestrator has the model {chosen or own or 'that would answer'}; {known}")


def _must_not_be_too_often(cron: Cron, now_unix_s: float, least_s: float) -> None:
    shortest_s = cron.shortest_s(now_unix_s)
    if shortest_s is not None and shortest_s < least_s:
        raise InvalidSchedule(
            f"{cron.expression!r} ticks every {shortest_s} s, and a schedule at most every {least_s:g} s "
            "(TOOLFLEET_SCHEDULE_MIN_S)"
        )
