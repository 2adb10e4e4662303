"""Whatever bytes a model sends: each call ends as a message it can read, and its next request is valid."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE
from hypothesis import HealthCheck, example, given, settings, strategies as st
from strict_provider import StrictProvider, anthropic_calls, openai_calls

from toolfleet import LocalFleet
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.run.states import State

DIALECTS = {"openai": openai_calls, "anthropic": anthropic_calls}

# --- what models may write --------------------------------------------------------------------------------------------

anyhow = st.characters(codec=None)  # halves of characters among them
names = st.sampled_from(["text", "count", "values", "word", "to", "", "\ud83d"]) | st.text(anyhow, max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**63, 2**80) | st.floats() | st.text(anyhow, max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=4)


def nested(depth, opening="[", closing="]"):
    return f'{{"values": {{"a": {opening * depth}1{closing * depth}}}}}'


def without_end(text, at):
    return text[: at % (len(text) + 1)]


ADVERSARIAL = [
    '{"text": "\\ud83d"}',
    '{"text": "\ud83d"}',
    '{"\\ude00": 1}',
    '{"values": {"a": "\\ud83d", "\\ude00": "\ude00"}}',
    nested(3000),
    nested(2000, '{"b": ', "}"),
    nested(99),
    nested(63),
    "[" * 3000,
    '{"text": ' * 2500,
    '{"values": {"a": 1e999}}',
    '{"values": {"a": NaN, "b": -Infinity}}',
    '{"values": {"a": 123456789012345678901234567890, "b": 0.1000000000000000055}}',
    '{"values": {"a": 1, "a": 2}}',
    f'{{"count": {"9" * 5000}}}',
    '{"text": "\x00\x1b[31m\u2028\x85"}',
    '{"text": "line\nbreak",}',
    '"{\\"text\\": \\"twice\\"}"',
    '{"values": "{\\"a\\": \\"\\\\ud83d\\"}"}',
    "\ufeff{}",
    "null",
    "",
    "\ud83d",
    '{"word": "\\ud83d", "to": ["\ud83d"]}',
]
texts = (
    st.sampled_from(ADVERSARIAL)
    | st.builds(json.dumps, objects)
    | st.builds(lambda value: json.dumps(value, ensure_ascii=False), objects)
    | st.builds(without_end, st.builds(json.dumps, objects), st.integers(0, 200))
    | st.text(anyhow, max_size=60)
)
tools = st.sampled_from(["note", "keep", "whisper", "anything", "helper", "task_result"]) | st.text(anyhow, max_size=8)


@st.composite
def pieces(draw):
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


replies = st.lists(st.tuples(tools, pieces()), min_size=1, max_size=5)
EVERYTHING = [(tool, [text]) for tool in ("note", "keep", "whisper", "anything") for text in ADVERSARIAL]


# --- a whole turn -----------------------------------------------------------------------------------------------------


class Stage:
    """A fleet, a strict provider and an orchestrator on one loop, which outlives the examples of a property."""

    def __init__(self, runner, fleet, ledger):
        self.run, self.fleet, self._ledger = runner.run, fleet, ledger

    def converse(self, dialect, said, **options):
        """One question; the run, the provider, and the ids of the calls that had an effect."""
        return self.run(self._converse(dialect, said, options))

    async def _converse(self, dialect, said, options):
        async with StrictProvider() as provider, self._orchestrator(provider, dialect) as orchestrator:
            provider.replies.append(said)
            run = await orchestrator.run("?", timeout_s=60, **options)
            return run, provider, set(self._ledger.read_text().split())

    @asynccontextmanager
    async def _orchestrator(self, provider, dialect):
        model = getattr(provider, dialect)()
        helper = Agent("helper", "Helps.", tools=())
        async with Orchestrator(model, agents=[helper], settings=self.fleet.settings) as orchestrator:
            yield orchestrator


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    ledger = tmp_path_factory.mktemp("odd") / "ledger"
    ledger.touch()
    environment = HERE | {"ODD_LEDGER": str(ledger)}
    with LocalFleet(["odd_tools"], pools={"io": 1}, environment=environment) as fleet, asyncio.Runner() as runner:
        yield Stage(runner, fleet, ledger)


def check(run, provider, effects):
    assert provider.refusals == []
    assert run.state is State.DONE, run.reason
    asked = next(message for message in run.messages if isinstance(message, AssistantMessage)).tool_calls
    answers = [message for message in run.messages if isinstance(message, ToolMessage)]
    assert [each.tool_call_id for each in answers] == [call.id for call in asked]
    for call, answer in zip(run.calls, answers, strict=True):
        assert answer.content
        if call.tool in {"note", "keep", "whisper", "anything"}:
            assert (call.call_id in effects) == (not answer.is_error), answer


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_adversarial_text_for_every_tool_ends_as_a_message_and_the_next_request_is_valid(stage, dialect):
    for start in range(0, len(EVERYTHING), 16):
        check(*stage.converse(dialect, DIALECTS[dialect](*EVERYTHING[start : start + 16])))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(said=replies)
@example(said=[("keep", ['{"values": {"a": "\ud83d', '\ude00"}}'])])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_A3_any_text_in_any_pieces_ends_as_a_message_and_the_next_request_is_valid(stage, dialect, said):
    check(*stage.converse(dialect, DIALECTS[dialect](*said), slow="handle"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_character_that_is_cut_between_two_pieces_arrives_whole(stage, dialect):
    said = DIALECTS[dialect](("keep", ['{"values": {"face": "\ud83d', '\ude00"}}']))
    run, provider, effects = stage.converse(dialect, said)
    check(run, provider, effects)
    assert json.loads(run.calls[0].result.content) == {"face": "\N{GRINNING FACE}"}


async def heard_and_stored(stage, model, **options):
    """What a run's watcher hears, and the run as it is read from the store."""
    async with Orchestrator(model, settings=stage.fleet.settings) as orchestrator:
        heard = [event async for event in orchestrator.stream("?", **options)]
        return heard, await orchestrator.get(heard[-1].run.run_id)


def test_a_model_of_ones_own_may_say_halves_of_characters_anywhere(stage):
    model = WrittenModel((requesting(("i\ud83d", "n\ud83d", "\ud83d"), ("b", "note", '{"text": "\ud83d"}')), "stop"))
    heard, run = stage.run(heard_and_stored(stage, model))
    assert run.state is State.DONE
    assert [message.tool_call_id for message in run.messages if isinstance(message, ToolMessage)] == ["i\ufffd", "b"]
    assert "\ud83d" not in repr([event.model_dump() for event in heard])


@pytest.mark.parametrize("answer", ['{"a": "\\ud83d", "\ud83d": 1}', nested(3000), '{"a": NaN}'])
def test_an_answer_of_a_type_that_is_odd_is_complained_about_and_mended(stage, answer):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    model = WrittenModel((AssistantMessage(content=answer), "stop"), (AssistantMessage(content='{"a": 1}'), "stop"))
    _, run = stage.run(heard_and_stored(stage, model, output_schema=schema))
    assert (run.state, run.answer) == (State.DONE, '{"a": 1}'), run.reason
    assert run.messages[-2].content.startswith("your answer")
