"""The states of runs and calls as diagrams: `python -m toolfleet.orchestrator.status.diagram` prints the code's tables.

Pure text in Mermaid's language; a test holds docs/slow-tools.md to it.
"""

from __future__ import annotations

import sys
from typing import Final, get_args

from toolfleet.orchestrator.run.states import TRANSITIONS, State
from toolfleet.orchestrator.status.handles import Status

_OPEN: Final = ("queued", "running", "submitted")

_MOVES: Final = {
    ("queued", "running"): "a worker takes it",
    ("running", "queued"): "handed back, or its worker is lost and it may be repeated",
    ("running", "submitted"): "the tool started a job elsewhere",
}

_ENDS: Final = {
    "succeeded": ("running", "submitted"),
    "failed": ("running", "submitted"),
    "cancelled": _OPEN,
    "expired": _OPEN,
    "in_doubt": ("running",),
}
"""How the state of a call with a handle may end, and from where."""


def of_runs() -> str:
    """Every change of a run's state; changes that leave it as it is are left out."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.THINKING}"]
    for state, row in TRANSITIONS.items():
        lines += [f"    {state} --> {after}: {change}" for change, after in row.items() if after is not state]
    lines += [f"    {state} --> [*]" for state in State if state.is_terminal]
    return "\n".join(lines)


def of_calls() -> str:
    """The words that a handle's status is told in, and what leads from one to the next."""
    lines = ["stateDiagram-v2", f"    [*] --> {_OPEN[0]}"]
    lines += [f"    {before} --> {after}: {why}" for (before, after), why in _MOVES.items()]
    lines += [f"    {before} --> {word}" for word, befores in _ENDS.items() for before in befores]
    lines += [f"    {word} --> [*]" for word in _ENDS]
    return "\n".join(lines)


def words() -> frozenset[str]:
    """Every word that a status may have, from its type."""
    return frozenset(get_args(Status.model_fields["status"].annotation))


def main() -> None:
    """Print both."""
    sys.stdout.write(f"```mermaid\n{of_runs()}\n```\n\n```mermaid\n{of_calls()}\n```\n")


if __name__ == "__main__":
    main()
