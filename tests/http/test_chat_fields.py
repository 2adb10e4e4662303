"""Every field of a Chat Completions request goes on to the model, is understood here, or is refused by its name."""

import inspect
import json
import typing
from http import HTTPStatus

import openai
import pytest
from openai.types import chat
from openai.types.chat import completion_create_params as params
from openai.types.shared_params import FunctionDefinition

from tests.docs import chat_fields_page
from tests.fleet.strict_provider import openai_chunk
from tests.http.strict_door import strict_door
from toolfleet.orchestrator.models.chat_fields import FUNCTION, MESSAGE, PART, REQUEST, Fate

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

PASSED = {
    "frequency_penalty": 0.5,
    "logit_bias": {"50256": -100},
    "max_completion_tokens": 50,
    "max_tokens": 50,
    "metadata": {"order": "42"},
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "low",
    "response_format": {"type": "json_object"},
    "safety_identifier": "someone",
    "seed": 7,
    "service_tier": "flex",
    "stop": ["."],
    "store": True,
    "temperature": 0.0,
    "tool_choice": "auto",
    "top_p": 0.5,
    "user": "someone",
    "verbosity": "low",
}
REFUSED = {
    "audio": {"voice": "alloy", "format": "wav"},
    "function_call": "auto",
    "functions": [{"name": "f"}],
    "logprobs": True,
    "modalities": ["text", "audio"],
    "moderation": {"model": "omni-moderation-latest"},
    "n": 2,
    "prediction": {"type": "content", "content": "?"},
    "top_logprobs": 3,
    "web_search_options": {},
}
HARMLESS = {"n": 1, "logprobs": False, "modalities": ["text"], "audio": None, "prediction": None, "functions": []}


@pytest.fixture
async def door(http_fleet):
    async with strict_door(http_fleet.settings) as running:
        yield running


def names_of(*types):
    return {name for each in types for name in typing.get_type_hints(each)}


def of_fate(fate):
    return {name for name, decision in REQUEST.items() if decision.fate is fate}


# --- the tables -------------------------------------------------------------------------------------------------------


def test_every_field_of_the_official_sdk_is_decided_about():
    assert names_of(params.CompletionCreateParamsNonStreaming, params.CompletionCreateParamsStreaming) == set(REQUEST)
    roles = ("System", "Developer", "User", "Assistant", "Tool")
    messages = [getattr(chat, f"ChatCompletion{role}MessageParam") for role in roles]
    # What answers hold comes back in what is asked next.
    assert names_of(*messages) | set(chat.ChatCompletionMessage.model_fields) == set(MESSAGE)
    assert names_of(FunctionDefinition) == set(FUNCTION)
    assert names_of(chat.ChatCompletionStreamOptionsParam) == {"include_usage", "include_obfuscation"}


def test_every_type_of_part_of_the_official_sdk_is_decided_about():
    parts = [chat.ChatCompletionContentPartRefusalParam, *typing.get_args(chat.ChatCompletionContentPartParam)]
    types = {typing.get_args(typing.get_type_hints(part)["type"])[0] for part in parts if inspect.isclass(part)}
    assert types == set(PART)


def test_these_tests_go_over_all_of_them():
    assert (set(PASSED), set(REFUSED)) == (of_fate(Fate.MODEL), of_fate(Fate.REFUSED))


def test_the_page_has_the_tables_as_they_are():
    page = chat_fields_page.PAGE.read_text()
    for table in chat_fields_page.tables():
        assert f"\n{table}\n" in page, "python -m tests.docs.chat_fields_page"


# --- what becomes of them ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PASSED)
async def test_a_field_for_the_model_arrives_there(door, name):
    expected = {"max_tokens": "max_tokens", "max_completion_tokens": "max_tokens"}.get(name, name)
    await door.ask(openai_done(), extra_body={name: PASSED[name]})
    assert door.sent[expected] == PASSED[name]


@pytest.mark.parametrize("name", REFUSED)
async def test_a_field_that_is_not_served_is_refused_by_its_name(door, name):
    with pytest.raises(openai.BadRequestError, match=f"{name} is not served here") as refused:
        await door.ask(extra_body={name: REFUSED[name]})
    assert (refused.value.param, refused.value.code) == (name, "unsupported_parameter")
    assert not door.provider.requests


async def test_fields_that_ask_for_nothing_are_no_obstacle(door):
    await door.ask(extra_body=HARMLESS)
    assert not HARMLESS.keys() & door.sent.keys()


async def test_a_field_that_nobody_here_knows_goes_on_to_the_model(door):
    await door.ask(extra_body={"min_p": 0.1, "chat_template_kwargs": {"enable_thinking": False}})
    assert (door.sent["min_p"], door.sent["chat_template_kwargs"]) == (0.1, {"enable_thinking": False})


async def test_obfuscation_is_refused_where_it_is_asked_for(door):
    asked = {"stream": True, "messages": [{"role": "user", "content": "?"}], "model": "strict"}
    for options, status in (({"include_obfuscation": False}, 200), ({"include_obfuscation": True}, 400)):
        answer = await door.api.client.post("/v1/chat/completions", json={**asked, "stream_options": options})
        assert answer.status_code == status


async def test_tools_are_declared_as_strictly_as_they_were(door):
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **strict}}
        for name, strict in (("held", {"strict": True}), ("loose", {"strict": False}), ("silent", {}))
    ]
    await door.ask(tools=tools)
    sent = {tool["function"]["name"]: tool["function"] for tool in door.sent["tools"]}
    assert (sent["held"]["strict"], sent["loose"]["strict"]) == (True, False)
    assert not any("strict" in sent[name] for name in ("silent", "add"))
    odd = {"type": "function", "function": {"name": "odd", "cache_control": {"type": "ephemeral"}}}
    with pytest.raises(openai.BadRequestError) as refused:
        await door.ask(tools=[odd])
    assert refused.value.param == "tools[0].function.cache_control"


async def test_names_of_participants_arrive(door):
    said = [
        {"role": "system", "content": "Be brief.", "name": "rules"},
        {"role": "user", "content": "Hello.", "name": "ada"},
        {"role": "assistant", "content": "Hello, Ada.", "name": "bot"},
        {"role": "user", "content": "And me?", "name": "bob"},
    ]
    await door.ask(messages=said)
    assert door.sent["messages"] == said


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "assistant", "content": "", "audio": {"id": "audio_1"}}, "messages[1].audio"),
        ({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, "messages[1].function_call"),
        ({"role": "user", "content": "?", "mood": "good"}, "messages[1].mood"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}, "messages[1].content[0]"),
        (
            {"role": "user", "content": [{"type": "text", "text": "?", "cache_control": {"type": "ephemeral"}}]},
            "messages[1].content[0].cache_control",
        ),
        (
            {"role": "system", "content": [{"type": "image_url"}]},
            "messages[1].content[0]",
        ),
    ],
)
async def test_what_no_model_would_be_told_of_a_message_is_refused_by_its_place(door, message, param):
    with pytest.raises(openai.BadRequestError) as refused:
        await door.ask(messages=[{"role": "user", "content": "?"}, message, {"role": "user", "content": "!"}])
    assert refused.value.param == param
    assert refused.value.status_code == HTTPStatus.BAD_REQUEST


async def test_a_message_may_be_sent_back_as_the_sdk_writes_it(door):
    answer = await door.client.chat.completions.create(model="strict", messages=[{"role": "user", "content": "?"}])
    back = {**answer.choices[0].message.model_dump(), "provider_specific_fields": {"refusal": None}, "annotations": []}
    await door.ask(messages=[{"role": "user", "content": "?"}, back, {"role": "user", "content": "!"}])
    assert door.sent["messages"][1] == {"role": "assistant", "content": "done"}


# --- what is told back ------------------------------------------------------------------------------------------------

FACTS = {"service_tier": "flex", "system_fingerprint": "fp_1"}
USED = {
    "prompt_tokens": 10,
    "completion_tokens": 4,
    "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def openai_done():
    told = {**json.loads(openai_chunk({"content": "{}"})), **FACTS}
    return [json.dumps(told), openai_chunk({}, "stop"), json.dumps({"choices": [], "usage": USED}), "[DONE]"]


@STREAMED
async def test_what_the_provider_told_of_an_answer_is_told_on(door, stream):
    options = {"stream_options": {"include_usage": True}} if stream else {}
    said = await door.ask(openai_done(), stream=stream, metadata={"order": "42"}, **options)
    assert {name: said.more[name] for name in (*FACTS, "metadata")} == {**FACTS, "metadata": {"order": "42"}}
    usage = said.more["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 8
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 2
    run = (await door.api.client.get(f"/v1/runs/{said.run_id}")).json()
    assert run["usage"]["input_details"] == {"cached_tokens": 8}


async def test_details_that_nobody_told_are_not_made_up(door):
    said = await door.ask()
    assert said.more["usage"]["prompt_tokens_details"] is None
    assert said.more["service_tier"] is None


# --- another dialect --------------------------------------------------------------------------------------------------


async def test_a_model_of_anthropics_is_asked_in_its_own_words(http_fleet):
    async with strict_door(http_fleet.settings, "anthropic") as door:
        await door.ask(
            max_completion_tokens=50,
            stop=".",
            user="someone",
            parallel_tool_calls=False,
            tool_choice={"type": "function", "function": {"name": "add"}},
            service_tier="default",
            temperature=0.5,
        )
        sent = {name: door.sent[name] for name in door.sent if name not in {"messages", "tools", "model", "stream"}}
        assert sent == {
            "max_tokens": 50,
            "stop_sequences": ["."],
            "metadata": {"user_id": "someone"},
            "tool_choice": {"type": "tool", "name": "add", "disable_parallel_tool_use": True},
            "service_tier": "standard_only",
            "temperature": 0.5,
        }
        for refused, named in (
            ({"seed": 7}, "seed"),
            ({"metadata": {"order": "42"}}, "order"),
            ({"service_tier": "flex"}, "'flex'"),
            ({"response_format": {"type": "json_object"}}, "json_object"),
            ({"messages": [{"role": "user", "content": "?", "name": "ada"}]}, "'ada'"),
            ({"tool_choice": {"type": "custom", "custom": {"name": "x"}}}, "tool_choice"),
        ):
            with pytest.raises(openai.BadRequestError, match=named):
                await door.ask(**refused)
        assert len(door.provider.requests) == 1
