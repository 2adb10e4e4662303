"""Assistants: Protocol classes whose methods become runs, on real workers; models say what is written down."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date
from typing import Annotated, Protocol

import pytest
from conversations import WrittenModel, requesting
from fleets import asking, fleet_of
from pydantic import BaseModel
from stages import stage_of_its_own

from toolfleet import ConversationId, FromContext, tool
from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.errors import CallerError
from toolfleet.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from toolfleet.orchestrator import (
    InvalidAssistant,
    OnFailure,
    Orchestrator,
    Result,
    RunFailed,
    agent_of,
    asks,
    assistant,
    forget,
    system,
)
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.run.updates import CallEnded, RunBegan, RunEnded, RunUpdate


class City(BaseModel):
    name: str
    founded: date


class Arithmetic:
    @tool
    def add(self, a: int, b: int) -> int:
        """Only its name counts here."""
        return a + b


class Clerk(Protocol):
    """All the ways to ask."""

    async def say(self, text: str) -> str:
        """One argument is the message; this is for readers."""
        ...

    async def greet(self) -> str:
        """Greet whoever comes."""
        ...

    @system("You write in {{language}}.")
    @asks("Summarise {{text}} in {{words}} words, {{ text }}!")
    async def summarise(self, text: str, words: int = 20, *, language: str = "Latin") -> str: ...

    async def described(self, city: City) -> str:
        """What is {{it}} known for?"""
        ...

    @asks("When was {{it}} founded?")
    async def city(self, name: str) -> City: ...

    async def counted(self, text: str) -> Result[int]: ...

    async def explained(self, text: str) -> Result[str]: ...

    def pieces(self, text: str) -> AsyncIterator[str]: ...

    def events(self, text: str) -> AsyncIterator[RunUpdate]: ...

    @asks(tools=["echo", Arithmetic])
    async def calculate(self, text: str) -> str: ...

    async def talk(self, talk: ConversationId, text: str) -> str: ...

    @system("Be brief.")
    async def talk_briefly(self, talk: ConversationId, text: str) -> str: ...

    async def follow(self, talk: ConversationId, text: str) -> Result[str]: ...

    async def bill(self, tenant: Annotated[str, FromContext("tenant")], text: str) -> str: ...


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


class Hearing(WrittenModel):
    """Remembers which tools it was offered."""

    def stream(self, messages, tools, **options):
        self.offered = [spec.name for spec in tools]
        return super().stream(messages, tools, **options)


@pytest.fixture
async def clerk(fleet):
    """A clerk whose model says these things, and the model."""
    open_ones = []

    async def made(*replies, declared=Clerk, parts=None, **options):
        said = [AssistantMessage(content=reply) if isinstance(reply, str) else reply for reply in replies]
        model = Hearing(*((reply, "stop") for reply in said))
        orchestrator = Orchestrator(model, settings=fleet.settings, **(parts or {}))
        open_ones.append(await orchestrator.__aenter__())
        made.orchestrator = orchestrator
        return assistant(declared, orchestrator, **options), model

    yield made
    for orchestrator in open_ones:
        await orchestrator.__aexit__(None, None, None)


def calls(*named):
    return requesting(*((f"c{n}", name, json.dumps(arguments)) for n, (name, arguments) in enumerate(named)))


def heard(model, turn=-1):
    return [message.content for message in model.heard[turn]]


async def test_a_methods_only_argument_is_the_message_and_its_answer_is_text(clerk):
    it, model = await clerk("good morning")
    assert await it.say("hello") == "good morning"
    assert heard(model) == ["hello"]


async def test_templates_are_filled_with_arguments_and_their_defaults_in_one_pass(clerk):
    it, model = await clerk()
    await it.summarise("{{words}}", language="English")
    assert model.heard[0] == (
        SystemMessage(content="You write in English."),
        UserMessage(content="Summarise {{words}} in 20 words, {{words}}!"),
    )
    await it.greet()
    assert heard(model) == ["Greet whoever comes."]
    await it.described(City(name="Oslo", founded=date(1040, 1, 1)))
    assert heard(model) == ['What is {"name":"Oslo","founded":"1040-01-01"} known for?']


async def test_an_answer_of_a_type_is_validated_and_asked_for_once_more(clerk):
    it, model = await clerk("long ago", '{"name": "Oslo", "founded": "1040-01-01"}')
    assert await it.city("Oslo") == City(name="Oslo", founded=date(1040, 1, 1))
    assert "not JSON" in heard(model)[-2]


async def test_a_result_has_the_answer_the_executed_calls_and_the_usage(clerk, fleet):
    it, _ = await clerk(calls(("add", {"a": 1, "b": 2})), "3")
    result = await it.counted("1 + 2?")
    assert (result.answer, [call.result.content for call in result.calls]) == (3, ["3"])
    assert (await clerk.orchestrator.get(result.run_id)).usage == result.usage


async def test_a_run_that_fails_is_raised_with_its_reason(clerk):
    it, _ = await clerk(calls(("echo", {"value": 1})), max_turns=1)
    with pytest.raises(RunFailed, match="limit of 1 turns") as caught:
        await it.say("?")
    assert caught.value.run.calls[0].result == Returned(content="1")


async def test_events_of_a_method_come_as_they_happen(clerk):
    it, _ = await clerk(calls(("echo", {"value": 1})))
    events = [event async for event in it.events("?")]
    assert isinstance(events[0], RunBegan)
    assert [event.result.content for event in events if isinstance(event, CallEnded)] == ["1"]
    assert isinstance(events[-1], RunEnded)


async def test_text_streams_and_a_model_that_does_not_stream_gives_it_in_one_piece(clerk, fleet):
    it, _ = await clerk("whole", calls(("direct", {"text": "from the tool"})))
    assert [piece async for piece in it.pieces("?")] == ["whole"]
    assert [piece async for piece in it.pieces("?")] == ["from the tool"]
    async with (
        RehearsalServer() as server,
        Orchestrator(
            OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal"), settings=fleet.settings
        ) as orchestrator,
    ):
        streaming = assistant(Clerk, orchestrator)
        pieces = [piece async for piece in streaming.pieces('call echo {"value": "in many pieces, one by one"}')]
    assert len(pieces) > 1
    assert "one by one" in "".join(pieces)


async def test_who_stops_listening_to_a_stream_cancels_its_run(clerk):
    async with stage_of_its_own() as stage:
        it, _ = await clerk(calls(("play_once", {"stage": stage.path})))
        events = it.events("?")
        await anext(events)
        actor = await stage.enters()
        await events.aclose()
        assert await actor.leaves() == "cancelled"


async def test_tools_are_chosen_for_the_assistant_or_for_one_method_by_name_tool_class_or_object(clerk):
    it, model = await clerk(tools=["wait", Arithmetic.add])
    await it.say("?")
    assert sorted(model.offered) == ["add", "wait"]
    await it.calculate("?")
    assert sorted(model.offered) == ["add", "echo"]


async def test_arguments_go_into_the_context_that_tools_see(clerk):
    it, _ = await clerk(calls(("who_am_i", {})), lambda messages: AssistantMessage(content=messages[-1].content))
    assert json.loads(await it.bill("acme", "?"))["context"] == {"tenant": "acme"}


# --- conversations ---------------------------------------------------------------------------------------------------


async def test_P9_a_conversation_remembers_and_another_one_knows_nothing_of_it(clerk):
    it, model = await clerk("hello Ada", "no idea", "Ada")
    assert await it.talk("first", "I am Ada") == "hello Ada"
    assert await it.talk("second", "who am I?") == "no idea"
    assert await it.talk_briefly("first", "who am I?") == "Ada"
    assert heard(model, 1) == ["who am I?"]
    assert heard(model, 2) == ["Be brief.", "I am Ada", "hello Ada", "who am I?"]


async def test_P9_tools_are_given_the_conversations_id_and_its_shared_state_alone(clerk):
    def sees(messages):
        return AssistantMessage(content=messages[-1].content)

    it, _ = await clerk(
        *(calls(("update", {"state": {"seen": 1}})), "noted"),
        *(calls(("shared", {})), sees),
        *(calls(("shared", {})), sees),
        *(calls(("who_am_i", {})), sees),
    )
    await it.talk("mine", "remember")
    assert json.loads(await it.talk("mine", "what?")) == {"seen": 1}
    assert json.loads(await it.talk("yours", "what?")) == {}
    assert json.loads(await it.talk("yours", "who?"))["context"]["conversation_id"] == "yours"


async def test_P9_conversations_of_other_assistants_and_tenants_are_others(clerk, fleet):
    it, model = await clerk("1", "2", "3", "4")
    await it.talk("same", "one")
    elsewhere = assistant(Clerk, clerk.orchestrator, name="another")
    await elsewhere.talk("same", "two")
    await assistant(Clerk, clerk.orchestrator, tenant="acme").talk("same", "three")
    assert [len(messages) for messages in model.heard] == [1, 1, 1]
    await assistant(Clerk, clerk.orchestrator).talk("same", "four")
    assert heard(model) == ["one", "1", "four"]


async def test_P9_two_messages_at_once_are_answered_one_after_the_other_by_any_orchestrator(clerk):
    first, model_of_first = await clerk(lambda m: AssistantMessage(content=f"heard {len(m)}"))
    second, model_of_second = await clerk(lambda m: AssistantMessage(content=f"heard {len(m)}"))
    answers = await asyncio.gather(first.talk("busy", "a"), second.talk("busy", "b"))
    assert sorted(answers) == ["heard 1", "heard 3"]
    assert model_of_first.heard
    assert model_of_second.heard


async def test_a_conversation_outlives_its_orchestrator_and_can_be_forgotten(clerk):
    it, _ = await clerk("1")
    asked = await it.follow("lasting", "one")
    later, model = await clerk("2", "3")
    await later.talk("lasting", "two")
    assert heard(model) == ["one", "1", "two"]
    await forget(Clerk, clerk.orchestrator, "lasting")
    with pytest.raises(CallerError, match=asked.run_id):
        await clerk.orchestrator.get(asked.run_id)
    await later.talk("lasting", "three")
    assert heard(model) == ["three"]


async def test_a_long_conversation_is_remembered_from_something_the_user_said(clerk):
    it, model = await clerk(calls(("echo", {"value": 1})), "1", "2", remembers=3)
    await it.talk("long", "one")
    await it.talk("long", "two")
    assert heard(model) == ["two"]
    await it.talk("long", "three")
    assert heard(model) == ["two", "2", "three"]


async def test_a_message_whose_run_failed_was_said_all_the_same(clerk):
    it, model = await clerk(calls(("echo", {"value": 1})), max_turns=1)
    with pytest.raises(RunFailed):
        await it.talk("unlucky", "one")
    await it.talk("unlucky", "two")
    assert heard(model) == ["one", "", "1", "two"]


# --- agents ----------------------------------------------------------------------------------------------------------


class Expert(Protocol):
    @system("You know {{field}}.")
    @asks("How old is {{city}}?")
    async def age(self, city: str, field: str = "history") -> int:
        """Knows how old a city is."""
        ...


async def test_P6_an_assistants_method_is_a_tool_of_another(clerk):
    agent = agent_of(Expert.age, tools=["echo"])
    assert (agent.name, agent.description, agent.spec.input_schema["required"]) == (
        "age",
        "Knows how old a city is.",
        ["city"],
    )
    it, model = await clerk(
        calls(("age", {"city": "Oslo"})), "984", "very old", parts={"agents": [agent]}, tools=[agent]
    )
    result = await it.explained("?")
    assert (result.answer, result.calls[0].result) == ("very old", Returned(content="984"))
    assert {"You know history.", "How old is Oslo?"} < set(heard(model, 1))
    assert heard(model, 2) == ["?", "", "984"]


# --- declarations that mean nothing ----------------------------------------------------------------------------------


class Mute(Protocol):
    async def ask(self, a: str, b: str) -> str: ...


class Misspelt(Protocol):
    @asks("{{wrods}}")
    async def ask(self, words: str) -> str: ...


class Wasteful(Protocol):
    @asks("{{a}}")
    async def ask(self, a: str, b: str) -> str: ...


class Blocking(Protocol):
    def ask(self, a: str) -> str: ...


class Awaited(Protocol):
    async def ask(self, a: str) -> AsyncIterator[str]: ...


class Wordless(Protocol):
    async def ask(self, a: str): ...


class Unwritable(Protocol):
    async def ask(self, a: str) -> asyncio.Event: ...


class Empty(Protocol):
    pass


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        (Mute, "does not say what to ask"),
        (Misspelt, "no parameter wrods"),
        (Wasteful, "asks nothing with b"),
        (Blocking, "write `async def`"),
        (Awaited, "write `def`"),
        (Wordless, "say what comes back"),
        (Unwritable, "no answer can be of type"),
        (Empty, "has no methods"),
        (print, "is no class"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused_when_the_assistant_is_made(declared, complaint):
    with pytest.raises(InvalidAssistant, match=complaint):
        assistant(declared, Orchestrator())


def test_what_is_no_tool_is_refused():
    with pytest.raises(InvalidAssistant, match="is no tool"):
        assistant(Clerk, Orchestrator(), tools=[Clerk])


# --- the low level ---------------------------------------------------------------------------------------------------


async def test_a_reply_says_whether_it_asks_for_tools_and_its_results_can_be_had_as_they_are(orchestrator):
    asked = asking(("update", {"state": {}, "attributes": {"a": 1}}), ("add", {"a": "x"}))
    assert asked.has_tool_calls
    assert not AssistantMessage(content="no").has_tool_calls
    returned, failed = await orchestrator.execute_results(asked)
    assert returned.attributes == {"a": 1}
    assert failed.kind is FailureKind.BAD_ARGUMENTS


async def test_B3_a_conversation_is_completed_by_running_only_what_is_unanswered(orchestrator):
    asked = asking(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2}), ("add", {"a": 3, "b": 3}))
    second = ToolMessage(tool_call_id="call-1", name="add", content="four, as everybody knows")
    before = orchestrator.dispatched
    completed = await orchestrator.complete([UserMessage(content="?"), asked, second])
    assert [message.content for message in completed] == ["?", "", "2", "four, as everybody knows", "6"]
    assert orchestrator.dispatched - before == 2
    assert await orchestrator.complete(completed) == completed
    with pytest.raises(CallerError, match="does not end with a reply"):
        await orchestrator.complete([UserMessage(content="?")])


async def test_handlers_of_failures_have_the_last_word_and_may_raise(fleet):
    handlers = OnFailure(
        arguments=lambda call, failed: f"{call.tool} wants two numbers",
        execution=lambda call, failed: Returned(content="0") if failed.kind is FailureKind.ERROR else None,
    )
    asked = asking(("add", {"a": "x"}), ("fail", {"kind": "value"}), ("hurried", {}), ("echo", {"value": 1}))
    async with Orchestrator(settings=fleet.settings, interceptors=[handlers]) as orchestrator:
        arguments, execution, timed_out, echoed = await orchestrator.execute_results(asked)
    assert arguments == Failed(kind=FailureKind.BAD_ARGUMENTS, message="add wants two numbers")
    assert (execution.content, echoed.content) == ("0", "1")
    assert timed_out.kind is FailureKind.TIMED_OUT


async def test_a_tool_that_wants_the_conversation_gets_it_and_no_other_does(clerk, orchestrator):
    it, _ = await clerk(
        calls(("overhear", {}), ("who_am_i", {})), lambda messages: AssistantMessage(content=messages[-2].content)
    )
    result = await it.explained("what was said?")
    assert json.loads(result.answer) == ["user: what was said?"]
    assert json.loads(result.calls[1].result.content)["context"] == {}
    history = [UserMessage(content="listen")]
    [heard] = await orchestrator.execute(asking(("overhear", {})), history=history)
    assert json.loads(heard.content) == ["user: listen"]
    assert (await orchestrator.call("overhear", {})).content == "[]"
