"""What may be asked of a response, with the official client: passed on, shown again, or refused by name."""

import openai
import pytest

from tests.fleet.strict_provider import ASCII_JSON, StrictProvider, anthropic_text, openai_chunk, openai_text
from tests.http.fleet_of_doors import api_of
from tests.http.responses import SENT_BY_OPENAI, _beyond, kinds, plain, rest_of, streamed
from tests.http.test_streamed_responses import LOOKUP, MIXED, client_of
from toolfleet.orchestrator.models import REHEARSAL_MODEL


@pytest.fixture
async def client(api):
    async with client_of(api) as client:
        yield client


@pytest.fixture
async def provider():
    async with StrictProvider() as running:
        yield running


@pytest.fixture
async def of_provider(http_fleet, provider):
    async with api_of(http_fleet.settings, provider.openai()) as api, client_of(api) as client:
        yield client


def items_of(client, response_id, **page):
    return client.responses.input_items.list(response_id, **page)


EVERYTHING = {
    "instructions": "Be brief.",
    "max_output_tokens": 4000,
    "metadata": {"ticket": "42"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "k",
    "reasoning": {"effort": "low", "summary": "auto"},
    "safety_identifier": "s",
    "service_tier": "flex",
    "temperature": 0.5,
    "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    "tool_choice": "auto",
    "tools": [{**LOOKUP, "strict": True}],
    "top_p": 0.9,
    "truncation": "disabled",
    "user": "u",
}


async def test_every_field_is_passed_on_in_the_words_of_the_model_and_shown_again(of_provider, provider):
    response = await of_provider.responses.create(model="strict", input="Hello", **EVERYTHING)
    shown = response.to_dict()
    assert {name: shown[name] for name in EVERYTHING} == EVERYTHING
    assert (shown["status"], shown["background"], shown["store"]) == ("completed", False, True)
    assert set(_beyond(response)) <= SENT_BY_OPENAI
    assert (await of_provider.responses.retrieve(response.id)).to_dict() == shown
    [asked] = provider.requests
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    passed_on = {
        "max_completion_tokens": 4000,
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "safety_identifier": "s",
        "service_tier": "flex",
        "temperature": 0.5,
        "tool_choice": "auto",
        "top_p": 0.9,
        "user": "u",
        "verbosity": "low",
    }
    limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
    assert {name: asked.get(name) for name in passed_on} | {"max_completion_tokens": limit} == passed_on
    assert "metadata" not in asked


async def test_of_what_was_left_out_the_value_that_holds_is_shown(client):
    response = await client.responses.create(model=REHEARSAL_MODEL, input="Hello")
    assert (response.parallel_tool_calls, response.tool_choice, response.truncation) == (True, "auto", "disabled")
    assert (response.text.format.type, response.metadata, response.tools) == ("text", {}, [])
    assert (response.instructions, response.previous_response_id, response.max_output_tokens) == (None, None, None)


@pytest.mark.parametrize(
    ("asked", "param", "said"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0]", "web_search is not served"),
        ({"tools": [{"type": "mcp", "server_label": "s", "server_url": "u"}]}, "tools[0]", "one for MCP servers"),
        ({"tools": [LOOKUP, {"type": "function"}]}, "tools[1]", "a function needs a name"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", "cannot be chosen: give none, auto"),
        ({"conversation": "conv_1"}, "conversation", "previous_response_id"),
        ({"prompt": {"id": "p"}}, "prompt", "keeps no prompts"),
        ({"max_tool_calls": 3}, "max_tool_calls", '"limits"'),
        ({"extra_body": {"temprature": 1}}, "temprature", "leave it out"),
        ({"truncation": "auto"}, "truncation", "nothing is cut off"),
        ({"top_logprobs": 3}, "top_logprobs", "without logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include", "without logprobs"),
        ({"include": ["web_search_call.action.sources"]}, "include", "no such tool is served"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary", "no summaries are written"),
        ({"store": False, "background": True}, "store", "stored"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation", ""),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "a name and a schema"),
        ({"input": [{"type": "computer_call_output", "call_id": "c"}]}, "input", "is a computer_call_output"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0]",
            "has no input_file here, only text and images",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "call_x", "output": "1"}]},
            "input",
            "No tool call found for function call output with call_id call_x.",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "call_x", "name": "lookup", "arguments": "{}"}]},
            "input",
            "No tool output found for function call call_x.",
        ),
    ],
)
async def test_what_nothing_can_be_made_of_is_refused_by_name(client, asked, param, said):
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(**{"model": REHEARSAL_MODEL, "input": "Hello", **asked})
    assert refused.value.param == param
    assert said in refused.value.message


async def test_fields_without_a_value_are_as_if_they_were_left_out(client):
    nothing = dict.fromkeys(["conversation", "prompt", "max_tool_calls", "moderation", "truncation", "include"])
    assert (await client.responses.create(model=REHEARSAL_MODEL, input="Hello", **nothing)).status == "completed"


async def test_only_allowed_tools_are_offered(of_provider, provider):
    allowed = [{"type": "function", "name": "lookup"}, {"type": "function", "name": "add"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    other = {**LOOKUP, "name": "other"}
    response = await of_provider.responses.create(model="strict", input="?", tools=[LOOKUP, other], tool_choice=choice)
    [asked] = provider.requests
    assert {tool["function"]["name"] for tool in asked["tools"]} == {"lookup", "add"}
    assert asked["tool_choice"] == "required"
    assert response.tool_choice.to_dict() == choice
    assert [tool.name for tool in response.tools] == ["lookup", "other"]


async def test_an_answer_that_was_cut_off_ends_its_stream_as_incomplete(of_provider, provider):
    provider.replies.append([openai_chunk({"content": "Once upon a"}), openai_chunk({}, "length"), "[DONE]"])
    events = await streamed(of_provider, model="strict", input="Tell me a story.")
    response = events[-1]["response"]
    assert (events[-1]["type"], response["status"]) == ("response.incomplete", "incomplete")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (await of_provider.responses.retrieve(response["id"])).to_dict() == response
    [item] = response["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "Once upon a")


async def test_items_of_every_kind_are_read_and_thoughts_are_left_aside(of_provider, provider):
    provider.replies += [openai_text("Fine.")]
    await of_provider.responses.create(
        model="strict",
        input=[
            {"role": "developer", "content": "Be kind."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is tea?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "I look. ", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": '{"item": "tea"}'},
            {"type": "reasoning", "id": "rs_2", "summary": []},
            {"type": "function_call", "call_id": "c2", "name": "lookup", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2 EUR"}]},
            {"type": "function_call_output", "call_id": "c1", "output": "4 EUR"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not say."}]},
            {"role": "user", "content": "Say it."},
        ],
    )
    [asked] = provider.requests
    assert not provider.refusals
    roles = [message["role"] for message in asked["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    assert [call["id"] for call in asked["messages"][2]["tool_calls"]] == ["c1", "c2"]
    contents = [message["content"] for message in asked["messages"]]
    assert contents[2:] == ["I look. ", "4 EUR", "2 EUR", None, "Say it."]
    assert asked["messages"][5]["refusal"] == "I will not say."


# --- going on -------------------------------------------------------------------------------------------------------


async def test_a_response_goes_on_with_its_items_whole_by_reference_or_by_its_id(client):
    asked = {"model": REHEARSAL_MODEL, "tools": [LOOKUP]}
    user = {"role": "user", "content": f'say "First." call add {{"a": 0, "b": 0}} then {MIXED}'}
    first = await client.responses.create(**asked, input=[user])
    *messages, call = first.output
    assert [message.content[0].text for message in messages] == ["First.", "Well, let me see."]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "4 EUR"}
    by_reference = [*({"type": "item_reference", "id": message.id} for message in messages), {"id": call.id}]
    answers = [
        await client.responses.create(**asked, input=[user, *(each.to_dict() for each in first.output), output]),
        await client.responses.create(**asked, input=[user, *by_reference, output]),
        await client.responses.create(**asked, input=[output], previous_response_id=first.id),
    ]
    for answer in answers:
        assert answer.output_text.splitlines()[-3:] == ["add: 5", "lookup: 4 EUR", "add: 2"]
    assert len({answer.usage.input_tokens for answer in answers}) == 1, "one of them was told something twice"


async def test_calls_of_the_response_before_must_be_answered_and_no_others(client):
    asked = {"model": REHEARSAL_MODEL, "tools": [LOOKUP]}
    first = await client.responses.create(**asked, input=MIXED)
    call_id = first.output[1].call_id
    with pytest.raises(openai.BadRequestError, match=f"No tool output found for function call {call_id}"):
        await client.responses.create(**asked, input="And?", previous_response_id=first.id)
    output = {"type": "function_call_output", "call_id": "call_of_another", "output": "4 EUR"}
    with pytest.raises(openai.BadRequestError, match="with call_id call_of_another"):
        await client.responses.create(**asked, input=[output], previous_response_id=first.id)


async def test_instructions_are_those_of_the_request_and_what_was_said_stays(of_provider, provider):
    asked = {"model": "strict"}
    system = {"role": "system", "content": "It is raining."}
    first = await of_provider.responses.create(**asked, input=[system], instructions="Be brief.")
    await of_provider.responses.create(
        **asked, input="And now?", instructions="Be long.", previous_response_id=first.id
    )
    assert [message["content"] for message in provider.requests[-1]["messages"]] == [
        "Be long.",
        "It is raining.",
        "done",
        "And now?",
    ]


async def test_a_reference_to_what_is_not_there_is_not_found(client):
    for item_id in ("msg_0123_1", "rs_1", "msg_"):
        with pytest.raises(openai.NotFoundError, match=f"Item with id '{item_id}' not found"):
            await client.responses.create(model=REHEARSAL_MODEL, input=[{"type": "item_reference", "id": item_id}])


async def test_what_is_not_to_be_stored_is_not_found_again_but_its_calls_are_gone_on_with(api, client):
    asked = {"model": REHEARSAL_MODEL, "tools": [LOOKUP], "store": False, "include": ["reasoning.encrypted_content"]}
    first = await client.responses.create(**asked, input=MIXED)
    assert first.to_dict()["store"] is False
    for reading in (client.responses.retrieve(first.id), client.responses.input_items.list(first.id)):
        with pytest.raises(openai.NotFoundError):
            await reading
    for going_on in ({"previous_response_id": first.id, "input": "?"}, {"input": [{"id": first.output[0].id}]}):
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(**asked, **going_on)
    output = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "4 EUR"}
    said = [{"role": "user", "content": MIXED}, *(each.to_dict() for each in first.output), output]
    second = await client.responses.create(**asked, input=said)
    assert second.output_text.splitlines()[-3:] == ["add: 5", "lookup: 4 EUR", "add: 2"]
    run = await api.ended(first.id.removeprefix("resp_"))
    assert run["terms"]["keep_s"] == 3600


# --- what it was given ------------------------------------------------------------------------------------------------


async def test_input_items_are_listed_page_by_page_in_either_order(client):
    given = [{"role": "user", "content": f"say {number}"} for number in range(5)]
    first = await client.responses.create(model=REHEARSAL_MODEL, input=given)
    second = await client.responses.create(
        model=REHEARSAL_MODEL, input="And then?", previous_response_id=first.id, instructions="Be brief."
    )
    newest_first = [item.to_dict() async for item in await items_of(client, second.id, limit=2)]
    said = [item["content"][0]["text"] for item in newest_first]
    assert (said[0], said[-5:]) == ("And then?", [f"say {number}" for number in reversed(range(5))])
    assert newest_first[1] == first.output[0].to_dict()
    oldest_first = [item.to_dict() async for item in await items_of(client, second.id, limit=3, order="asc")]
    assert oldest_first == newest_first[::-1]
    assert len({item["id"] for item in oldest_first}) == 7
    page = await items_of(client, second.id, limit=2, after=newest_first[1]["id"])
    assert [item.to_dict() for item in page.data] == newest_first[2:4]
    assert (page.has_more, page.first_id, page.last_id) == (True, newest_first[2]["id"], newest_first[3]["id"])
    with pytest.raises(openai.BadRequestError, match="no item of this response has the id 'nope'"):
        await items_of(client, second.id, after="nope")


async def test_items_keep_the_ids_that_they_were_sent_with(client):
    asked = {"model": REHEARSAL_MODEL, "tools": [LOOKUP]}
    first = await client.responses.create(**asked, input=MIXED)
    output = {"type": "function_call_output", "id": "fco_mine", "call_id": first.output[1].call_id, "output": "4"}
    said = [{"role": "user", "content": MIXED}, *(each.to_dict() for each in first.output), output]
    second = await client.responses.create(**asked, input=said)
    listed = (await items_of(client, second.id, order="asc")).data
    assert [item.id for item in listed[1:]] == [first.output[0].id, first.output[1].id, "fco_mine"]
    assert [item.type for item in listed] == ["message", "message", "function_call", "function_call_output"]


async def test_a_stream_is_gone_on_with_only_where_there_is_one(client):
    response = await client.responses.create(model=REHEARSAL_MODEL, input="Hello")
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_" + "0" * 16, stream=True)
    with pytest.raises(openai.BadRequestError, match="send stream=true with it"):
        await client.responses.retrieve(response.id, extra_query={"starting_after": 3})
    with pytest.raises(openai.BadRequestError, match="not obfuscated"):
        await client.responses.retrieve(response.id, include_obfuscation=True)


# --- endings, images, people ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "Let me think. "])
async def test_a_refusal_is_streamed_as_one_and_is_a_part_of_the_message(of_provider, provider, text):
    said = [openai_chunk({"content": text})] if text else []
    provider.replies.append([*said, openai_chunk({"refusal": "I will not."}), openai_chunk({}, "stop"), "[DONE]"])
    events = await streamed(of_provider, model="strict", input="Do it.")
    response = events[-1]["response"]
    assert (response["status"], response["toolfleet"]) == ("completed", {"incomplete": "refusal"})
    [item] = response["output"]
    assert item["content"][-1] == {"type": "refusal", "refusal": "I will not."}
    assert len(item["content"]) == 1 + bool(text)
    told = [event["type"] for event in events if "refusal" in event["type"]]
    assert told == ["response.refusal.delta", "response.refusal.done"]
    assert (await of_provider.responses.retrieve(response["id"])).to_dict() == response


@pytest.mark.parametrize("is_anthropics", [False, True])
async def test_thoughts_that_a_model_lets_see_are_streamed_before_what_it_says(http_fleet, provider, is_anthropics):
    if is_anthropics:
        pieces = [{"type": "thinking_delta", "thinking": each} for each in ("Tea is ", "a plant.")]
        signed = {"type": "signature_delta", "signature": "s"}
        thought = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}
        deltas = [{"type": "content_block_delta", "index": 0, "delta": each} for each in (*pieces, signed)]
        stopped = {"type": "content_block_stop", "index": 0}
        provider.replies.append([*map(ASCII_JSON.encode, (thought, *deltas, stopped)), *anthropic_text("It is green.")])
    else:
        thoughts = [openai_chunk({"reasoning_content": each}) for each in ("Tea is ", "a plant.")]
        provider.replies.append([*thoughts, *openai_text("It is green.")])
    model = provider.anthropic() if is_anthropics else provider.openai()
    async with api_of(http_fleet.settings, model) as api, client_of(api) as client:
        events = await streamed(client, model="strict", input="Which colour has tea?")
        response = events[-1]["response"]
        again = await client.responses.create(
            model="strict",
            input=[{"role": "user", "content": "?"}, *response["output"], {"role": "user", "content": "!"}],
        )
        assert await rest_of(client, response["id"]) == events
    [reasoning, message] = response["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Tea is a plant."}]
    assert message["content"][0]["text"] == "It is green."
    said = [event["type"] for event in events if event["type"].endswith(".delta")]
    assert said == ["response.reasoning_text.delta"] * 4 + ["response.output_text.delta"] * 3
    assert again.status == "completed"
    assert "Tea is" not in str(provider.requests[-1])


async def test_images_go_to_a_model_that_sees_and_are_listed_without_what_they_show(http_fleet, provider):
    pixel = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
        "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    parts = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": pixel}]
    async with api_of(http_fleet.settings, provider.openai(sees=True)) as api, client_of(api) as client:
        response = await client.responses.create(model="strict", input=[{"role": "user", "content": parts}])
        [item] = (await items_of(client, response.id)).data
        run = await api.ended(response.id.removeprefix("resp_"))
    assert provider.requests[0]["messages"][0]["content"][1]["image_url"]["url"] == pixel
    assert item.content[1].to_dict() == {"type": "input_image", "detail": "auto", "image_url": None, "file_id": None}
    assert pixel not in str(run["asked_as"])


async def test_who_waits_for_a_person_is_told_so(api, client):
    asked = {"model": REHEARSAL_MODEL, "input": 'call pay {"amount": 5}', "stream": True, "background": True}
    heard = []
    async for event in await client.responses.create(**asked):
        heard.append(event)
        waiting = event.to_dict().get("response", {}).get("toolfleet", {}).get("awaiting_approval", ())
        for call in waiting:
            assert call["tool"] == "pay"
            stored = await client.responses.retrieve(event.response.id)
            assert stored.to_dict()["toolfleet"]["awaiting_approval"] == [call]
            run_id = event.response.id.removeprefix("resp_")
            decision = {"call_id": call["call_id"], "granted": True}
            assert (await api.client.post(f"/v1/runs/{run_id}/approvals", json=decision)).status_code == 200
    assert kinds(plain(heard))[:4] == ["created", "queued", "in_progress", "in_progress"]
    assert heard[-1].response.output_text.endswith("pay: paid 5")


@pytest.mark.parametrize("stream", [True, False])
async def test_nobody_waits_for_a_person_for_ever(http_fleet, model, stream):
    settings = http_fleet.settings.model_copy(update={"api_approval_wait_s": 0.5})
    asked = {"model": REHEARSAL_MODEL, "input": 'call pay {"amount": 5}'}
    async with api_of(settings, model) as api, client_of(api) as client:
        if stream:
            response = (await streamed(client, **asked))[-1]["response"]
            assert response["status"] == "cancelled"
            assert "of pay has waited 0.5 s for a person's approval" in response["error"]["message"]
        else:
            with pytest.raises(openai.APIStatusError, match=r"has waited 0\.5 s for a person") as told:
                await client.responses.create(**asked)
            assert told.value.code == "approval_required"
