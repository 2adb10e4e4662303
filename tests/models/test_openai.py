import asyncio
import json
from contextlib import aclosing

import pytest

from toolfleet.errors import InvalidSettings
from toolfleet.messages import AssistantMessage, RequestedCall, SystemMessage, ToolMessage, UserMessage
from toolfleet.orchestrator.errors import ModelRefused
from toolfleet.orchestrator.models import (
    REHEARSAL_MODEL,
    CallComplete,
    CallDelta,
    OpenAIChat,
    RehearsalServer,
    ReplyComplete,
    TextDelta,
    reply,
)
from toolfleet.orchestrator.models.rehearsal import Dialect

TWO_CALLS = 'say "Let me see." call add {"a": 1, "b": 9007199254740993} and call add {"a": 3, "words": "[{\\"}"}'
ARGUMENTS = ['{"a": 1, "b": 9007199254740993}', '{"a": 3, "words": "[{\\"}"}']


@pytest.fixture
async def rehearsal(quick):
    """Opens a rehearsal server and a model that asks it; both are closed at the end."""
    opened = []

    async def open_rehearsal(*, stream=True, dialect=None, extra_body=None):
        server = await RehearsalServer(dialect=dialect).__aenter__()
        model = OpenAIChat(
            REHEARSAL_MODEL,
            base_url=server.base_url,
            api_key="rehearsal",
            stream=stream,
            http=quick,
            extra_body=extra_body,
        )
        opened.append((server, model))
        return server, model

    yield open_rehearsal
    for server, model in opened:
        await model.aclose()
        await server.__aexit__(None, None, None)


@pytest.mark.parametrize("stream", [True, False])
async def test_B10_text_and_calls_of_one_reply_are_both_kept(rehearsal, events_of, stream):
    _, model = await rehearsal(stream=stream)
    events = await events_of(model, [UserMessage(content=TWO_CALLS)])
    last = events[-1]
    assert isinstance(last, ReplyComplete)
    assert last.message.content == "Let me see."
    assert [call.arguments for call in last.message.tool_calls] == ARGUMENTS
    assert last.finish_reason == "tool_calls"
    assert last.usage.input_tokens > 0
    assert last.usage.output_tokens > 0


async def test_the_answer_in_one_piece_comes_from_the_endpoint_that_does_not_stream(rehearsal):
    server, model = await rehearsal(stream=False)
    await reply(model, [UserMessage(content="Hello?")])
    assert "stream" not in server.requests[-1]


@pytest.mark.parametrize(
    "dialect",
    [
        Dialect(),
        Dialect(ids="missing"),
        Dialect(ids="doubled"),
        Dialect(indices="missing"),
        Dialect(indices="zero"),
        Dialect(indices="zero", ids="missing"),
        Dialect(indices="missing", ids="missing"),
        Dialect(indices="missing", ids="doubled"),
        Dialect(indices="interleaved"),
        Dialect(indices="interleaved", ids="doubled"),
        Dialect(arguments="after_placeholder"),
        Dialect(says_done=False),
        Dialect(streams=False),
        Dialect(streams=False, ids="missing"),
    ],
    ids=repr,
)
async def test_every_dialect_brings_the_same_calls_with_distinct_ids(rehearsal, events_of, dialect):
    _, model = await rehearsal(dialect=dialect)
    events = await events_of(model, [UserMessage(content=TWO_CALLS)])
    message = events[-1].message
    assert [call.arguments for call in message.tool_calls] == ARGUMENTS
    assert len({call.id for call in message.tool_calls}) == 2
    assert all(call.id for call in message.tool_calls)


@pytest.mark.parametrize("streams", [True, False])
async def test_arguments_sent_as_an_object_become_their_text(rehearsal, streams):
    _, model = await rehearsal(dialect=Dialect(arguments="object", ids="missing", indices="missing", streams=streams))
    answer = await reply(model, [UserMessage(content=TWO_CALLS)])
    written = [json.loads(call.arguments) for call in answer.message.tool_calls]
    assert written == [json.loads(text) for text in ARGUMENTS]


async def test_B10_interleaved_calls_are_streamed_with_index_id_name_and_delta(rehearsal, events_of):
    _, model = await rehearsal(dialect=Dialect(indices="interleaved"))
    events = await events_of(model, [UserMessage(content=TWO_CALLS)])
    deltas = [event for event in events if isinstance(event, CallDelta)]
    calls = events[-1].message.tool_calls
    assert [delta.index for delta in deltas[:4]] == [0, 1, 0, 1]
    for index, call in enumerate(calls):
        own = [delta for delta in deltas if delta.index == index]
        assert "".join(delta.arguments_delta for delta in own) == call.arguments
        assert {(delta.id, delta.name) for delta in own} == {(call.id, "add")}


async def test_a_call_is_handed_out_before_the_next_one_begins(rehearsal, events_of):
    _, model = await rehearsal()
    events = await events_of(model, [UserMessage(content=TWO_CALLS)])
    of_calls = [(type(event), event.index) for event in events if isinstance(event, CallDelta | CallComplete)]
    assert of_calls.index((CallComplete, 0)) < of_calls.index((CallDelta, 1))
    completed = [event.call for event in events if isinstance(event, CallComplete)]
    assert tuple(completed) == events[-1].message.tool_calls


async def test_a_malformed_call_does_not_swallow_the_next_one(rehearsal):
    _, model = await rehearsal(dialect=Dialect(indices="zero"))
    answer = await reply(model, [UserMessage(content='call a `{"x": 1` and call b {}')])
    assert [(call.name, call.arguments) for call in answer.message.tool_calls] == [("a", '{"x": 1'), ("b", "{}")]


async def test_text_arrives_in_pieces_that_make_up_the_answer(rehearsal, events_of):
    _, model = await rehearsal()
    events = await events_of(model, [UserMessage(content="Who are you?")])
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == events[-1].message.content
    assert events[-1].finish_reason == "stop"


async def test_S7_a_name_that_the_provider_would_refuse_is_mapped_and_comes_back(rehearsal, tool):
    server, model = await rehearsal()
    tools = [tool("größe_messen"), tool("plain")]
    answer = await reply(model, [UserMessage(content="call größe_messen {} and call plain {}")], tools)
    assert [call.name for call in answer.message.tool_calls] == ["größe_messen", "plain"]
    offered = [each["function"]["name"] for each in server.requests[-1]["tools"]]
    assert offered[0].isascii()
    assert offered[1] == "plain"


async def test_A3_a_history_with_broken_arguments_and_foreign_ids_is_accepted(rehearsal):
    server, model = await rehearsal()
    foreign_id = "a-provider-with-ids-longer-than-forty-characters:0"
    history = [
        SystemMessage(content="Be brief."),
        UserMessage(content='call add {"a": 1}'),
        AssistantMessage(tool_calls=(RequestedCall(id=foreign_id, name="add", arguments='{"a": "1'),)),
        ToolMessage(tool_call_id=foreign_id, name="add", content="the arguments are no JSON", is_error=True),
    ]
    answer = await reply(model, history)
    assert "add: the arguments are no JSON" in answer.message.content
    sent = server.requests[-1]["messages"][2]["tool_calls"][0]
    assert json.loads(sent["function"]["arguments"]) == {"malformed_arguments": '{"a": "1'}
    assert len(sent["id"]) <= 40
    assert server.requests[-1]["messages"][2]["content"] is None


async def test_the_providers_own_parameters_reach_the_request(rehearsal):
    server, model = await rehearsal(extra_body={"temperature": 0, "seed": 1})
    await reply(model, [UserMessage(content="Hello?")], extra_body={"seed": 2})
    assert (server.requests[-1]["temperature"], server.requests[-1]["seed"]) == (0, 2)


async def test_replies_of_one_model_may_be_streamed_at_once(rehearsal):
    server, model = await rehearsal()
    answers = await asyncio.gather(
        *(reply(model, [UserMessage(content=f'call add {{"a": {number}}}')]) for number in range(50))
    )
    assert [json.loads(each.message.tool_calls[0].arguments)["a"] for each in answers] == list(range(50))
    assert server.request_count == 50


async def test_a_reader_who_leaves_early_hangs_up(rehearsal):
    _, model = await rehearsal()
    async with aclosing(model.stream([UserMessage(content="Who are you?")], [])) as events:
        first = await anext(events)
    assert isinstance(first, TextDelta)
    assert (await reply(model, [UserMessage(content="Who are you?")])).message.content.startswith(first.text)


async def test_address_and_key_come_from_the_environment_together(rehearsal, monkeypatch):
    server, _ = await rehearsal()
    monkeypatch.setenv("OPENAI_API_KEY", "rehearsal")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    model = OpenAIChat(REHEARSAL_MODEL)
    assert (await reply(model, [UserMessage(content="Hello?")])).model == REHEARSAL_MODEL
    await model.aclose()


async def test_the_environments_key_is_not_shown_to_another_server(rehearsal, monkeypatch):
    server, _ = await rehearsal()
    monkeypatch.setenv("OPENAI_API_KEY", "rehearsal")
    model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url)
    with pytest.raises(ModelRefused, match="401"):
        await reply(model, [UserMessage(content="Hello?")])
    await model.aclose()


async def test_a_proxy_for_the_outside_world_is_not_asked_for_this_machine(rehearsal, monkeypatch):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    _, model = await rehearsal()
    assert (await reply(model, [UserMessage(content="Hello?")])).model == REHEARSAL_MODEL


def test_neither_key_nor_password_is_shown():
    model = OpenAIChat("m", base_url="https://user:hidden@models.example/v1?k=hidden", api_key="sk-secret")
    assert repr(model) == "OpenAIChat('m', base_url='https://models.example/v1')"


async def test_blanks_around_a_copied_key_are_left_out(rehearsal):
    server, _ = await rehearsal()
    model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key=" rehearsal\n")
    assert (await reply(model, [UserMessage(content="Hello?")])).model == REHEARSAL_MODEL
    await model.aclose()


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it():
    with pytest.raises(InvalidSettings, match="OPENAI_API_KEY") as refused:
        OpenAIChat("m", base_url="http://localhost/v1", api_key="sk-schlüssel")
    assert "schl" not in str(refused.value)


def test_openai_without_a_key_says_which_variable_to_set():
    with pytest.raises(InvalidSettings, match="OPENAI_API_KEY"):
        OpenAIChat("gpt-5.2")
