"""LiteLLM as a client of an API like OpenAI's."""

from __future__ import annotations

import json
import os
from typing import Any

import litellm
from pydantic import BaseModel
from spoken_to import LOOKUP, MOST_TURNS, PRICES, Outcome, speak

TOOLS: Any = [{"type": "function", "function": LOOKUP}]

opened: list[Any] = []


class Total(BaseModel):
    total: int


def user(question: str) -> dict[str, Any]:
    return {"role": "user", "content": question}


async def ask(messages: list[Any], model: str = os.environ["MODEL"], **more: Any) -> Any:
    return await litellm.acompletion(model=f"openai/{model}", messages=messages, **more)


async def ask_for_pieces(messages: list[Any], **more: Any) -> tuple[list[Any], Any]:
    pieces = [piece async for piece in await ask(messages, stream=True, **more)]
    return pieces, litellm.stream_chunk_builder(pieces, messages=messages)


async def complete(question: str, key: str | None = None, **model: str) -> Outcome:
    completion = await ask([user(question)], api_key=key, **model)
    [choice] = completion.choices
    return {"text": choice.message.content, "ended": choice.finish_reason, "tokens": completion.usage.total_tokens}


async def stream(question: str) -> Outcome:
    pieces, whole = await ask_for_pieces([user(question)])
    texts = [piece.choices[0].delta.content for piece in pieces if piece.choices[0].delta.content]
    return {"text": "".join(texts), "pieces": len(texts), "ended": whole.choices[0].finish_reason}


async def mixed(question: str, *, streamed: bool = False) -> Outcome:
    said = [user(question)]
    looked_up = []
    for _ in range(MOST_TURNS):
        if streamed:
            _, completion = await ask_for_pieces(said, tools=TOOLS)
        else:
            completion = await ask(said, tools=TOOLS)
        [choice] = completion.choices
        said.append(choice.message.model_dump())
        if not choice.message.tool_calls:
            break
        for call in choice.message.tool_calls:
            looked_up.append(json.loads(call.function.arguments))
            said.append({"role": "tool", "tool_call_id": call.id, "content": PRICES[looked_up[-1]["item"]]})
    return {"text": choice.message.content, "looked_up": looked_up}


async def mixed_streamed(question: str) -> Outcome:
    return await mixed(question, streamed=True)


async def structured(question: str) -> Outcome:
    completion = await ask([user(question)], response_format=Total)
    return {"value": Total.model_validate_json(completion.choices[0].message.content).model_dump()}


async def begin(question: str) -> Outcome:
    stream = await ask([user(question)], stream=True)
    opened.append(stream)
    async for piece in stream:
        if piece.choices[0].delta.content:
            return {"text": piece.choices[0].delta.content}
    return {"text": ""}


async def abort() -> Outcome:
    await opened.pop().aclose()
    return {}


speak(complete, stream, mixed, mixed_streamed, structured, begin, abort)
