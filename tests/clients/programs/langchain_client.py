"""LangChain's client of OpenAI's APIs: `chat` or `responses`."""

from __future__ import annotations

import os
import sys
from contextlib import aclosing
from typing import Any

from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from spoken_to import LOOKUP, MOST_TURNS, PRICES, Outcome, speak

OPTIONS: dict[str, Any] = {"use_responses_api": sys.argv[1] == "responses", "max_retries": 0}
MODEL = os.environ["MODEL"]

opened: list[Any] = []


class Total(BaseModel):
    total: int


def asking(model: str = MODEL, key: str | None = None) -> ChatOpenAI:
    own = {} if key is None else {"api_key": key}
    return ChatOpenAI(model=model, **OPTIONS, **own)


def ended(message: Any) -> str:
    """The reason as Chat Completions has it; a response has a status instead."""
    told = message.response_metadata
    return told.get("finish_reason") or {"completed": "stop"}.get(told.get("status"), told.get("status"))


async def complete(question: str, model: str = MODEL, key: str | None = None) -> Outcome:
    message = await asking(model, key).ainvoke(question)
    return {"text": message.text, "ended": ended(message), "tokens": message.usage_metadata["total_tokens"]}


async def stream(question: str) -> Outcome:
    pieces: list[AIMessageChunk] = [piece async for piece in asking().astream(question)]
    whole = sum(pieces[1:], start=pieces[0])
    return {"text": whole.text, "pieces": len([each for each in pieces if each.text]), "ended": ended(whole)}


async def mixed(question: str, streamed: bool = False) -> Outcome:
    model = asking().bind_tools([{"type": "function", "function": LOOKUP}])
    said: list[Any] = [HumanMessage(question)]
    looked_up = []
    for _ in range(MOST_TURNS):
        if streamed:
            pieces = [piece async for piece in model.astream(said)]
            message = sum(pieces[1:], start=pieces[0])
        else:
            message = await model.ainvoke(said)
        said.append(message)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            looked_up.append(call["args"])
            said.append(ToolMessage(PRICES[call["args"]["item"]], tool_call_id=call["id"]))
    return {"text": message.text, "looked_up": looked_up}


async def mixed_streamed(question: str) -> Outcome:
    return await mixed(question, streamed=True)


async def structured(question: str) -> Outcome:
    answer = await asking().with_structured_output(Total).ainvoke(question)
    return {"value": answer.model_dump()}


async def begin(question: str) -> Outcome:
    stream = asking().astream(question)
    opened.append(stream)
    async for piece in stream:
        if piece.text:
            return {"text": piece.text}
    return {"text": ""}


async def abort() -> Outcome:
    async with aclosing(opened.pop()):
        return {}


speak(complete, stream, mixed, mixed_streamed, structured, begin, abort)
