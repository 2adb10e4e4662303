"""A user's first script. Read by type checkers only; both say so where an ignore is not needed."""

import asyncio
from typing import assert_type

from toolfleet import Context, LocalFleet, OpenAIChat, Orchestrator, tool


@tool(read_only=True)
async def word_count(path: str, ctx: Context) -> int:
    """Count the words of a text file."""
    ctx.progress(0.5, "half of it")
    with open(path) as file:
        return len(file.read().split())


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def ask(question: str) -> str | None:
    with LocalFleet(["my_tools"], pools={"io": 1}) as fleet:
        async with Orchestrator(OpenAIChat("gpt-5.2"), settings=fleet.settings) as orchestrator:
            run = await orchestrator.run(question, tools=["word_count"])
            print(run.usage, [call.result for call in run.calls])
            return run.answer


assert_type(add(1, b=2), int)
add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
print(asyncio.run(ask("How many words has README.md?")))
