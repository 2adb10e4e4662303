"""The OpenAI-compatible doors, with the official client: nothing of it is changed but its address."""

import asyncio

import openai
import pytest

from toolfleet.orchestrator.models import REHEARSAL_MODEL

LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look up a price in the client's own database.",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
    },
}


@pytest.fixture
async def client(api):
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), max_retries=0) as client:
        yield client


def user(text):
    return {"role": "user", "content": text}


async def test_the_fleets_tools_run_on_the_server(client):
    completion = await client.chat.completions.create(
        model=REHEARSAL_MODEL, messages=[user('call add {"a": 2, "b": 3}')], temperature=0.5
    )
    [choice] = completion.choices
    assert choice.finish_reason == "stop"
    assert choice.message.content.endswith("add: 5")
    assert choice.message.tool_calls is None
    assert completion.usage.total_tokens > 0


async def test_a_streamed_completion_says_the_same(client):
    asked = {"model": REHEARSAL_MODEL, "messages": [user('say "Well." call add {"a": 2, "b": 3}')]}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert text.startswith("Well.")
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_the_clients_own_tools_come_back_to_it_and_it_answers_them(api, client, stream):
    said = [user('call add {"a": 2, "b": 3} then call lookup {"item": "tea"} and call add {"a": 1, "b": 1}')]
    asked = {"model": REHEARSAL_MODEL, "tools": [LOOKUP]}
    if stream:
        pieces = [p async for p in await client.chat.completions.create(**asked, messages=said, stream=True)]
        [call] = [call for piece in pieces for call in piece.choices[0].delta.tool_calls or ()]
        assert pieces[-1].choices[0].finish_reason == "tool_calls"
    else:
        [choice] = (await client.chat.completions.create(**asked, messages=said)).choices
        [call] = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls"
    assert (call.function.name, call.function.arguments) == ("lookup", '{"item": "tea"}')
    sent_back = {"id": call.id, "type": "function", "function": call.function.model_dump()}
    said += [
        {"role": "assistant", "content": None, "tool_calls": [sent_back]},
        {"role": "tool", "tool_call_id": call.id, "content": "4 EUR"},
    ]
    completion = await client.chat.completions.create(**asked, messages=said)
    answer = completion.choices[0].message.content
    # The turns that the client never saw are there, and were not taken twice.
    assert answer.splitlines()[-3:] == ["add: 5", "lookup: 4 EUR", "add: 2"]


async def test_a_client_may_choose_the_fleets_tools_and_shadow_them(client):
    shadow = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    completion = await client.chat.completions.create(
        model=REHEARSAL_MODEL, messages=[user('call add {"a": 1}')], tools=[shadow]
    )
    assert completion.choices[0].message.tool_calls[0].function.name == "add"
    completion = await client.chat.completions.create(
        model=REHEARSAL_MODEL,
        messages=[user('call add {"a": 1, "b": 1}')],
        extra_body={"toolfleet": {"tools": ["echo"]}},
    )
    assert "There is no tool 'add'" in completion.choices[0].message.content


async def test_errors_are_those_that_the_client_knows(client):
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-9'") as unknown:
        await client.chat.completions.create(model="gpt-9", messages=[user("?")])
    assert (unknown.value.code, unknown.value.type) == ("model_not_found", "invalid_request_error")
    sound = [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]
    with pytest.raises(openai.BadRequestError, match="only text and images"):
        await client.chat.completions.create(model=REHEARSAL_MODEL, messages=[{"role": "user", "content": sound}])
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model=REHEARSAL_MODEL, messages=[])
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_nope")


async def test_models_are_listed(client):
    assert [model.id async for model in client.models.list()] == [REHEARSAL_MODEL]
    assert (await client.models.retrieve(REHEARSAL_MODEL)).id == REHEARSAL_MODEL


# --- responses --------------------------------------------------------------------------------------------------------


async def test_a_response_in_the_background_is_polled(client):
    response = await client.responses.create(
        model=REHEARSAL_MODEL, input='call wait {"seconds": 0.3} then call add {"a": 2, "b": 3}', background=True
    )
    assert response.status == "in_progress"
    async with asyncio.timeout(20):
        while response.status == "in_progress":
            await asyncio.sleep(0.02)
            response = await client.responses.retrieve(response.id)
    assert response.status == "completed"
    assert response.output_text.endswith("add: 5")
    assert response.usage.total_tokens > 0


async def test_a_response_is_cancelled(client):
    response = await client.responses.create(model=REHEARSAL_MODEL, input='call wait {"seconds": 60}', background=True)
    assert (await client.responses.cancel(response.id)).status == "cancelled"
    assert (await client.responses.retrieve(response.id)).status == "cancelled"
    assert (await client.responses.cancel(response.id)).status == "cancelled"
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


@pytest.mark.parametrize("stateful", [True, False])
async def test_a_response_hands_calls_over_and_goes_on(client, stateful):
    lookup = {"type": "function", **LOOKUP["function"], "strict": False}
    asked = {"model": REHEARSAL_MODEL, "tools": [lookup], "instructions": "Be brief."}
    question = 'call add {"a": 2, "b": 3} then call lookup {"item": "tea"}'
    first = await client.responses.create(**asked, input=question)
    [call] = [item for item in first.output if item.type == "function_call"]
    answer = {"type": "function_call_output", "call_id": call.call_id, "output": "4 EUR"}
    if stateful:
        second = await client.responses.create(**asked, input=[answer], previous_response_id=first.id)
    else:
        second = await client.responses.create(**asked, input=[user(question), call.model_dump(), answer])
    assert second.output_text.splitlines()[-2:] == ["add: 5", "lookup: 4 EUR"]
