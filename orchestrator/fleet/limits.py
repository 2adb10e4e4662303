"""What people say of limits while the fleet runs: beside what tools declare, effective at once, and written down.

Knows what is declared and what is said; the gates are kept by the transport, which reads the same hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

import orjson
import redis.asyncio
from pydantic import Field, StrictFloat, StrictInt, ValidationError

from toolfleet.calls import Record
from toolfleet.declaration import MAX_NAME_CHARS
from toolfleet.declared_limits import MAX_AT_ONCE, MAX_PER_S, count, per_s
from toolfleet.errors import InvalidTool
from toolfleet.gates import shortened
from toolfleet.keys import LIMITS_AUDIT_MAX, Keys
from toolfleet.limits import KeyFrom, ToolLimits
from toolfleet.misspelt import exact
from toolfleet.orchestrator.errors import InvalidLimit
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua
from toolfleet.skipped import skip, text_of
from toolfleet.tool import ToolSpec

SAY: Final = lua(__package__, "say_limit", before=CLOCK)

NEVER_MS: Final = 9_999_999_999_999
"""The end of a pause without one."""

MAX_PAUSE_S: Final = 10 * 365 * 24 * 3600.0
MAX_SHARE: Final = 1_000_000.0

Action = Literal["set", "pause", "resume", "reset", "set tenant", "reset tenant"]


R = TypeVar("R", bound=Record)


class Override(Record):
    """What is said of a tool's limits, or of those of one key; what is None holds as it is declared."""

    rate: float | None = Field(default=None, gt=0, le=MAX_PER_S)
    """Starts a second."""
    burst: int | None = Field(default=None, ge=1, le=MAX_AT_ONCE)
    concurrency: int | None = Field(default=None, ge=1, le=MAX_AT_ONCE)
    paused_until_ms: int | None = Field(default=None, ge=0)
    """Until when no call starts, by the server's clock; NEVER_MS: until somebody says otherwise."""
    by: str = ""
    at_unix_s: float = 0.0


class Share(Record):
    """What is said of a tenant's share of the queues; what is None is as for everybody."""

    weight: StrictFloat | StrictInt | None = Field(default=None, gt=0, le=MAX_SHARE)
    """How often it has its turn, against 1 of the others."""
    guaranteed: StrictInt | None = Field(default=None, ge=1, le=MAX_AT_ONCE)
    """Calls at once that it has before others, if it asks for them."""
    ceiling: StrictInt | None = Field(default=None, ge=1, le=MAX_AT_ONCE)
    """Calls at once that it has at most."""
    by: str = ""
    at_unix_s: float = 0.0


class ToolStanding(Record):
    """A tool's limits: as declared, and as people have said otherwise, for all its calls and for single keys."""

    tool: str
    declared: ToolLimits | None
    """None: no live worker serves it now, or it declares none any more."""
    override: Override | None = None
    keys: dict[str, Override] = Field(default_factory=dict)


class LimitsStanding(Record):
    """All limits of a fleet, by the server's clock at `now_ms`."""

    now_ms: int
    tools: tuple[ToolStanding, ...]
    tenants: dict[str, Share]


class AuditEntry(Record):
    """One change: who has made it, when, and what was said before and after."""

    at_unix_s: float
    by: str
    action: str
    of: str
    before: dict[str, Any]
    after: dict[str, Any]


class _Said(NamedTuple):
    tools: dict[str, Override]
    tenants: dict[str, Share]


class FleetLimits:
    """The limits of a fleet. All of its methods raise StoreUnreachable; `by` is who says it, for the entries."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, catalog: Catalog) -> None:
        self._client = client
        self._keys = keys
        self._catalog = catalog
        self._say = client.register_script(SAY)

    async def list(self) -> LimitsStanding:
        """Return every limit that a live worker declares or somebody has set, and the tenants' shares."""
        return await self.beside(await self._catalog.offered())

    async def beside(self, offered: Mapping[str, ToolSpec]) -> LimitsStanding:
        """Return the same for who has just looked which tools are offered."""
        said = await self._read()
        seconds, microseconds = await self._client.time()
        declared = {name: spec.limits for name, spec in offered.items() if spec.limits is not None}
        names = sorted({*declared, *(field.partition("|")[0] for field in said.tools)})
        tools = tuple(_standing(name, declared.get(name), said.tools) for name in names)
        return LimitsStanding(now_ms=seconds * 1000 + microseconds // 1000, tools=tools, tenants=said.tenants)

    @exact()
    async def set(
        self,
        tool: str,
        *,
        key: str = "",
        rate: str | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
        by: str = "",
    ) -> Override:
        """Let other numbers hold than a tool declares, for all its calls or for those of one key ("tenant=acme").

        What is not named stays as it is. Raises UnknownTool for a tool that nobody serves, InvalidLimit.
        """
        declared = await self._declared(tool, key)
        new = _numbers(rate, burst, concurrency)
        if not new:
            raise InvalidLimit("nothing is said: name a rate, a burst or a concurrency")
        if declared.rate is None and (rate is not None or burst is not None):
            raise InvalidLimit(f"{tool} declares no rate to change: add rate= to its @tool, for instance rate={rate!r}")
        if declared.concurrency is None and concurrency is not None:
            raise InvalidLimit(f"{tool} declares no concurrency to change: add concurrency= to its @tool")
        return await self._change("set", tool, key, by, new)

    @exact()
    async def pause(self, tool: str, *, key: str = "", for_s: float | None = None, by: str = "") -> Override:
        """Let no call of a tool start, or none of one key, for so long; without `for_s` until `resume`.

        What runs goes on. Raises UnknownTool, and InvalidLimit for a tool that declares no limit.
        """
        if for_s is not None and not 0 < for_s <= MAX_PAUSE_S:
            raise InvalidLimit(f"for_s={for_s:g}: more than 0 and at most {MAX_PAUSE_S:.0f} seconds can be said")
        await self._declared(tool, key)
        pause_ms = 0 if for_s is None else max(1, round(for_s * 1000))
        return await self._change("pause", tool, key, by, {}, pause_ms=pause_ms)

    @exact()
    async def resume(self, tool: str, *, key: str = "", by: str = "") -> Override:
        """Let calls start again. Raises InvalidLimit where nothing is paused."""
        override = (await self._read()).tools.get(_field(tool, key))
        if override is None or override.paused_until_ms is None:
            raise InvalidLimit(f"{_field(tool, key)} is not paused: `toolfleet limits list` shows what is")
        return await self._change("resume", tool, key, by, {"paused_until_ms": None})

    @exact()
    async def reset(self, tool: str, *, key: str = "", by: str = "") -> None:
        """Let hold again what is declared. Raises InvalidLimit where nobody has said otherwise."""
        if _field(tool, key) not in (await self._read()).tools:
            raise InvalidLimit(f"nothing was said of {_field(tool, key)}: `toolfleet limits list` shows what was")
        await self._change("reset", tool, key, by, {}, takes_back=True)

    @exact()
    async def set_tenant(
        self,
        tenant: str,
        *,
        weight: float | None = None,
        guaranteed: int | None = None,
        ceiling: int | None = None,
        by: str = "",
    ) -> Share:
        """Say what a tenant's share of the queues is; what is not named stays as it is. Raises InvalidLimit."""
        if not tenant or not tenant.isprintable() or len(tenant) > 200:
            raise InvalidLimit(f"{tenant[:80]!r} is no tenant: 1 to 200 printable characters are")
        said = {"weight": weight, "guaranteed": guaranteed, "ceiling": ceiling}
        new = {name: value for name, value in said.items() if value is not None}
        if not new:
            raise InvalidLimit("nothing is said: name a weight, a guaranteed number or a ceiling")
        known = (await self._read()).tenants.get(tenant, Share())
        share = _checked(Share, {**known.model_dump(exclude_none=True), **new})
        if share.guaranteed is not None and share.ceiling is not None and share.guaranteed > share.ceiling:
            raise InvalidLimit(f"guaranteed {share.guaranteed} is more than the ceiling {share.ceiling}")
        return _checked(Share, await self._write("set tenant", self._keys.tenants(), tenant, by, new))

    @exact()
    async def reset_tenant(self, tenant: str, *, by: str = "") -> None:
        """Let a tenant have the share that everybody has. Raises InvalidLimit where nobody has said otherwise."""
        if tenant not in (await self._read()).tenants:
            raise InvalidLimit(f"nothing was said of tenant {tenant[:80]!r}: `toolfleet limits list` shows what was")
        await self._write("reset tenant", self._keys.tenants(), tenant, by, {}, takes_back=True)

    async def audit(self, limit: int = 50) -> tuple[AuditEntry, ...]:
        """Return the newest changes, newest first."""
        entries = cast("Any", await self._client.xrevrange(self._keys.limits_audit(), count=limit))
        return tuple(_entry(text_of(entry_id), fields) for entry_id, fields in entries)

    async def _declared(self, tool: str, key: str) -> ToolLimits:
        """Return what a served tool declares. Raises UnknownTool, and InvalidLimit where this key has no limit."""
        _field(tool, key)
        spec = (await self._catalog.choose([tool]))[tool]
        if spec.limits is None:
            raise InvalidLimit(f"{tool} declares no limit to change: add rate= or concurrency= to its @tool")
        sources = [limit.key for limit in (spec.limits.rate, spec.limits.concurrency) if limit is not None]
        if key and not any(key.startswith(_prefix(source)) for source in sources if source.source != "fleet"):
            known = " or ".join(f'"{_prefix(source)}…"' for source in sources if source.source != "fleet")
            raise InvalidLimit(
                f"{tool} has no limit by the key {key[:80]!r}: its keys are {known}"
                if known
                else f"{tool} has one limit for the whole fleet: leave the key out"
            )
        return spec.limits

    async def _read(self) -> _Said:
        tools = await cast("Any", self._client.hgetall(self._keys.limits()))
        tenants = await cast("Any", self._client.hgetall(self._keys.tenants()))
        return _Said(_readable(Override, tools), _readable(Share, tenants))

    async def _change(
        self, action: Action, tool: str, key: str, by: str, new: Mapping[str, Any], **more: Any
    ) -> Override:
        said = await self._write(action, self._keys.limits(), _field(tool, key), by, new, **more)
        return _checked(Override, said)

    async def _write(
        self,
        action: Action,
        where: str,
        field: str,
        by: str,
        new: Mapping[str, Any],
        *,
        pause_ms: int = -1,
        takes_back: bool = False,
    ) -> dict[str, Any]:
        """Write it down, and return all that is said of the field now."""
        arguments: list[str | bytes | int] = [field, orjson.dumps(new), pause_ms, by or "somebody", action]
        arguments += [LIMITS_AUDIT_MAX, int(takes_back)]
        places = [where, self._keys.limits_audit(), self._keys.limits_said()]
        _, after = await self._say(keys=places, args=arguments)
        return orjson.loads(after) if after else {}


def _field(tool: str, key: str) -> str:
    """Return where what is said stands. Raises InvalidLimit for what is no name."""
    for what, name in (("tool", tool), ("key", key or "-")):
        if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise InvalidLimit(f"{name[:80]!r} is no {what}: 1 to {MAX_NAME_CHARS} printable characters are")
    source, is_, value = key.partition("=")
    return f"{tool}|{source}{is_}{shortened(value)}" if key else tool


def _prefix(key: KeyFrom) -> str:
    return "tenant=" if key.source == "tenant" else f"{key.source}.{key.name}="


def _numbers(rate: str | None, burst: int | None, concurrency: int | None) -> dict[str, float | int]:
    try:
        said = {
            "rate": None if rate is None else per_s(rate),
            "burst": None if burst is None else count(burst, "burst"),
            "concurrency": None if concurrency is None else count(concurrency, "concurrency"),
        }
    except InvalidTool as error:
        raise InvalidLimit(str(error)) from None
    return {name: value for name, value in said.items() if value is not None}


def _standing(tool: str, declared: ToolLimits | None, said: Mapping[str, Override]) -> ToolStanding:
    keys = {field.removeprefix(f"{tool}|"): each for field, each in said.items() if field.startswith(f"{tool}|")}
    return ToolStanding(tool=tool, declared=declared, override=said.get(tool), keys=dict(sorted(keys.items())))


def _checked(record: type[R], said: Mapping[str, Any]) -> R:
    try:
        return record(**said)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InvalidLimit(f"{wrong['loc'][0]}={wrong['input']!r}: {wrong['msg'].lower()}") from None


def _readable(record: type[R], found: Mapping[bytes, bytes]) -> dict[str, R]:
    """Return what is said, by field. What cannot be read is passed over: the transport does not heed it either."""
    said: dict[str, R] = {}
    for field, text in sorted(found.items()):
        try:
            said[text_of(field)] = record.model_validate_json(text, extra="ignore")
        except ValidationError:
            skip("limit", "wrong shape", of=text_of(field)[:80])
    return said


def _entry(entry_id: str, fields: Mapping[bytes, bytes]) -> AuditEntry:
    told = {text_of(name): text_of(value) for name, value in fields.items()}
    return AuditEntry(
        at_unix_s=int(entry_id.partition("-")[0]) / 1000,
        by=told.get("by", ""),
        action=told.get("action", ""),
        of=told.get("of", ""),
        before=_object(told.get("before", "")),
        after=_object(told.get("after", "")),
    )


def _object(text: str) -> dict[str, Any]:
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return read if isinstance(read, dict) else {}
