"""What the commands about runs and calls share: a connection to look through, and how facts are written for people.

Reads and prints; changes nothing in Redis.
"""

from __future__ import annotations

import os
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
from rich.console import Console
from rich.text import Text

from toolfleet.calls import Failed, Returned
from toolfleet.connections import connect_async
from toolfleet.errors import RunNotFound
from toolfleet.orchestrator.status.overview import CallStanding, Overview
from toolfleet.orchestrator.store.leases import living
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.settings import Settings
from toolfleet.wire import Seal

SHOWN_CHARACTERS: Final = 200
HANDLE_CHARACTERS: Final = 8
PIPED_WIDTH: Final = 200

MINUTE_S: Final = 60
HOUR_S: Final = 3600
DAY_S: Final = 86400


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
    typer.secho(f"toolfleet: {text}", err=True, fg="yellow")


def console_for_tables() -> Console:
    """Standard output; where no person reads, lines are long rather than broken in the middle of a fact."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PIPED_WIDTH)


def print_json(value: Any) -> None:
    """One document on standard output."""
    sys.stdout.write(orjson.dumps(value).decode() + "\n")
    sys.stdout.flush()


def plain(text: object, characters: int = SHOWN_CHARACTERS) -> Text:
    """Text for a table: what a stranger wrote must not be read as markup, nor fill the screen."""
    return Text(shortened(str(text), characters), overflow="fold")


def shortened(text: str, characters: int = SHOWN_CHARACTERS) -> str:
    """The beginning of a long text."""
    return text if len(text) <= characters else f"{text[:characters]}…"


def moment(unix_s: float) -> str:
    """A time for people, in UTC."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S}"


def span(seconds: float) -> str:
    """A length of time in its two largest units at most."""
    whole_s = int(seconds)
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s"
    if whole_s < HOUR_S:
        return f"{whole_s // MINUTE_S} min {whole_s % MINUTE_S} s"
    if whole_s < DAY_S:
        return f"{whole_s // HOUR_S} h {whole_s % HOUR_S // MINUTE_S} min"
    return f"{whole_s // DAY_S} d {whole_s % DAY_S // HOUR_S} h"


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
        known.append(f"job {call.job.external_id}, asked {call.job.polls} times")
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
