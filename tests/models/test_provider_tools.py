"""Tools that a model's provider runs itself. The server is a real one; the vendors' SDKs know what it says."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from tests.imported_when_used import ImportedWhenUsed
from toolfleet.errors import InvalidSettings
from toolfleet.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator.errors import ModelRefused
from toolfleet.orchestrator.models import (
    AnthropicMessages,
    FallbackModel,
    OpenAIChat,
    Restarted,
    TextDelta,
    model_from_environment,
    reply,
)
from toolfleet.orchestrator.models.http_model import MAX_PAUSES

anthropic = ImportedWhenUsed("anthropic.types")

STORED = TypeAdapter(list[Message])

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
HELLO = [UserMessage(content="When was Claude Shannon born?")]
USAGE = {"input_tokens": 10, "output_tokens": 5, "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}}

TEXT = {"type": "text", "text": "I look it up.", "citations": None}
USE = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "Shannon \u2028 born", "big": 9007199254740993},
}
RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://en.wikipedia.org/wiki/Claude_Shannon",
            "title": "Claude Shannon",
            "encrypted_content": "EqgfCioIARgBIiQ3Y+/=",
            "page_age": "April 30, 2025",
        }
    ],
}
CITATION = {
    "type": "web_search_result_location",
    "url": "https://en.wikipedia.org/wiki/Claude_Shannon",
    "title": "Claude Shannon",
    "encrypted_index": "Eo8BCioIAhgB==",
    "cited_text": "born on April 30, 1916",
}
CITED = {"type": "text", "text": "He was born in 1916.", "citations": [CITATION]}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "abc"}
SEARCHED = [THOUGHT, TEXT, USE, RESULT, {"type": "text", "text": " ", "citations": None}, CITED]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}


@cache
def known_to_the_sdk(name, *, many=False) -> TypeAdapter[Any]:
    """What Anthropic's SDK says of the type of this name."""
    kind = getattr(anthropic, name)
    return TypeAdapter(list[kind] if many else kind)


def whole(content, stop_reason="end_turn", usage=USAGE, **more):
    said = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
        **more,
    }
    anthropic.Message.model_validate(said)
    return said


def streamed(content, stop_reason="end_turn", usage=USAGE, **more):
    """The same as the events of a stream, in the order of Anthropic's documentation."""
    start = whole([], None, {"input_tokens": usage["input_tokens"], "output_tokens": 1})
    events = [{"type": "message_start", "message": start}]
    for index, block in enumerate(content):
        begun, deltas = _in_pieces(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop_reason, "stop_sequence": None, **more}
    events += [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]
    for event in events:
        known_to_the_sdk("RawMessageStreamEvent").validate_python(event)
    return events


def _in_pieces(block):
    match block["type"]:
        case "text":
            half = len(block["text"]) // 2
            pieces = [{"type": "text_delta", "text": text} for text in (block["text"][:half], block["text"][half:])]
            cited = [{"type": "citations_delta", "citation": each} for each in block["citations"] or ()]
            return {**block, "text": "", "citations": [] if cited else None}, [*cited, *pieces]
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
            return {**block, "thinking": "", "signature": ""}, deltas
        case "server_tool_use" | "tool_use":
            written = json.dumps(block["input"])
            pieces = ("", written[:7], written[7:])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request):
    return request.param


@pytest.fixture
def says(stream):
    return streamed if stream else whole


def sent(server, at=-1):
    """The messages of a request, which the SDK's types must know."""
    known_to_the_sdk("MessageParam", many=True).validate_python(server.requests[at]["messages"])
    return server.requests[at]["messages"]


@pytest.fixture
async def models(server, quick, stream):
    opened = []

    def open_model(kind=AnthropicMessages, host="127.0.0.1", **options):
        base_url = server.base_url.replace("127.0.0.1", host)
        opened.append(kind("claude-test", base_url=base_url, api_key="k", http=quick, stream=stream, **options))
        return opened[-1]

    yield open_model
    for model in opened:
        await model.aclose()


def stored(*messages):
    """A conversation as it comes back from the store."""
    return STORED.validate_json(STORED.dump_json([*HELLO, *messages]))


def as_it_comes(content):
    """What goes back of a reply: all of it, but that a text without citations has none."""
    return [{k: v for k, v in block.items() if not (k == "citations" and v is None)} for block in content]


async def test_U15_what_a_providers_tools_did_goes_back_to_it_unchanged(server, models, says, tool):
    server.answers += [says(SEARCHED), says([TEXT])]
    model = models(provider_tools=[SEARCH])
    answer = await reply(model, HELLO, [tool("add")])
    assert answer.message.content == "I look it up. He was born in 1916."
    assert answer.message.tool_calls == ()
    assert answer.finish_reason == "stop"
    assert answer.usage.provider_tools == {"web_search": 1}
    await reply(model, stored(answer.message, UserMessage(content="Where?")), [tool("add")])
    asked, said, again = sent(server)
    assert said["content"] == as_it_comes(SEARCHED)
    assert (asked["role"], again["content"][0]["text"]) == ("user", "Where?")
    for request in server.requests:
        known_to_the_sdk("ToolUnionParam", many=True).validate_python(request["tools"])
        assert [each["name"] for each in request["tools"]] == ["add", "web_search"]
        assert request["tools"][1] == SEARCH


async def test_U15_calls_of_ours_stand_between_what_the_provider_did(server, models, says, tool):
    """The provider runs what it has begun once it has our results: its use has no result yet."""
    late = {**USE, "id": "srvtoolu_2"}
    mixed = [TEXT, USE, RESULT, {**CALL, "caller": {"type": "direct"}}, late]
    server.answers += [says(mixed, "tool_use"), says([{**RESULT, "tool_use_id": "srvtoolu_2"}, CITED]), says([TEXT])]
    model = models(provider_tools=[SEARCH])
    first = (await reply(model, HELLO, [tool("add")])).message
    assert [(call.id, call.name, call.arguments) for call in first.tool_calls] == [("toolu_1", "add", '{"a": 1}')]
    result = ToolMessage(tool_call_id="toolu_1", name="add", content="2")
    second = (await reply(model, stored(first, result), [tool("add")])).message
    assert sent(server)[1]["content"] == as_it_comes(mixed)
    assert sent(server)[2]["content"][0]["type"] == "tool_result"
    await reply(model, stored(first, result, second, UserMessage(content="And?")), [tool("add")])
    assert [block["type"] for block in sent(server)[3]["content"]] == ["web_search_tool_result", "text"]
    # Where the conversation goes on without the result, neither does its use stay: the API would refuse it.
    server.answers.append(says([TEXT]))
    await reply(model, stored(first, result, AssistantMessage(content="Well."), UserMessage(content="And?")))
    assert [block["type"] for block in sent(server)[1]["content"]] == [block["type"] for block in mixed[:-1]]


async def test_U15_a_reply_that_its_provider_has_paused_is_gone_on_with(server, models, says, events_of):
    begun, rest = [TEXT, USE], [RESULT, CITED]
    server.answers += [says(begun, "pause_turn"), says(rest, "pause_turn"), says([{**CITED, "text": " Yes."}])]
    model = models(provider_tools=[SEARCH])
    *events, answer = await events_of(model, HELLO)
    assert not any(isinstance(event, Restarted) for event in events)
    assert "".join(each.text for each in events if isinstance(each, TextDelta)) == answer.message.content
    assert answer.message.content == "I look it up.He was born in 1916. Yes."
    assert [request["messages"][1:] for request in server.requests] == [
        [],
        [{"role": "assistant", "content": as_it_comes(begun)}],
        [{"role": "assistant", "content": as_it_comes([*begun, *rest])}],
    ]
    sent(server)
    assert answer.usage == Usage(input_tokens=30, output_tokens=15, provider_tools={"web_search": 3})


async def test_U15_what_came_before_a_pause_is_not_asked_for_again(server, models, says, events_of):
    overloaded = (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    server.answers += [says([TEXT, USE, RESULT], "pause_turn"), overloaded, says([CITED])]
    *events, answer = await events_of(models(provider_tools=[SEARCH]), HELLO)
    assert answer.message.content == "I look it up.He was born in 1916."
    assert answer.usage.provider_tools == {"web_search": 2}
    assert len(server.requests) == 3
    assert server.requests[1] == server.requests[2]
    last = max((at for at, each in enumerate(events) if isinstance(each, Restarted)), default=-1)
    assert "".join(each.text for each in events[last + 1 :] if isinstance(each, TextDelta)) == answer.message.content


async def test_U15_a_provider_that_pauses_on_and_on_is_left(server, models, says):
    server.answers += [says([{**TEXT, "text": "."}], "pause_turn")] * (MAX_PAUSES + 1)
    answer = await reply(models(provider_tools=[SEARCH]), HELLO)
    assert (answer.finish_reason, len(answer.message.content)) == ("paused", MAX_PAUSES + 1)
    server.answers.append(says([], "pause_turn"))  # nothing that it could be asked to go on from
    assert (await reply(models(provider_tools=[SEARCH]), HELLO)).finish_reason == "paused"


async def test_U15_another_provider_is_not_shown_what_the_first_ones_tools_did(server, models, says, caplog):
    server.answers += [says(SEARCHED), says([TEXT])]
    first = (await reply(models(provider_tools=[SEARCH]), HELLO)).message
    await reply(models(host="localhost"), stored(first, UserMessage(content="Where?")))
    assert sent(server)[1]["content"] == [{"type": "text", "text": first.content}]
    [record] = [each for each in caplog.records if "provider_parts_left_out" in each.getMessage()]
    assert "127.0.0.1" in str(vars(record))


async def test_U15_a_reply_that_an_interceptor_has_changed_goes_back_in_its_words(server, models, says):
    server.answers += [says(SEARCHED), says([TEXT])]
    model = models(provider_tools=[SEARCH])
    first = (await reply(model, HELLO)).message.model_copy(update={"content": "He was born in [YEAR]."})
    await reply(model, stored(first, UserMessage(content="Where?")))
    said = {"type": "text", "text": "He was born in [YEAR]."}
    assert sent(server)[1]["content"] == [THOUGHT, said, USE, RESULT]
    parts = first.extras["127.0.0.1"]["provider_parts"]
    assert not any("text" in block for block in parts["blocks"] if block["type"] == "text")


async def test_U15_code_of_the_provider_goes_on_in_its_container(server, models, says, tool):
    code = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {"command": "ls"}}
    ran = {"type": "bash_code_execution_result", "stdout": "a", "stderr": "", "return_code": 0, "content": []}
    done = {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": ran}
    container = {"id": "container_1", "expires_at": "2030-01-01T00:00:00Z"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    server.answers += [
        says([code], "pause_turn", usage, container=container),
        says([done, CALL], "tool_use", usage, container=container),
        says([TEXT]),
        says([TEXT]),
    ]
    model = models(provider_tools=[{"type": "code_execution_20250825", "name": "code_execution"}], betas=["files"])
    answer = await reply(model, HELLO, [tool("add")])
    assert answer.usage.provider_tools == {"bash_code_execution": 1}
    result = ToolMessage(tool_call_id="toolu_1", name="add", content="2")
    last = await reply(model, stored(answer.message, result), [tool("add")])
    await reply(model, stored(answer.message, result, last.message, UserMessage(content="And?")), [tool("add")])
    assert [request.get("container") for request in server.requests] == [None, "container_1", "container_1", None]
    assert {headers["anthropic-beta"] for headers in server.headers} == {"files"}
    assert sent(server)[1]["content"] == [code, done, CALL]


async def test_U15_a_reply_that_is_cut_keeps_what_was_whole(server, quick):
    cut = streamed([TEXT, USE, RESULT, CALL, USE], "tool_use")
    at = next(n for n, event in enumerate(cut) if event["type"] == "content_block_stop" and event["index"] == 3)
    server.answers += [cut[: at + 3], streamed([TEXT])]
    model = AnthropicMessages("m", base_url=server.base_url, http=quick, provider_tools=[SEARCH])
    first = (await reply(model, HELLO)).message
    await reply(model, stored(first, ToolMessage(tool_call_id="toolu_1", name="add", content="2")))
    assert sent(server)[1]["content"] == as_it_comes([TEXT, USE, RESULT, CALL])
    await model.aclose()


async def test_U15_a_name_that_the_fleet_has_too_is_refused(server, models, tool):
    for kind, tools in ((AnthropicMessages, [SEARCH]), (OpenAIChat, [{"type": "web_search"}])):
        model = FallbackModel([models(kind, provider_tools=tools)])
        with pytest.raises(ModelRefused, match=r"fleet's tool web_search has the name of a tool .* rename one"):
            await reply(model, HELLO, [tool("web_search")])
        assert model.provider_tools == ("web_search",)
    assert server.requests == []


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([SEARCH, SEARCH], "'web_search' twice"),
        (["web_search"], "no tool"),
        ([{"name": "web_search"}], "no tool"),
        ([{"type": ""}], "run by its caller"),
        ([{"type": "function", "function": {"name": "add"}}], "run by its caller"),
        ([{"type": "bash_20250124", "name": "bash"}], "run by its caller"),
        ([{"type": "builtin_function", "function": {"name": "$web_search"}}], "run by its caller"),
        ([{"type": "web_search_20250305", "name": "x", "of": object()}], "no JSON form"),
    ],
)
def test_U15_what_is_no_tool_of_a_providers_is_refused_at_once(tools, said):
    for kind in (AnthropicMessages, OpenAIChat):
        with pytest.raises(InvalidSettings, match=said):
            kind("m", base_url="http://127.0.0.1:1", provider_tools=tools)


def test_U15_the_environment_says_which_tools_the_provider_is_to_run():
    for provider, kind in (("openai", "web_search"), ("anthropic", "web_search_20250305")):
        variables = {f"{provider.upper()}_API_KEY": "k", "TOOLFLEET_PROVIDER_TOOLS": json.dumps([{"type": kind}])}
        model = model_from_environment({**variables, "TOOLFLEET_MODEL": f"{provider}:mine"})
        assert model.provider_tools == (() if provider == "openai" else (kind,))  # its search is no tool by a name
    for wrong in ("web_search", '{"type": "web_search"}', '["web_search"]', "[" * 9999):
        with pytest.raises(InvalidSettings, match=r"provider_tools|PROVIDER_TOOLS"):
            model_from_environment({"ANTHROPIC_API_KEY": "k", "TOOLFLEET_PROVIDER_TOOLS": wrong})


def test_U15_openais_own_completions_have_the_search_alone():
    for tools in ([{"type": "code_interpreter"}], [{"type": "web_search", "filters": {}}]):
        with pytest.raises(InvalidSettings, match="Chat Completions has no"):
            OpenAIChat("gpt-5-search-api", api_key="k", base_url="https://api.openai.com/v1", provider_tools=tools)
    options = {"search_context_size": "low"}
    model = OpenAIChat(
        "gpt-5-search-api",
        api_key="k",
        base_url="https://api.openai.com/v1",
        provider_tools=[{"type": "web_search", **options}],
    )
    asked = model._format.options("gpt-5-search-api", {}, host="api.openai.com", has_tools=False)
    assert asked == {"web_search_options": options}
    wrapping_up = model._format.options("m", {"tool_choice": "none"}, host="api.openai.com", has_tools=False)
    assert wrapping_up == {}


ANNOTATION = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 4, "title": "Shannon", "url": "https://en.wikipedia.org"},
}


def completion(stream):
    told = {"id": "c", "created": 1, "model": "m"}
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "server_tool_use": {"web_search_requests": 2},
    }
    said = {"role": "assistant", "content": "1916", "annotations": [ANNOTATION]}
    if not stream:
        choice = {"index": 0, "finish_reason": "stop", "message": {**said, "refusal": None}, "logprobs": None}
        body = {**told, "object": "chat.completion", "choices": [choice], "usage": usage}
        ChatCompletion.model_validate(body)
        return body
    pieces = ({"role": "assistant", "content": "19"}, {"content": "16"}, {"annotations": [ANNOTATION]})
    chunks = [{"choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces]
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
    chunks = [{**told, "object": "chat.completion.chunk", **chunk} for chunk in chunks]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    return chunks


async def test_U15_tools_of_a_server_of_chat_completions_are_offered_and_what_they_cite_goes_back(
    server, models, stream, tool
):
    server.answers += [completion(stream), completion(stream)]
    model = models(OpenAIChat, provider_tools=[{"type": "openrouter:web_search", "parameters": {"max_results": 3}}])
    first = await reply(model, HELLO, [tool("add")])
    assert first.usage.provider_tools == {"web_search": 2}
    await reply(model, stored(first.message, UserMessage(content="Where?")), extra_body={"tool_choice": "none"})
    asked, again = server.requests
    assert [each["type"] for each in asked["tools"]] == ["function", "openrouter:web_search"]
    assert [each["type"] for each in again["tools"]] == ["openrouter:web_search"]
    assert again["tool_choice"] == "none"
    assert again["messages"][1] == {"role": "assistant", "content": "1916", "annotations": [ANNOTATION]}


async def test_U15_what_a_server_runs_itself_is_called_by_nobody(server, models, stream):
    own = {"index": 0, "id": "x1", "type": "code_interpreter", "code_interpreter": {"input": "1+1"}}
    ours = {"index": 1, "id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    said = {"role": "assistant", "content": "Two.", "tool_calls": [own, ours]}
    if stream:
        more = {"tool_calls": [{"index": 0, "code_interpreter": {"outputs": ["2"]}}]}
        choices = [{"delta": said}, {"delta": more}, {"delta": {}, "finish_reason": "tool_calls"}]
        server.answers.append([{"choices": [{"index": 0, **each}]} for each in choices])
    else:
        server.answers.append({"choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}]})
    answer = await reply(models(OpenAIChat), HELLO)
    assert [call.name for call in answer.message.tool_calls] == ["add"]
    assert answer.usage.provider_tools == {"code_interpreter": 1}
