"""Tools of which people, or others, are told."""

import asyncio

from toolfleet import Context, tool


@tool(requires_approval=True, read_only=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(read_only=True)
async def ask_name(ctx: Context) -> str:
    """Ask a person for a name."""
    return await ctx.ask("What is it called?", str)


@tool(read_only=True, long_running=True)
async def brew(seconds: float) -> str:
    """Brew tea."""
    await asyncio.sleep(seconds)
    return "tea"


@tool(read_only=True)
async def greet(name: str) -> str:
    """Greet."""
    return f"hello {name}"
