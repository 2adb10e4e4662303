"""Streams whose model begins its reply anew: text is shown once, or the stream says that it is void."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.http.fleet_of_doors import api_of
from toolfleet.messages import AssistantMessage, Usage
from toolfleet.orchestrator.doors.openai.shown import Changed, Shown
from toolfleet.orchestrator.models import REHEARSAL_MODEL, HttpOptions, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.models.protocol import ModelEvent, ReplyComplete, Restarted, TextDelta
from toolfleet.orchestrator.models.recorded import FunctionModel
from toolfleet.orchestrator.models.rehearsal import CutStream

PATH = "/v1/chat/completions"
SAID = "This is what I have to say about it."
QUICK = HttpOptions(first_wait_s=0.01)


class Anew(FunctionModel):
    """Says the beginning of a reply, and then another one."""

    def __init__(self, first: str, then: str) -> None:
        super().__init__(lambda messages: AssistantMessage(content=then))
        self.first, self.then = first, then
        self.has_begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def stream(self, *args, **kwargs) -> AsyncIterator[ModelEvent]:
        yield TextDelta(self.first)
        self.has_begun.set()
        await self.may_go_on.wait()
        yield Restarted(2)
        yield TextDelta(self.then[:5])
        yield TextDelta(self.then[5:])
        yield ReplyComplete(AssistantMessage(content=self.then), Usage(), "function", "stop")


async def said_in(api, text="hello", model=REHEARSAL_MODEL, *, has_read=None, **headers):
    """The text of a stream, and the error that it ends with; the event is set once there is some text."""
    asked = {"model": model, "messages": [{"role": "user", "content": text}], "stream": True}
    text, piece = "", {}
    async with api.client.stream("POST", PATH, json=asked, headers=headers) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                piece = json.loads(line[6:])
                text += "".join(choice["delta"].get("content") or "" for choice in piece.get("choices", ()))
                if text and has_read:
                    has_read.set()
    return text, piece.get("error")


async def test_a_connection_that_breaks_in_the_midst_of_a_reply_has_no_text_shown_twice(http_fleet):
    async with RehearsalServer(faults=[CutStream(after_chunks=4)]) as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=QUICK)
        async with api_of(http_fleet.settings, model) as api:
            text, error = await said_in(api, f'say "{SAID}" call add {{"a": 2, "b": 3}}')
    assert server.request_count == 3
    assert error is None
    assert text.startswith(f"{SAID}\n\n")
    assert text.count("This is") == 1


async def test_what_a_model_says_instead_is_told_as_an_error_and_read_by_whoever_comes_later(http_fleet):
    model = Anew("The sky is", "Grass is green.")
    async with api_of(http_fleet.settings, model) as api:
        key = {"idempotency-key": "said-otherwise"}
        first = asyncio.create_task(said_in(api, model=model.name, **key))
        await model.has_begun.wait()
        late_has_read = asyncio.Event()
        late = asyncio.create_task(said_in(api, model=model.name, has_read=late_has_read, **key))
        await late_has_read.wait()
        model.may_go_on.set()
        for text, error in await asyncio.gather(first, late):
            assert (text, error["code"]) == ("The sky is", "answer_changed")
            assert "The run goes on" in error["message"]
        assert await said_in(api, model=model.name, **key) == ("Grass is green.", None)


def shown(*told):
    """What is shown of pieces of text, and of replies by their attempts."""
    view, text = Shown(), ""
    for each in told:
        if isinstance(each, int):
            view.begin_reply(each)
        else:
            text += view.add(each)
    return text, view


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ((0, "a", "b", 0, "c"), "ab\n\nc"),
        ((0, "abc", 1, "ab", "cde"), "abcde"),
        ((0, "abc", 1, "abcde"), "abcde"),
        ((0, "abc", 1, "a", 1, "abcd"), "abcd"),
        ((0, "a", 0, 1, "b"), "a\n\nb"),
        ((0, "a", 0, "b", 1, "bc"), "a\n\nbc"),
        ((0, "", 1, "", 0, "a"), "a"),
    ],
)
def test_of_a_reply_that_is_begun_anew_only_what_goes_further_is_shown(told, text):
    said, view = shown(*told)
    assert said == text
    assert view.rest(f"{text} and more") == " and more"


@pytest.mark.parametrize(
    "told", [(0, "abc", 1, "x"), (0, "abc", 1, "ab", "x"), (0, "abc", 1, "ab", 0), (0, "a", 0, "b", 1, "a")]
)
def test_what_does_not_stand_any_more_is_told(told):
    with pytest.raises(Changed):
        shown(*told)


def test_content_that_is_not_what_was_shown_is_told():
    _, view = shown(0, "abc", 1, "ab")
    with pytest.raises(Changed):
        view.rest("ab")
