"""What providers want back with the next turn, through real servers and through storage."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from toolfleet.messages import Message, ToolMessage, UserMessage
from toolfleet.orchestrator.errors import ModelRefused
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer, reply
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.names import NameMap
from toolfleet.orchestrator.models.openai_reply import CompletionReader
from toolfleet.orchestrator.models.openai_wire import OpenAIWire
from toolfleet.orchestrator.models.rehearsal import Dialect

ASK = UserMessage(content='call add {"a": 1} and call add {"a": 2}')
SIGNS = Dialect(signs_calls=True)
STORED = TypeAdapter(list[Message])


def next_turn(message):
    """The history after one turn, as it comes back from the store."""
    results = [ToolMessage(tool_call_id=call.id, name=call.name, content="3") for call in message.tool_calls]
    return STORED.validate_json(STORED.dump_json([ASK, message, *results]))


@pytest.fixture
async def signing(quick):
    """A server that signs its calls, and a model that asks it under the given host name."""
    models = []
    async with RehearsalServer(dialect=SIGNS) as server:

        def model(host="127.0.0.1", *, stream=True):
            base_url = server.base_url.replace("127.0.0.1", host)
            models.append(
                OpenAIChat(REHEARSAL_MODEL, base_url=base_url, api_key="rehearsal", http=quick, stream=stream)
            )
            return models[-1]

        yield server, model
        for opened in models:
            await opened.aclose()


@pytest.mark.parametrize("stream", [True, False])
async def test_the_signature_of_a_call_comes_back_to_the_provider_that_wrote_it(signing, stream):
    server, open_model = signing
    model = open_model(stream=stream)
    first = await reply(model, [ASK])
    await reply(model, next_turn(first.message))
    returned = server.requests[-1]["messages"][1]["tool_calls"]
    assert all(call["extra_content"]["google"]["thought_signature"] for call in returned)
    assert len(returned) == 2


async def test_a_provider_of_another_host_is_not_shown_what_the_first_one_signed(signing):
    server, open_model = signing
    first = await reply(open_model(), [ASK])
    with pytest.raises(ModelRefused, match="missing a thought_signature"):
        await reply(open_model("localhost"), next_turn(first.message))
    assert "extra_content" not in server.requests[-1]["messages"][1]["tool_calls"][0]


async def test_a_history_without_extras_is_stored_without_the_field(quick):
    async with RehearsalServer() as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=quick)
        answer = await reply(model, [ASK])
        await model.aclose()
    assert "extras" not in answer.message.model_dump_json()


def read(chunks, provider="api.deepseek.com"):
    assembly = ReplyAssembly("m", NameMap([]), provider=provider)
    reader = CompletionReader(assembly, provider)
    for delta in chunks:
        reader.feed(f'{{"choices": [{{"index": 0, "delta": {delta}}}]}}'.encode())
    reader.end()
    return assembly.heard()[-1].message


def sent(message, provider):
    return OpenAIWire().request("m", [message], [], stream=True, provider=provider)["messages"][0]


CALL = '{"tool_calls": [{"index": 0, "id": "c", "function": {"name": "add", "arguments": "{}"}}]}'


def test_what_was_thought_before_a_call_comes_back_with_it_to_who_thought_it():
    message = read(['{"reasoning_content": "Hm, "}', '{"reasoning_content": "add."}', CALL])
    assert message.content == ""
    assert sent(message, "api.deepseek.com")["reasoning_content"] == "Hm, add."
    assert "reasoning_content" not in sent(message, "api.openai.com")


def test_what_was_thought_before_an_answer_is_not_kept():
    message = read(['{"reasoning_content": "Hm."}', '{"content": "Three."}'])
    assert message.extras == {}
