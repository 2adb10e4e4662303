"""The states of runs and calls as diagrams: `python -m toolfleet.orchestrator.status.diagram` prints the code's tables.

Pure text in Mermaid's language; a test holds docs/slow-tools.md to it.
"""

from __future__ import annotations

import sys

from toolfleet.orchestrator.run.states import TRANSITIONS, State
from toolfleet.orchestrator.status.call_state import MOVES, CallState


def of_runs() -> str:
    """Every change of a run's state; changes that leave it as it is are left out."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.THINKING}"]
    for state, row in TRANSITIONS.items():
        lines += [f"    {state} --> {after}: {change}" for change, after in row.items() if after is not state]
    lines += [f"    {state} --> [*]" for state in State if state.is_terminal]
    return "\n".join(lines)


def of_calls() -> str:
    """Every state of a call, and what leads from one to the next."""
    lines = ["stateDiagram-v2", f"    [*] --> {CallState.QUEUED}"]
    lines += [f"    {before} --> {after}: {why}" for before, row in MOVES.items() for after, why in row.items()]
    lines += [f"    {state} --> [*]" for state in CallState if state.is_terminal]
    return "\n".join(lines)


def main() -> None:
    """Print both."""
    sys.stdout.write(f"```mermaid\n{of_runs()}\n```\n\n```mermaid\n{of_calls()}\n```\n")


if __name__ == "__main__":
    main()
