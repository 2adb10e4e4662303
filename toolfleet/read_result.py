"""`read_result`: what a model reads on with in a result that was too large for it. Answered without a worker."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from pydantic import Field

from toolfleet import paging
from toolfleet.artifacts import Artifacts, Asker
from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.errors import ArtifactNotFound, BadArguments
from toolfleet.tool import tool

MAX_PAGE_CHARS: Final = 20_000


@tool(read_only=True)
async def read_result(
    artifact: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_CHARS)] = 8000,
    search: Annotated[str, Field(max_length=1000)] = "",
) -> str:
    """Read on in a result that was too large to be shown whole, or find something in it.

    Args:
        artifact: the id that the preview names
        offset: the character to begin at
        limit: how many characters to read
        search: show where this text is found instead, in any case, from offset on
    """
    raise NotImplementedError(f"{artifact}, {offset}, {limit}, {search}: only `answer` can")


READ_RESULT: Final = read_result.spec
"""Offered beside the tools of the fleet."""


async def answer(artifacts: Artifacts, arguments: str, asker: Asker) -> Returned | Failed:
    """The result of a call of `read_result`, whose arguments are JSON text. Raises StoreUnreachable."""
    try:
        asked = read_result.bind(arguments).values
    except BadArguments as error:
        return Failed(kind=FailureKind.BAD_ARGUMENTS, message=str(error))
    try:
        kept = await artifacts.find(asked["artifact"], asker)
        text = (await kept.read()).decode()
    except ArtifactNotFound as error:
        return Failed(kind=FailureKind.ERROR, message=str(error))
    except UnicodeDecodeError:
        what = f"artifact {kept.artifact} is {kept.media_type}, {kept.size_bytes} bytes, and no text to read"
        return Failed(kind=FailureKind.ERROR, message=what)
    if asked["search"]:
        return Returned(content=await _find(text, asked["search"], asked["offset"]))
    return Returned(content=paging.page(text, asked["offset"], asked["limit"]))


async def _find(text: str, searched: str, offset: int) -> str:
    shown: list[paging.Passage] = []
    for window in paging.places(text, searched, offset):
        shown += window
        if len(shown) > paging.MAX_MATCHES:
            break
        await asyncio.sleep(0)  # the loop serves others too
    more_at = shown[paging.MAX_MATCHES].start if len(shown) > paging.MAX_MATCHES else None
    return paging.found(text, searched, shown[: paging.MAX_MATCHES], more_at)
