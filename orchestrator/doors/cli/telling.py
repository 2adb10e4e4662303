"""What the commands about runs and calls share: how facts are written for people and for programs.

Prints; knows no Redis.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import orjson
import typer

from toolfleet.calls import Failed, Returned
from toolfleet.orchestrator.doors.cli.wording import DAY_S, HOUR_S, MINUTE_S, plural, span
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.holding import HeldBy, WaitsFor
from toolfleet.terminal import harmless, harmless_json

HANDLE_CHARACTERS: Final = 8

WAITS_FOR_APPROVAL: Final = "waits for approval"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
"""The option of a command that then answers with `print_json`."""

UNITS_S: Final = {"s": 1, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S}


def warn(text: str) -> None:
    """Print one line on standard error, which is not an error."""
    typer.secho(f"toolfleet: {harmless(text)}", err=True, fg="yellow")


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(harmless_json(orjson.dumps(value).decode()) + "\n")
    sys.stdout.flush()


def moment_after(text: str) -> float:
    """Return the Unix time that `--since` names: so long ago (90s, 30m, 2h, 3d), or in ISO 8601 (UTC)."""
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip()):
        return time.time() - float(ago[1]) * UNITS_S[ago[2]]
    try:
        named = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"--since {text} is neither a length of time (90s, 30m, 2h, 3d) nor a date (2026-01-31, 2026-01-31T12:00)"
        ) from None
    return (named if named.tzinfo else named.replace(tzinfo=UTC)).timestamp()


def state_of(call: CallStanding) -> str:
    """Return how a call stands, in words."""
    return WAITS_FOR_APPROVAL if call.state is CallState.AWAITING_APPROVAL else call.state.replace("_", " ")


def age(call: CallStanding) -> str:
    """Return for how long a call has been under way; "" for one that is not."""
    return "" if call.age_s is None or call.is_over else span(call.age_s)


def took(call: CallStanding) -> str:
    """Return how long a call took; "" where that is not known."""
    return "" if call.took_s is None else span(call.took_s)


def deadline(unix_s: float | None) -> str:
    """Return how far away a deadline is."""
    if unix_s is None:
        return ""
    left_s = unix_s - time.time()
    return f"in {span(left_s)}" if left_s > 0 else "passed"


def how_far(call: CallStanding) -> str:
    """Return what is known of how far a call has come."""
    known = []
    if call.progress is not None:
        known.append(f"{call.progress.fraction:.0%} {call.progress.message}".rstrip())
    if call.waits_for is not None:
        known += waiting(call.waits_for)
    if call.held_by is not None:
        known.append(holding(call.held_by))
    if call.attempt is not None and call.attempt > 1:
        known.append(f"attempt {call.attempt}")
    if call.job is not None:
        known.append(f"job {call.job.external_id}, asked {plural(call.job.polls, 'time')}")
    return "; ".join(known)


def waiting(call: WaitsFor) -> list[str]:
    """Return what a call waits for, in words."""
    known = [f"waits for {call.reason}"]
    if call.ahead is not None:
        known.append(f"{'at least ' if call.is_at_least else ''}{call.ahead} before it")
    if call.estimate_s is not None:
        known.append(f"about {span(call.estimate_s)} to go")
    return known


def holding(held: HeldBy) -> str:
    """Return which worker has a call, and when it has last shown that it lives."""
    seen = "not seen" if held.sign_of_life_s is None else f"seen {span(held.sign_of_life_s)} ago"
    return f"with {held.worker} for {span(held.since_s)}, {seen}"


def outcome(call: CallStanding) -> str:
    """Return the text of a call's result, "" without one."""
    match call.result:
        case Returned(content=content):
            return content
        case Failed(message=message):
            return message
        case _:
            return ""


def call_facts(call: CallStanding) -> dict[str, Any]:
    """Return a call as JSON values, for programs."""
    return call.model_dump(mode="json")
