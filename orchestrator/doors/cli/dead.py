"""`toolfleet dead`: the messages that no worker could handle.

Prints and asks for confirmation; what may be put back, `status/dead_letters.py` decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console
from rich.text import Text

from toolfleet.broker import celery_app
from toolfleet.calls import Failed, Returned
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.cli.on_fleet import on_fleet
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.wording import one_line, plural, span
from toolfleet.orchestrator.fleet.publishers import publisher_for
from toolfleet.orchestrator.status.dead_letters import DeadLetter, DeadLetters, NotReplayed, Replay, Replayed
from toolfleet.settings import Settings
from toolfleet.terminal import harmless

HIDDEN: Final = "(hidden; --arguments shows it)"
SHOWN_CHARACTERS: Final = 200

app = typer.Typer(
    help="Messages that no worker could handle: list them, look at one, put it back, drop it.",
    epilog="Exit status: 0 done, 1 an error or a letter that was not replayed, 2 wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

Ids = Annotated[list[str] | None, typer.Argument(help="Ids of letters, or of calls, as `list` shows them.")]
Everything = Annotated[bool, typer.Option("--all", help="Every letter, or every one with --reason.")]
Reason = Annotated[str, typer.Option("--reason", help="Only letters whose reason contains this.")]


@dataclass(frozen=True, slots=True)
class DeadLetterSession:
    """The open connections of one command about dead letters."""

    letters: DeadLetters
    replay: Replay

    async def chosen(self, ids: Sequence[str], *, everything: bool, reason: str) -> list[DeadLetter]:
        """Return the letters that the command line names."""
        return await self.letters.newest(reason=reason) if everything else await self.letters.named(ids)


@app.command("list", epilog="Examples: toolfleet dead list --reason crashed   ·   toolfleet dead list --json --limit 0")
def list_letters(
    *,
    reason: Reason = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many, newest first; 0 for all.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the dead letters, newest first.

    On a terminal as a table; into a pipe one line for each letter, with tabs between the columns: id, age, call, tool,
    signature, reason.
    """
    on_fleet(lambda settings: _list(settings, reason, limit or None, as_json=as_json))


@app.command(epilog="Example: toolfleet dead show 1763730000000-0 --arguments")
def show(
    letter: Annotated[str, typer.Argument(help="A letter's id, or its call's.")],
    *,
    arguments: Annotated[
        bool, typer.Option("--arguments", help="Show arguments and context; both may be secret.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of a letter, and whether its signature holds now."""
    on_fleet(lambda settings: _show(settings, letter, in_full=arguments, as_json=as_json))


@app.command(
    epilog="Examples: toolfleet dead replay 1763730000000-0   ·   toolfleet dead replay --all --reason crashed --force"
)
def replay(
    ids: Ids = None,
    *,
    everything: Everything = False,
    reason: Reason = "",
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0.1, max=1e7, help="Seconds until the call expires; without it, what its tool allows."
        ),
    ] = None,
    wait_s: Annotated[float, typer.Option("--wait", min=0, max=1e7, help="Seconds to wait for results.")] = 30.0,
    force: Annotated[
        bool, typer.Option("--force", help="Also where an effect could happen twice, or a result would be discarded.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put calls back into their queues, and tell what became of them.

    A call keeps its id and its arguments, and gets a fresh deadline. Its
    letter is deleted once it is in the queue of its tool; should it fail in
    the same way, it comes back here.

    Most calls lie here because they crashed. The model was told so long ago,
    and a replay does not change a conversation that went on. The new result
    is kept in the store for a day, and a run that still waits for it gets it.

    Refused, whatever you say: what this fleet has not signed.

    Refused without --force: a call of a tool that is neither read-only nor
    idempotent (look first whether its effect has happened), and a call that
    has another result by now (--force discards it).
    """
    _check_choice(ids, everything=everything, reason=reason)
    refused = on_fleet(
        lambda settings: _replay(
            settings,
            ids or [],
            everything=everything,
            reason=reason,
            timeout_s=timeout_s,
            force=force,
            wait_s=wait_s,
            as_json=as_json,
        )
    )
    raise typer.Exit(1 if refused else 0)


@app.command(
    epilog="Examples: toolfleet dead drop 1763730000000-0   ·   toolfleet dead drop --all --reason unsigned --yes"
)
def drop(
    ids: Ids = None,
    *,
    everything: Everything = False,
    reason: Reason = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --all.")] = False,
) -> None:
    """Delete letters for good."""
    _check_choice(ids, everything=everything, reason=reason)
    on_fleet(lambda settings: _drop(settings, ids or [], everything=everything, reason=reason, yes=yes))


def _check_choice(ids: Sequence[str] | None, *, everything: bool, reason: str) -> None:
    if bool(ids) == everything:
        raise typer.BadParameter("name letters, or say --all: one of the two")
    if reason and not everything:
        raise typer.BadParameter("--reason goes with --all")


@asynccontextmanager
async def _open_session(settings: Settings, timeout_s: float | None = None) -> AsyncIterator[DeadLetterSession]:
    celery = celery_app(settings)
    async with aclosing(connect_async(settings)) as client:
        publisher = publisher_for(settings, client, celery)
        try:
            yield DeadLetterSession(
                DeadLetters(client, settings), Replay(client, settings, publisher, timeout_s=timeout_s)
            )
        finally:
            await publisher.aclose()
            celery.close()


async def _list(settings: Settings, reason: str, limit: int | None, *, as_json: bool) -> None:
    async with _open_session(settings) as session:
        letters = await session.letters.newest(reason=reason, limit=limit)
        unsigned = {letter.letter_id for letter in letters if session.replay.signature(letter)}
    if as_json:
        print_json([_facts(letter) | {"signed": letter.letter_id not in unsigned} for letter in letters])
    elif letters:
        _listed(letters, unsigned).print(Console(), plural(len(letters), "dead letter"))
    else:
        typer.echo("No dead letters" + (f" with the reason {reason!r}." if reason else "."))


async def _show(settings: Settings, letter_id: str, *, in_full: bool, as_json: bool) -> None:
    async with _open_session(settings) as session:
        shown = [
            _facts(letter)
            | {"signature": session.replay.signature(letter) or "holds"}
            | {"envelope": _envelope(letter.text, in_full=in_full)}
            | {"raw": {name: _raw(name, value, in_full=in_full) for name, value in letter.raw.items()}}
            for letter in await session.letters.named([letter_id])
        ]
    if as_json:
        print_json(shown)
        return
    for facts in shown:
        console = Console()
        widest = max(map(len, facts))
        for name, value in facts.items():
            console.print(Text(f"{name:<{widest + 2}}", "bold") + Text(harmless(_as_text(value)), ""), soft_wrap=True)


async def _replay(
    settings: Settings,
    ids: Sequence[str],
    *,
    everything: bool,
    reason: str,
    timeout_s: float | None,
    force: bool,
    wait_s: float,
    as_json: bool,
) -> bool:
    """Replay letters and print what became of them. Returns whether some letter was not replayed."""
    async with _open_session(settings, timeout_s) as session:
        letters = await session.chosen(ids, everything=everything, reason=reason)
        outcomes = await session.replay.replay(letters, force=force, wait_s=wait_s)
    if as_json:
        print_json([_outcome(outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            typer.echo(one_line(f"{outcome.letter.letter_id} {outcome.letter.tool}: {_told(outcome)}"))
        replayed = sum(isinstance(outcome, Replayed) for outcome in outcomes)
        typer.echo(f"{replayed} of {len(outcomes)} replayed")
    return any(isinstance(outcome, NotReplayed) for outcome in outcomes)


async def _drop(settings: Settings, ids: Sequence[str], *, everything: bool, reason: str, yes: bool) -> None:
    async with _open_session(settings) as session:
        letters = await session.chosen(ids, everything=everything, reason=reason)
        if everything and letters and not yes:
            typer.confirm(f"Delete {plural(len(letters), 'dead letter')} for good?", abort=True)
        typer.echo(f"{await session.letters.drop(letters)} dropped")


def _listed(letters: Sequence[DeadLetter], unsigned: set[str]) -> Listing:
    listing = Listing("id", "age", "call", Column("tool", True), Column("signature", True), elastic="reason")
    for letter in letters:
        signature = "does not hold" if letter.letter_id in unsigned else "holds"
        age = span(max(0.0, (datetime.now(UTC) - letter.buried_at).total_seconds()))
        listing.add(letter.letter_id, age, letter.call_id, letter.tool, signature, letter.reason)
    return listing


def _facts(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.letter_id,
        "buried_at": letter.buried_at.isoformat(),
        "reason": letter.reason,
        "tool": letter.tool,
        "call_id": letter.call_id,
        "deliveries": letter.deliveries,
        "queue": letter.queue,
    }


def _envelope(text: str, *, in_full: bool) -> Any:
    """Return the call in an envelope, signed or not; the text as it is if there is none."""
    try:
        call = orjson.loads(text)
    except orjson.JSONDecodeError:
        call = text
    if in_full or not text:
        return call
    if not isinstance(call, dict):
        return HIDDEN
    return call | {name: HIDDEN for name in ("arguments", "context") if name in call}


def _raw(name: str, value: str, *, in_full: bool) -> str:
    """Return a field of an entry as it came, hidden if it may hold arguments."""
    return value if in_full or name in {"h", "p", "id", "claim"} else HIDDEN


def _outcome(outcome: Replayed | NotReplayed) -> dict[str, Any]:
    facts = _facts(outcome.letter)
    if isinstance(outcome, NotReplayed):
        return facts | {"replayed": False, "why": outcome.why}
    result = None if outcome.result is None else outcome.result.model_dump(mode="json")
    return facts | {"replayed": True, "queue": outcome.queue, "result": result}


def _told(outcome: Replayed | NotReplayed) -> str:
    if isinstance(outcome, NotReplayed):
        return f"not replayed: {outcome.why}"
    match outcome.result:
        case None:
            return f"replayed to queue {outcome.queue}; no result yet"
        case Returned(content=content):
            return f"replayed, returned {_as_text(content)}"
        case Failed(kind=kind, message=message):
            return f"replayed, failed ({kind.value}): {message}"
        case submitted:
            return f"replayed, {submitted.type} to another system"


def _as_text(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return text if len(text) <= SHOWN_CHARACTERS * 20 else text[: SHOWN_CHARACTERS * 20] + "…"
