"""What a worker announces of itself: the record both halves read, in Redis for as long as the worker lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, cast

import redis.asyncio

from toolfleet.calls import WIRE_VERSION, Record
from toolfleet.errors import Refused
from toolfleet.keys import ANNOUNCEMENT_TTL_S, Keys
from toolfleet.skipped import skip, text_of
from toolfleet.tool import ToolSpec
from toolfleet.wire import AT_DIGITS, MAC_HEX_CHARS, Seal

BUILT_IN_NAMES: Final = frozenset({"task_result", "task_cancel", "read_result", "search_tools"})
"""Names that no tool of a worker may have: orchestrators answer to them themselves, about other calls and tools."""

MAX_WORKERS: Final = 10_000
"""How many live workers are read: names in Redis cost nobody anything."""

MAX_ANNOUNCEMENT_BYTES: Final = 16 * 1024 * 1024
"""How much of what one worker announces is read; a thousand tools with long descriptions are a tenth of that."""


NAME_CHARS: Final = 200
"""How much of a name is logged that is none of ours."""


class Announcement(Record):
    """One live worker and the tools it serves."""

    v: Literal[1] = 1
    worker: str
    pid: int
    pool: str
    concurrency: int
    queues: tuple[str, ...]
    started_unix_s: float
    tools: tuple[ToolSpec, ...]
    proofs: tuple[str, ...] = ()
    """What shows that it has the fleet's secret, see `Seal.proofs`."""
    sources: Mapping[str, str] = {}
    """Where each tool that the worker has loaded was declared, as `module:qualname`."""
    lanes: Mapping[str, str] = {}
    """For each queue the lane that the worker reads as well, if the broker has lanes."""
    not_served: Mapping[str, str] = {}
    """Tools that the worker has loaded and does not serve, because it does not consume their queue; and that queue."""
    ailing: tuple[str, ...] = ()
    """Which of the worker's own listeners are down now, see `toolfleet.supervision`."""
    reads: tuple[int, ...] = (WIRE_VERSION,)
    """The versions of calls that the worker can read."""


class Live(NamedTuple):
    """The live workers, as far as somebody is told of them who has the secret that `Believer` was given."""

    ours: list[Announcement]
    """Those whose announcement is sealed with it, by name."""
    others: Mapping[str, tuple[str, ...]]
    """What others show of theirs, see `Seal.proofs`. Nothing else that they say is believed."""
    said_ms: Mapping[str, int] = MappingProxyType({})
    """When each of ours has last announced itself, by the server's clock."""

    @property
    def proofs(self) -> dict[str, tuple[str, ...]]:
        """What each of them shows of its secret."""
        return {**{each.worker: each.proofs for each in self.ours}, **self.others}


class _Said(NamedTuple):
    """The newest that was believed of one worker."""

    sealed: bytes
    at_ms: int
    text: bytes
    announcement: Announcement


class Believer:
    """Decides what is believed of what stands where workers announce themselves. Pure.

    An announcement holds for its worker's name, from when it was sealed until its TTL, and until the worker has said
    something newer: whoever can write to Redis can neither make one up, nor bring back what a worker said before.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._said: dict[str, _Said] = {}

    def live(self, found: Mapping[bytes, object], now_s: int) -> Live:
        """Return the workers of which something is found by their names; by the server's clock it is `now_s`."""
        # What has just gone is remembered too: otherwise something older could take its place.
        self._said = {worker: said for worker, said in self._said.items() if _holds(said, now_s)}
        ours: list[Announcement] = []
        others: dict[str, tuple[str, ...]] = {}
        for name, sealed in sorted(found.items()):
            worker = text_of(name)
            said = self._newest(worker, sealed, now_s)
            if said is not None:
                self._said[worker] = said
                ours.append(said.announcement)
            elif isinstance(sealed, bytes):
                others |= _shown(worker, sealed)
        return Live(ours, others, {each.worker: self._said[each.worker].at_ms for each in ours})

    def _newest(self, worker: str, sealed: object, now_s: int) -> _Said | None:
        """Return what is found if it is to be believed, else what was believed before, as long as that holds."""
        before = self._said.get(worker)
        try:
            if not isinstance(sealed, bytes):
                raise Refused("not an announcement")
            said = self._read(worker, sealed, before)
        except (Refused, ValueError) as error:
            skip(
                "announcement", str(error) if isinstance(error, Refused) else "wrong shape", worker=worker[:NAME_CHARS]
            )
            return before
        if not _holds(said, now_s):
            skip("announcement", "too old", worker=worker[:NAME_CHARS])
            return before
        return said

    def _read(self, worker: str, sealed: bytes, before: _Said | None) -> _Said:
        """Return what is sealed. Raises Refused for what is not to be believed, ValueError for what is none."""
        if before is not None and sealed == before.sealed:
            return before
        at_ms, text = self._seal.open_announcement(sealed, worker)
        if before is not None and at_ms < before.at_ms:
            raise Refused("older than what the worker has said since")
        if before is not None and text == before.text:  # most say the same again
            return _Said(sealed, at_ms, text, before.announcement)
        return _Said(sealed, at_ms, text, Announcement.model_validate_json(text, extra="ignore"))


def _holds(said: _Said, now_s: int) -> bool:
    # One from the time before the server's clock was set back would hold against all that is newer.
    return abs(now_s * 1000 - said.at_ms) <= (ANNOUNCEMENT_TTL_S + 1) * 1000


def _shown(worker: str, sealed: bytes) -> dict[str, tuple[str, ...]]:
    """Return what a worker shows of its secret whose seal is not ours; nothing for what is no announcement."""
    try:
        announced = Announcement.model_validate_json(sealed[MAC_HEX_CHARS + AT_DIGITS :], extra="ignore")
    except ValueError:
        return {}
    return {worker: announced.proofs}


class LiveWorkers:
    """Reads the announcements of live workers. One that has not changed is parsed once."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        self._client = client
        self._keys = keys
        self._believer = Believer(seal)

    async def read(self) -> Live:
        """Return every live worker. Raises StoreUnreachable."""
        now_s, _ = await self._client.time()
        oldest = now_s - ANNOUNCEMENT_TTL_S
        names = cast(
            "list[bytes]", await self._client.zrangebyscore(self._keys.workers(), oldest, "+inf", 0, MAX_WORKERS)
        )
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.getrange(self._keys.worker(text_of(name)), 0, MAX_ANNOUNCEMENT_BYTES)
        texts = await pipeline.execute(raise_on_error=False) if names else []
        return self._believer.live(_found(names, texts), now_s)


def read_live_workers(client: redis.Redis, keys: Keys, believer: Believer) -> Live:
    """Return every live worker, for callers without an event loop. Raises StoreUnreachable."""
    now_s, _ = client.time()
    oldest = now_s - ANNOUNCEMENT_TTL_S
    names = cast("list[bytes]", client.zrangebyscore(keys.workers(), oldest, "+inf", 0, MAX_WORKERS))
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.getrange(keys.worker(text_of(name)), 0, MAX_ANNOUNCEMENT_BYTES)
    texts = pipeline.execute(raise_on_error=False) if names else []
    return believer.live(_found(names, texts), now_s)


def _found(names: Sequence[bytes], texts: Sequence[object]) -> dict[bytes, object]:
    """Return what stands under each name; GETRANGE answers nothing, in bytes, for what is not there."""
    return {name: text for name, text in zip(names, texts, strict=True) if text != b""}


def offered_by(workers: Iterable[Announcement]) -> dict[str, ToolSpec]:
    """Return the tools to offer to models: all that are served, each in its highest version.

    Of one version, or of none, as the worker that was started last declares it.
    """
    offered: dict[str, ToolSpec] = {}
    for worker in by_age(workers):
        for spec in worker.tools:
            before = offered.get(spec.name)
            if before is None or before.version <= spec.version:
                offered[spec.name] = spec
    return offered


def versions_by(workers: Iterable[Announcement]) -> dict[str, dict[int, ToolSpec]]:
    """Return the versions that are live of each tool that has any; 0 stands for one that was declared without."""
    found: dict[str, dict[int, ToolSpec]] = {}
    for worker in by_age(workers):
        for spec in worker.tools:
            found.setdefault(spec.name, {})[spec.version] = spec
    return {tool: dict(sorted(specs.items())) for tool, specs in found.items() if any(specs)}


def by_age(workers: Iterable[Announcement]) -> list[Announcement]:
    """Return workers in the order in which they were started."""
    return sorted(workers, key=lambda worker: (worker.started_unix_s, worker.worker))


def version_unserved(tool: str, version: int, live: Iterable[int]) -> str:
    """Return what is said of a version of a tool that no live worker serves, and which others are."""
    others = [f"version {each}" if each else "one without a version" for each in sorted(live) if each != version]
    served = f"; {' and '.join(others)} {'is' if len(others) == 1 else 'are'}" if others else ""
    return f"version {version} of {tool} is served by no live worker{served}"


def of_tenant(tools: Mapping[str, ToolSpec], tenant: str) -> Mapping[str, ToolSpec]:
    """Return those of these tools that are served for a tenant's calls: nearly always all of them."""
    if all(not spec.tenant or spec.tenant == tenant for spec in tools.values()):
        return tools
    return {name: spec for name, spec in tools.items() if spec.tenant in ("", tenant)}


def nobody_serves(tool: str, workers: Sequence[Announcement]) -> str:
    """Return why a tool that a live worker has loaded is not served, and the remedy; "" if none has loaded it."""
    for worker in workers:
        queue = worker.not_served.get(tool)
        if queue is not None:
            start = command(queue, [worker.sources.get(tool, "").partition(":")[0]])
            return f"{tool} is on queue {queue}, which no live worker with it consumes: start one with {start}"
    return ""


def command(queue: str, modules: Iterable[str]) -> str:
    """Return the command that starts a worker of a queue with these modules."""
    return f"`toolfleet worker --pool {queue} {' '.join(f'--import {module}' for module in modules)}`"
