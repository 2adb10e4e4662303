"""The server here is a real one; its answers are the event sequences of Anthropic's streaming documentation."""

from __future__ import annotations

import json

import pytest

from toolfleet.errors import InvalidSettings
from toolfleet.messages import AssistantMessage, RequestedCall, SystemMessage, ToolMessage, UserMessage
from toolfleet.orchestrator.errors import ModelRefused, ModelReplyInvalid
from toolfleet.orchestrator.models import AnthropicMessages, CallComplete, CallDelta, TextDelta, reply

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-20260101",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 400, "cache_read_input_tokens": 72, "output_tokens": 2},
    },
}
STOP = {"type": "message_stop"}


def block_start(index, block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def block_delta(index, **delta):
    return {"type": "content_block_delta", "index": index, "delta": delta}


def block_stop(index):
    return {"type": "content_block_stop", "index": index}


def message_delta(stop_reason, output_tokens):
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output_tokens}}


TEXT_AND_TWO_CALLS = [
    START,
    block_start(0, {"type": "thinking", "thinking": "", "signature": ""}),
    block_delta(0, type="thinking_delta", thinking="Hm."),
    block_delta(0, type="signature_delta", signature="abc"),
    block_stop(0),
    block_start(1, {"type": "text", "text": ""}),
    {"type": "ping"},
    block_delta(1, type="text_delta", text="Let me "),
    block_delta(1, type="text_delta", text="check."),
    block_stop(1),
    block_start(2, {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}),
    block_delta(2, type="input_json_delta", partial_json=""),
    block_delta(2, type="input_json_delta", partial_json='{"location":'),
    block_delta(2, type="input_json_delta", partial_json=' "San Francisco, CA"}'),
    block_stop(2),
    block_start(3, {"type": "tool_use", "id": "toolu_2", "name": "list_units", "input": {}}),
    block_delta(3, type="input_json_delta", partial_json=""),
    block_stop(3),
    {"type": "an_event_of_the_future"},
    message_delta("tool_use", 89),
    STOP,
]
WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-test-20260101",
    "content": [
        {"type": "text", "text": "Let me check."},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"location": "San Francisco, CA"}},
        {"type": "tool_use", "id": "toolu_2", "name": "list_units", "input": {}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 400, "cache_read_input_tokens": 72, "output_tokens": 89},
}


@pytest.fixture
async def models(server, quick):
    opened = []

    def open_model(**options):
        model = AnthropicMessages(
            "claude-test", base_url=server.base_url, api_key="sk-ant-secret", http=quick, **options
        )
        opened.append(model)
        return model

    yield open_model
    for model in opened:
        await model.aclose()


HELLO = [UserMessage(content="What is the weather like?")]


@pytest.mark.parametrize("stream", [True, False])
async def test_B10_text_and_calls_of_one_reply_are_both_kept(server, models, stream):
    server.answers.append(TEXT_AND_TWO_CALLS if stream else WHOLE)
    answer = await reply(models(stream=stream), HELLO)
    assert answer.message.content == "Let me check."
    assert [(call.id, call.name, json.loads(call.arguments)) for call in answer.message.tool_calls] == [
        ("toolu_1", "get_weather", {"location": "San Francisco, CA"}),
        ("toolu_2", "list_units", {}),
    ]
    assert answer.model == "claude-test-20260101"
    assert answer.finish_reason == "tool_calls"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (472, 89)


async def test_arguments_are_streamed_and_the_call_handed_out_before_the_reply_ends(server, models, events_of):
    server.answers.append(TEXT_AND_TWO_CALLS)
    events = await events_of(models(), HELLO)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me check."
    of_calls = [(type(event), event.index) for event in events if isinstance(event, CallDelta | CallComplete)]
    assert of_calls.index((CallComplete, 0)) < of_calls.index((CallDelta, 1))
    written = "".join(event.arguments_delta for event in events if isinstance(event, CallDelta) and event.index == 0)
    assert json.loads(written) == {"location": "San Francisco, CA"}


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "abc"}
SECRET_THOUGHT = {"type": "redacted_thinking", "data": "opaque"}
THOUGHT_BETWEEN = [
    START,
    block_start(0, SECRET_THOUGHT),
    block_stop(0),
    block_start(1, {"type": "tool_use", "id": "toolu_1", "name": "list_units", "input": {}}),
    block_stop(1),
    block_start(2, {"type": "thinking", "thinking": "", "signature": ""}),
    block_delta(2, type="thinking_delta", thinking="H"),
    block_delta(2, type="thinking_delta", thinking="m."),
    block_delta(2, type="signature_delta", signature="abc"),
    block_stop(2),
    block_start(3, {"type": "tool_use", "id": "toolu_2", "name": "list_units", "input": {}}),
    block_stop(3),
    message_delta("tool_use", 89),
    STOP,
]
WHOLE_WITH_THOUGHT = {**WHOLE, "content": [THOUGHT, *WHOLE["content"]]}


@pytest.mark.parametrize(
    ("first", "blocks"),
    [
        (TEXT_AND_TWO_CALLS, [THOUGHT, "text", "tool_use", "tool_use"]),
        (WHOLE_WITH_THOUGHT, [THOUGHT, "text", "tool_use", "tool_use"]),
        (THOUGHT_BETWEEN, [SECRET_THOUGHT, "tool_use", THOUGHT, "tool_use"]),
    ],
    ids=["streamed", "whole", "between calls"],
)
async def test_thoughts_come_back_unchanged_and_in_their_places(server, models, first, blocks):
    server.answers += [first, [START, message_delta("end_turn", 1), STOP]]
    model = models(stream=isinstance(first, list))
    if isinstance(first, dict):
        server.answers[1] = {**WHOLE, "content": [{"type": "text", "text": "Sunny."}], "stop_reason": "end_turn"}
    message = AssistantMessage.model_validate_json((await reply(model, HELLO)).message.model_dump_json())
    results = [ToolMessage(tool_call_id=call.id, name=call.name, content="ok") for call in message.tool_calls]
    await reply(model, [*HELLO, message, *results])
    sent = server.requests[-1]["messages"][1]["content"]
    assert [block if "thinking" in block["type"] else block["type"] for block in sent] == blocks


async def test_a_thought_whose_signature_never_came_is_not_sent_back(server, models):
    unsigned = [block for block in TEXT_AND_TWO_CALLS if block.get("delta", {}).get("type") != "signature_delta"]
    server.answers.append(unsigned)
    assert (await reply(models(), HELLO)).message.extras == {}


async def test_results_of_one_batch_stand_in_one_user_message_right_after_the_calls(server, models):
    server.answers.append([START, message_delta("end_turn", 1), STOP])
    history = [
        SystemMessage(content="Be brief."),
        UserMessage(content="Weather?"),
        AssistantMessage(
            tool_calls=(
                RequestedCall(id="functions.get:0", name="get weather", arguments='{"a": 1}'),
                RequestedCall(id="toolu_2", name="list_units", arguments="broken"),
            )
        ),
        ToolMessage(tool_call_id="functions.get:0", name="get weather", content="sunny"),
        ToolMessage(tool_call_id="toolu_2", name="list_units", content="no such tool", is_error=True),
        UserMessage(content="And tomorrow?"),
    ]
    await reply(models(), history)
    body = server.requests[-1]
    assert body["system"] == "Be brief."
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    uses, results = body["messages"][1]["content"], body["messages"][2]["content"]
    assert [block["type"] for block in uses] == ["tool_use", "tool_use"]
    assert [block["input"] for block in uses] == [{"a": 1}, {"malformed_arguments": "broken"}]
    assert [block["type"] for block in results] == ["tool_result", "tool_result", "text"]
    assert [block["tool_use_id"] for block in results[:2]] == [block["id"] for block in uses]
    assert "is_error" not in results[0]
    assert results[1]["is_error"] is True


async def test_the_request_is_what_the_api_asks_for(server, models, tool):
    server.answers.append([START, message_delta("end_turn", 1), STOP])
    await reply(models(max_tokens=100), HELLO, [tool("größe")])
    headers, body = server.headers[-1], server.requests[-1]
    assert headers["x-api-key"] == "sk-ant-secret"
    assert headers["anthropic-version"] == "2023-06-01"
    assert (body["max_tokens"], body["stream"]) == (100, True)
    assert body["tools"][0]["name"].isascii()
    assert body["tools"][0]["input_schema"]["type"] == "object"


async def test_S7_a_mapped_name_comes_back_as_the_catalogs(server, models, tool):
    server.answers.append([START, message_delta("end_turn", 1), STOP])
    model = models()
    await reply(model, HELLO, [tool("größe")])
    wire_name = server.requests[-1]["tools"][0]["name"]
    use = {"type": "tool_use", "id": "toolu_1", "name": wire_name, "input": {}}
    server.answers.append([START, block_start(0, use), block_stop(0), message_delta("tool_use", 1), STOP])
    answer = await reply(model, HELLO, [tool("größe")])
    assert answer.message.tool_calls[0].name == "größe"


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [("end_turn", "stop"), ("max_tokens", "length"), ("refusal", "refusal"), ("pause_turn", "paused")],
)
async def test_stop_reasons_are_told_in_the_common_words(server, models, stop_reason, finish_reason):
    server.answers.append([START, message_delta(stop_reason, 1), STOP])
    assert (await reply(models(), HELLO)).finish_reason == finish_reason


async def test_an_overloaded_server_is_asked_again(server, models):
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.answers += [(529, overloaded), [START, overloaded], [START, message_delta("end_turn", 1), STOP]]
    assert (await reply(models(), HELLO)).finish_reason == "stop"
    assert len(server.requests) == 3


async def test_a_stream_that_ends_early_keeps_the_calls_handed_out(server, models):
    server.answers.append(TEXT_AND_TWO_CALLS[:15])
    answer = await reply(models(), HELLO)
    assert [call.id for call in answer.message.tool_calls] == ["toolu_1"]
    assert answer.finish_reason == "interrupted"


async def test_arguments_cut_by_the_output_limit_arrive_as_they_are(server, models):
    cut = [*TEXT_AND_TWO_CALLS[:13], block_stop(2), message_delta("max_tokens", 89), STOP]
    server.answers.append(cut)
    answer = await reply(models(), HELLO)
    assert [call.arguments for call in answer.message.tool_calls] == ['{"location":']
    assert answer.finish_reason == "length"


async def test_a_connection_serves_one_reply_after_the_other(server, models):
    model = models()
    for _ in range(3):
        server.answers.append(TEXT_AND_TWO_CALLS)
        await reply(model, HELLO)
    assert len(set(server.client_ports)) == 1


async def test_a_refusal_names_the_variable_and_hides_the_key(server, models):
    error = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key sk-ant-secret"}}
    server.answers.append((401, error))
    with pytest.raises(ModelRefused, match=r"invalid x-api-key \*\*\*.*ANTHROPIC_API_KEY"):
        await reply(models(), HELLO)


async def test_json_that_is_no_message_is_invalid(server, models):
    server.answers.append({"hello": "world"})
    with pytest.raises(ModelReplyInvalid, match="without content"):
        await reply(models(stream=False), HELLO)


def test_anthropic_without_a_key_says_which_variable_to_set():
    with pytest.raises(InvalidSettings, match="ANTHROPIC_API_KEY"):
        AnthropicMessages("claude-test")


async def test_a_model_that_may_use_no_more_tools_is_told_of_those_that_were_used(server, models):
    """The API refuses a conversation with tool_use blocks in a request without tools."""
    call = RequestedCall(id="toolu_1", name="get weather", arguments="{}")
    asked = AssistantMessage(tool_calls=(call, call.model_copy(update={"id": "toolu_2"})))
    answers = [ToolMessage(tool_call_id=id_, name=call.name, content="rain") for id_ in ("toolu_1", "toolu_2")]
    server.answers += [WHOLE, WHOLE]
    await reply(models(stream=False), [*HELLO, asked, *answers], extra_body={"tool_choice": "auto"})
    body = server.requests[-1]
    [told] = body["tools"]
    assert told == {"name": body["messages"][1]["content"][0]["name"], "input_schema": {"type": "object"}}
    assert body["tool_choice"] == {"type": "none"}
    await reply(models(stream=False), HELLO)
    assert "tools" not in server.requests[-1]
