"""Announces this worker's tools in Redis while it lives, and refuses to serve a name that others serve differently.

A step of Celery's worker blueprint: it starts when messages are consumed and withdraws before they no longer are.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final, cast

import structlog
from celery import bootsteps
from celery.exceptions import WorkerShutdown

from toolfleet.catalog import Announcement
from toolfleet.connections import connect
from toolfleet.keys import ANNOUNCEMENT_TTL_S, Keys
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.wire import Seal

log = structlog.get_logger("toolfleet.workers")

ANNOUNCE_AGAIN_S: Final = 1.0
"""How soon what Redis refused (full, or away) is tried again."""

EXIT_CONFLICT: Final = 78
"""EX_CONFIG of sysexits.h."""

ANNOUNCE: Final = """
-- KEYS: workers, this worker, then one for each tool; ARGV: ttl (s), worker, announcement, then each tool's spec
for i = 3, #KEYS do
  local known = redis.call('GET', KEYS[i])
  if known and known ~= ARGV[i + 1] then return i - 3 end
end
for i = 3, #KEYS do redis.call('SET', KEYS[i], ARGV[i + 1], 'EX', ARGV[1]) end
local now = tonumber(redis.call('TIME')[1])
redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[1])
redis.call('ZADD', KEYS[1], now, ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[1])
return -1
"""


DROP: Final = """
-- KEYS: a tool's spec; ARGV: as it was. Another worker may have announced a new one meanwhile.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""


class Announcer:
    """Keeps one announcement alive."""

    def __init__(self, settings: Settings, announcement: Announcement) -> None:
        self._keys: Keys = settings.keys
        self._client = connect(settings)
        self._script = self._client.register_script(ANNOUNCE)
        self._drop = self._client.register_script(DROP)
        self._announcement = announcement

    def announce(self) -> str | None:
        """Announce once more. Returns the name of a tool that live workers serve with another spec, or None."""
        conflict = self._try()
        while conflict is not None and self._forget_unserved(conflict):
            conflict = self._try()
        return conflict

    def _try(self) -> str | None:
        mine = self._announcement
        conflict = self._script(
            keys=[
                self._keys.workers(),
                self._keys.worker(mine.worker),
                *(self._keys.spec(spec.name) for spec in mine.tools),
            ],
            args=[
                ANNOUNCEMENT_TTL_S,
                mine.worker,
                mine.model_dump_json(),
                *(spec.model_dump_json() for spec in mine.tools),
            ],
        )
        return None if conflict < 0 else mine.tools[conflict].name

    def _forget_unserved(self, tool: str) -> bool:
        """Drop the spec of a tool whose last worker is gone. False when a live one serves it."""
        key = self._keys.spec(tool)
        known = self._client.get(key)
        if any(spec.name == tool for worker in self._others() for spec in worker.tools):
            return False
        self._drop(keys=[key], args=[known or b""])
        return True

    def _others(self) -> list[Announcement]:
        server_unix_s, _ = self._client.time()
        oldest = server_unix_s - ANNOUNCEMENT_TTL_S
        names = cast("list[bytes]", self._client.zrangebyscore(self._keys.workers(), oldest, "+inf"))
        others = [name.decode() for name in names if name.decode() != self._announcement.worker]
        announced = self._client.mget([self._keys.worker(name) for name in others]) if others else []
        return [Announcement.model_validate_json(text) for text in announced if text is not None]

    def withdraw(self) -> None:
        """Take the announcement back: no new calls are offered for this worker."""
        pipeline = self._client.pipeline()
        pipeline.delete(self._keys.worker(self._announcement.worker))
        pipeline.zrem(self._keys.workers(), self._announcement.worker)
        pipeline.execute()
        self.close()

    def close(self) -> None:
        """Let go of the connection; what is announced stays until its TTL."""
        self._client.close()


class AnnounceTools(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """The step of Celery's consumer blueprint that owns the announcer."""

    # Stopped in reverse: withdrawn first, so that nobody asks for tools of a worker that only ends what it has.
    requires = ("celery.worker.consumer.tasks:Tasks", "toolfleet.workers.celery.drain:LetCallsEnd")

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._announcer: Announcer | None = None
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Announce, and go on announcing."""
        self.stop(consumer)
        self._announcer = Announcer(consumer.app.toolfleet.settings, _announcement(consumer))
        self._timer = consumer.timer.call_repeatedly(ANNOUNCEMENT_TTL_S / 3, self._again, (consumer,))
        self._again(consumer)

    def stop(self, consumer: Any) -> None:
        """Withdraw at the worker's end, if Redis can be reached; the TTL does it otherwise.

        Not when a connection was lost, after which Celery stops its steps too: a model would be told that there is no
        such tool, while the worker is about to come back.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        announcer, self._announcer = self._announcer, None
        if announcer is None:
            return
        if consumer.blueprint.state != bootsteps.CLOSE:
            announcer.close()
            return
        try:
            announcer.withdraw()
        except COMMAND_FAILED as error:
            log.warning("not_withdrawn", error=str(error))

    def _again(self, consumer: Any) -> None:
        if self._announcer is None:
            return
        try:
            conflict = self._announcer.announce()
        except COMMAND_FAILED as error:
            log.warning("not_announced", error=str(error))
            consumer.timer.call_after(ANNOUNCE_AGAIN_S, self._again, (consumer,))
        else:
            _stop_on(conflict)  # it was away for so long that others took the name


def _stop_on(conflict: str | None) -> None:
    """End this worker, whose calls of this tool would be meant for another one."""
    if conflict is not None:
        remedy = "live workers serve this name with another spec: stop them first, or rename the tool"
        log.error("tool_refused", tool=conflict, remedy=remedy)
        raise WorkerShutdown(EXIT_CONFLICT)


def _announcement(consumer: Any) -> Announcement:
    queues = tuple(sorted(queue.name for queue in consumer.task_consumer.queues))
    return Announcement(
        worker=consumer.hostname,
        pid=os.getpid(),
        pool=type(consumer.pool).__module__.rpartition(".")[2],
        concurrency=consumer.pool.num_processes,
        queues=queues,
        started_unix_s=time.time(),
        # Only what this worker would be given: a tool of another queue is another worker's to offer.
        proofs=Seal(consumer.app.toolfleet.settings).proofs(consumer.hostname),
        tools=tuple(tool.spec for _, tool in sorted(consumer.app.toolfleet.tools.items()) if tool.spec.queue in queues),
    )
