"""Sees what tasks have to tell, and owes it to those of their push notification configurations that have not heard it.

Which tasks that may be stands in Redis: the script that stores the end of one says so, and what waits for a person is
found by its index. Every server with this door looks; what is owed, every orchestrator sends, as webhooks.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Final

import orjson
from a2a.compat.v0_3.conversions import to_compat_task
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from toolfleet.errors import CallerError, StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.orchestrator.doors.a2a.shown import task_of
from toolfleet.orchestrator.doors.a2a.standing import Standing, standing_for
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.errors import NewerVersion
from toolfleet.orchestrator.webhooks.push_records import PushConfig
from toolfleet.orchestrator.webhooks.pushes import TAKEN_AT_ONCE, TOLD_CHARS, Marked
from toolfleet.orchestrator.webhooks.records import MESSAGE_PREFIX, Owed, WebhookEvent
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.supervision import Kept

log = FactLog("toolfleet.orchestrator")

LOOK_EVERY_S: Final = 1.0

RENEW_EVERY_S: Final = 600.0

MESSAGE_ID_CHARS: Final = 32


class Telling:
    """Looks for one server, from `start` until `aclose`."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._pushes = door.pushes
        self._seen: dict[str, frozenset[tuple[str, float]]] = {}
        """What asked when it was looked at last: a task that waits for days is not read every second."""
        self._renewed_s = time.monotonic()
        self._kept: Kept | None = None

    def start(self) -> None:
        """Begin."""
        self._kept = self._door.orchestrator.supervisor.keep("pushes of tasks", self._look_for_ever)

    async def aclose(self) -> None:
        """Stop; what was taken and not owed yet, another server takes."""
        if self._kept is not None:
            await self._kept.aclose()

    async def _look_for_ever(self) -> None:
        while True:
            is_more = False
            try:
                if await self._pushes.has_any():
                    is_more = await self._look()
            except (StoreUnreachable, *COMMAND_FAILED) as error:
                log.info("tasks_not_looked_at", error=str(error))
            await asyncio.sleep(0 if is_more else LOOK_EVERY_S)

    async def _look(self) -> bool:
        """Look once; whether there is more to be looked at."""
        await self._mark_those_that_ask()
        marked = await self._pushes.take()
        for each in marked:
            await self._tell(each)
        if time.monotonic() - self._renewed_s >= RENEW_EVERY_S:
            self._renewed_s = time.monotonic()
            await self._pushes.renew()
        return len(marked) == TAKEN_AT_ONCE

    async def _mark_those_that_ask(self) -> None:
        asking = await self._pushes.asking()
        await self._pushes.mark([run_id for run_id, asks in asking.items() if self._seen.get(run_id) != asks])
        self._seen = asking

    async def _tell(self, marked: Marked) -> None:
        try:
            stored = await self._door.looking.store.load(marked.run_id)
            standing = await standing_for(self._door, stored)
        except (CallerError, NewerVersion):  # deleted meanwhile, or nobody's here
            await self._pushes.owe(marked, ())
            return
        run = standing.run
        configs = await self._pushes.of_run(run.run_id)
        told = told_of(standing)
        wanted = [each for each in configs.values() if each.tenant == run.terms.tenant]
        owed = [message_for(each, standing, told, self._door.settings.public_url) for each in wanted if told]
        count = await self._pushes.owe(
            marked, owed, told=told or "-", tenant=run.terms.tenant, has_ended=standing.has_ended
        )
        if count:
            log.info("task_told_of", run_id=run.run_id, configurations=count)


def told_of(standing: Standing) -> str:
    """Return what tells one thing that a task has to tell from another; "" where it has nothing to tell."""
    if not standing.has_ended and not standing.asks:
        return ""
    since = standing.updated_ms if standing.has_ended else 0  # one that is resumed ends again
    text = f"{standing.state}\0{standing.asks_digest}\0{since}"
    return hashlib.sha256(text.encode()).hexdigest()[:TOLD_CHARS]


def message_for(config: PushConfig, standing: Standing, told: str, public_url: str) -> Owed:
    """Return what one configuration is sent: the task as it stands, without what was said on the way."""
    task = task_of(standing, (public_url or config.base_url).rstrip("/"), history=0)
    if config.protocol == "1.0":
        body = MessageToDict(to_stream_response(task))
    else:
        body = to_compat_task(task).model_dump(mode="json", by_alias=True, exclude_none=True)
    name = f"{config.run_id}\0{config.config_id}\0{config.url}\0{told}"
    return Owed(
        message_id=MESSAGE_PREFIX + hashlib.sha256(name.encode()).hexdigest()[:MESSAGE_ID_CHARS],
        endpoint_id=config.endpoint_id,
        tenant=config.tenant,
        event=WebhookEvent.TASK,
        about=config.run_id,
        config_id=config.config_id,
        made_unix_s=time.time(),
        body=orjson.dumps(body).decode(),
    )
