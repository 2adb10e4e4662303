"""Schedules in Redis: each one sealed record, one set that says which are due, and a list for each tenant.

Whoever has Redis and not the secret can hold ticks up, and neither make a schedule nor change one. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

import redis.asyncio
from pydantic import ValidationError

from toolfleet.errors import Refused
from toolfleet.orchestrator.errors import InvalidSchedule, ScheduleNotFound
from toolfleet.orchestrator.schedules.records import Schedule
from toolfleet.orchestrator.store.run_pages import place_in
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.wire import Seal

TAKE: Final = lua(__package__, "take_due", before=CLOCK)
WRITE: Final = lua(__package__, "write_schedule")

TAKEN_AT_ONCE: Final = 20

GIVEN_S: Final = 10.0
"""How long an orchestrator has, at most, for the schedules that it has taken, before another one looks at them."""

MOST_OF_TENANT: Final = 1000

TRIES: Final = 50
"""How often a change is tried whose schedule others change meanwhile."""


class Kept(NamedTuple):
    """A schedule, and the bytes that it was read from."""

    schedule: Schedule
    sealed: bytes


class Due(NamedTuple):
    """What was taken, by the server's clock."""

    now_unix_s: float
    schedules: Sequence[Kept]


class SchedulePage(NamedTuple):
    """Some schedules, and what the next page is asked for with; empty when there is none."""

    schedules: list[Schedule]
    after: str


class KeptSchedules:
    """Writes and reads schedules. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = seal
        self.given_s = min(GIVEN_S, settings.lease_s)
        self._take = client.register_script(TAKE)
        self._write = client.register_script(WRITE)

    async def now_unix_s(self) -> float:
        """Return the server's time, by which schedules tick."""
        seconds, microseconds = await self._client.time()
        return seconds + microseconds / 1_000_000

    async def take(self) -> Due:
        """Take what is due, as far as nobody else has."""
        args: list[str | int] = [TAKEN_AT_ONCE, int(self.given_s * 1000), self._keys.schedule("")]
        now_ms, *found = cast("list[bytes]", await self._take(keys=[self._keys.schedules_due()], args=args))
        pairs = zip(found[::2], found[1::2], strict=True)
        read = [self._opened(text_of(schedule_id), sealed) for schedule_id, sealed in pairs]
        return Due(int(now_ms) / 1000, [each for each in read if each is not None])

    async def add(self, schedule: Schedule) -> None:
        """Keep a new schedule. Raises InvalidSchedule where its tenant has too many."""
        if await self._written(schedule, b"", self._closed(schedule), schedule.next_unix_s()) < 0:
            raise InvalidSchedule(f"there are {MOST_OF_TENANT} schedules of this tenant: remove some that are not used")

    async def save(self, kept: Kept, schedule: Schedule, *, due_unix_s: float | None) -> Kept | None:
        """Put a schedule in the place of what was read; None where somebody else has changed it."""
        sealed = self._closed(schedule)
        is_written = await self._written(schedule, kept.sealed, sealed, due_unix_s)
        return Kept(schedule, sealed) if is_written else None

    async def change(
        self,
        schedule_id: str,
        changed: Callable[[Schedule], Schedule],
        *,
        tenant: str | None,
        held_until_unix_s: float | None = None,
    ) -> Kept:
        """Change a schedule, whatever others do to it meanwhile. Raises ScheduleNotFound.

        While it owes anything it is due at `held_until_unix_s`, for whoever goes on with it if we are lost.
        """
        for _ in range(TRIES):
            kept = await self.load(schedule_id, tenant=tenant)
            after = changed(kept.schedule)
            is_held = held_until_unix_s is not None and bool(after.owed)
            due_unix_s = held_until_unix_s if is_held else after.next_unix_s()
            written = await self.save(kept, after, due_unix_s=due_unix_s)
            if written is not None:
                return written
        raise InvalidSchedule(f"schedule {schedule_id} is changed by others all the time: try again")

    async def remove(self, schedule_id: str, *, tenant: str | None) -> Schedule:
        """Forget a schedule. Raises ScheduleNotFound."""
        for _ in range(TRIES):
            kept = await self.load(schedule_id, tenant=tenant)
            if await self._written(kept.schedule, kept.sealed, b"", None):
                return kept.schedule
        raise InvalidSchedule(f"schedule {schedule_id} is changed by others all the time: try again")

    async def load(self, schedule_id: str, *, tenant: str | None) -> Kept:
        """Return a schedule of a tenant, or of anybody's. Raises ScheduleNotFound."""
        sealed = cast("bytes | None", await self._client.get(self._keys.schedule(schedule_id)))
        kept = None if sealed is None else self._opened(schedule_id, sealed)
        if kept is None or tenant not in {None, kept.schedule.tenant}:
            raise ScheduleNotFound(
                f"no schedule {schedule_id[:100]} is kept: `toolfleet schedule list` shows those that are"
            )
        return kept

    async def page(self, *, tenant: str, limit: int, after: str = "") -> SchedulePage:
        """Return so many schedules of a tenant, the newest first. Raises BadCursor."""
        listed, at = self._keys.schedules_of(tenant), await self._begins(tenant, after)
        found = cast("list[tuple[bytes, float]]", await self._client.zrevrange(listed, at, at + limit, withscores=True))
        ids = [text_of(name) for name, _ in found[:limit]]
        keys = [self._keys.schedule(each) for each in ids]
        texts = cast("list[bytes | None]", await self._client.mget(keys)) if ids else []
        read = [self._opened(each, text) for each, text in zip(ids, texts, strict=True) if text is not None]
        schedules = [each.schedule for each in read if each is not None and each.schedule.tenant == tenant]
        return SchedulePage(schedules, f"{found[limit - 1][1]:.0f}_{ids[-1]}" if len(found) > limit else "")

    async def seal_anew(self) -> int:
        """Seal every schedule with the present secret. Returns how many there are."""
        names: list[bytes] = []
        # Once after a start with two secrets: those that are paused stand in the lists of their tenants only.
        async for key in self._client.scan_iter(match=self._keys.schedules_of("*"), count=1000):
            names += cast("list[bytes]", await self._client.zrange(key, 0, -1))
        ids = {text_of(name) for name in names}
        for schedule_id in ids:
            try:
                await self.change(schedule_id, lambda schedule: schedule, tenant=None)
            except (ScheduleNotFound, InvalidSchedule) as error:
                skip("schedule to be sealed anew", error, schedule_id=schedule_id)
        return len(ids)

    async def _begins(self, tenant: str, after: str) -> int:
        score, last = place_in(after)
        if not last:
            return 0
        listed = self._keys.schedules_of(tenant)
        rank = cast("int | None", await self._client.zrevrank(listed, last))
        return rank + 1 if rank is not None else await self._client.zcount(listed, f"({score}", "+inf")

    async def _written(self, schedule: Schedule, before: bytes, after: bytes, due_unix_s: float | None) -> int:
        keys, schedule_id = self._keys, schedule.schedule_id
        due_ms = "" if due_unix_s is None else int(due_unix_s * 1000)
        written = await self._write(
            keys=[keys.schedule(schedule_id), keys.schedules_due(), keys.schedules_of(schedule.tenant)],
            args=[before, after, schedule_id, due_ms, int(schedule.made_unix_s * 1000), MOST_OF_TENANT],
        )
        return int(written)

    def _closed(self, schedule: Schedule) -> bytes:
        key = self._keys.schedule(schedule.schedule_id)
        return self._seal.close_kept(schedule.model_dump_json(by_alias=True).encode(), key)

    def _opened(self, schedule_id: str, sealed: bytes) -> Kept | None:
        try:
            text = self._seal.open_kept(sealed, self._keys.schedule(schedule_id))
            return Kept(Schedule.model_validate_json(text), sealed)
        except (Refused, ValidationError) as error:
            skip("schedule", str(error) if isinstance(error, Refused) else "wrong shape", schedule_id=schedule_id)
            return None
