"""An answer that is empty, withheld or cut off is told as that, and a garbled reply is no reply."""

import json
from contextlib import asynccontextmanager

import pytest
from strict_provider import StrictProvider, anthropic_end, openai_chunk

from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.batch import openai_format, own_format
from toolfleet.orchestrator.run.outcome import result_for_parent
from toolfleet.orchestrator.run.states import State


def openai(text, reason, calls=()):
    said = {"content": text} | ({"tool_calls": [*calls]} if calls else {})
    return [openai_chunk(said), openai_chunk({}, {"withheld": "content_filter"}.get(reason, reason)), "[DONE]"]


def anthropic(text, reason, calls=()):
    blocks = [({"type": "text", "text": ""}, {"type": "text_delta", "text": text})] if text else []
    blocks += [
        (
            {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {}},
            {"type": "input_json_delta", "partial_json": call["function"]["arguments"]},
        )
        for call in calls
    ]
    events = [
        json.dumps(event)
        for index, (block, delta) in enumerate(blocks)
        for event in (
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
        )
    ]
    named = {"stop": "end_turn", "length": "max_tokens", "withheld": "refusal"}
    return [*events, *anthropic_end(named[reason])]


DIALECTS = {"openai": openai, "anthropic": anthropic}


@pytest.fixture(params=DIALECTS)
async def asked(request, fleet):
    """An orchestrator whose provider says what a test tells it to, and how to say it in its dialect."""
    async with provided(request.param, fleet) as opened:
        yield opened


@asynccontextmanager
async def provided(dialect, fleet):
    async with StrictProvider() as provider:
        model = getattr(provider, dialect)()
        async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
            yield orchestrator, provider, DIALECTS[dialect]


@pytest.mark.parametrize(
    ("text", "reason", "told"),
    [
        ("Once upon a", "length", "length"),
        ("", "length", "length"),
        ("Once upon a", "withheld", "content_filter"),
        ("", "withheld", "content_filter"),
        ("", "stop", "empty"),
        (" \n", "stop", "empty"),
        ("Once.", "stop", None),
    ],
)
async def test_an_answer_says_that_it_is_cut_off_withheld_or_empty(asked, text, reason, told):
    orchestrator, provider, saying = asked
    provider.replies.append(saying(text, reason))
    run = await orchestrator.run("Tell me a story.")
    if (saying, reason) == (anthropic, "withheld"):
        told = "refusal"  # Messages has one word for both
    assert (run.state, run.answer, run.incomplete) == (State.DONE, text, told)
    assert (await orchestrator.get(run.run_id)).incomplete == told


async def test_the_trace_goes_when_the_run_goes_on(asked):
    orchestrator, provider, saying = asked
    provider.replies.append(saying("Once upon a", "length"))
    run = await orchestrator.run("Tell me a story.")
    await orchestrator.resume(run.run_id, "Go on.")
    run = await orchestrator.wait(run.run_id)
    assert (run.answer, run.incomplete) == ("done", None)


async def test_half_a_call_of_a_reply_that_was_withheld_in_the_midst_is_not_run(asked, tmp_path):
    orchestrator, provider, saying = asked
    file = tmp_path / "effect"
    half = {"name": "write_line", "arguments": json.dumps({"path": str(file)})[:-1]}
    provider.replies.append(saying("", "withheld", [{"index": 0, "id": "c1", "type": "function", "function": half}]))
    run = await orchestrator.run("write")
    assert not file.exists()
    ended = {openai: "was withheld in the midst", anthropic: "was broken off by a refusal"}[saying]
    assert f"{ended}, so write_line was not called" in run.calls[0].result.message


async def test_lines_of_a_batch_and_callers_of_agents_read_that_an_answer_is_cut_off(fleet):
    async with provided("openai", fleet) as (orchestrator, provider, saying):
        provider.replies.append(saying("Once upon a", "length"))
        run = await orchestrator.run("Tell me a story.")
    assert json.loads(own_format.written(1, "a", run))["incomplete"] == "length"
    [choice] = json.loads(openai_format.written("a", run))["response"]["body"]["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "Once upon a")
    said = result_for_parent(run).content
    assert said == "Once upon a\n[This answer was cut off by the output limit of its model.]"


async def test_an_agent_whose_answer_is_empty_says_so_to_its_caller(fleet):
    async with StrictProvider() as provider:
        writer = Agent(name="writer", description="Writes.", instructions="Write.", tools=[])
        async with Orchestrator(model=provider.openai(), settings=fleet.settings, agents=[writer]) as orchestrator:
            arguments = json.dumps({"task": "a story"})
            call = {"index": 0, "id": "c1", "type": "function"}
            call["function"] = {"name": "writer", "arguments": arguments}
            provider.replies += [openai("", "tool_calls", [call]), openai("", "stop")]
            run = await orchestrator.run("Have a story written.")
    assert run.calls[0].result.content == "[The model of this answer said nothing.]"


# --- replies that are none -------------------------------------------------------------------------------------------

GARBLED = {
    "half an event": ['{"choices": [{"index": 0, "del'],
    "no JSON": ["<html>"],
    "another type": ['{"choices": 5}', '{"type": 5}'],
    "nothing but its end": ["[DONE]", '{"type": "message_stop"}'],
}


@pytest.mark.parametrize("garbled", GARBLED.values(), ids=GARBLED)
async def test_a_garbled_reply_is_asked_for_again(asked, garbled):
    orchestrator, provider, saying = asked
    provider.replies += [garbled, saying("Once.", "stop")]
    run = await orchestrator.run("Tell me a story.")
    assert (run.state, run.answer, len(provider.requests)) == (State.DONE, "Once.", 2)


async def test_a_reply_that_is_garbled_after_a_call_keeps_that_call_and_is_not_asked_for_again(asked):
    orchestrator, provider, saying = asked
    function = {"name": "echo", "arguments": '{"value": "x"}'}
    whole = saying("", "length", [{"index": 0, "id": "c1", "type": "function", "function": function}])
    second = json.dumps({"type": "content_block_stop", "index": 0})
    provider.replies.append([*whole[:-2], *([second] if saying is anthropic else []), "{broken"])
    run = await orchestrator.run("Say x.")
    assert [call.result.content for call in run.calls] == ["x"]
    assert (run.answer, len(provider.requests)) == ("done", 2)  # the second was for what follows the call


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
async def test_a_reply_that_its_provider_calls_broken_is_asked_for_again(fleet, reason):
    async with provided("openai", fleet) as (orchestrator, provider, saying):
        provider.replies += [saying("Once upon", reason), saying("Once.", "stop")]
        run = await orchestrator.run("Tell me a story.")
    assert (run.answer, len(provider.requests)) == ("Once.", 2)
