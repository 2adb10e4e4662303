"""A reply is told as it comes: at once what has come, and together what came together."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.errors import ModelRefused
from toolfleet.orchestrator.models import (
    AnthropicMessages,
    CallComplete,
    CallDelta,
    OpenAIChat,
    ReplyComplete,
    TextDelta,
    ThoughtDelta,
)

ASK = [UserMessage(content="?")]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
TEXT = ["one ", "two ", "three ", "grö", "ße"]


def openai(delta, finish_reason=None):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def openai_text(text):
    return openai({"content": text})


def anthropic_text(text):
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


ENDS = {
    OpenAIChat: openai({}, "stop"),
    AnthropicMessages: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
}
TEXTS = {OpenAIChat: openai_text, AnthropicMessages: anthropic_text}


def event(said):
    return f"data: {json.dumps(said)}\n\n".encode()


@asynccontextmanager
async def served(kind, parts, quick):
    """A model whose server sends each part alone, and the next one only once it may go on."""
    may_go_on = asyncio.Semaphore(0)

    async def answer(reader, writer):
        answering.append(asyncio.current_task())
        try:
            await reader.readuntil(b"}]")
            writer.write(HEAD)
            for part in parts:
                writer.write(part)
                await may_go_on.acquire()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    answering = []
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    model = kind("m", base_url=url, api_key="k", http=quick)
    try:
        yield model, may_go_on
    finally:
        await model.aclose()
        server.close()
        await server.wait_closed()
        for task in answering:
            task.cancel()
        await asyncio.wait(answering)


@pytest.mark.parametrize("kind", TEXTS)
async def test_each_piece_of_text_is_told_before_the_next_one_comes(kind, quick):
    parts = [event(TEXTS[kind](piece)) for piece in TEXT]
    async with (
        served(kind, [*parts, event(ENDS[kind])], quick) as (model, may_go_on),
        aclosing(model.stream(ASK, [])) as events,
    ):
        for piece in TEXT:
            assert await anext(events) == TextDelta(piece)
            may_go_on.release()
        may_go_on.release()
        assert (await anext(events)).message.content == "one two three größe"


@pytest.mark.parametrize("kind", TEXTS)
async def test_text_that_comes_together_is_told_as_one(kind, quick, events_of):
    whole = b"".join(event(TEXTS[kind](piece)) for piece in TEXT) + event(ENDS[kind])
    async with served(kind, [whole], quick) as (model, may_go_on):
        may_go_on.release()
        text, reply = await events_of(model, ASK)
    assert text == TextDelta("one two three größe")
    assert isinstance(reply, ReplyComplete)


@pytest.mark.parametrize("kind", TEXTS)
async def test_a_piece_cut_in_a_character_waits_for_the_rest_of_its_event(kind, quick, events_of):
    body = json.dumps(TEXTS[kind]("größe"), ensure_ascii=False).encode()
    cut = body.index(b"\xc3") + 1
    parts = [b"data: " + body[:cut], body[cut:] + b"\n\n" + event(ENDS[kind])]
    async with served(kind, parts, quick) as (model, may_go_on):
        may_go_on.release()
        may_go_on.release()
        text, _ = await events_of(model, ASK)
    assert text == TextDelta("größe")


async def test_what_comes_together_is_told_in_the_order_in_which_it_was_said(quick, events_of):
    call = {"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a": 1}'}}
    said = [
        openai({"reasoning_content": "Hm, "}),
        openai({"reasoning_content": "add."}),
        openai_text("Let me "),
        openai_text("see."),
        openai({"tool_calls": [call]}),
        openai({}, "tool_calls"),
    ]
    async with served(OpenAIChat, [b"".join(map(event, said))], quick) as (model, may_go_on):
        may_go_on.release()
        *told, reply = await events_of(model, ASK)
    assert told[:2] == [ThoughtDelta("Hm, add."), TextDelta("Let me see.")]
    assert [type(each) for each in told[2:]] == [CallDelta, CallComplete]
    assert (reply.message.thoughts, reply.message.content) == ("Hm, add.", "Let me see.")


async def test_text_that_comes_together_with_a_refusal_is_told_before_it(quick):
    refusal = {"error": {"message": "context too long", "type": "invalid_request_error"}}
    said = event(openai_text("one ")) + event(refusal)
    async with served(OpenAIChat, [said], quick) as (model, _), aclosing(model.stream(ASK, [])) as events:
        assert await anext(events) == TextDelta("one ")
        with pytest.raises(ModelRefused, match="context too long"):
            await anext(events)


async def test_the_end_of_a_reply_is_told_though_its_server_does_not_hang_up(quick):
    whole = event(openai_text("one ")) + event(openai({}, "stop")) + b"data: [DONE]\n\n"
    async with served(OpenAIChat, [whole], quick) as (model, _), aclosing(model.stream(ASK, [])) as events:
        assert await anext(events) == TextDelta("one ")
        assert isinstance(await anext(events), ReplyComplete)
