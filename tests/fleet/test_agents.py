"""Agents as tools: a call that is a run of its own, with its own history, and one result for its parent."""

import asyncio
import json
import time

import pytest
from conversations import WrittenModel
from fleets import fleet_of
from pydantic import BaseModel

from toolfleet.calls import FailureKind, ToolCall
from toolfleet.errors import DuplicateTool
from toolfleet.messages import SystemMessage, ToolMessage
from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run

WAIT_S = 30


class Question(BaseModel):
    subject: str
    depth: int = 1


HELPER = Agent("helper", "Does one thing for you.", "You help.", tools=["echo", "play_once"])


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}, lease_s=2, heartbeat_s=0.3) as running:
        yield running


@pytest.fixture
async def model():
    async with RehearsalServer() as server:
        yield server


@pytest.fixture
def orchestrator(fleet, model):
    def made(*agents, **settings):
        chat = OpenAIChat(REHEARSAL_MODEL, base_url=model.base_url, api_key="rehearsal")
        return Orchestrator(model=chat, agents=agents, settings=fleet.settings.model_copy(update=settings))

    return made


def asks(agent, program):
    return f"call {agent} {json.dumps({'task': program})}"


def answers(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


async def test_P6_the_parent_sees_one_call_and_one_result_of_a_run_with_its_own_history(orchestrator):
    async with orchestrator(HELPER) as it:
        run = await it.run(asks("helper", 'call echo {"value": "for my caller"}') + ' and call echo {"value": "mine"}')
        child = await it.get(run.calls[0].call_id)
    assert [answer.splitlines()[-1] for answer in answers(run)] == ["echo: for my caller", "mine"]
    assert [call.tool for call in run.calls] == ["helper", "echo"]
    assert child.parent_call_id == run.calls[0].call_id
    assert (child.depth, child.messages[0]) == (1, SystemMessage(content="You help."))
    assert all("mine" not in message.content for message in child.messages)


async def test_P6_an_input_model_is_what_the_parent_fills_in_and_the_child_reads(fleet):
    agent = Agent("expert", "Knows.", input=Question, tools=[])
    model = WrittenModel()
    async with Orchestrator(model=model, agents=[agent], settings=fleet.settings) as it:
        agents, begin = it._config.agents, it._services.runs.begin
        assert agents.specs["expert"].input_schema["required"] == ["subject"]
        parent = Run(run_id="p", messages=(), terms=RunTerms(), calls=(record_of("expert"),))
        refused = await agents.start(call_of("expert", '{"depth": 2}'), begin=begin, parent=parent)
        assert refused.kind is FailureKind.BAD_ARGUMENTS
        assert "subject" in refused.message
        assert await agents.start(call_of("expert", '{"subject": "rivers"}'), begin=begin, parent=parent) is None
        child = await it.wait("p.1.0")
        await it.delete("p.1.0")
    assert json.loads(child.messages[0].content) == {"subject": "rivers", "depth": 1}


async def test_P6_cancelling_the_parent_reaches_the_childs_tool(orchestrator, stage):
    async with orchestrator(HELPER) as it:
        run_id = await it.start(asks("helper", f'call play_once {{"stage": "{stage.path}"}}'))
        actor = await stage.enters()
        await it.cancel(run_id)
        assert await actor.leaves() == "cancelled"
        child = await it.wait(f"{run_id}.1.0")
    assert child.state is State.CANCELLED


async def test_P6_the_depth_of_runs_is_limited(orchestrator):
    recursive = Agent("again", "Calls itself.", tools=["again", "echo"])
    program = 'call echo {"value": "bottom"}'
    for _ in range(3):
        program = asks("again", program)
    async with orchestrator(recursive, max_depth=2) as it:
        run = await it.run(program)
    assert "2 runs stand above it" in answers(run)[0]
    assert run.state is State.DONE


async def test_a_childs_result_reaches_a_parent_that_was_adopted(orchestrator, stage):
    async with orchestrator(HELPER) as first:
        run_id = await first.start(asks("helper", f'call play_once {{"stage": "{stage.path}"}}'), patience_s=0)
        actor = await stage.enters()
    async with orchestrator(HELPER) as second:
        actor.returns("through two lives")
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert answers(run)[0].endswith("play_once: through two lives")
    assert len(stage.actors) == 1


async def test_a_child_without_an_answer_is_a_failed_call(orchestrator):
    hurried = Agent("breathless", "Has one turn.", tools=["echo"], max_turns=1)
    async with orchestrator(hurried) as it:
        run = await it.run(asks("breathless", 'call echo {"value": 1} then call echo {"value": 2}'))
    assert run.calls[0].result.kind is FailureKind.ERROR
    assert "limit of 1 turns" in run.calls[0].result.message


def test_two_agents_of_one_name_are_refused(orchestrator):
    with pytest.raises(DuplicateTool, match="helper"):
        orchestrator(HELPER, HELPER)


def record_of(agent):
    return CallRecord(call_id="p.1.0", turn=1, requested_id="1", tool=agent, arguments="{}")


def call_of(agent, arguments):
    return ToolCall(
        call_id="p.1.0", run_id="p", tool=agent, arguments=arguments, deadline_unix_s=time.time() + 60, reply_to="x"
    )
