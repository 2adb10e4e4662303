"""How limits and shares are written for people. Pure."""

from __future__ import annotations

from toolfleet.limits import KeyFrom, ToolLimits
from toolfleet.orchestrator.doors.cli.wording import moment, span
from toolfleet.orchestrator.fleet.limits import NEVER_MS, Override, Share, ToolStanding


def declared(standing: ToolStanding) -> str:
    """Return what a tool declares."""
    if standing.declared is None:
        return "(no live worker serves it with a limit)"
    return _limits(standing.declared)


def _limits(limits: ToolLimits) -> str:
    said = []
    if limits.rate is not None:
        said.append(f"{_rate(limits.rate.per_s)}, {limits.rate.burst} at once{_each(limits.rate.key)}")
    if limits.concurrency is not None:
        said.append(f"concurrency {limits.concurrency.at_once}{_each(limits.concurrency.key)}")
    return "; ".join(said)


def _each(key: KeyFrom) -> str:
    return "" if key.source == "fleet" else f" for each {key.source} {key.name}".rstrip()


def in_words(said: Override, now_ms: int = 0) -> str:
    """Return what is said of a limit; with the time, how long a pause lasts yet."""
    words = [] if said.rate is None else [_rate(said.rate)]
    words += [] if said.burst is None else [f"{said.burst} at once"]
    words += [] if said.concurrency is None else [f"concurrency {said.concurrency}"]
    if said.paused_until_ms == NEVER_MS:
        words.append("paused")
    elif said.paused_until_ms is not None and said.paused_until_ms > now_ms:
        left = span((said.paused_until_ms - now_ms) / 1000) if now_ms else ""
        words.append(f"paused for {left} more" if left else f"paused until {moment(said.paused_until_ms / 1000)} UTC")
    return "; ".join(words)


def share_in_words(share: Share) -> str:
    """Return what is said of a tenant's share."""
    words = [] if share.weight is None else [f"weight {share.weight:g}"]
    words += [] if share.guaranteed is None else [f"guaranteed {share.guaranteed}"]
    words += [] if share.ceiling is None else [f"ceiling {share.ceiling}"]
    return "; ".join(words)


def _rate(per_s: float) -> str:
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_s * seconds >= 1:
            return f"{per_s * seconds:.6g}/{unit}"
    return f"{per_s * 86400:.6g}/day"
