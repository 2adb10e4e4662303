"""Words of the user's own for calls that ended without their tools: stored with the run, the same wherever it is read.

Each run here is replayed when the tests are through, and must come out the same (see `fleet`).
"""

from __future__ import annotations

import json
import os

import pytest
from conversations import WrittenModel, requesting
from pydantic import ValidationError

from tests.steering.replayed import export_of, offline_settings
from tests.steering.steered import answers, until
from toolfleet import Words
from toolfleet.calls import Failed, FailureKind
from toolfleet.errors import UnknownOption
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator import Agent, Orchestrator
from toolfleet.orchestrator.replay.replaying import replay
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State

OWN = Words(
    cancelled="{tool}: CANCELLED {{really}}",
    interrupted="{tool}: INTERRUPTED",
    not_called="{tool}: NEVER CALLED",
    left_open="{tool}: LEFT OPEN ({message})",
    denied="{tool}: DENIED because {reason}",
    timed_out="{tool}: TOO SLOW",
    unknown_tool="{tool}: WHO? {message}",
)


def asks(*calls):
    return requesting(*((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls))), "tool_calls"


def told(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


async def test_U15_what_became_of_a_call_is_told_in_the_orchestrators_words(fleet, stage, observer):
    model = WrittenModel(asks(("study", {"stage": stage.path}), ("pay", {"amount": 5}), ("stare", {})))
    async with Orchestrator(model, settings=fleet.settings, words=OWN) as orchestrator:
        run_id = await orchestrator.start("?")
        await stage.enters()
        run = await until(fleet, run_id, lambda run: run.awaiting_approval)
        await observer.approve(run.awaiting_approval[0].call_id, Approval(granted=False, reason="{tool} {0} too dear"))
        await observer.cancel_call(run.calls[0].call_id)
        run = await orchestrator.wait(run_id)
        export = await export_of(orchestrator, run_id)
    studied, paid, stared = told(run)
    assert (studied, paid) == ("study: CANCELLED {really}", "pay: DENIED because {tool} {0} too dear")
    assert stared.startswith("stare: WHO? There is no tool 'stare'.")
    # What has happened stands in the calls' results, for people.
    assert "was not allowed: {tool} {0} too dear" in run.calls[1].result.message
    assert [call.result.kind for call in run.calls][1:] == [FailureKind.DENIED, FailureKind.UNKNOWN_TOOL]
    assert model.heard[1] == run.messages[: len(model.heard[1])]
    done = await replay(export, offline_settings())
    assert (done.differences, done.messages) == ((), run.messages)


async def test_U15_calls_that_an_interruption_ends_have_words_of_their_own(fleet, stage, observer):
    async def asks_in_vain(_):
        await observer.say(run_id, "Stop!", interrupt=True)
        return asks(("study", {"stage": stage.path}))[0]

    model = WrittenModel(asks(("study", {"stage": stage.path})), (asks_in_vain, "tool_calls"))
    async with Orchestrator(model, settings=fleet.settings, words=OWN) as orchestrator:
        run_id = orchestrator.settings.new_run_id()
        await orchestrator.start("?", run_id=run_id)
        await stage.enters()
        await until(fleet, run_id, lambda run: run.calls and run.calls[0].deadline_unix_s)
        await observer.say(run_id, "Wait!", interrupt=True)
        run = await orchestrator.wait(run_id)
    assert told(run) == ["study: INTERRUPTED", "study: INTERRUPTED"]


async def test_U15_what_the_end_of_a_run_leaves_is_told_in_its_words_by_whoever_ends_it(fleet, stage, observer):
    model = WrittenModel(asks(("study", {"stage": stage.path}), ("pay", {"amount": 5})))
    async with Orchestrator(model, settings=fleet.settings, words=OWN) as orchestrator:
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        await until(fleet, run_id, lambda run: run.awaiting_approval)
        run = await observer.cancel(run_id, "enough")
        await actor.leaves()
    left, never = told(run)
    assert left.startswith("study: LEFT OPEN (study was cancelled with its run (enough)")
    assert never == "pay: NEVER CALLED"
    assert (await observer.get(run_id)).messages == run.messages


async def test_U15_late_failures_are_told_so_too(fleet, stage, observer):
    model = WrittenModel(asks(("study_slowly", {"stage": stage.path})))
    async with Orchestrator(model, settings=fleet.settings, words=OWN) as orchestrator:
        run_id = await orchestrator.start("?", slow="handle")
        await stage.enters()
        run = await until(fleet, run_id, lambda run: run.state is State.WAITING)
        await observer.cancel_call(run.calls[0].call_id)
        run = await orchestrator.wait(run_id)
    late = json.loads(answers(run, "task_result")[0])
    assert (late["status"], late["error"]) == ("cancelled", "study_slowly: CANCELLED {really}")
    assert "was cancelled" in run.calls[0].late_result.message


async def test_U15_a_run_keeps_its_words_whoever_takes_it_over(fleet, stage, observer):
    """Two orchestrators of a model with different words: the first one's hold; one without words takes the next's."""
    first, second = Words(unknown_tool="first {tool}"), Words(unknown_tool="second {tool}")
    for words, expected in ((first, "first"), (None, "second")):
        name = f"shared-{expected}-{os.urandom(4).hex()}"
        beginning = WrittenModel(asks(("study", {"stage": stage.path})))
        going_on = WrittenModel(asks(("stare", {})))
        beginning.name = going_on.name = name
        async with Orchestrator(beginning, settings=fleet.settings, words=words) as orchestrator:
            run_id = await orchestrator.start("?")
            actor = await stage.enters()
            await until(fleet, run_id, lambda run: run.calls and run.calls[0].deadline_unix_s)
        async with Orchestrator(going_on, settings=fleet.settings, words=second) as orchestrator:
            actor.returns("studied")
            run = await orchestrator.wait(run_id)
        assert told(run) == ["studied", f"{expected} stare"]
        assert run.terms.words == (words or second)


async def test_U15_agents_runs_and_loops_of_ones_own_have_them_too(fleet, stage):
    agent = Agent(name="helper", description="Help.", model=WrittenModel(asks(("stare", {}))))
    model = WrittenModel(asks(("helper", {"task": "look"})))
    message = requesting(("c1", "stare", "{}"))
    async with Orchestrator(model, settings=fleet.settings, agents=[agent], words=OWN) as orchestrator:
        run = await orchestrator.run("?")
        below = await orchestrator.get(run.calls[0].call_id)
        [answer] = await orchestrator.execute(message)
        [result] = await orchestrator.execute_results(message)
    assert told(below)[0].startswith("stare: WHO?")
    assert answer.content.startswith("stare: WHO?")
    assert isinstance(result, Failed)
    assert result.message.startswith("There is no tool")


def test_U15_wrong_kinds_and_placeholders_are_refused_at_once():
    with pytest.raises(UnknownOption, match="did you mean 'cancelled'"):
        Words(canceled="x")
    for text in ("{nope}", "{tool.__class__}", "{tool!r}", "{tool:>9}", "{0}", "{}", "{reason}", "{tool", "x" * 4001):
        with pytest.raises(ValidationError):
            Words(cancelled=text)
    assert Words(denied="{reason}{tool}{message}{{}}").model_dump() == {"denied": "{reason}{tool}{message}{{}}"}


async def test_U15_a_run_without_words_is_stored_as_ever(fleet):
    async with Orchestrator(WrittenModel(), settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
        entries = [entry.event.model_dump_json() for entry in await orchestrator._services.store.entries(run.run_id)]
    assert not any('"words"' in entry for entry in entries)
