"""What a person or a model writes as a secret stands nowhere in a run: not when edited, misplaced or sent to nobody."""

import asyncio
import json

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE

from toolfleet import LocalFleet
from toolfleet.calls import Returned
from toolfleet.connections import connect_async
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import RunNotOpen
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.tools.interceptors import Interceptor
from toolfleet.tool import tool

SECRET = "correct-horse-battery"
OTHER = "battery-horse-correct"
WAIT_S = 30


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(["fleet_tools", "patience_tools"], pools={"io": 1}, environment=HERE) as running:
        yield running


async def all_that_is_stored(orchestrator, run_id):
    return repr(await orchestrator._services.store.entries(run_id)) + repr(await orchestrator.calls(run_id))


async def secrets_kept(fleet):
    async with connect_async(fleet.settings) as client:
        return [key async for key in client.scan_iter(fleet.settings.keys.arguments("*"))]


async def parked(orchestrator, run_id):
    async with asyncio.timeout(WAIT_S):
        while (run := await orchestrator.get(run_id)).state is not State.PARKED:
            await asyncio.sleep(0.01)
    return run


async def test_arguments_that_a_person_edits_reach_the_tool_and_stand_masked(fleet):
    model = WrittenModel((requesting(("a", "unlock", json.dumps({"word": OTHER}))), "stop"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        [call] = (await parked(orchestrator, run_id)).calls
        edited = json.dumps({"word": SECRET, "door": "back"})
        shown = await orchestrator.approve(call.call_id, Approval(granted=True, arguments=edited))
        assert json.loads(shown.calls[0].arguments) == {"word": "***", "door": "back"}
        run = await orchestrator.wait(run_id)
        stored = await all_that_is_stored(orchestrator, run_id)
    assert run.calls[0].result == Returned(content=f"back door, {len(SECRET)} letters")
    assert SECRET not in stored
    assert await secrets_kept(fleet) == []


async def test_a_secret_that_a_person_leaves_masked_is_the_one_that_the_model_wrote(fleet):
    model = WrittenModel((requesting(("a", "unlock", json.dumps({"word": SECRET}))), "stop"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        [call] = (await parked(orchestrator, run_id)).calls
        edited = json.dumps(json.loads(call.arguments) | {"door": "side"})
        await orchestrator.approve(call.call_id, Approval(granted=True, arguments=edited))
        run = await orchestrator.wait(run_id)
        assert SECRET not in await all_that_is_stored(orchestrator, run_id)
    assert run.calls[0].result == Returned(content=f"side door, {len(SECRET)} letters")


async def test_a_decision_that_comes_too_late_changes_nothing_of_what_is_run(fleet):
    model = WrittenModel((requesting(("a", "unlock", json.dumps({"word": SECRET}))), "stop"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        [call] = (await parked(orchestrator, run_id)).calls
        both = [Approval(granted=True), Approval(granted=True, arguments=json.dumps({"word": "x"}))]
        done = await asyncio.gather(
            *(orchestrator.approve(call.call_id, each) for each in both), return_exceptions=True
        )
        run = await orchestrator.wait(run_id)
    [refused] = [each for each in done if isinstance(each, RunNotOpen)]
    used = 1 if done.index(refused) == 0 else len(SECRET)
    assert run.calls[0].result == Returned(content=f"front door, {used} letters")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("knok", {"word": SECRET}),
        ("knok", {SECRET: "word"}),
        ("open_sesame", {"word": SECRET}),
        ("open_sesame", {"inside": {"Word": SECRET}}),
        ("open_sesame", {"text": f"word={SECRET}"}),
        ("knock", {"times": {"word": SECRET}}),
        ("knock", {SECRET: 1}),
        ("knock", [SECRET]),
    ],
)
async def test_a_secret_in_a_call_of_no_tool_or_in_the_wrong_place_stands_nowhere(fleet, name, arguments):
    model = WrittenModel((requesting(("a", name, json.dumps(arguments))), "stop"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        heard = [event async for event in orchestrator.stream("?")]
        run = heard[-1].run
        stored = await all_that_is_stored(orchestrator, run.run_id)
    assert run.state is State.DONE
    assert run.messages[-2].is_error
    assert SECRET not in stored + repr(heard) + repr(model.heard)


@tool
async def whisper(word: str) -> str:
    """Whisper a word."""
    return word


class Whispering(Interceptor):
    def __init__(self):
        schema = {"type": "object", "properties": {"word": {"type": "string", "writeOnly": True}}}
        self.tools = (whisper.spec.model_copy(update={"input_schema": schema, "queue": "orchestrator"}),)

    async def answer(self, call):
        return Returned(content=f"{len(json.loads(call.arguments)['word'])} letters")


async def test_an_interceptors_own_tool_is_given_the_secret_that_its_run_shows_masked(fleet):
    model = WrittenModel((requesting(("a", "whisper", json.dumps({"word": SECRET}))), "stop"))
    async with Orchestrator(model, interceptors=[Whispering()], settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
        assert SECRET not in await all_that_is_stored(orchestrator, run.run_id)
    assert run.calls[0].result == Returned(content=f"{len(SECRET)} letters")
    assert await secrets_kept(fleet) == []
