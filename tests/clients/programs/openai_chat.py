"""The official Python client: Chat Completions."""

from __future__ import annotations

import json
import os
from typing import Any

import openai
from pydantic import BaseModel
from spoken_to import LOOKUP, MOST_TURNS, PRICES, Outcome, speak

MODEL = os.environ["MODEL"]
TOOLS: Any = [{"type": "function", "function": LOOKUP}]

client = openai.AsyncOpenAI()
opened: list[Any] = []


class Total(BaseModel):
    total: int


def user(question: str) -> dict[str, Any]:
    return {"role": "user", "content": question}


async def complete(question: str, model: str = MODEL, key: str | None = None) -> Outcome:
    asked = client if key is None else client.with_options(api_key=key)
    completion = await asked.chat.completions.create(model=model, messages=[user(question)])
    [choice] = completion.choices
    return {"text": choice.message.content, "ended": choice.finish_reason, "tokens": completion.usage.total_tokens}


async def stream(question: str) -> Outcome:
    async with client.chat.completions.stream(model=MODEL, messages=[user(question)]) as events:
        pieces = [event.delta async for event in events if event.type == "content.delta"]
        whole = await events.get_final_completion()
    return {"text": "".join(pieces), "pieces": len(pieces), "ended": whole.choices[0].finish_reason}


async def mixed(question: str) -> Outcome:
    said: list[Any] = [user(question)]
    looked_up = []
    for _ in range(MOST_TURNS):
        [choice] = (await client.chat.completions.create(model=MODEL, messages=said, tools=TOOLS)).choices
        said.append(choice.message)
        for call in choice.message.tool_calls or ():
            looked_up.append(json.loads(call.function.arguments))
            said.append({"role": "tool", "tool_call_id": call.id, "content": PRICES["tea"]})
        if choice.finish_reason == "stop":
            break
    return {"text": choice.message.content, "looked_up": looked_up}


async def mixed_streamed(question: str) -> Outcome:
    said: list[Any] = [user(question)]
    looked_up = []
    for _ in range(MOST_TURNS):
        async with client.chat.completions.stream(model=MODEL, messages=said, tools=TOOLS) as events:
            [choice] = (await events.get_final_completion()).choices
        calls = choice.message.tool_calls or ()
        said.append(
            {
                "role": "assistant",
                "content": choice.message.content,
                "tool_calls": [
                    {
                        "id": each.id,
                        "type": "function",
                        "function": {"name": each.function.name, "arguments": each.function.arguments},
                    }
                    for each in calls
                ]
                or None,
            }
        )
        for call in calls:
            looked_up.append(json.loads(call.function.arguments))
            said.append({"role": "tool", "tool_call_id": call.id, "content": PRICES["tea"]})
        if choice.finish_reason == "stop":
            break
    return {"text": choice.message.content, "looked_up": looked_up}


async def structured(question: str) -> Outcome:
    completion = await client.chat.completions.parse(model=MODEL, messages=[user(question)], response_format=Total)
    return {"value": completion.choices[0].message.parsed.model_dump()}


async def begin(question: str) -> Outcome:
    stream = await client.chat.completions.create(model=MODEL, messages=[user(question)], stream=True)
    opened.append(stream)
    async for piece in stream:
        if piece.choices[0].delta.content:
            return {"text": piece.choices[0].delta.content}
    return {"text": ""}


async def abort() -> Outcome:
    await opened.pop().close()
    return {}


speak(complete, stream, mixed, mixed_streamed, structured, begin, abort)
