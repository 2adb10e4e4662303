"""Versions of tools as the page shows them: which are live, what new runs get, and how a trial stands.

What was said of a version, and how its calls ended for all tenants, is for keys with the scope `admin`, as over HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.fleet.version_shares import ShareSaid
from toolfleet.orchestrator.fleet.versions import VersionsStanding


@dataclass(frozen=True, slots=True)
class ShownVersions:
    """The versions of one tool, as far as a key may see how they stand."""

    standing: VersionsStanding
    shows_trial: bool

    @property
    def tool(self) -> str:
        """Its name."""
        return self.standing.tool

    @property
    def live(self) -> str:
        """The versions that live workers serve."""
        return ", ".join(map(called, self.standing.live)) or "none"

    @property
    def new_runs(self) -> str:
        """What new runs get that no share gives another one."""
        return "" if self.standing.new_runs is None else called(self.standing.new_runs)

    @property
    def trial(self) -> str:
        """How the trial stands, in words; "" where nothing is tried or this key may not see it."""
        said = self.standing.said if self.shows_trial else None
        if said is None:
            return ""
        if said.share == 0:
            return f"no new run gets version {said.version}"
        waits = "" if said.version in self.standing.live else ", once a worker serves it"
        return f"{said.share * 100:.4g} % of new runs get version {said.version}{waits}"

    @property
    def is_taken_back(self) -> bool:
        """Whether the version that was tried has failed too often."""
        return bool(self.words) and self.words[0].action == "taken back"

    @property
    def ends(self) -> list[str]:
        """How calls of each version have ended since the trial began."""
        if not self.shows_trial:
            return []
        return [f"{called(version)}: {each.failed} of {each.calls}" for version, each in self.standing.ends.items()]

    @property
    def words(self) -> list[ShareSaid]:
        """What was said, the newest first."""
        said = self.standing.said if self.shows_trial else None
        return [] if said is None else [*reversed(said.history)]


def called(version: int) -> str:
    """Return what a version is called, 0 being a tool without one."""
    return str(version) if version else "without a version"


async def versions_shown(door: Door, grant: Grant) -> dict[str, ShownVersions]:
    """Return the tools that have versions by their names, as far as the key includes them. Raises StoreUnreachable."""
    may_see = grant.may(Scope.ADMIN)
    return {
        each.tool: ShownVersions(each, shows_trial=may_see)
        for each in await door.orchestrator.versions.list()
        if grant.may_call(each.tool) and (each.live or may_see)
    }
