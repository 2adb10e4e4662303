"""The official Python client: Responses."""

from __future__ import annotations

import json
import os
from typing import Any

import openai
from pydantic import BaseModel
from spoken_to import LOOKUP, MOST_TURNS, PRICES, Outcome, speak

MODEL = os.environ["MODEL"]
TOOLS: Any = [{"type": "function", **LOOKUP, "strict": True}]

client = openai.AsyncOpenAI()
opened: list[Any] = []


class Total(BaseModel):
    total: int


def ended(response: Any) -> str:
    return {"completed": "stop"}.get(response.status, response.status)


async def complete(question: str, model: str = MODEL, key: str | None = None) -> Outcome:
    asked = client if key is None else client.with_options(api_key=key)
    response = await asked.responses.create(model=model, input=question)
    return {"text": response.output_text, "ended": ended(response), "tokens": response.usage.total_tokens}


async def stream(question: str) -> Outcome:
    async with client.responses.stream(model=MODEL, input=question) as events:
        pieces = [event.delta async for event in events if event.type == "response.output_text.delta"]
        response = await events.get_final_response()
    return {"text": "".join(pieces), "pieces": len(pieces), "ended": ended(response)}


async def mixed(question: str) -> Outcome:
    """The server remembers what was said."""
    looked_up, said, before = [], question, None
    for _ in range(MOST_TURNS):
        response = await client.responses.create(model=MODEL, input=said, tools=TOOLS, previous_response_id=before)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        said, before = [answered(call, looked_up) for call in calls], response.id
    return {"text": response.output_text, "looked_up": looked_up}


async def mixed_streamed(question: str) -> Outcome:
    """The client remembers what was said."""
    looked_up: list[Any] = []
    said: list[Any] = [{"role": "user", "content": question}]
    for _ in range(MOST_TURNS):
        async with client.responses.stream(model=MODEL, input=said, tools=TOOLS, store=False) as events:
            response = await events.get_final_response()
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        said += response.to_dict()["output"]
        said += [answered(call, looked_up) for call in calls]
    return {"text": response.output_text, "looked_up": looked_up}


def answered(call: Any, looked_up: list[Any]) -> dict[str, Any]:
    asked = json.loads(call.arguments)
    looked_up.append(asked)
    return {"type": "function_call_output", "call_id": call.call_id, "output": PRICES[asked["item"]]}


async def structured(question: str) -> Outcome:
    response = await client.responses.parse(model=MODEL, input=question, text_format=Total)
    return {"value": response.output_parsed.model_dump()}


async def begin(question: str) -> Outcome:
    stream = await client.responses.create(model=MODEL, input=question, stream=True)
    opened.append(stream)
    async for event in stream:
        if event.type == "response.output_text.delta":
            return {"text": event.delta}
    return {"text": ""}


async def abort() -> Outcome:
    await opened.pop().close()
    return {}


speak(complete, stream, mixed, mixed_streamed, structured, begin, abort)
