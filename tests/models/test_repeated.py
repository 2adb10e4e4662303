"""Events that repeat the one before but for a text: read by comparing, and to the same end as by parsing each."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from toolfleet.orchestrator.errors import ModelError
from toolfleet.orchestrator.models.anthropic_reply import MessageReader
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.names import NameMap
from toolfleet.orchestrator.models.openai_reply import COMPLETION, CompletionReader
from toolfleet.orchestrator.models.protocol import TextDelta, ThoughtDelta
from toolfleet.orchestrator.models.repeated import AT_ONCE, TRIES, RepeatedText

# Words that stand elsewhere in an event, too; what JSON writes otherwise than it is; halves of a character.
WORDS = [
    "a",
    "b",
    "?",
    "m",
    "content",
    "stop",
    'q"q',
    "back\\slash",
    "\n",
    "ß",
    "漢",
    "\ud83d",
    "\ude00",
    "\x7f",
    " ",
    "",
]
words = st.sampled_from(WORDS) | st.text(max_size=3)


def chunk(delta, **facts):
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **facts}


CHUNKS = st.one_of(
    words.map(lambda text: chunk({"content": text})),
    words.map(lambda text: chunk({"content": text})),
    st.tuples(words, words).map(lambda both: chunk({"content": both[0], "reasoning_content": both[1]})),
    st.tuples(words, words).map(lambda both: chunk({"content": both[0]}, model=both[1])),
    st.tuples(words, words).map(lambda both: chunk({"content": both[0]}, id=both[1], x={"content": both[0]})),
    words.map(lambda text: chunk({"content": text}, usage={"prompt_tokens": len(text)})),
    words.map(lambda text: chunk({"content": [{"text": text}]})),
    words.map(lambda text: chunk({"refusal": text})),
    words.map(
        lambda text: chunk({"tool_calls": [{"index": 0, "id": "i", "function": {"name": "t", "arguments": text}}]})
    ),
    st.sampled_from(["stop", "length"]).map(lambda why: chunk({}) | {"choices": [{"delta": {}, "finish_reason": why}]}),
    st.just(chunk({})),
    st.just({"choices": []}),
    st.just({"choices": 5}),
)


def event(index, **delta):
    return {"type": "content_block_delta", "index": index, "delta": delta}


EVENTS = st.one_of(
    words.map(lambda text: event(0, type="text_delta", text=text)),
    words.map(lambda text: event(0, type="text_delta", text=text)),
    words.map(lambda text: event(1, type="text_delta", text=text)),
    words.map(lambda text: event(0, type="thinking_delta", thinking=text)),
    words.map(lambda text: event(2, type="input_json_delta", partial_json=text)),
    words.map(
        lambda text: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}}
    ),
    st.just({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "i", "name": "t"}}),
    words.map(lambda text: {"type": "message_start", "message": {"model": text, "usage": {"input_tokens": 3}}}),
    st.just({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}),
    st.just({"type": "ping"}),
)


@st.composite
def written(draw, events):
    """Events as different servers write them: with blanks or without, in ASCII or not."""
    style = {"ensure_ascii": draw(st.booleans()), "separators": draw(st.sampled_from([(",", ":"), (", ", ": ")]))}
    return [json.dumps(each, **style).encode(errors="surrogatepass") for each in draw(st.lists(events, max_size=12))]


def told(reader_of, datas, *, compares):
    """What a reader of these events tells, those that it refuses left out."""
    assembly = ReplyAssembly("asked", NameMap(("t",)), new_id=lambda: "new")
    reader, said = reader_of(assembly, "there"), []
    if not compares:
        reader._repeated = RepeatedText(lambda data: data, lambda _: None)
    for data in datas:
        try:
            reader.feed(data)
        except ModelError as error:
            said.append(str(error))
        said += assembly.heard()
    assembly.end("stop")
    return said + assembly.heard()


@given(written(CHUNKS))
def test_chunks_of_completions_say_the_same_whether_they_are_compared_or_parsed(datas):
    assert told(CompletionReader, datas, compares=True) == told(CompletionReader, datas, compares=False)


@given(written(EVENTS))
def test_events_of_messages_say_the_same_whether_they_are_compared_or_parsed(datas):
    assert told(MessageReader, datas, compares=True) == told(MessageReader, datas, compares=False)


def told_at_the_end(reader_of, datas, *, together):
    """What a reader of these events tells that came in one piece, those that it refuses left out."""
    assembly = ReplyAssembly("asked", NameMap(("t",)), new_id=lambda: "new")
    reader, said, at = reader_of(assembly, "there"), [], 0
    while at < len(datas):
        texts = reader.feed_texts(datas[at : at + AT_ONCE]) if together else 0
        if not texts:
            with suppress(ModelError):
                reader.feed(datas[at])
        at += texts or 1
    assembly.end("stop")
    return said + assembly.heard()


@pytest.mark.parametrize(("reader_of", "events"), [(CompletionReader, CHUNKS), (MessageReader, EVENTS)])
def test_events_say_the_same_whether_their_texts_are_parsed_together_or_one_by_one(reader_of, events):
    @given(written(events), st.integers(1, 2 * AT_ONCE))
    def say_the_same(datas, times):
        repeated = [data for data in datas for _ in range(times)]
        one_by_one = told_at_the_end(reader_of, repeated, together=False)
        assert told_at_the_end(reader_of, repeated, together=True) == one_by_one

    say_the_same()


@pytest.mark.parametrize(
    "others", [[b'"a', b'b"', b'"c","d"'], [b'["a"', b'"b"]'], [b'"a","b"', b""], [b'{"a":"b"}'] * 2]
)
def test_what_only_looks_like_texts_together_is_none(others):
    repeated = RepeatedText(lambda data: data, lambda _: None)
    repeated._pattern = (b"<", b">")
    assert repeated.texts_in([b'<"first">', *(b"<" + other + b">" for other in others)]) == ["first"]


class Counting:
    """Reads chunks of completions, and counts how often."""

    def __init__(self):
        self.times = 0
        self.repeated = RepeatedText(self.read, lambda completion: completion["choices"][0]["delta"].get("content"))

    def read(self, data):
        self.times += 1
        return COMPLETION.read(data, "there")

    def text_of(self, data):
        if (text := self.repeated.text_in(data)) is not None:
            return text
        completion = self.read(data)
        self.repeated.note(data, completion)
        return completion["choices"][0]["delta"].get("content")


def datas_of(texts, **facts):
    return [json.dumps(chunk({"content": text}, **facts)).encode() for text in texts]


def test_of_many_events_that_repeat_the_first_only_that_one_is_parsed():
    texts = ["first"] + [f'word {number}\n\N{GRINNING FACE}ß"' for number in range(300)]
    counting = Counting()
    assert [counting.text_of(data) for data in datas_of(texts)] == texts
    assert counting.times == 3  # twice more, to see that it is its text that may differ


@pytest.mark.parametrize("text", ["c", "m", "id"])
def test_a_text_that_stands_elsewhere_in_its_event_is_no_pattern(text):
    counting = Counting()
    [data] = datas_of([text])
    assert counting.text_of(data) == text
    assert counting.text_of(data.replace(f'"{text}"'.encode(), b'"x"', 1)) == text


def test_a_server_that_sends_something_new_with_each_event_is_soon_only_parsed():
    counting = Counting()
    datas = [datas_of(["word"], obfuscation="x" * number)[0] for number in range(50)]
    assert [counting.text_of(data) for data in datas] == ["word"] * 50
    assert counting.times == 50 + 2 * TRIES


def test_thoughts_do_not_keep_the_text_behind_them_from_being_compared():
    assembly = ReplyAssembly("asked", NameMap(()))
    reader = CompletionReader(assembly, "there")
    thoughts = [json.dumps(chunk({"reasoning_content": "so"})).encode()] * 20
    for data in thoughts + datas_of(["word "] * 20):
        reader.feed(data)
    assert assembly.heard() == [ThoughtDelta("so" * 20), TextDelta("word " * 20)]
    assert reader._repeated.text_in(datas_of(["more"])[0]) == "more"
