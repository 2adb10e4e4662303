"""A name that could mean two things is refused with both, before anything is done under it."""

import asyncio
import json

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE, fleet_of
from processes import until_announced

from toolfleet import Agent, Interceptor, Orchestrator, Returned, ToolSpec
from toolfleet.catalog import BUILT_IN_NAMES
from toolfleet.errors import DuplicateTool, WorkerNotReady
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.tools.builtin import BUILT_IN, SEARCH_TOOLS


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


def bringing(name):
    class Bringing(Interceptor):
        tools = (ToolSpec(name=name, description="Brought.", input_schema={"type": "object"}),)

        async def answer(self, call):
            return Returned(content="of the interceptor")

    return Bringing()


def asking(*names):
    return WrittenModel((requesting(*((f"c{n}", name, '{"value": 1}') for n, name in enumerate(names))), "tool_calls"))


class Other(Interceptor):
    tools = (ToolSpec(name="note", description="Another.", input_schema={"type": "object"}),)


OWN = [
    ({"agents": [Agent("note", "Takes notes.")], "interceptors": [bringing("note")]}, ["agent", "Bringing brings"]),
    (
        {"agents": [Agent("note", "Takes notes.")], "named_interceptors": {"n": bringing("note")}},
        ["agent", "Bringing brings"],
    ),
    ({"interceptors": [bringing("note"), Other()]}, ["Bringing brings", "Other brings"]),
    ({"interceptors": [bringing("note")], "named_interceptors": {"n": Other()}}, ["Bringing brings", "Other brings"]),
    *(({"agents": [Agent(name, "?")]}, [name, "agent", "built-in"]) for name in sorted(BUILT_IN_NAMES)),
    *(({"interceptors": [bringing(name)]}, [name, "Bringing brings", "built-in"]) for name in sorted(BUILT_IN_NAMES)),
]


@pytest.mark.parametrize(("parts", "named"), OWN)
def test_what_an_orchestrator_is_made_with_has_one_meaning_for_each_name(fleet, parts, named):
    with pytest.raises(DuplicateTool) as refusal:
        Orchestrator(settings=fleet.settings, **parts)
    assert all(part in str(refusal.value) for part in named), refusal.value


async def test_two_interceptors_of_one_tool_go_together_in_no_run(fleet):
    named = {"mine": bringing("note"), "other": Other()}
    async with Orchestrator(asking("note"), settings=fleet.settings, named_interceptors=named) as it:
        with pytest.raises(DuplicateTool, match=r"note means two things.*Bringing brings.*Other brings"):
            await it.run("?", interceptors=["mine", "other"])
        assert (await it.run("?", interceptors=["mine"])).calls[0].result.content == "of the interceptor"


@pytest.mark.parametrize("asked", [{}, {"tools": ["echo"]}])
@pytest.mark.parametrize(
    ("parts", "other"),
    [({"agents": [Agent("echo", "Answers.")]}, "an agent"), ({"interceptors": [bringing("echo")]}, "Bringing brings")],
)
async def test_a_workers_tool_and_one_of_the_orchestrators_own_are_refused_before_the_run_begins(
    fleet, asked, parts, other
):
    model = asking("echo")
    async with Orchestrator(model, settings=fleet.settings, **parts) as it:
        with pytest.raises(DuplicateTool, match=rf"echo means two things, a tool of the workers and .*{other}"):
            await it.run("?", **asked)
        # What does not speak of it is not concerned.
        assert (await it.run("?", tools=["add"])).state is State.DONE
    assert len(model.heard) == 2


async def test_a_caller_with_a_loop_of_their_own_is_refused_as_well(fleet):
    async with Orchestrator(settings=fleet.settings, interceptors=[bringing("echo")]) as it:
        with pytest.raises(DuplicateTool, match="echo means two things"):
            await it.call("echo", {"value": 1})
        with pytest.raises(DuplicateTool, match="echo means two things"):
            await it.execute(requesting(("1", "echo", '{"value": 1}')))


async def test_a_run_under_way_fails_when_a_worker_comes_with_the_name_of_its_agent():
    async def a_worker_comes(messages):
        newcomer = staffed.start_worker("io", "--import", "late_comers")
        await asyncio.to_thread(until_announced, staffed, newcomer)
        while "late_comer" not in await it.catalog.offered():
            await asyncio.sleep(0.05)
        return requesting(("1", "echo", '{"value": 1}'))

    agent, model = Agent("late_comer", "Was here first.", tools=[]), WrittenModel((a_worker_comes, "tool_calls"))
    with fleet_of(pools={"io": 1}) as staffed:
        async with Orchestrator(model, agents=[agent], settings=staffed.settings) as it:
            run = await it.run("?")
    assert run.state is State.FAILED
    assert "late_comer means two things, a tool of the workers and an agent" in run.reason


def test_a_worker_does_not_start_with_a_tool_that_is_called_as_a_built_in_one():
    fleet = LocalFleet(["built_in_namesakes"], pools={"io": 1}, environment=HERE)
    with (
        pytest.raises(WorkerNotReady, match=r"task_result means two things, built_in_namesakes:mine .* and a built-in"),
        fleet,
    ):
        pass


def test_the_names_that_are_kept_are_those_of_the_built_in_tools():
    assert {*BUILT_IN, SEARCH_TOOLS} == BUILT_IN_NAMES


async def test_ids_that_a_model_doubles_omits_or_uses_again_are_each_their_own(fleet):
    def asks(*ids):
        return requesting(*((id_, "echo", json.dumps({"value": n})) for n, id_ in enumerate(ids))), "tool_calls"

    async with Orchestrator(WrittenModel(asks("a-2", "a", "a"), asks("a", "", "a-2")), settings=fleet.settings) as it:
        run = await it.run("?")
    answered = [message.tool_call_id for message in run.messages if isinstance(message, ToolMessage)]
    asked = [call.id for message in run.messages for call in getattr(message, "tool_calls", ())]
    assert answered == asked
    assert len(set(asked)) == 6
    assert asked[0] == "a-2"
    assert [message.content for message in run.messages if isinstance(message, ToolMessage)] == ["0", "1", "2"] * 2
