"""Announces this worker's tools in Redis while it lives, and refuses a name under which others serve another tool.

A step of Celery's consumer blueprint: it starts when messages are consumed, and withdraws once none is read any more.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from celery import bootsteps
from celery.exceptions import WorkerShutdown

from toolfleet.catalog import MAX_ANNOUNCEMENT_BYTES, Announcement, Believer, read_live_workers
from toolfleet.connections import connect
from toolfleet.keys import ANNOUNCEMENT_TTL_S, Keys
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.scripts import wire_script
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal
from toolfleet.workers.celery.reading_lanes import follow_lanes, lanes_read, queues_consumed, specs_served

log = FactLog("toolfleet.workers")

ANNOUNCE_AGAIN_S: Final = 1.0
"""How soon what Redis refused (full, or away) is tried again."""

EXIT_CONFLICT: Final = 78
"""EX_CONFIG of sysexits.h."""

TOO_LARGE: Final = "nobody will read it: start workers with fewer tools each, or shorten their descriptions"

ANNOUNCE: Final = wire_script("announce")


class Clash(NamedTuple):
    """Another tool that live workers serve under the name of one of ours."""

    tool: str
    source: str
    other_source: str
    workers: tuple[str, ...]


class Announcer:
    """Keeps one announcement alive."""

    def __init__(
        self, settings: Settings, announcement: Announcement, ailing: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        """`ailing` is asked for those of this worker's listeners that are down."""
        self._keys: Keys = settings.keys
        self._seal = Seal(settings)
        self._believer = Believer(self._seal)
        self._ailing = ailing
        self._said_ms = 0
        self._client = connect(settings)
        self._script = self._client.register_script(ANNOUNCE)
        self.say(announcement)

    def say(self, announcement: Announcement) -> None:
        """Have this announced from the next time on."""
        self._announcement = announcement
        self._variants = {spec.name: variant_of(spec, announcement.sources[spec.name]) for spec in announcement.tools}

    def announce(self) -> Clash | None:
        """Announce once more. Returns a tool under whose name live workers serve another one, or None.

        Another version of the same tool, by where it was declared, is no clash: both are served.
        """
        while True:
            position, variant = self._try()
            if position < 0:
                return None
            tool = self._announcement.tools[position].name
            source = text_of(variant).partition(" ")[2]
            if workers := self._find_servers(tool, text_of(variant)):
                return Clash(tool, self._announcement.sources[tool], source, workers)
            # Its last worker is gone. If another one comes this moment, it will say so again.
            self._client.zrem(self._keys.spec(tool), variant)

    def find_changed(self) -> dict[str, list[str]]:
        """Return the tools of which other live workers serve another version, with those workers."""
        mine = {spec.name: spec for spec in self._announcement.tools}
        others: dict[str, list[str]] = {}
        for worker in self._read_others():
            for spec in worker.tools:
                if spec.name in mine and spec != mine[spec.name]:
                    others.setdefault(spec.name, []).append(worker.worker)
        return others

    def _try(self) -> tuple[int, bytes]:
        mine = self._announcement
        position, variant = self._script(
            keys=[
                self._keys.workers(),
                self._keys.worker(mine.worker),
                *(self._keys.spec(spec.name) for spec in mine.tools),
            ],
            args=[ANNOUNCEMENT_TTL_S, mine.worker, self._sealed(), *self._variants.values()],
        )
        return position, variant

    def _sealed(self) -> bytes:
        now_s, microseconds = self._client.time()
        now_ms = now_s * 1000 + microseconds // 1000
        # Readers believe nothing older than what they have read, also where the server's clock was set back a little.
        is_ahead = self._said_ms - now_ms < ANNOUNCEMENT_TTL_S * 1000
        self._said_ms = max(now_ms, self._said_ms + 1) if is_ahead else now_ms
        said = self._announcement.model_copy(update={"ailing": tuple(sorted(self._ailing()))})
        sealed = self._seal.close_announcement(said.model_dump_json().encode(), said.worker, self._said_ms)
        if len(sealed) > MAX_ANNOUNCEMENT_BYTES:
            log.error("announcement_too_large", size_bytes=len(sealed), remedy=TOO_LARGE)
        return sealed

    def _find_servers(self, tool: str, variant: str) -> tuple[str, ...]:
        """Return the other live workers that serve a tool just so."""
        return tuple(
            worker.worker
            for worker in self._read_others()
            for spec in worker.tools
            if spec.name == tool and variant_of(spec, worker.sources.get(tool, "")) == variant
        )

    def _read_others(self) -> list[Announcement]:
        mine = self._announcement.worker
        return [
            each for each in read_live_workers(self._client, self._keys, self._believer).ours if each.worker != mine
        ]

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
    requires = (
        "celery.worker.consumer.tasks:Tasks",
        "toolfleet.workers.celery.stopping:LetCallsEnd",
        "toolfleet.workers.celery.reading_lanes:ReadLanes",
    )

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._announcer: Announcer | None = None
        self._timer: Any = None
        self._has_told = False
        consumer.announcing = self

    def start(self, consumer: Any) -> None:
        """Announce, and go on announcing."""
        self.stop(consumer)
        self._announcer = Announcer(
            consumer.app.toolfleet.settings, _announcement(consumer), lambda: consumer.app.toolfleet.supervisor.ailing
        )
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

    def renew(self, consumer: Any) -> None:
        """Announce what the worker serves now, and read the lanes of that, and no others.

        What came while it served and is another tool elsewhere is left out. Where Redis is away, this is done later.
        """
        if self._announcer is None:
            return  # what is announced on the next connection is as new
        try:
            self._announcer.say(_announcement(consumer))
            while clash := self._announcer.announce():
                _leave_out(clash, consumer)
                self._announcer.say(_announcement(consumer))
            follow_lanes(consumer)
        except COMMAND_FAILED as error:
            log.warning("change_of_tools_not_announced", error=str(error))
            consumer.timer.call_after(ANNOUNCE_AGAIN_S, self.renew, (consumer,))

    def _again(self, consumer: Any) -> None:
        if self._announcer is None:
            return
        try:
            clash = self._announcer.announce()
            changed = {} if clash or self._has_told else self._announcer.find_changed()
        except COMMAND_FAILED as error:
            log.warning("not_announced", error=str(error))
            consumer.timer.call_after(ANNOUNCE_AGAIN_S, self._again, (consumer,))
            return
        if clash is not None:  # it was away for so long that others took the name
            _leave_out(clash, consumer)
            self.renew(consumer)
        self._has_told = True
        if changed:
            log.warning(
                "tools_changed",
                tools=changed,
                note="live workers serve another version of these; each call goes to the version it was offered with, "
                "and models are offered that of the worker started last",
            )


def _leave_out(clash: Clash, consumer: Any) -> None:
    """Have a tool no more that came while the worker served; end the worker for one that it was started with.

    Calls of this tool would be meant for another one.
    """
    living = consumer.app.toolfleet.living
    if not living.came_lately(clash.tool):
        remedy = "live workers serve another tool under this name: stop them first, or rename the tool"
        log.error("tool_refused", **clash._asdict(), remedy=remedy)
        raise WorkerShutdown(EXIT_CONFLICT)
    log.warning("tool_left_out", **clash._asdict(), reason="live workers serve another tool under this name")
    living.remove(clash.tool)
    consumer.app.tasks.pop(clash.tool, None)


def variant_of(spec: ToolSpec, source: str) -> str:
    """Return what tells one version of a tool, and where it comes from, from any other."""
    return f"{hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:16]} {source}"


def _announcement(consumer: Any) -> Announcement:
    loaded, served = consumer.app.toolfleet.tools, specs_served(consumer)
    return Announcement(
        worker=consumer.hostname,
        pid=os.getpid(),
        pool=type(consumer.pool).__module__.rpartition(".")[2],
        concurrency=consumer.pool.num_processes,
        queues=queues_consumed(consumer),
        started_unix_s=time.time(),
        proofs=Seal(consumer.app.toolfleet.settings).proofs(consumer.hostname),
        tools=served,
        sources={name: tool.source.partition(" ")[0] for name, tool in loaded.items()},
        lanes=lanes_read(consumer),
        not_served={name: tool.spec.queue for name, tool in loaded.items() if tool.spec not in served},
    )
