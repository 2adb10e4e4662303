"""pydantic-ai as a client of OpenAI's APIs: `chat` or `responses`. Its agents perform their own tools."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from spoken_to import PRICES, Outcome, speak

KIND = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[sys.argv[1]]
MODEL = os.environ["MODEL"]

opened: list[AsyncExitStack] = []


class Total(BaseModel):
    total: int


def agent(model: str = MODEL, key: str | None = None, **more: Any) -> Agent:
    return Agent(KIND(model, provider=OpenAIProvider(api_key=key)), **more)


async def complete(question: str, model: str = MODEL, key: str | None = None) -> Outcome:
    run = await agent(model, key).run(question)
    return {"text": run.output, "ended": run.response.finish_reason, "tokens": run.usage.total_tokens}


async def stream(question: str) -> Outcome:
    async with agent().run_stream(question) as run:
        pieces = [piece async for piece in run.stream_text(delta=True, debounce_by=None)]
        return {"text": "".join(pieces), "pieces": len(pieces), "ended": run.response.finish_reason}


def looking_up(looked_up: list[Any]) -> Agent:
    own = agent()

    @own.tool_plain
    def lookup(item: str) -> str:
        """Look up a price in the client's own database."""
        looked_up.append({"item": item})
        return PRICES[item]

    return own


async def mixed(question: str) -> Outcome:
    looked_up: list[Any] = []
    return {"text": (await looking_up(looked_up).run(question)).output, "looked_up": looked_up}


async def mixed_streamed(question: str) -> Outcome:
    looked_up: list[Any] = []
    async with looking_up(looked_up).iter(question) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    async for _ in events:
                        pass
    return {"text": run.result.output, "looked_up": looked_up}


async def structured(question: str) -> Outcome:
    return {"value": (await agent(output_type=NativeOutput(Total)).run(question)).output.model_dump()}


async def begin(question: str) -> Outcome:
    open_ = AsyncExitStack()
    run = await open_.enter_async_context(agent().run_stream(question))
    opened.append(open_)
    async for piece in run.stream_text(delta=True, debounce_by=None):
        return {"text": piece}
    return {"text": ""}


async def abort() -> Outcome:
    await opened.pop().aclose()
    return {}


speak(complete, stream, mixed, mixed_streamed, structured, begin, abort)
