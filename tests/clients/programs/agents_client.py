"""OpenAI's Agents SDK as a client of OpenAI's APIs: `chat` or `responses`. Its agents perform their own tools."""

from __future__ import annotations

import os
import sys
from typing import Any

import openai
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel
from spoken_to import PRICES, Outcome, speak

KIND = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[sys.argv[1]]
MODEL = os.environ["MODEL"]

set_tracing_disabled(disabled=True)
opened: list[Any] = []


class Total(BaseModel):
    total: int


def agent(model: str = MODEL, key: str | None = None, **more: Any) -> Agent:
    client = openai.AsyncOpenAI(api_key=key or os.environ["OPENAI_API_KEY"])
    return Agent(name="client", model=KIND(model, client), **more)


async def complete(question: str, model: str = MODEL, key: str | None = None) -> Outcome:
    run = await Runner.run(agent(model, key), question)
    return {"text": run.final_output, "ended": "stop", "tokens": run.context_wrapper.usage.total_tokens}


async def stream(question: str) -> Outcome:
    run = Runner.run_streamed(agent(), question)
    pieces = [piece async for piece in texts(run)]
    return {"text": "".join(pieces), "pieces": len(pieces), "ended": "stop" if run.is_complete else "early"}


async def texts(run: Any) -> Any:
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta


def looking_up(looked_up: list[Any]) -> Agent:
    @function_tool
    def lookup(item: str) -> str:
        """Look up a price in the client's own database."""
        looked_up.append({"item": item})
        return PRICES[item]

    return agent(tools=[lookup])


async def mixed(question: str) -> Outcome:
    looked_up: list[Any] = []
    return {"text": (await Runner.run(looking_up(looked_up), question)).final_output, "looked_up": looked_up}


async def mixed_streamed(question: str) -> Outcome:
    looked_up: list[Any] = []
    run = Runner.run_streamed(looking_up(looked_up), question)
    async for _ in run.stream_events():
        pass
    return {"text": run.final_output, "looked_up": looked_up}


async def structured(question: str) -> Outcome:
    return {"value": (await Runner.run(agent(output_type=Total), question)).final_output.model_dump()}


async def begin(question: str) -> Outcome:
    run = Runner.run_streamed(agent(), question)
    opened.append(run)
    async for piece in texts(run):
        return {"text": piece}
    return {"text": ""}


async def abort() -> Outcome:
    opened.pop().cancel()
    return {}


speak(complete, stream, mixed, mixed_streamed, structured, begin, abort)
