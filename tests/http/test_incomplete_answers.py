"""What an answer lacks, as OpenAI's clients are told of it."""

import openai
import pytest

from tests.fleet.strict_provider import StrictProvider, openai_chunk
from tests.http.fleet_of_doors import api_of

TOLD = [
    ("Once upon a", "length", "length", "incomplete", "max_output_tokens"),
    ("I", "content_filter", "content_filter", "incomplete", "content_filter"),
    ("Whole.", "stop", "stop", "completed", None),
]


@pytest.fixture
async def provider():
    async with StrictProvider() as running:
        yield running


@pytest.fixture
async def client(http_fleet, provider):
    async with (
        api_of(http_fleet.settings, provider.openai()) as api,
        openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), max_retries=0) as client,
    ):
        yield client


@pytest.mark.parametrize(("text", "reason", "finish_reason", "status", "lacks"), TOLD)
async def test_an_answer_that_lacks_something_is_told_at_each_openai_door(
    client, provider, text, reason, finish_reason, status, lacks
):
    asked = {"model": "strict", "messages": [{"role": "user", "content": "Tell me a story."}]}
    reply = [openai_chunk({"content": text}), openai_chunk({}, reason), "[DONE]"]

    provider.replies.append(reply)
    [choice] = (await client.chat.completions.create(**asked)).choices
    assert (choice.message.content, choice.finish_reason) == (text, finish_reason)

    provider.replies.append(reply)
    chunks = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == finish_reason

    provider.replies.append(reply)
    response = await client.responses.create(model="strict", input="Tell me a story.")
    assert (response.output_text, response.status) == (text, status)
    assert (response.incomplete_details and response.incomplete_details.reason) == lacks
