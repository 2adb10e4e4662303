"""Replies that a strict parser would refuse, in both dialects: streamed in halves of characters, and nested deep."""

import json

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter
from strict_provider import ASCII_JSON, StrictProvider, anthropic_calls, anthropic_text, openai_calls, openai_text

from toolfleet.errors import BadArguments
from toolfleet.messages import Message, ToolMessage, UserMessage
from toolfleet.orchestrator.errors import ModelUnreachable
from toolfleet.orchestrator.models import CallDelta, TextDelta, reply
from toolfleet.strict_json import PiecedText, cut_to_depth, encodable, is_deeper, read_json
from toolfleet.tool import tool

STORED = TypeAdapter(list[Message])
ASK = UserMessage(content="?")
FACE = "\N{GRINNING FACE}"
HIGH, LOW = "\ud83d", "\ude00"
anyhow = st.text(st.characters(codec=None), max_size=12)


@tool
async def anything(values: dict) -> str:
    """Take anything."""
    return repr(values)


@pytest.fixture
async def provider():
    async with StrictProvider() as running:
        yield running
        assert running.refusals == []


@pytest.fixture(params=["openai", "anthropic"])
async def model(request, provider):
    asked = getattr(provider, request.param)()
    yield asked
    await asked.aclose()


def is_openai(model):
    return type(model).__name__ == "OpenAIChat"


def texts(model, *pieces):
    """A reply of text in these pieces."""
    if is_openai(model):
        chunks = [openai_text(piece)[0] for piece in pieces]
        return [*chunks, *openai_text("")[1:]]
    first, _, *end = anthropic_text("")
    return [first, *(anthropic_text(piece)[1] for piece in pieces), *end]


def calls(model, *asked):
    return (openai_calls if is_openai(model) else anthropic_calls)(*asked)


async def test_a_character_in_two_halves_comes_as_one_piece_of_text(provider, model, events_of):
    provider.replies.append(texts(model, "a" + HIGH, LOW + "b"))
    events = await events_of(model, [ASK])
    shown = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(shown) == f"a{FACE}b"
    assert not any(half in piece for half in (HIGH, LOW) for piece in shown)
    assert events[-1].message.content == f"a{FACE}b"


@pytest.mark.parametrize("pieces", [[HIGH, "a"], [LOW, "a"], ["a", HIGH], [HIGH, HIGH]])
async def test_a_half_whose_other_half_never_comes_is_replaced(provider, model, events_of, pieces):
    provider.replies.append(texts(model, *pieces))
    events = await events_of(model, [ASK])
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == events[-1].message.content == encodable("".join(pieces))
    shown.encode()


async def test_halves_in_arguments_names_and_ids_leave_a_history_that_can_be_stored_and_sent(
    provider, model, events_of
):
    provider.replies.append(calls(model, ("t" + HIGH, ['{"a": "', HIGH, LOW, '"}']), (LOW, ['{"b": "', HIGH])))
    events = await events_of(model, [ASK])
    assert (
        "".join(event.arguments_delta for event in events if isinstance(event, CallDelta))
        == f'{{"a": "{FACE}"}}{{"b": "'
    )
    said = events[-1].message
    assert [call.arguments for call in said.tool_calls] == [f'{{"a": "{FACE}"}}', '{"b": "\ufffd']
    answers = [ToolMessage(tool_call_id=call.id, name=call.name, content="x") for call in said.tool_calls]
    history = STORED.validate_json(STORED.dump_json([ASK, said, *answers]))
    assert (await reply(model, history)).message.content == "done"


@pytest.mark.parametrize("depth", [150, 2000, 3000])
async def test_a_whole_reply_nested_deep_is_a_call_that_is_refused(provider, model, depth):
    arguments = '{"values": ' + '{"a": ' * depth + "1" + "}" * depth + "}"
    call = {"id": "c", "type": "function", "function": {"name": "anything", "arguments": "ARGUMENTS"}}
    used = {"type": "tool_use", "id": "c", "name": "anything", "input": "ARGUMENTS"}
    chosen = {"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    whole = ASCII_JSON.encode({"choices": [chosen]} if is_openai(model) else {"content": [used]})
    provider.replies.append(whole.replace('"ARGUMENTS"', arguments).encode())
    said = (await reply(model, [ASK])).message
    with pytest.raises(BadArguments, match="levels deep"):
        anything.bind(said.tool_calls[0].arguments)
    answer = ToolMessage(tool_call_id=said.tool_calls[0].id, name="anything", content="too deep")
    assert (await reply(model, [ASK, said, answer])).message.content == "done"


async def test_a_body_that_is_not_utf_8_is_read_with_its_damage_marked(provider):
    model = provider.openai(stream=False)
    provider.replies.append(b'{"choices": [{"message": {"content": "a\xff"}, "finish_reason": "stop"}]}')
    assert (await reply(model, [ASK])).message.content == "a\ufffd"
    await model.aclose()


async def test_what_is_no_json_at_all_is_still_no_reply(provider, model):
    provider.replies += [["{" * 3000]] * 2
    with pytest.raises(ModelUnreachable, match="no usable"):
        await reply(model, [ASK])


async def test_numbers_of_a_past_call_are_shown_to_their_last_digit(provider):
    model = provider.openai()
    exact = '{"values": {"a": 123456789012345678901234567890, "b": 0.1000000000000000055}}'
    provider.replies.append(openai_calls(("anything", [exact])))
    said = (await reply(model, [ASK])).message
    await reply(model, [ASK, said, ToolMessage(tool_call_id=said.tool_calls[0].id, name="anything", content="x")])
    assert provider.requests[-1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == exact
    await model.aclose()


async def test_half_a_character_in_a_history_from_elsewhere_is_replaced_on_its_way(provider, model):
    assert (await reply(model, [UserMessage(content="a" + HIGH)])).message.content == "done"
    assert "a\ufffd" in json.dumps(provider.requests[-1], ensure_ascii=False)


@given(anyhow, st.lists(st.integers(0, 12), max_size=4))
def test_pieces_of_a_text_say_together_what_the_whole_says(text, cuts):
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    pieced = PiecedText()
    starts = [0, *ends[:-1]]
    said = "".join(pieced.add(text[start:end]) for start, end in zip(starts, ends, strict=True)) + pieced.end()
    assert said == encodable(text)


deep = st.recursive(st.integers(0, 9), lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}"\\'), inner))


@given(deep, st.integers(1, 6))
def test_what_is_cut_to_a_depth_is_as_it_was_but_not_deeper(value, levels):
    text = json.dumps(value)
    cut = cut_to_depth(text, levels)
    assert not is_deeper(cut, levels)
    assert read_json(cut) == value or is_deeper(text, levels)
