"""Tools for tests of the MCP server; slow ones enter a stage, so that a test sees every start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from enum import Enum
from typing import Annotated, Any, Literal

from fleet_tools import _play
from pydantic import BaseModel

from toolfleet import Context, Form, Media, ModelPrompt, Returned, Secret, ToolError, ask, current_context, tool
from toolfleet.calls import MediaPart


class Point(BaseModel):
    x: int
    y: int


class Seat(BaseModel):
    row: int


class Owner(Enum):
    ANN = "ann"
    BOB = "bob"


class Account(BaseModel):
    name: Literal["savings", "checking"]
    owner: Owner = Owner.ANN


@tool(read_only=True)
async def echo(value: Any) -> Any:
    """Give back what came."""
    return value


@tool
async def add(a: int, b: int) -> int:
    """Add, once."""
    return a + b


@tool(idempotent=True)
async def mirrored(point: Point) -> Point:
    """A model in, a model out."""
    return Point(x=point.y, y=point.x)


@tool(read_only=True)
async def padded(characters: int) -> dict[str, str]:
    """An object that may be too large."""
    return {"text": "x" * characters}


@tool(read_only=True)
async def fail(text: str) -> None:
    """Raise."""
    raise ToolError(text)


@tool(name="a name/that clients refuse", read_only=True)
async def named_oddly() -> str:
    """Has a name that no client takes."""
    return "odd"


@tool(read_only=True, patience_s=0.2)
async def play_impatiently(stage: str) -> Any:
    """Do as the stage says; counts as slow soon."""
    return await _play(stage)


@tool(patience_s=60)
async def play(stage: str) -> Any:
    """Do as the stage says."""
    return await _play(stage)


@tool(read_only=True, long_running=True)
async def play_long(stage: str) -> dict[str, int]:
    """Do as the stage says, for as long as it takes."""
    return await _play(stage)


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f6"
    "45400000000049454e44ae426082"
)


@tool(read_only=True)
async def drawn() -> Media:
    """A picture."""
    return Media(PNG, "image/png", "dot.png")


@tool(read_only=True)
async def spoken() -> Media:
    """A sound."""
    return Media(b"RIFF....WAVE", "audio/wav")


@tool(read_only=True)
async def paged() -> Media:
    """A page."""
    return Media("<script>alert('☃')</script>".encode(), "text/html; charset=utf-8", "page.html")


@tool(read_only=True)
async def album(pictures: int) -> list[Media]:
    """Pictures."""
    return [Media(PNG, "image/png", f"{n}.png") for n in range(pictures)]


@tool(read_only=True)
async def illustrated() -> list[str | Media]:
    """Text, a picture, text, a sound."""
    return ["before", Media(PNG, "image/png"), "after", Media(b"RIFF....WAVE", "audio/wav")]


@tool(read_only=True)
async def charted() -> dict[str, Any]:
    """An object that holds a picture."""
    return {"sum": 3, "chart": Media(PNG, "image/png")}


@tool(read_only=True)
async def photographed(size_bytes: int) -> Media:
    """A picture of that size."""
    return Media(PNG.ljust(size_bytes, b"\0"), "image/png", "photo.png")


@tool(read_only=True)
async def miscoded() -> Returned:
    """A part of its own making, whose data are no base64."""
    return Returned(content="look", media=(MediaPart(media_type="application/zip", size_bytes=3, data="?"),))


@tool(read_only=True, long_running=True)
async def play_and_draw(stage: str) -> Media:
    """A picture, once the stage lets it go."""
    await _play(stage)
    return Media(PNG, "image/png")


@tool(read_only=True)
async def logged(lines: int) -> str:
    """Many lines, the last of which says so."""
    return "\n".join([*(f"line {n}" for n in range(lines)), "the end"])


@tool(read_only=True)
async def pictured() -> list[Any]:
    """Text, a picture, and a file."""
    picture = Media(data=b"PNG", media_type="image/png")
    return ["look", picture, Media(data=b"PDF", media_type="application/pdf", name="a b.pdf")]


@tool(read_only=True)
async def who_asks() -> dict[str, Any]:
    """What the caller's door said of the caller."""
    return dict(current_context().context)


@tool(requires_approval=True)
async def pay(amount: int, token: Annotated[str, Secret()] = "") -> str:
    """Needs a person's approval."""
    return f"paid {amount} for {current_context().subject or 'nobody'}"


@tool
async def book(city: str) -> str:
    """Asks its user which day, and for how many."""
    day = ask(when=Form("Which day?", {"day": {"type": "string", "enum": ["Monday", "Friday"]}}))["when"]["day"]
    guests = ask(who=Form("How many?", {"guests": {"type": "integer"}}))["who"]["guests"]
    return f"{city} on {day} for {guests}"


@tool(retries=3)
async def compose(about: str) -> str:
    """Asks a model."""
    return f"composed: {ask(poem=ModelPrompt(about, system='in verse', max_tokens=50))['poem']}"


@tool(requires_approval=True)
async def donate(amount: int) -> str:
    """Needs a person's approval, and asks."""
    return f"{amount} to {ask(to=Form('To whom?', {'name': {'type': 'string'}}))['to']['name']}"


@tool(read_only=True)
async def mislabelled() -> Any:
    """Calls something of its own as questions are called."""
    current_context().attributes["toolfleet/questions"] = "what are these?"
    return "a result"


@tool
async def choose_seat(ctx: Context) -> str:
    """Ask while it runs, in a form and by a single field."""
    seat = await ctx.ask("Which seat?", Seat)
    sure = await ctx.ask("Sure?", bool)
    return f"row {seat.row}, {'sure' if sure else 'unsure'}"


@tool(read_only=True)
async def recite() -> AsyncIterator[str]:
    """Yield words."""
    for word in ("one ", "two ", "three"):
        yield word


@tool(long_running=True)
async def transfer(amount: int, ctx: Context) -> str:
    """Ask for an account, and whether it is right; no worker has the call meanwhile."""
    ctx.checkpoint("begun")
    account = await ctx.ask("Which account?", Account)
    if not await ctx.ask(f"Transfer {amount} from {account.name}?", bool):
        return "nothing was transferred"
    return f"{amount} from {account.name}, attempt {ctx.attempt} of {ctx.call_id}"


@tool(patience_s=60)
async def seat_two(ctx: Context) -> str:
    """Ask two people at once."""
    ann, bob = await asyncio.gather(ctx.ask("Ann?", int, key="ann"), ctx.ask("Bob?", int, key="bob"))
    return f"ann {ann}, bob {bob}, in {ctx.call_id}"


@tool(requires_approval=True)
async def pay_from(amount: int, ctx: Context) -> str:
    """Need an approval, and ask while it runs."""
    return f"{amount} from {await ctx.ask('Which account?', str)}, in {ctx.call_id}"


@tool(long_running=True)
async def map_out(ctx: Context) -> str:
    """Ask for what no form can show."""
    return str(await ctx.ask("Where?", list[Point]))
