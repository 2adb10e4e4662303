"""The API in front of a provider that says what a test tells it to, with the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import openai

from tests.fleet.strict_provider import StrictProvider
from tests.http.fleet_of_doors import Api, api_of
from toolfleet.settings import Settings


@dataclass(frozen=True)
class StrictDoor:
    api: Api
    provider: StrictProvider
    client: openai.AsyncOpenAI

    async def ask(self, *replies: list[str], stream: bool = False, **asked: Any) -> Said:
        """The completion of a question that the provider answers so, whole or put together from its pieces."""
        self.provider.replies.extend(replies)
        asked = {"model": "strict", "messages": [{"role": "user", "content": "?"}], **asked}
        if not stream:
            return whole(await self.client.chat.completions.create(**asked))
        return joined([piece async for piece in await self.client.chat.completions.create(**asked, stream=True)])

    @property
    def sent(self) -> Any:
        """The last request that the provider got."""
        return self.provider.requests[-1]


@dataclass(frozen=True)
class Said:
    """What a client reads of a completion."""

    content: str
    refusal: str | None
    finish_reason: str | None
    more: dict[str, Any]
    run_id: str = ""


def whole(completion: Any) -> Said:
    [choice] = completion.choices
    said = choice.message
    run_id = completion.id.removeprefix("chatcmpl-")
    return Said(said.content or "", said.refusal, choice.finish_reason, completion.model_dump(), run_id)


def joined(pieces: list[Any]) -> Said:
    deltas = [piece.choices[0].delta for piece in pieces if piece.choices]
    refusals = [delta.refusal for delta in deltas if delta.refusal is not None]
    reasons = [piece.choices[0].finish_reason for piece in pieces if piece.choices]
    more = {name: value for piece in pieces for name, value in piece.model_dump().items() if value is not None}
    text = "".join(delta.content or "" for delta in deltas)
    run_id = pieces[0].id.removeprefix("chatcmpl-")
    return Said(text, "".join(refusals) if refusals else None, reasons[-1], more, run_id)


@asynccontextmanager
async def strict_door(settings: Settings, dialect: str = "openai", **model: Any) -> AsyncIterator[StrictDoor]:
    async with StrictProvider() as provider:
        own = getattr(provider, dialect)(**model)
        async with (
            api_of(settings, own) as api,
            openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), max_retries=0) as client,
        ):
            yield StrictDoor(api, provider, client)
