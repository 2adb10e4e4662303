"""Build the index and ask questions of it: python -m examples.full_text_index"""

from __future__ import annotations

import asyncio

from toolfleet import (
    CallEnded,
    CallProgressed,
    CallStarted,
    LocalFleet,
    Orchestrator,
    RunEnded,
    model_from_environment,
    rehearsal_model,
)

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


async def ask(fleet: LocalFleet) -> None:
    model = model_from_environment()
    question = QUESTION if model else PROGRAM
    print(question)
    async with Orchestrator(model or rehearsal_model(), settings=fleet.settings) as orchestrator:
        async for event in orchestrator.stream(question, slow="handle"):
            match event:
                case CallStarted(tool=tool):
                    print(f"{tool}: started")
                case CallProgressed(tool=tool, fraction=fraction, message=message):
                    print(f"{tool}: {fraction:.0%} {message}")
                case CallEnded(tool=tool, result=result):
                    print(f"{tool}: {result.type}")
                case RunEnded(run=run):
                    print(run.answer or run.reason)


if __name__ == "__main__":
    with LocalFleet(["examples.full_text_index.tools"]) as fleet:
        asyncio.run(ask(fleet))
