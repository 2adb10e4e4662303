"""How an answer ended is told as the model told it, at every door, streamed or not; nobody waits in silence."""

import asyncio
import json
import time

import httpx
import openai
import pytest

from tests.fleet.strict_provider import StrictProvider, anthropic_end, anthropic_text, ended, openai_calls, openai_chunk
from tests.http.fleet_of_doors import api_of
from tests.http.strict_door import joined, strict_door, whole
from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture
async def door(http_fleet):
    async with strict_door(http_fleet.settings) as running:
        yield running


def user(text):
    return [{"role": "user", "content": text}]


# --- refusals ---------------------------------------------------------------------------------------------------------


@STREAMED
@pytest.mark.parametrize("asked", [{}, {"response_format": JSON_SCHEMA}], ids=["free", "with_a_schema"])
async def test_what_a_model_says_in_place_of_an_answer_is_its_refusal_and_no_content(door, stream, asked):
    refused = [openai_chunk({"refusal": "I will "}), *ended("stop", refusal="not.")]
    said = await door.ask(refused, stream=stream, **asked)
    assert (said.content, said.refusal, said.finish_reason) == ("", "I will not.", "stop")
    run = (await door.api.client.get(f"/v1/runs/{said.run_id}")).json()
    assert (run["state"], run["incomplete"], run["refusal"]) == ("done", "refusal", "I will not.")
    assert (run["answer"], run["messages"][-1]["refusal"]) == ("", "I will not.")
    assert len(door.provider.requests) == 1  # nobody asks again for what was refused


async def test_a_refusal_goes_back_to_the_model_as_one(door):
    said = [*user("?"), {"role": "assistant", "content": None, "refusal": "No."}, *user("And now?")]
    await door.ask(messages=said)
    assert door.sent["messages"][1] == {"role": "assistant", "content": None, "refusal": "No."}
    parts = [{"type": "refusal", "refusal": "Never."}]
    await door.ask(messages=[*user("?"), {"role": "assistant", "content": parts}, *user("And now?")])
    assert door.sent["messages"][1]["refusal"] == "Never."


@STREAMED
@pytest.mark.parametrize(("details", "refusal"), [({"explanation": "Not that."}, "Not that."), (None, None)])
async def test_a_refusal_of_messages_is_told_with_its_explanation_or_as_withheld(http_fleet, stream, details, refusal):
    delta = {"stop_reason": "refusal"} | ({"stop_details": {"type": "refusal", **details}} if details else {})
    *said, _, _ = anthropic_text("I could")
    reply = [*said, json.dumps({"type": "message_delta", "delta": delta}), anthropic_end("")[-1]]
    async with strict_door(http_fleet.settings, "anthropic") as door:
        told = await door.ask(reply, stream=stream)
    if refusal is None:
        assert told.finish_reason == "content_filter"
        assert told.refusal == "The model of this answer refused to give it."
    else:
        assert (told.refusal, told.finish_reason) == (refusal, "stop")
    assert told.content == "I could"


async def test_the_library_and_the_caller_of_an_agent_read_a_refusal(http_fleet):
    writer = Agent(name="writer", description="Writes.", instructions="Write.", tools=[])
    async with (
        StrictProvider() as provider,
        Orchestrator(provider.openai(), settings=http_fleet.settings, agents=[writer]) as fleet,
    ):
        provider.replies += [openai_calls(("writer", ['{"task": "a story"}'])), ended("stop", refusal="No.")]
        run = await fleet.run("Have a story written.")
        provider.replies.append(ended("stop", refusal="No."))
        refused = await fleet.run("?", output_type=int)
    assert run.calls[0].result.content == "[The model of this answer refused to give it. It said: No.]"
    assert (refused.state, refused.refusal, refused.answer) == ("done", "No.", "")
    with pytest.raises(ValueError, match=r"refused to give it\. It said: No\."):
        refused.answer_as(int)


@STREAMED
async def test_an_answer_with_a_schema_that_was_cut_off_is_told_so_and_not_asked_for_again(door, stream):
    said = await door.ask(ended("length", content='{"n": 1'), stream=stream, response_format=JSON_SCHEMA)
    assert (said.content, said.finish_reason, len(door.provider.requests)) == ('{"n": 1', "length", 1)


@STREAMED
async def test_what_openai_has_no_word_for_stands_in_our_member(door, stream):
    said = await door.ask(ended("stop"), stream=stream)
    assert (said.finish_reason, said.more["toolfleet"]) == ("stop", {"incomplete": "empty"})


# --- what the content is ----------------------------------------------------------------------------------------------


@STREAMED
async def test_the_result_of_a_tool_that_answers_directly_is_the_content(door, stream):
    said = await door.ask(openai_calls(("direct", ['{"text": "the result"}'])), stream=stream)
    assert (said.content, said.finish_reason) == ("the result", "stop")
    spoken = [openai_chunk({"content": "Let me look."}), *openai_calls(("direct", ['{"text": "found"}']))]
    assert (await door.ask(spoken, stream=stream)).content == "Let me look.\n\nfound"


@STREAMED
@pytest.mark.parametrize("form", [JSON_SCHEMA, {"type": "json_object"}], ids=["schema", "object"])
async def test_an_answer_in_json_is_the_content_without_what_was_said_on_the_way(door, stream, form):
    asks = [openai_chunk({"content": "I will add."}), *openai_calls(("add", ['{"a": 1, "b": 2}']))]
    said = await door.ask(asks, ended("stop", content='{"n": 3}'), stream=stream, response_format=form)
    assert json.loads(said.content) == {"n": 3}


@STREAMED
async def test_an_answer_in_json_that_was_asked_for_again_is_the_last_one(door, stream):
    replies = ended("stop", content="three"), ended("stop", content='{"n": 3}')
    assert (await door.ask(*replies, stream=stream, response_format=JSON_SCHEMA)).content == '{"n": 3}'


# --- approval ---------------------------------------------------------------------------------------------------------

PAY = 'call pay {"amount": 5}'


async def test_a_stream_tells_what_waits_for_approval_and_goes_on_when_it_is_given(api):
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), max_retries=0) as client:
        pieces = []
        stream = await client.chat.completions.create(model=REHEARSAL_MODEL, messages=user(PAY), stream=True)
        async for piece in stream:
            pieces.append(piece)
            if waits := (getattr(piece, "toolfleet", None) or {}).get("awaiting_approval"):
                assert (waits["tool"], json.loads(waits["arguments"])) == ("pay", {"amount": 5})
                await approve(api, waits)
    said = joined(pieces)
    assert (said.content.endswith("pay: paid 5"), said.finish_reason) == (True, "stop")


async def test_a_completion_waits_for_an_approval(api):
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), max_retries=0) as client:
        asking = asyncio.create_task(client.chat.completions.create(model=REHEARSAL_MODEL, messages=user(PAY)))
        waits = await waiting(api)
        await approve(api, waits)
        assert whole(await asking).content.endswith("pay: paid 5")


@pytest.fixture
async def impatient(http_fleet, model):
    settings = http_fleet.settings.model_copy(update={"api_approval_wait_s": 0.3})
    async with api_of(settings, model) as running:
        yield running


@STREAMED
async def test_nobody_waits_for_ever_for_an_approval(impatient, stream):
    asked = {"model": REHEARSAL_MODEL, "messages": user(PAY)}
    url, headers = f"{impatient.url}/v1/chat/completions", {"authorization": f"Bearer {impatient.local_key.read()}"}
    async with httpx.AsyncClient(headers=headers, timeout=20) as client:
        answer = await client.post(url, json={**asked, "stream": stream})
    if stream:
        error = json.loads(answer.text.strip().rpartition("data: ")[2])["error"]
    else:
        assert (answer.status_code, answer.headers["x-should-retry"]) == (424, "false")
        error = answer.json()["error"]
    assert error["code"] == "approval_required"
    assert "of pay has waited 0.3 s for a person's approval" in error["message"]
    run_id = error["message"].partition("so run ")[2].partition(" ")[0]
    run = await impatient.ended(run_id)
    assert (run["state"], "waited 0.3 s for a person's approval" in run["reason"]) == ("cancelled", True)
    assert f"toolfleet runs approve {run_id}" in error["message"]


async def test_a_response_in_the_background_waits_for_a_person_as_long_as_it_takes(impatient):
    asked = {"model": REHEARSAL_MODEL, "input": PAY, "background": True, "stream": True}
    asking = asyncio.create_task(impatient.client.post("/v1/responses", json=asked))
    waits = await waiting(impatient)
    await asyncio.sleep(3 * 0.3)  # what is to be seen is that nothing happens
    await approve(impatient, waits)
    assert "event: response.completed" in (await asking).text


async def test_a_call_that_was_decided_in_time_does_not_count_as_waiting(http_fleet, model):
    settings = http_fleet.settings.model_copy(update={"api_approval_wait_s": 1.0})
    async with api_of(settings, model) as api:
        asked = {"model": REHEARSAL_MODEL, "messages": user(f'{PAY} then call wait {{"seconds": 1.5}}')}
        began = time.monotonic()
        asking = asyncio.create_task(api.client.post("/v1/chat/completions", json=asked))
        waits = await waiting(api)
        await approve(api, waits)
        answer = (await asking).json()
    assert time.monotonic() - began > 1.5
    assert answer["choices"][0]["message"]["content"]


async def approve(api, waits):
    given = {"call_id": waits["call_id"], "granted": True}
    assert (await api.client.post(f"/v1/runs/{waits['run_id']}/approvals", json=given)).status_code == 200


async def waiting(api):
    """The call that waits for approval."""
    async with asyncio.timeout(20):
        while True:
            for head in (await api.client.get("/v1/runs", params={"limit": 5})).json()["runs"]:
                run = (await api.client.get(f"/v1/runs/{head['run_id']}")).json()
                if run["state"] in {"done", "failed", "cancelled"}:
                    continue
                for call in run["calls"]:
                    if call["awaits_approval"] and call["approval"] is None:
                        return {"run_id": run["run_id"], "call_id": call["call_id"]}
            await asyncio.sleep(0.02)
