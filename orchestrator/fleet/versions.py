"""Versions of tools as people look at them and speak of them: which are live, which share of new runs gets which."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pydantic import Field

from toolfleet.calls import MAX_VERSION, Record
from toolfleet.declaration import MAX_NAME_CHARS
from toolfleet.misspelt import exact
from toolfleet.orchestrator.errors import InvalidVersion, NoSuchShare
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.trials import Trials
from toolfleet.orchestrator.fleet.version_shares import VersionShare, VersionShares, trials_of, with_word
from toolfleet.tool import ToolSpec


class VersionEnds(Record):
    """What came of the calls of one version since its trial began."""

    calls: int
    failed: int


class VersionsStanding(Record):
    """The versions of one tool."""

    tool: str
    live: tuple[int, ...]
    """0 stands for the tool without a version."""
    new_runs: int | None
    """What new runs and direct calls get, but for those that a share gives another one; None: none is live."""
    said: VersionShare | None = None
    """What somebody has said of a version."""
    ends: dict[int, VersionEnds] = Field(default_factory=dict)
    """What came of calls since, by version."""


class FleetVersions:
    """The versions of a fleet. All of its methods raise StoreUnreachable; `by` is who says it, for the history."""

    def __init__(self, catalog: Catalog, shares: VersionShares, trials: Trials) -> None:
        self._catalog = catalog
        self._shares = shares
        self._trials = trials

    async def list(self) -> tuple[VersionsStanding, ...]:
        """Return every tool that has versions, or of whose versions something is said."""
        offered = await self._catalog.offered()
        return await self.beside(offered, self._catalog.versions)

    async def beside(
        self, offered: Mapping[str, ToolSpec], versions: Mapping[str, Mapping[int, ToolSpec]]
    ) -> tuple[VersionsStanding, ...]:
        """Return the same beside what is offered, and the versions of it, to whoever knows that already."""
        said = await self._shares.read()
        tried = trials_of(said, versions)
        return tuple(
            [
                VersionsStanding(
                    tool=name,
                    live=tuple(versions.get(name, ())),
                    new_runs=tried[name].other if name in tried else _highest(offered, name),
                    said=said.get(name),
                    ends=await self._ends(said[name]) if name in said else {},
                )
                for name in sorted({*versions, *said})
            ]
        )

    @exact()
    async def share(self, tool: str, version: int, share: float, *, by: str = "") -> VersionShare:
        """Give this share (0 to 1) of new runs one version of a tool, also before its first worker lives.

        The others, and direct calls, get the highest of the other versions. Raises InvalidVersion, NoSuchShare.
        """
        _must_be_meant(tool, version, share)

        def changed(before: VersionShare | None) -> VersionShare:
            goes_on = before is not None and before.version == version and before.share > 0
            since_ms = before.since_ms if before is not None and goes_on else time.time_ns() // 1_000_000
            history = before.history if before is not None else ()
            said = VersionShare(tool=tool, version=version, share=share, since_ms=since_ms, history=history)
            return with_word(said, "share", by)

        said = await self._shares.change(tool, changed)
        assert said is not None  # noqa: S101  # `changed` never takes it away
        return said

    @exact()
    async def abandon(self, tool: str, *, by: str = "") -> VersionShare:
        """Give no new run the version that a share was said of. Raises NoSuchShare where none was."""

        def changed(before: VersionShare | None) -> VersionShare:
            if before is None:
                raise _nothing_said(tool)
            return with_word(before.model_copy(update={"share": 0.0}), "abandon", by)

        said = await self._shares.change(tool, changed)
        assert said is not None  # noqa: S101  # as above
        return said

    @exact()
    async def settle(self, tool: str) -> None:
        """Say nothing more of a tool's versions: new runs get the highest. Raises NoSuchShare."""

        def changed(before: VersionShare | None) -> None:
            if before is None:
                raise _nothing_said(tool)

        await self._shares.change(tool, changed)

    async def _ends(self, said: VersionShare) -> dict[int, VersionEnds]:
        ends = await self._trials.ends(said.tool, said.since_ms)
        return {version: VersionEnds(calls=each.calls, failed=each.failed) for version, each in sorted(ends.items())}


def _highest(offered: Mapping[str, ToolSpec], tool: str) -> int | None:
    return offered[tool].version if tool in offered else None


def _must_be_meant(tool: str, version: int, share: float) -> None:
    if not tool.strip() or not tool.isprintable() or len(tool) > MAX_NAME_CHARS:
        raise NoSuchShare(f"{tool[:80]!r} is no name of a tool")
    if type(version) is not int or not 1 <= version <= MAX_VERSION:
        raise InvalidVersion(f"{version!r:.40} is no version: 1 to {MAX_VERSION} are")
    if isinstance(share, bool) or not 0 <= share <= 1:
        raise InvalidVersion(f"a share is 0 to 1 (0 % to 100 %), and not {share!r:.40}")


def _nothing_said(tool: str) -> NoSuchShare:
    return NoSuchShare(f"nothing was said of a version of {tool[:80]}: `toolfleet versions list` shows what was")
