"""Build the index and ask questions of it: python -m examples.full_text_index"""

from __future__ import annotations

from rich.console import Console

from toolfleet import LocalFleet
from toolfleet.orchestrator.doors.cli.conversation import converse
from toolfleet.orchestrator.models.environment import model_from_environment

QUESTION = (
    "Build an index of the documentation strings of Python's standard library. Then use it to answer: "
    "which functions create a temporary file or folder, and what in asyncio limits how long one waits?"
)

# The rehearsal model does not understand questions; this says outright what to call.
PROGRAM = (
    "call build_index {} then fetch "
    'then call search_docs {"query": "create AND temporary AND (file OR directory)", "limit": 5} '
    'and call search_docs {"query": "name:asyncio timeout", "limit": 5}'
)


def main() -> None:
    console = Console()
    question = QUESTION if model_from_environment() else PROGRAM
    console.print(f"[bold]{question}[/]\n", highlight=False)
    with LocalFleet(["examples.full_text_index.tools"]) as fleet:
        converse(question, fleet.settings, console, slow="handle")


if __name__ == "__main__":
    main()
