"""What the commands about runs and calls share: a connection to look through, and how facts are written for people.

Reads and prints; changes nothing in Redis.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import redis.asyncio
import typer

from toolfleet.calls import Failed, Returned
from toolfleet.connections import connect_async
from toolfleet.errors import RunNotFound
from toolfleet.orchestrator.doors.cli.wording import DAY_S, HOUR_S, MINUTE_S, plural, span
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.overview import CallStanding, Overview
from toolfleet.orchestrator.store.leases import living
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.settings import Settings
from toolfleet.terminal import harmless, harmless_json
from toolfleet.wire import Seal

HANDLE_CHARACTERS: Final = 8

WAITS_FOR_APPROVAL: Final = "waits for approval"

UNITS_S: Final = {"s": 1, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S}


@dataclass(frozen=True, slots=True)
class Desk:
    """The open connection of one command that looks at runs."""

    client: redis.asyncio.Redis
    settings: Settings
    store: RunStore
    overview: Overview

    async def call_named(self, beginning: str) -> str:
        """The id of a call whose run's id may be shortened, as long as it begins only one run's.

        A call whose run is not stored is taken as it is named.
        """
        run_id, *position = beginning.rsplit(".", 2)
        if len(position) != 2 or not all(part.isdigit() for part in position):
            raise typer.BadParameter(f"{beginning} is no call id, which is RUN.TURN.POSITION, for example 3f9c.1.0")
        try:
            return ".".join([await self.store.named(run_id), *position])
        except RunNotFound:
            return beginning

    async def warn_unless_somebody_goes_on(self, model: str) -> None:
        """Say on standard error that no orchestrator with this model is there, if none is, and which models are."""
        there = {each.model for each in await living(self.client, self.settings) if each.model}
        if model not in there:
            others = f" (those there have {', '.join(sorted(there))})" if there else ""
            warn(
                f"no orchestrator with the model {model} is there now{others}; the run goes on once there is one: "
                f"toolfleet orchestrator --model {model}"
            )


@asynccontextmanager
async def desk(settings: Settings) -> AsyncIterator[Desk]:
    """A connection to look at runs with."""
    async with aclosing(connect_async(settings)) as client:
        seal = Seal(settings)
        yield Desk(client, settings, RunStore(client, settings, seal), Overview(client, settings, seal))


def warn(text: str) -> None:
    """One line on standard error, which is not an error."""
    typer.secho(f"toolfleet: {harmless(text)}", err=True, fg="yellow")


def print_json(value: Any) -> None:
    """One document on standard output."""
    sys.stdout.write(harmless_json(orjson.dumps(value).decode()) + "\n")
    sys.stdout.flush()


def moment_after(text: str) -> float:
    """The Unix time that `--since` names: so long ago (90s, 30m, 2h, 3d), or a date or time in ISO 8601 (UTC)."""
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
    """How a call stands, in words."""
    return WAITS_FOR_APPROVAL if call.state is CallState.AWAITING_APPROVAL else call.state.replace("_", " ")


def age(call: CallStanding) -> str:
    """Since when a call is under way; nothing of one that is not."""
    return "" if call.age_s is None or call.is_over else span(call.age_s)


def took(call: CallStanding) -> str:
    """How long a call took; nothing where that is not known."""
    return "" if call.took_s is None else span(call.took_s)


def deadline(unix_s: float | None) -> str:
    """How far a deadline is away."""
    if unix_s is None:
        return ""
    left_s = unix_s - time.time()
    return f"in {span(left_s)}" if left_s > 0 else "passed"


def how_far(call: CallStanding) -> str:
    """What is known of a call's way so far."""
    known = []
    if call.progress is not None:
        known.append(f"{call.progress.fraction:.0%} {call.progress.message}".rstrip())
    if call.queue_position is not None:
        known.append(f"{call.queue_position} before it")
    if call.attempt is not None and call.attempt > 1:
        known.append(f"attempt {call.attempt}")
    if call.job is not None:
        known.append(f"job {call.job.external_id}, asked {plural(call.job.polls, 'time')}")
    return "; ".join(known)


def outcome(call: CallStanding) -> str:
    """What a call came to."""
    match call.result:
        case Returned(content=content):
            return content
        case Failed(message=message):
            return message
        case _:
            return ""


def call_facts(call: CallStanding) -> dict[str, Any]:
    """A call for programs."""
    return call.model_dump(mode="json")
