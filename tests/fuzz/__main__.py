"""`python -m tests.fuzz --inputs 100000`: junk for live processes, until one falls over or the inputs are spent."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet"))  # as pytest's configuration does


def main(
    *,
    count: Annotated[int, typer.Option("--inputs", min=1)] = 100_000,
    seed: Annotated[int | None, typer.Option(help="What chance is made of; the clock, if you do not say.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="A kind of input by name; may be given again.")] = None,
) -> None:
    """Send junk to a fleet, and say what was sent and counted."""
    from tests.fuzz.arena import fuzz
    from tests.fuzz.inputs import OF_ORCHESTRATORS, OF_WORKERS

    chosen = seed if seed is not None else time.time_ns()
    kinds = [kind for kind in (*OF_WORKERS, *OF_ORCHESTRATORS) if not only or kind.__name__ in only]
    typer.echo(f"seed {chosen}")
    with tempfile.TemporaryDirectory() as folder:
        sent, counted = asyncio.run(fuzz(kinds, count, chosen, Path(folder)))
    typer.echo(f"sent {dict(sent)}\ncounted {counted}")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
