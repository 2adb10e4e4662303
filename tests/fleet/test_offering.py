"""What a model is offered, what a name means, and what interceptors do with its calls, on real workers."""

import json
from dataclasses import replace

import pytest
from conversations import WrittenModel, requesting
from fleets import asking, fleet_of

from toolfleet.calls import FailureKind, Returned
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Approval, Emulation, Interceptor, Orchestrator, Permission
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import CallArgumentsArrived
from toolfleet.orchestrator.tools.chain import UnknownInterceptor
from toolfleet.tool import ToolSpec


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


class Hearing(WrittenModel):
    """Remembers which tools it was offered each time."""

    def __init__(self, *replies):
        super().__init__(*((reply, "tool_calls") for reply in replies))
        self.offered = []

    def stream(self, messages, tools, **options):
        self.offered.append([spec.name for spec in tools])
        return super().stream(messages, tools, **options)


@pytest.fixture
def converse(fleet):
    async def conversed(*replies, settings=None, run=None, **parts):
        model = Hearing(*replies)
        chosen = fleet.settings.model_copy(update=settings or {})
        async with Orchestrator(model=model, settings=chosen, **parts) as orchestrator:
            return await orchestrator.run("?", **(run or {})), model

    return conversed


def calls(*named):
    return requesting(*((f"c{n}", tool, json.dumps(arguments)) for n, (tool, arguments) in enumerate(named)))


def answers(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


class Provider:
    def __init__(self, *choices, each_turn):
        self.each_turn = each_turn
        self.choices = list(choices)
        self.asked = []

    async def __call__(self, messages, context):
        self.asked.append((len(messages), context.get("conversation_id")))
        return self.choices.pop(0)


async def test_P3_a_provider_is_asked_once_for_a_run_that_names_no_tools(converse):
    provider = Provider(["echo"], each_turn=False)
    run, model = await converse(
        calls(("echo", {"value": 1}), ("add", {"a": 1, "b": 1})),
        tool_provider=provider,
        run={"context": {"conversation_id": "c7"}},
    )
    assert model.offered == [["echo"], ["echo"]]
    assert provider.asked == [(1, "c7")]
    assert answers(run)[0] == "1"
    assert run.calls[1].result.kind is FailureKind.UNKNOWN_TOOL


async def test_P3_a_provider_that_says_so_is_asked_before_each_turn(converse):
    provider = Provider(["echo"], ["add"], each_turn=True)
    run, model = await converse(calls(("echo", {"value": 1})), tool_provider=provider)
    assert model.offered == [["echo"], ["add"]]
    assert [length for length, _ in provider.asked] == [1, 3]
    assert answers(run) == ["1"]


async def test_P4_a_name_that_was_not_offered_runs_only_where_a_resolver_says_what_it_means(converse):
    asked = calls(("Echo", {"value": 1}), ("add", {"a": 1, "b": 2}))
    without, _ = await converse(asked, run={"tools": ["echo"]})
    assert [call.result.kind for call in without.calls] == [FailureKind.UNKNOWN_TOOL] * 2
    resolved, _ = await converse(asked, run={"tools": ["echo"]}, resolve_tool={"Echo": "echo"}.get)
    assert answers(resolved)[0] == "1"
    assert resolved.calls[1].result.kind is FailureKind.UNKNOWN_TOOL


async def test_R5_an_unknown_tool_is_told_raised_or_answered_by_the_caller_and_siblings_run(converse):
    asked = calls(("ecko", {}), ("echo", {"value": 1}))
    told, _ = await converse(asked)
    assert answers(told) == ["There is no tool 'ecko'. Did you mean echo?", "1"]
    raised, _ = await converse(asked, on_unknown_tool="raise")
    assert (raised.state, "ecko" in raised.reason) == (State.FAILED, True)

    async def own(call):
        return Returned(content=f"{call.tool} is not here today")

    answered, _ = await converse(asked, on_unknown_tool=own)
    assert answers(answered) == ["ecko is not here today", "1"]


async def test_P8_with_too_many_tools_the_model_searches_and_finds_them_in_its_next_turn(converse):
    run, model = await converse(
        calls(("search_tools", {"query": "adding numbers"})),
        calls(("add", {"a": 2, "b": 3}), ("echo", {"value": "not found yet"})),
        settings={"max_offered_tools": 3},
    )
    # `introduce` has the tag that keeps it in sight.
    assert model.offered[0] == ["introduce", "search_tools"]
    assert "add" in model.offered[1]
    assert "echo" not in model.offered[1]
    assert json.loads(answers(run)[0])["tools"][0]["name"] == "add"
    assert answers(run)[1] == "5"
    assert run.calls[2].result.kind is FailureKind.UNKNOWN_TOOL


async def test_P8_a_search_that_finds_nothing_says_so_and_one_without_words_is_refused(converse):
    run, _ = await converse(
        calls(("search_tools", {"query": "zeppelin"}), ("search_tools", {"query": ""})),
        settings={"max_offered_tools": 3},
    )
    assert json.loads(answers(run)[0])["tools"] == []
    assert run.calls[1].result.kind is FailureKind.BAD_ARGUMENTS


# --- interceptors ----------------------------------------------------------------------------------------------------


class Noting(Interceptor):
    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    async def before(self, call):
        self.notes.append(f"{self.name} before")
        return call

    async def after(self, call, result):
        self.notes.append(f"{self.name} after {call.tool}")
        return result


class Doubling(Interceptor):
    """Changes what is sent, and what comes back."""

    async def before(self, call):
        given = json.loads(call.arguments)
        return replace(call, arguments=json.dumps({"value": given["value"] * 2}), tool="add")

    async def after(self, call, result):
        return Returned(content=f"<{result.content}>")


async def test_P1_interceptors_run_in_order_and_back_those_of_the_run_inside_those_for_all(converse):
    notes = []
    run, _ = await converse(
        calls(("echo", {"value": 1})),
        interceptors=[Noting("first", notes), Noting("second", notes)],
        named_interceptors={"mine": Noting("mine", notes), "other": Noting("other", notes)},
        run={"interceptors": ["mine"]},
    )
    assert notes == [
        *("first before", "second before", "mine before"),
        *("mine after echo", "second after echo", "first after echo"),
    ]
    assert answers(run) == ["1"]


async def test_P1_an_interceptor_changes_arguments_and_result_but_not_the_tool(converse):
    run, _ = await converse(calls(("echo", {"value": 21})), interceptors=[Doubling()])
    assert answers(run) == ["<42>"]
    # What the model asked for stays as it was.
    assert json.loads(run.calls[0].arguments) == {"value": 21}


async def test_P2_a_denied_call_is_not_sent_and_says_why(converse):
    def no_adding(call):
        return "it is Sunday" if call.tool == "add" else None

    run, _ = await converse(
        calls(("add", {"a": 1, "b": 1}), ("echo", {"value": 1})), interceptors=[Permission(no_adding)]
    )
    assert run.calls[0].result.kind is FailureKind.DENIED
    assert "it is Sunday" in answers(run)[0]
    assert answers(run)[1] == "1"


async def test_P2_a_model_plays_a_tool(converse):
    actor = WrittenModel((AssistantMessage(content="42"), "stop"))
    run, _ = await converse(calls(("add", {"a": 1, "b": 1})), interceptors=[Emulation(actor, ["add"])])
    assert answers(run) == ["42"]
    assert '"a": 1' in actor.heard[0][-1].content


async def test_P1_the_same_interceptors_serve_a_caller_with_a_loop_of_their_own(fleet):
    async with Orchestrator(settings=fleet.settings, interceptors=[Doubling()]) as orchestrator:
        [message] = await orchestrator.execute(asking(("echo", {"value": 4})))
    assert message.content == "<8>"


async def test_P1_a_run_that_names_an_interceptor_nobody_has_does_not_begin(converse):
    with pytest.raises(UnknownInterceptor, match="none"):
        await converse(run={"interceptors": ["audit"]})


class Notebook(Interceptor):
    """Brings a tool along, and answers it."""

    tools = (ToolSpec(name="note", description="Keep a note.", input_schema={"type": "object"}),)

    def __init__(self):
        self.notes = []

    async def answer(self, call):
        self.notes.append(json.loads(call.arguments)["text"])
        return Returned(content=f"{len(self.notes)} notes")


@pytest.mark.parametrize("named", [None, ["echo"], ["echo", "note"]])
async def test_P1_an_interceptor_brings_tools_along_and_answers_them_without_a_worker(converse, named):
    notebook = Notebook()
    run, model = await converse(
        calls(("note", {"text": "milk"}), ("echo", {"value": 1})),
        named_interceptors={"notebook": notebook},
        run={"interceptors": ["notebook"], "tools": named},
    )
    assert "note" in model.offered[0]
    assert (answers(run), notebook.notes) == (["1 notes", "1"], ["milk"])


async def test_P1_tools_of_an_interceptor_are_not_there_for_runs_without_it_and_stay_in_sight_of_those_with_it(
    converse,
):
    asked = calls(("note", {"text": "milk"}))
    without, model = await converse(asked, named_interceptors={"notebook": Notebook()})
    assert "note" not in model.offered[0]
    assert without.calls[0].result.kind is FailureKind.UNKNOWN_TOOL
    _, model = await converse(asked, interceptors=[Notebook()], settings={"max_offered_tools": 3})
    assert model.offered[0] == ["introduce", "search_tools", "note"]


async def test_P5_a_policy_decides_which_calls_wait_for_approval(fleet):
    model = Hearing(calls(("echo", {"value": "harmless"}), ("echo", {"value": "risky"})))
    async with Orchestrator(
        model=model, settings=fleet.settings, needs_approval=lambda call: "risky" in call.arguments
    ) as orchestrator:
        run_id = await orchestrator.start("?")
        while not (waiting := (await orchestrator.get(run_id)).awaiting_approval):
            pass
        await orchestrator.approve(waiting[0].call_id, Approval(granted=False, reason="too risky"))
        run = await orchestrator.wait(run_id)
    assert answers(run)[0] == "harmless"
    assert run.calls[1].result.kind is FailureKind.DENIED


async def test_B10_pieces_of_calls_are_heard_while_the_model_writes_them(fleet):
    async with RehearsalServer() as server:
        chat = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
        async with Orchestrator(model=chat, settings=fleet.settings) as orchestrator:
            question = 'say "two at once" call echo {"value": "one"} and call add {"a": 1, "b": 2}'
            events = [event async for event in orchestrator.stream(question)]
    pieces = [event for event in events if isinstance(event, CallArgumentsArrived)]
    written = {0: "", 1: ""}
    for piece in pieces:
        written[piece.index] += piece.arguments_delta
    assert [json.loads(written[index]) for index in (0, 1)] == [{"value": "one"}, {"a": 1, "b": 2}]
    assert {piece.tool for piece in pieces} == {"echo", "add"}
    assert "two at once" in events[-1].run.messages[1].content
