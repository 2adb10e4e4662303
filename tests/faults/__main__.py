"""`python -m tests.faults`: kill things, and see whether the promises hold.

Prints a table, and what was covered of the matrix of losses; the last line is `calls=N lost=N duplicated=N mispaired=N
unfinished=N`, and the exit status says whether all but the first are zero.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.faults.arena import FAULTS, LEASE_S, Form, Suffered
from tests.faults.cells import Cell, coverage
from tests.faults.judge import Tally
from tests.faults.of_losses import LOSSES
from tests.faults.suite import chosen, of_today, suffer
from toolfleet.logs import configure_logs

RECOVERY_MARGIN_S = 5.0

COLUMNS = ("injected", "calls", "lost", "duplicated", "wrong", "in doubt", "not promised", "recovery")

console = Console(stderr=True, highlight=False)


def main(
    *,
    only: Annotated[list[str] | None, typer.Option(help="A fault by name; may be given again.")] = None,
    short: Annotated[bool, typer.Option("--short", help="A round of under ten minutes.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Each fault once, as in the test suite.")] = False,
    lanes: Annotated[int, typer.Option(min=1, help="Faults at the same time, each on a fleet of its own.")] = 1,
    turn: Annotated[
        int | None, typer.Option(min=0, help="Which part of the matrix a short form takes; today's, if not given.")
    ] = None,
    seed: Annotated[str, typer.Option(help="What chance is made of.")] = "toolfleet",
    as_json: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file, too.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="Only say what there is.")] = False,
) -> None:
    """Make every fault happen, with a fixed seed, and count what it cost."""
    if listing:
        for fault in FAULTS.values():
            typer.echo(f"{fault.name}: {fault.what}")
        return
    if unknown := [name for name in only or [] if name not in FAULTS]:
        raise typer.BadParameter(f"{unknown[0]!r} is no fault; --list says what there is", param_hint="--only")
    configure_logs("error")
    form = Form.ONCE if once else Form.SHORT if short else Form.LONG
    turn = of_today() if turn is None else turn
    all_suffered = suffer(chosen(only or [], form, turn), form, seed, tell, lanes, turn)
    tallies = {each.fault.name: each.tally() for each in all_suffered}
    Console(width=None if sys.stdout.isatty() else 150).print(table(all_suffered, tallies))
    total = sum(tallies.values(), Tally())
    for name, tally in tallies.items():
        for note in tally.notes:
            typer.echo(f"{name}: {note}")
    covered = coverage(LOSSES.values(), stood(all_suffered))
    for line in covered.lines() if covered.reached or covered.never_reached else ():
        typer.echo(line)
    if as_json is not None:
        figures = {each.fault.name: asdict(tallies[each.fault.name]) | {"s": each.seconds} for each in all_suffered}
        about = {"form": form, "seed": seed, "turn": turn, "lease_s": LEASE_S}
        as_json.write_text(json.dumps({**about, "faults": figures, "matrix": covered.figures()}, indent=1))
    typer.echo(total.last_line())
    raise typer.Exit(0 if total.is_clean else 1)


def stood(all_suffered: list[Suffered]) -> list[tuple[Cell, bool]]:
    """The cells that were tried, and whether their calls stood there."""
    asks = [ask for each in all_suffered for ask in each.load.asks]
    return [(ask.cell, ask.stood) for ask in asks if ask.cell]


def tell(suffered: Suffered) -> None:
    """One line while the others go on."""
    tally = suffered.tally()
    colour = "green" if tally.is_clean else "red"
    console.print(f"[{colour}]{suffered.fault.name}[/] {tally.last_line()} ({suffered.seconds:.1f} s)")


def table(all_suffered: list[Suffered], tallies: dict[str, Tally]) -> Table:
    """What happened, how often, and what it cost."""
    drawn = Table(title=f"Faults (lease {LEASE_S:g} s)", title_justify="left")
    drawn.add_column("fault")
    for column in COLUMNS:
        drawn.add_column(column, justify="right")
    for each in all_suffered:
        tally = tallies[each.fault.name]
        drawn.add_row(each.fault.what, *cells(tally), style="" if tally.is_clean else "red")
    drawn.add_section()
    drawn.add_row("all", *cells(sum(tallies.values(), Tally())), style="bold")
    return drawn


def cells(tally: Tally) -> list[str]:
    late = " !" if tally.recovery_s > LEASE_S + RECOVERY_MARGIN_S else ""
    counts = (
        tally.injected,
        tally.calls,
        tally.lost,
        tally.duplicated,
        tally.mispaired,
        tally.in_doubt,
        tally.not_promised,
    )
    return [*map(str, counts), f"{tally.recovery_s:.1f} s{late}"]


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="python -m tests.faults")
