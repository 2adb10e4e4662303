"""What providers send is read the same as plain records and as pydantic's models, odd as it may be."""

import json

import pytest
import records_as_objects
from hypothesis import example, given, settings, strategies as st
from strict_provider import StrictProvider

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.errors import ModelReplyInvalid, ModelUnreachable
from toolfleet.orchestrator.models import reply
from toolfleet.orchestrator.models.anthropic_reply import EVENT, MESSAGE
from toolfleet.orchestrator.models.openai_reply import COMPLETION

ADDRESS = "https://models.example/v1"
READERS = {"ChatCompletion": COMPLETION, "StreamEvent": EVENT, "WholeMessage": MESSAGE}

numbers = st.integers(-(10**30), 10**30) | st.floats() | st.sampled_from([0, 1, 1.0, 1.5, 2**63, 2**64])
texts = (
    st.text(max_size=4) | st.text(st.characters(codec=None), max_size=3) | st.sampled_from(["1", "text", "x" * 5000])
)
leaves = st.none() | st.booleans() | numbers | texts
odd = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2))


def fields(**known):
    """An object that has any of these fields, each as it should be or odd, and sometimes one that nobody knows."""
    return st.fixed_dictionaries({}, optional={**{name: kind | odd for name, kind in known.items()}, "more": odd})


def several(kind):
    return st.lists(kind | odd, max_size=2)


function = fields(name=texts, arguments=texts | st.dictionaries(texts, odd, max_size=2))
call = fields(
    index=st.integers(0, 3),
    id=texts,
    type=texts,
    function=function,
    extra_content=st.dictionaries(texts, odd, max_size=2),
)
content = fields(
    content=texts | several(fields(text=texts)),
    refusal=texts,
    reasoning_content=texts,
    tool_calls=several(call),
    annotations=odd,
)
choice = fields(delta=content, message=content, finish_reason=texts)
counted = fields(
    prompt_tokens=numbers, completion_tokens=numbers, prompt_tokens_details=st.dictionaries(texts, odd, max_size=2)
)
completion = fields(
    choices=several(choice), usage=counted, model=texts, service_tier=texts, system_fingerprint=texts, error=odd
)

block = fields(type=texts, text=texts, thinking=texts, signature=texts, data=texts, id=texts, name=texts, input=odd)
details = fields(explanation=texts)
tokens = fields(input_tokens=numbers, cache_read_input_tokens=numbers, output_tokens=numbers, service_tier=texts)
whole = fields(model=texts, content=several(block), stop_reason=texts, stop_details=details, usage=tokens)
delta = fields(type=texts, text=texts, thinking=texts, partial_json=texts, stop_reason=texts, stop_details=details)
event = fields(type=texts, index=numbers, message=whole, content_block=block, delta=delta, usage=tokens, error=odd)

KINDS = {"ChatCompletion": completion, "StreamEvent": event, "WholeMessage": whole}
RECORDS = st.sampled_from(sorted(KINDS)).flatmap(lambda name: st.tuples(st.just(name), KINDS[name] | odd))


def read(name, data):
    """What is read, or None and which field does not fit."""
    try:
        return READERS[name].read(data, ADDRESS), ""
    except ModelReplyInvalid as error:
        said = str(error)
        assert said.startswith(f"{ADDRESS} sent no usable {name}: ")
        return None, said.removeprefix(f"{ADDRESS} sent no usable {name}: ")


def same(name, data):
    # By their text: NaN is no number that equals itself, and 1 equals True.
    return repr(read(name, data)) == repr(getattr(records_as_objects, name).read(data))


@settings(max_examples=500, deadline=None)
@given(RECORDS, st.booleans())
@example(("ChatCompletion", {"choices": [{"delta": {"content": None, "tool_calls": None}}], "usage": None}), True)
@example(("ChatCompletion", {"choices": None, "error": {"message": "no"}}), True)
@example(("ChatCompletion", {"choices": [{"delta": {"tool_calls": [{"function": None}]}}]}), True)
@example(("ChatCompletion", {"usage": {"prompt_tokens": float("nan")}}), True)
@example(("StreamEvent", {"index": 1}), True)
def test_a_record_is_read_or_refused_by_the_same_field(record, ascii_only):
    name, value = record
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert same(name, data)


@settings(max_examples=200, deadline=None)
@given(RECORDS, st.integers(0, 400), st.binary(max_size=3))
def test_a_record_that_is_cut_or_garbled_is_read_or_refused_alike(record, place, garbage):
    name, value = record
    data = json.dumps(value).encode()
    assert same(name, data[:place])
    assert same(name, data[:place] + garbage + data[place + len(garbage) :])


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "data", [b"", b"{", b"5", b"[]", b"null", b"\xff", b"[" * 5000, b'{"type": "x"' + b" " * 10**6]
)
def test_what_is_no_record_is_refused_alike(name, data):
    assert same(name, data)


@pytest.mark.parametrize(
    ("kind", "data", "place"),
    [
        ("openai", {"choices": [{"delta": {"content": 5}}]}, r"ChatCompletion: choices\.0\.delta\.content"),
        ("openai", {"choices": [{"finish_reason": {}}]}, r"ChatCompletion: choices\.0\.finish_reason"),
        ("openai", {"usage": {"prompt_tokens": "many"}}, r"ChatCompletion: usage\.prompt_tokens"),
        ("anthropic", {"type": "message_delta", "delta": []}, "StreamEvent: delta: Input should be a valid dictionary"),
        ("anthropic", {"index": 0}, "StreamEvent: type: Field required"),
    ],
)
async def test_an_error_names_the_server_and_the_field(kind, data, place):
    async with StrictProvider() as provider:
        provider.replies += [[json.dumps(data)]] * 2
        model = getattr(provider, kind)()
        with pytest.raises(ModelUnreachable, match=rf"^http://127\.0\.0\.1:\d+\S* sent no usable {place}"):
            await reply(model, [UserMessage(content="?")])
        await model.aclose()
