"""What workers over HTTPS have announced: kept where all announcements are, and nowhere else.

A worker that no longer polls or sends heartbeats is forgotten as any other is. Knows Redis and nothing of calls.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import jsonschema
import redis.asyncio
from jsonschema.validators import validator_for

from toolfleet.catalog import BUILT_IN_NAMES, MAX_ANNOUNCEMENT_BYTES, Announcement, LiveWorkers
from toolfleet.errors import Refused
from toolfleet.keys import ANNOUNCEMENT_TTL_S
from toolfleet.settings import Settings
from toolfleet.skipped import text_of
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal
from toolfleet.work import TOOL_NAME, Announce, Refusal, WorkerKey, WorkRefused
from toolfleet.workers.celery.announce import ANNOUNCE, variant_of
from toolfleet.workers.gateway.tokens import name_in_fleet

RENEWED_AFTER_S: Final = 5.0
"""How old an announcement is when a worker that shows life has it made anew."""

POOL: Final = "https"
QUEUES_TTL_S: Final = 7 * 24 * 3600
TENANT_CHARS: Final = 12
KNOWN_MAX: Final = 2000


def queue_of(tenant: str, tool: str) -> str:
    """Return the queue of one tool that workers over HTTPS serve, for all or for the calls of one tenant.

    One for each tool, so that whoever may serve a tool reads this queue and no other, whatever else others may serve.
    """
    if not tenant:
        return f"work.{tool}"
    return f"work.{hashlib.sha256(tenant.encode()).hexdigest()[:TENANT_CHARS]}.{tool}"


class Served(NamedTuple):
    """One worker, as it is announced."""

    announcement: Announcement
    specs: Mapping[str, ToolSpec]
    said_ms: int

    @property
    def name(self) -> str:
        """What the fleet calls it."""
        return self.announcement.worker


class Announcements:
    """The announcements of workers over HTTPS, made and read by any process. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._keys = settings.keys
        self._seal = seal
        self._live = LiveWorkers(client, settings.keys, seal)
        self._script = client.register_script(ANNOUNCE)
        self._known: OrderedDict[str, tuple[bytes, Served]] = OrderedDict()

    async def announce(self, key: WorkerKey, said: Announce) -> None:
        """Announce a worker. Raises WorkRefused for tools that its key does not include, or others serve otherwise."""
        _must_be_allowed(key, said)
        name = name_in_fleet(key.key_id, said.worker)
        specs = tuple(_as_served(spec, key.tenant) for spec in said.tools)
        await self._say(
            Announcement(
                worker=name,
                pid=0,
                pool=POOL,
                concurrency=said.concurrency,
                queues=tuple(spec.queue for spec in specs),
                started_unix_s=said.started_unix_s or time.time(),
                tools=specs,
                proofs=self._seal.proofs(name),
                sources={spec.name: _source(key, said.sources.get(spec.name, "")) for spec in specs},
            )
        )

    async def served(self, key: WorkerKey, worker: str) -> Served:
        """Return a worker that is announced. Raises WorkRefused."""
        name = name_in_fleet(key.key_id, worker)
        now_s, _ = await self._client.time()
        sealed = await self._client.getrange(self._keys.worker(name), 0, MAX_ANNOUNCEMENT_BYTES)
        found = self._read(name, cast("bytes", sealed))
        if found is None or now_s * 1000 - found.said_ms > ANNOUNCEMENT_TTL_S * 1000:
            raise WorkRefused(
                Refusal.NOT_ANNOUNCED,
                f"worker {worker} is not announced: nothing was heard of it for {ANNOUNCEMENT_TTL_S} s, or it has "
                "left. Announce it (again) first",
            )
        allowed = {tool: spec for tool, spec in found.specs.items() if key.may_serve(tool)}
        if now_s * 1000 - found.said_ms > RENEWED_AFTER_S * 1000:
            await self._say(found.announcement)
        return found._replace(specs=allowed)

    async def withdraw(self, key: WorkerKey, worker: str) -> None:
        """Take an announcement back, if there is one."""
        name = name_in_fleet(key.key_id, worker)
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.delete(self._keys.worker(name))
            pipeline.zrem(self._keys.workers(), name)
            await pipeline.execute()

    async def queues(self) -> list[str]:
        """Return the queues that such workers have served lately."""
        names = cast("list[bytes]", await self._client.zrange(self._keys.work_queues(), 0, -1))
        return [text_of(name) for name in names]

    async def _say(self, announcement: Announcement) -> None:
        tools, sources = announcement.tools, announcement.sources
        variants = [variant_of(spec, sources[spec.name]) for spec in tools]
        places = [self._keys.workers(), self._keys.worker(announcement.worker)]
        while True:
            now_s, microseconds = await self._client.time()
            sealed = self._seal.close_announcement(
                announcement.model_dump_json().encode(), announcement.worker, now_s * 1000 + microseconds // 1000
            )
            position, variant = await self._script(
                keys=[*places, *(self._keys.spec(spec.name) for spec in tools)],
                args=[ANNOUNCEMENT_TTL_S, announcement.worker, sealed, *variants],
            )
            if position < 0:
                break
            await self._must_be_of_nobody(announcement, tools[position].name, variant)
        await self._note_queues(announcement, now_s)

    async def _must_be_of_nobody(self, announcement: Announcement, tool: str, variant: bytes) -> None:
        """Forget another tool of this name whose last worker is gone. Raises WorkRefused while one lives."""
        others = [
            each.worker
            for each in (await self._live.read()).ours
            for spec in each.tools
            if each.worker != announcement.worker and spec.name == tool
            if variant_of(spec, each.sources.get(tool, "")) == text_of(variant)
        ]
        if others:
            raise WorkRefused(
                Refusal.CLASH,
                f"live workers serve another tool under the name {tool} ({', '.join(sorted(others))}): stop them "
                "first, or rename the tool",
                tool=tool,
            )
        await self._client.zrem(self._keys.spec(tool), variant)

    async def _note_queues(self, announcement: Announcement, now_s: int) -> None:
        key = self._keys.work_queues()
        async with self._client.pipeline(transaction=False) as pipeline:
            pipeline.zadd(key, dict.fromkeys(announcement.queues, now_s))
            pipeline.zremrangebyscore(key, "-inf", now_s - QUEUES_TTL_S)
            pipeline.expire(key, QUEUES_TTL_S)
            await pipeline.execute()

    def _read(self, name: str, sealed: bytes) -> Served | None:
        """Return what is announced under a name; None for what is not to be believed."""
        known = self._known.get(name)
        if known is not None and known[0] == sealed:
            return known[1]
        try:
            said_ms, text = self._seal.open_announcement(sealed, name)
            announcement = Announcement.model_validate_json(text, extra="ignore")
        except (Refused, ValueError):
            return None
        served = Served(announcement, {spec.name: spec for spec in announcement.tools}, said_ms)
        self._known[name] = sealed, served
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return served


def _as_served(spec: ToolSpec, tenant: str) -> ToolSpec:
    """Return a spec as the fleet has it: in the queue of the tool, and with no answers kept, which needs the worker."""
    return spec.model_copy(update={"queue": queue_of(tenant, spec.name), "cache_s": None, "tenant": tenant})


def _source(key: WorkerKey, said: str) -> str:
    """Return where a tool comes from: two tenants never have two releases of one tool, nor does the fleet itself."""
    return f"https/{hashlib.sha256(key.tenant.encode()).hexdigest()[:TENANT_CHARS]}/{said[:200]}"


def _must_be_allowed(key: WorkerKey, said: Announce) -> None:
    names = [spec.name for spec in said.tools]
    if foreign := sorted(name for name in names if not key.may_serve(name)):
        raise WorkRefused(
            Refusal.TOOL_NOT_ALLOWED,
            f"this key does not include {', '.join(foreign)[:500]}: nothing was announced",
        )
    for spec in said.tools:
        if not re.fullmatch(TOOL_NAME, spec.name) or spec.name in BUILT_IN_NAMES or names.count(spec.name) > 1:
            raise WorkRefused(
                Refusal.INVALID_TOOL,
                f"{spec.name[:100]!r} cannot be a tool's name here: up to 64 letters, digits, - and _, once each, and "
                f"none of {', '.join(sorted(BUILT_IN_NAMES))}",
            )
        for schema in (spec.input_schema, spec.output_schema):
            _must_be_schema(spec.name, schema)


def _must_be_schema(tool: str, schema: dict[str, Any] | None) -> None:
    if schema is None:
        return
    try:
        validator_for(schema, default=jsonschema.Draft202012Validator).check_schema(schema)
    except jsonschema.SchemaError as error:
        where = "/".join(map(str, error.absolute_path)) or "its top"
        raise WorkRefused(
            Refusal.INVALID_TOOL, f"a schema of {tool} is no JSON Schema, at {where}: {error.message[:300]}", tool=tool
        ) from None
    if schema.get("type") != "object" and "properties" in schema:
        raise WorkRefused(Refusal.INVALID_TOOL, f"a schema of {tool} is not of an object: say type object", tool=tool)
