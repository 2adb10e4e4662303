"""The versions of a tool as a line of a list: which are live, what new runs get, and how a trial stands. Pure."""

from __future__ import annotations

from typing import Final

from toolfleet.orchestrator.doors.cli.wording import moment
from toolfleet.orchestrator.fleet.version_shares import VersionShare
from toolfleet.orchestrator.fleet.versions import VersionsStanding

COLUMNS: Final = ("tool", "live", "new runs", "share", "failed")

LAST: Final = "last word"


def line_of(each: VersionsStanding) -> tuple[str, ...]:
    """Return what stands in `COLUMNS`, and the last word."""
    live = ", ".join(str(version) if version else "none" for version in each.live)
    said = each.said
    part = f"{said.share * 100:.4g} % version {said.version}" if said else ""
    failed = ", ".join(f"{version}: {ends.failed} of {ends.calls}" for version, ends in each.ends.items())
    return each.tool, live, "" if each.new_runs is None else str(each.new_runs), part, failed, _word(said)


def _word(said: VersionShare | None) -> str:
    if said is None or not said.history:
        return ""
    last = said.history[-1]
    return " ".join(part for part in (moment(last.at_unix_s), last.action, "by", last.by, last.why) if part)
