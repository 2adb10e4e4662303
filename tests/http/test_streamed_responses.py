"""Responses as they are streamed, with the official client: nothing of it is changed but its address."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from pydantic import BaseModel

from tests.http.fleet_of_doors import api_of
from tests.http.responses import ENDS, kinds, numbers, plain, rest_of, streamed, text_of
from toolfleet.messages import AssistantMessage, Usage
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.models import REHEARSAL_MODEL, HttpOptions, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.models.protocol import ModelEvent, ReplyComplete, TextDelta
from toolfleet.orchestrator.models.recorded import FunctionModel
from toolfleet.orchestrator.models.rehearsal import CutStream

LOOKUP = {
    "type": "function",
    "name": "lookup",
    "description": "Look up a price in the client's own database.",
    "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
    "strict": False,
}
MIXED = (
    'say "Well, let me see." call add {"a": 2, "b": 3} then call lookup {"item": "tea"} and call add {"a": 1, "b": 1}'
)
MESSAGE = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]
CALL = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]


def client_of(api):
    return openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), max_retries=0)


@pytest.fixture
async def client(api):
    async with client_of(api) as client:
        yield client


class Halting(FunctionModel):
    """Says the beginning of its answer, and the rest once it may."""

    def __init__(self, *texts: str) -> None:
        super().__init__(lambda messages: AssistantMessage(content="".join(texts)))
        self.texts = texts
        self.may_go_on = asyncio.Event()

    async def stream(self, *args, **kwargs) -> AsyncIterator[ModelEvent]:
        for text in self.texts:
            yield TextDelta(text)
            await self.may_go_on.wait()
        message = AssistantMessage(content="".join(self.texts))
        yield ReplyComplete(message, Usage(), "function", "stop")


# --- the sequence -----------------------------------------------------------------------------------------------------


async def test_a_response_is_streamed_in_the_order_that_openai_documents(client):
    events = await streamed(client, model=REHEARSAL_MODEL, input='say "Well, now." call add {"a": 2, "b": 3}')
    assert kinds(events) == ["created", "in_progress", *MESSAGE, *MESSAGE, "completed"]
    assert numbers(events) == list(range(len(events)))
    [first, last] = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (first["content"][0]["text"], first["phase"]) == ("Well, now.", "commentary")
    assert last["content"][0]["text"].endswith("add: 5")
    assert last["phase"] == "final_answer"
    assert text_of(events, last["id"]) == last["content"][0]["text"]
    assert len([event for event in events if event.get("delta")]) > 5  # in pieces, and not as a whole


async def test_what_a_stream_ends_with_is_what_the_response_is_from_then_on(client):
    events = await streamed(client, model=REHEARSAL_MODEL, input=MIXED, tools=[LOOKUP], metadata={"of": "a test"})
    ended = events[-1]["response"]
    assert (await client.responses.retrieve(ended["id"])).to_dict() == ended
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == ended["output"]
    assert [item["type"] for item in ended["output"]] == ["message", "function_call"]


async def test_the_clients_calls_are_streamed_once_the_fleets_own_are_done(client):
    events = await streamed(client, model=REHEARSAL_MODEL, input=MIXED, tools=[LOOKUP])
    assert kinds(events) == ["created", "in_progress", *MESSAGE, *CALL, "completed"]
    call = events[-1]["response"]["output"][1]
    assert (call["name"], call["arguments"]) == ("lookup", '{"item": "tea"}')
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "4 EUR"}
    asked = {"model": REHEARSAL_MODEL, "tools": [LOOKUP], "previous_response_id": events[-1]["response"]["id"]}
    events = await streamed(client, **asked, input=[answer])
    said = events[-1]["response"]["output"][-1]["content"][0]["text"]
    assert said.splitlines()[-3:] == ["add: 5", "lookup: 4 EUR", "add: 2"]


async def test_the_packages_own_accumulator_is_given_whole_items(client):
    async with client.responses.stream(model=REHEARSAL_MODEL, input=MIXED, tools=[LOOKUP]) as stream:
        snapshots = [event.snapshot async for event in stream if event.type == "response.output_text.delta"]
        response = await stream.get_final_response()
    assert snapshots[-1] == "Well, let me see."
    assert response.output_text == snapshots[-1]
    assert response.output[1].name == "lookup"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0


class City(BaseModel):
    city: str


class SecondThoughts(FunctionModel):
    """Answers in words and, told that it must not, with JSON."""

    def __init__(self) -> None:
        self.asked = 0
        super().__init__(self._said)

    def _said(self, _messages) -> AssistantMessage:
        self.asked += 1
        return AssistantMessage(content="Oslo." if self.asked == 1 else '{"city": "Oslo"}')


async def test_an_answer_that_must_fit_a_schema_is_checked_asked_for_once_more_and_parsed(http_fleet):
    model = SecondThoughts()
    async with api_of(http_fleet.settings, model) as api, client_of(api) as client:
        async with client.responses.stream(model="function", input="Which city?", text_format=City) as stream:
            events = plain([event async for event in stream._raw_stream])
            stored = await client.responses.retrieve(events[-1]["response"]["id"])
        async with client.responses.stream(model="function", input="Which city?", text_format=City) as stream:
            parsed = await stream.get_final_response()
    assert model.asked == 3
    assert kinds(events) == ["created", "in_progress", *MESSAGE, "completed"]
    assert parsed.output_parsed == City(city="Oslo")
    assert stored.to_dict() == events[-1]["response"]
    assert stored.text.format.name == "City"


async def test_results_that_are_the_answer_are_a_message(client):
    events = await streamed(client, model=REHEARSAL_MODEL, input='call direct {"text": "as it is"}')
    assert kinds(events) == ["created", "in_progress", *MESSAGE, "completed"]
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "as it is"


@pytest.mark.parametrize(
    ("asked", "end", "status"),
    [
        ({"max_turns": 1}, "response.failed", "failed"),
        ({"timeout_s": 0.4}, "response.failed", "failed"),
    ],
)
async def test_a_response_that_fails_says_so_and_why_at_its_end(client, asked, end, status):
    question = 'say "One moment." call wait {"seconds": 1} then call add {"a": 1, "b": 1}'
    events = await streamed(client, model=REHEARSAL_MODEL, input=question, extra_body={"toolfleet": asked})
    response = events[-1]["response"]
    assert (events[-1]["type"], response["status"], response["error"]["code"]) == (end, status, "server_error")
    assert response["error"]["message"]
    assert (await client.responses.retrieve(response["id"])).to_dict() == response
    assert [kind for kind in kinds(events) if f"response.{kind}" in ENDS] == ["failed"]


async def test_text_is_streamed_while_the_model_still_writes_to_whoever_follows(http_fleet):
    model = Halting("Once upon a time ", "there was ", "an end.")
    async with api_of(http_fleet.settings, model) as api, client_of(api) as client, asyncio.timeout(30):
        stream = await client.responses.create(model="function", input="Tell.", background=True, stream=True)
        events, follower = aiter(stream), None
        heard = [await anext(events)]
        while "time" not in heard[-1].to_dict().get("delta", ""):
            if heard[-1].type == "response.output_text.delta" and follower is None:
                # Another one comes, in the midst of the reply.
                response_id = heard[0].response.id
                follower = aiter(await client.responses.retrieve(response_id, stream=True))
            if follower is not None and not model.may_go_on.is_set():
                early = [await anext(follower) for _ in heard]
                assert plain(early) == plain(heard)
                model.may_go_on.set()
            heard.append(await anext(events))
        heard += [event async for event in events]
        assert plain(early + [event async for event in follower]) == plain(heard)
        assert await rest_of(client, response_id) == plain(heard)
    assert numbers(plain(heard)) == list(range(len(heard)))
    assert kinds(plain(heard)) == ["created", "queued", "in_progress", *MESSAGE, "completed"]


# --- gone on with -----------------------------------------------------------------------------------------------------


async def test_after_any_number_a_stream_goes_on_with_exactly_the_rest(client):
    asked = {"model": REHEARSAL_MODEL, "input": MIXED, "tools": [LOOKUP]}
    events = await streamed(client, **asked, background=True)
    response_id = events[0]["response"]["id"]
    assert await rest_of(client, response_id) == events
    for event in events:
        number = event["sequence_number"]
        assert await rest_of(client, response_id, number) == events[number + 1 :]
    async with client.responses.stream(response_id=response_id, starting_after=5, tools=[LOOKUP]) as stream:
        assert (await stream.get_final_response()).output[1].name == "lookup"


async def test_a_reply_that_is_begun_anew_leaves_nothing_of_its_first_beginning(http_fleet):
    quick = HttpOptions(first_wait_s=0.01)
    question = 'say "This is what I have to say about it." call add {"a": 2, "b": 3}'
    async with RehearsalServer(faults=[CutStream(after_chunks=4)]) as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=quick)
        async with api_of(http_fleet.settings, model) as api, client_of(api) as client:
            asked = {"model": REHEARSAL_MODEL, "input": question}
            async with client.responses.stream(**asked) as stream:
                events = plain([event async for event in stream._raw_stream])
            stored = await rest_of(client, events[0]["response"]["id"])
            final = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert server.request_count == 3
    assert [event for event in events if event in stored] == stored
    void = [event for event in events if event not in stored]
    assert len(void) < 15  # none where nobody had heard of it yet
    assert numbers(events) == sorted(set(numbers(events)))
    assert (
        next(event["item"]["id"] for event in events if event["type"] == "response.output_item.added") == final[0]["id"]
    )
    assert final == events[-1]["response"]["output"]


async def test_the_accumulator_bears_a_reply_that_is_begun_anew(http_fleet):
    quick = HttpOptions(first_wait_s=0.01)
    async with RehearsalServer(faults=[CutStream(after_chunks=4)]) as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=quick)
        async with api_of(http_fleet.settings, model) as api, client_of(api) as client:
            question = 'say "This is what I have to say about it." call add {"a": 2, "b": 3}'
            async with client.responses.stream(model=REHEARSAL_MODEL, input=question) as stream:
                response = await stream.get_final_response()
    assert server.request_count == 3
    assert response.output[0].content[0].text == "This is what I have to say about it."


# --- left -----------------------------------------------------------------------------------------------------------


async def test_who_hangs_up_cancels_a_response_unless_it_is_in_the_background(http_fleet, model):
    asked = {"model": REHEARSAL_MODEL, "stream": True}
    question = 'call wait {"seconds": 0.5} then call add {"a": 2, "b": 3}'
    soon = ApiOptions(grace_s=0.1)
    async with api_of(http_fleet.settings, model, options=soon) as api, client_of(api) as client:
        stream = await client.responses.create(**asked, input='call wait {"seconds": 50}')
        response_id = (await anext(aiter(stream))).response.id
        await stream.close()
        run = await api.ended(response_id.removeprefix("resp_"))
        assert (run["state"], run["reason"]) == ("cancelled", "nobody waits for it any more")
        events = await rest_of(client, response_id)
        assert (events[-1]["type"], events[-1]["response"]["status"]) == ("response.failed", "cancelled")

        stream = await client.responses.create(**asked, input=question, background=True)
        response_id = (await anext(aiter(stream))).response.id
        await stream.close()
        events = await rest_of(client, response_id, 0)
        assert events[-1]["response"]["output"][-1]["content"][0]["text"].endswith("add: 5")


async def test_one_that_comes_back_with_its_key_is_given_the_same_stream(client):
    asked = {"model": REHEARSAL_MODEL, "input": MIXED, "tools": [LOOKUP]}
    keyed = {"extra_headers": {"Idempotency-Key": "a response, once"}}
    first, again = [await streamed(client, **asked, **keyed) for _ in range(2)]
    assert first == again


async def test_a_stream_whose_server_stops_says_so_behind_what_it_has_told(api, client):
    question = 'say "One moment." call wait {"seconds": 50}'
    stream = await client.responses.create(model=REHEARSAL_MODEL, input=question, background=True, stream=True)
    heard = []
    async with asyncio.timeout(20):
        async for event in stream:
            heard.append(event)
            if event.type == "response.output_item.done":
                api.door.close_streams()
    [*told, error] = plain(heard)
    assert (error["type"], error["sequence_number"]) == ("error", told[-1]["sequence_number"])
    assert "starting_after" in error["message"]
    await client.responses.cancel(told[0]["response"]["id"])
