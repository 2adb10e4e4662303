"""`toolfleet runs export` and `replay`: a run as a file, and a file through the turn loop again.

Reads, writes and prints; what is the same and what is not, `toolfleet.orchestrator.replay` decides.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from toolfleet.errors import CallerError, ToolfleetError
from toolfleet.orchestrator.doors.cli.telling import moment_after
from toolfleet.orchestrator.doors.cli.wording import plural, shortened
from toolfleet.orchestrator.run.states import State
from toolfleet.terminal import harmless, harmless_json

if TYPE_CHECKING:  # they load what works on runs, which nobody needs who only looks at some
    from toolfleet.orchestrator.doors.cli.sessions import Session
    from toolfleet.orchestrator.replay.differences import Difference
    from toolfleet.orchestrator.replay.export import Export
    from toolfleet.orchestrator.replay.offline import Code
    from toolfleet.orchestrator.replay.replaying import Replayed
    from toolfleet.tool import ToolSpec

SHOWN_DIFFERENCES: Final = 10

SHOWN_ID: Final = 100
"""Characters of an id: nobody checks what a file says."""

BEFORE_DIFFERENCE: Final = 30
"""Characters of a long text that are shown before the first one that differs."""


class ComesOutDifferently(ToolfleetError):
    """A replay has come to something else than what was written down."""


class NoCode(CallerError):
    """What a name stands for is no Orchestrator."""


def export(
    run_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]…", help="Ids of runs, or how they begin.")
    ] = None,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; otherwise standard output.")
    ] = None,
    states: Annotated[
        list[State] | None, typer.Option("--state", help="Without ids: runs in this state; may be given again.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Without ids: runs begun since then: 30m, 2h, 3d, 2026-01-31.")
    ] = None,
) -> None:
    """Write runs as JSON lines, all that was written down of them: for `replay`, `toolfleet eval` and your own use."""
    from toolfleet.orchestrator.doors.cli.sessions import look  # noqa: PLC0415  # a replay of a file needs no Redis

    since_unix_s = None if since is None else moment_after(since)
    if bool(run_ids) == bool(states or since):
        raise typer.BadParameter("name runs by their ids, or by --state and --since, and not both")

    async def write(session: Session) -> int:
        ids = [await session.store.named(beginning) for beginning in run_ids or ()]
        if not ids:
            heads = await session.store.heads(limit=None, states=states or (), since_unix_s=since_unix_s)
            ids = [head.run_id for head in heads]
        with _opened(output) as file:
            for run_id in ids:
                for line in (await _exported(session, run_id)).lines():
                    file.write(harmless_json(line) if output is None else line)
        return len(ids)

    written = look(write)
    if output is not None or not written:
        typer.echo(f"{plural(written, 'run')} exported" + (f" to {harmless(str(output))}" if output else ""), err=True)


def replay(
    sources: Annotated[
        list[str], typer.Argument(metavar="FILE|ID…", help="Files of `runs export`, or ids of stored runs.")
    ],
    *,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", metavar="MODULE", help="Take its tools as they are declared now, not as exported."),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option("--with", metavar="MODULE:NAME", help="Ask the interceptors and policies of this Orchestrator."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one line for each run.")] = False,
) -> None:
    """Take runs through the turn loop again, with the replies and results that they had, and show what differs.

    Files are replayed offline: no Redis, no model, no worker, no network, and no effect. Exit status 1 says that
    something came out differently: what a limit or the guard against loops decides, which calls are sent, what is told
    to the model.
    """
    exports = [export for source in sources for export in _found(source)]
    given, specs = _code(code), _specs(tools)
    done = asyncio.run(_replay_all(exports, specs, given))
    for replayed in done:
        if as_json:
            sys.stdout.write(harmless_json(replayed.model_dump_json(exclude={"messages"})) + "\n")
        else:
            typer.echo("\n".join(_told(replayed)))
    if different := sum(not replayed.is_same for replayed in done):
        raise ComesOutDifferently(f"{different} of {plural(len(done), 'run')} came out differently")


# --- finding what is meant ------------------------------------------------------------------------------------------


def _found(source: str) -> list[Export]:
    """Return the runs of a file, or the stored one that is named."""
    from toolfleet.orchestrator.replay.export import exports_in, read_exports  # noqa: PLC0415  # as above

    if source == "-":
        return exports_in(sys.stdin.buffer, "standard input")
    path = Path(source)
    if path.exists() or "/" in source or path.suffix[1:].isalpha():
        return read_exports([path])
    from toolfleet.orchestrator.doors.cli.sessions import look  # noqa: PLC0415  # as above

    async def export_named(session: Session) -> Export:
        return await _exported(session, await session.store.named(source))

    return [look(export_named)]


async def _exported(session: Session, run_id: str) -> Export:
    from toolfleet.orchestrator.fleet.catalog import Catalog  # noqa: PLC0415  # as above
    from toolfleet.orchestrator.replay.exporting import export_run  # noqa: PLC0415  # as above

    return await export_run(session.store, Catalog(session.client, session.settings), run_id)


def _specs(modules: Sequence[str] | None) -> Mapping[str, ToolSpec]:
    from toolfleet.toolbox import load_tools  # noqa: PLC0415  # a user's own modules, and what they import

    if not modules:
        return {}
    sys.path.insert(0, str(Path.cwd()))
    return {name: tool.spec for name, tool in load_tools(modules).items()}


def _code(name: str | None) -> Code | None:
    from toolfleet.orchestrator.api import Orchestrator  # noqa: PLC0415  # takes a second
    from toolfleet.toolbox import resolve  # noqa: PLC0415  # as above

    if name is None:
        return None
    sys.path.insert(0, str(Path.cwd()))
    found = resolve(name, "an Orchestrator")
    if not isinstance(found, Orchestrator):
        raise NoCode(f"{name} is no Orchestrator: write --with my_module:orchestrator")
    return found.code


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    if output is None:
        yield sys.stdout
        return
    try:
        with output.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise CallerError(f"{output} cannot be written: {error.strerror}") from None


# --- replaying ------------------------------------------------------------------------------------------------------


async def _replay_all(exports: Sequence[Export], tools: Mapping[str, ToolSpec], code: Code | None) -> list[Replayed]:
    from toolfleet.orchestrator.replay.replaying import replay as replay_one  # noqa: PLC0415  # as above
    from toolfleet.settings import new_secret, read_settings  # noqa: PLC0415  # as above

    settings = read_settings(secret=new_secret())  # of nobody: nothing is signed that anybody reads
    return [await replay_one(export, settings, tools=tools, code=code) for export in exports]


# --- showing --------------------------------------------------------------------------------------------------------


def _told(replayed: Replayed) -> Iterator[str]:
    differences = replayed.differences
    named = shortened(replayed.run_id, SHOWN_ID)
    head = f"run {named}: {plural(replayed.turns, 'turn')}, {plural(len(replayed.messages), 'message')}"
    if not differences:
        yield harmless(f"{head}, the same")
        return
    yield harmless(f"{head}, {plural(len(differences), 'difference')}")
    for each in differences[:SHOWN_DIFFERENCES]:
        yield from _shown(each)
    if len(differences) > SHOWN_DIFFERENCES:
        yield f"  and {len(differences) - SHOWN_DIFFERENCES} more: --json shows all"
    if replayed.replayed < replayed.events:
        yield f"  What comes behind event {replayed.replayed} of {replayed.events} says nothing any more."


def _shown(difference: Difference) -> Iterator[str]:
    expected, found = _side_by_side(difference.expected, difference.found)
    yield harmless(f"  turn {difference.turn}, {difference.what}")
    yield f"    expected: {expected}"
    yield f"    found:    {found}"


def _side_by_side(expected: Any, found: Any) -> tuple[str, str]:
    """Return two values on a line each; of long ones what stands around the first place where they differ."""
    one, other = (each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in (expected, found))
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    begins = same - BEFORE_DIFFERENCE if same > 2 * BEFORE_DIFFERENCE else 0
    return _from(begins, one), _from(begins, other)


def _from(begins: int, text: str) -> str:
    return harmless(("…" if begins else "") + shortened(text[begins:])).replace("\n", "\\n")
