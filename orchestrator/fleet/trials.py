"""What comes of calls of a version that some runs try: counted by each orchestrator, added up in Redis, and judged.

Costs nothing while no tool has a share: then no call is looked at.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

import redis.asyncio

from toolfleet.calls import Failed, FailureKind, Returned, ToolCall, ToolResult
from toolfleet.keys import VERSION_COUNTS_TTL_S, Keys
from toolfleet.logs import FactLog
from toolfleet.metrics.of_runs import RUNS
from toolfleet.orchestrator.errors import InvalidVersion
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.verdict import Ends, against
from toolfleet.orchestrator.fleet.version_shares import Trial, VersionShare, VersionShares, with_word
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.supervision import run_errand

log = FactLog("toolfleet.orchestrator")

ADD_EVERY_S: Final = 1.0

US: Final = "toolfleet"
"""Who has taken a version back that nobody else has."""

SAYS_NOTHING: Final = frozenset({FailureKind.DENIED, FailureKind.CANCELLED, FailureKind.LIMIT, FailureKind.ROLLED_BACK})
"""Failures that are nothing against a version."""


class _Counted(NamedTuple):
    tool: str
    trial: Trial
    version: int


class Trials:
    """Counts for one orchestrator. Create it on the loop."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, catalog: Catalog, shares: VersionShares) -> None:
        self._client = client
        self._keys = keys
        self._catalog = catalog
        self._shares = shares
        self._under_way: dict[str, _Counted] = {}
        self._ended = Counter[tuple[str, int, str]]()
        self._trials: dict[str, Trial] = {}
        self._adding: asyncio.TimerHandle | None = None

    def begin(self, call: ToolCall) -> None:
        """Count what will come of a call, if its tool is tried."""
        trial = self._catalog.trials.get(call.tool)
        if trial is not None and call.version in (trial.version, trial.other):
            self._under_way[call.call_id] = _Counted(call.tool, trial, call.version)

    def give_up(self, call_id: str) -> None:
        """Count a call no longer."""
        if self._under_way:
            self._under_way.pop(call_id, None)

    def end(self, call_id: str, result: ToolResult) -> None:
        """Count what has come of a call."""
        if not self._under_way or (counted := self._under_way.pop(call_id, None)) is None:
            return
        has_failed = isinstance(result, Failed)
        if not has_failed and not isinstance(result, Returned):
            return
        if isinstance(result, Failed) and result.kind in SAYS_NOTHING:
            return
        tool, trial, version = counted
        self._trials[tool] = trial
        self._ended[tool, trial.since_ms, f"{version}|calls"] += 1
        self._ended[tool, trial.since_ms, f"{version}|failed"] += has_failed
        if self._adding is None:
            self._adding = asyncio.get_running_loop().call_later(ADD_EVERY_S, self._add_soon)

    async def ends(self, tool: str, since_ms: int) -> dict[int, Ends]:
        """Return how calls have ended since a trial began, by version. Raises StoreUnreachable."""
        found = await self._client.hgetall(self._keys.version_counts(tool, since_ms))
        return _ends(cast("dict[bytes, bytes]", found))

    def close(self) -> None:
        """Count nothing more."""
        if self._adding is not None:
            self._adding.cancel()

    def _add_soon(self) -> None:
        self._adding = None
        ended, self._ended = self._ended, Counter()
        trials, self._trials = self._trials, {}
        run_errand("version_counts", self._add(ended, trials))

    async def _add(self, ended: Counter[tuple[str, int, str]], trials: Mapping[str, Trial]) -> None:
        for tool, trial in trials.items():
            try:
                found = await self._added(tool, trial, ended)
                await self._judge(tool, trial, found)
            except COMMAND_FAILED as error:  # what was counted meanwhile speaks for itself
                log.info("versions_not_counted", tool=tool, error=str(error))

    async def _added(self, tool: str, trial: Trial, ended: Counter[tuple[str, int, str]]) -> dict[int, Ends]:
        key = self._keys.version_counts(tool, trial.since_ms)
        async with self._client.pipeline(transaction=True) as pipeline:
            for (of, since_ms, field), times in ended.items():
                if (of, since_ms) == (tool, trial.since_ms):
                    pipeline.hincrby(key, field, times)
            pipeline.expire(key, VERSION_COUNTS_TTL_S)
            pipeline.hgetall(key)
            *_, found = await pipeline.execute()
        return _ends(found)

    async def _judge(self, tool: str, trial: Trial, ends: Mapping[int, Ends]) -> None:
        why = against(ends.get(trial.version, Ends()), ends.get(trial.other, Ends()))
        if not why:
            return
        taken_back: list[VersionShare] = []

        def without(before: VersionShare | None) -> VersionShare | None:
            taken_back.clear()
            if before is None or before.since_ms != trial.since_ms or before.share == 0:
                return before
            taken_back.append(with_word(before.model_copy(update={"share": 0.0}), "taken back", US, why))
            return taken_back[0]

        try:
            await self._shares.change(tool, without)
        except InvalidVersion:
            return  # the next second's judge looks again
        if taken_back:  # of several orchestrators that judge, one has
            RUNS.versions_taken_back += 1
            log.warning("version_taken_back", tool=tool, version=trial.version, share=trial.share, why=why)


def _ends(found: Mapping[bytes, bytes]) -> dict[int, Ends]:
    """Return what was counted. What is no count of ours counts for nothing."""
    counts: dict[int, list[int]] = {}
    for field, value in found.items():
        version, _, what = field.decode("ascii", "replace").partition("|")
        if version.isdecimal() and value.isdigit() and what in ("calls", "failed"):
            counts.setdefault(int(version), [0, 0])[what == "failed"] = int(value)
    return {version: Ends(calls, min(failed, calls)) for version, (calls, failed) in counts.items()}
