"""Tools of which the model says, call by call, whether it waits for the result, on real workers."""

import asyncio
import json

import pytest
from conversations import WrittenModel, requesting
from fleets import asking
from mcp import Client

from tests.mcp.doors import TasksExtension, served
from tests.steering.steered import answers, lone, until
from toolfleet import InvalidTool, tool
from toolfleet.background import ARGUMENT
from toolfleet.calls import Returned, Submitted
from toolfleet.handwritten import hand_written
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import mcp_app
from toolfleet.orchestrator.models.anthropic_messages import encoded_tool as for_anthropic
from toolfleet.orchestrator.models.openai_wire import encoded_tool as for_openai
from toolfleet.orchestrator.run.states import State
from toolfleet.points import Point
from toolfleet.tool import ToolSpec


class Offered(WrittenModel):
    """Remembers what it was offered."""

    offered = ()

    async def stream(self, messages, tools, **options):
        self.offered = {spec.name: spec for spec in tools}
        async for event in super().stream(messages, tools, **options):
            yield event


def asks(*calls):
    return requesting(*((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls))), "tool_calls"


@pytest.mark.parametrize("slow", ["wait", "handle"])
async def test_U1_a_call_that_its_model_wants_in_the_background_is_a_handle_at_once(fleet, stage, slow):
    told = {}

    async def fetches(messages):
        told["first"] = json.loads(messages[-2].content)
        (await stage.enters()).returns("found")
        return requesting(("f", "task_result", json.dumps({"task_id": told["first"]["task_id"]})))

    model = Offered(
        asks(("research", {"stage": stage.path, "words": ["a"], ARGUMENT: True}), ("add", {"a": 1, "b": 2})),
        (fetches, "tool_calls"),
    )
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?", slow=slow)
    assert model.offered["research"].input_schema["properties"][ARGUMENT]["type"] == "boolean"
    assert told["first"]["status"] == "submitted"
    assert answers(run, "add") == ["3"]
    assert json.loads(answers(run, "task_result")[0])["result"] == "found ['a']"
    assert (run.state, len(stage.actors)) == (State.DONE, 1)


async def test_U1_without_a_clear_yes_the_result_is_waited_for_and_one_unfetched_comes_before_the_end(fleet, stage):
    model = WrittenModel(
        asks(
            ("research", {"stage": stage.path, ARGUMENT: False}),
            ("research", {"stage": stage.path, ARGUMENT: {"perhaps": 1}}),
            ("research", {"stage": stage.path, ARGUMENT: " True "}),
        )
    )
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        actors = {actor.call_id: actor for actor in [await stage.enters() for _ in range(3)]}
        first, second, late = (actors[f"{run_id}.1.{place}"] for place in range(3))
        first.returns("one")
        second.returns("two")
        run = await until(fleet, run_id, lambda run: run.state is State.WAITING)
        assert answers(run, "research")[:2] == ["one", "two"]
        assert isinstance(run.calls[2].result, Submitted)
        late.returns("three")
        run = await orchestrator.wait(run_id)
    assert (run.state, run.calls[2].late_result) == (State.DONE, Returned(content="three"))
    assert len(model.heard) == 3


@pytest.mark.parametrize("asked", [True, False, "true", None, [9007199254740993]])
async def test_U1_the_tool_never_gets_the_argument_and_the_others_to_the_digit(observer, asked):
    text = f'{{"n": 9007199254740993, "x": 0.10000000000000000001, "{ARGUMENT}": {json.dumps(asked)}, "": [1.0]}}'
    [answer] = await observer.execute(asking(("anything", text)))
    assert answer.content == '{"n": 9007199254740993, "x": 0.1, "": [1.0]}'
    escaped = text.replace(ARGUMENT, "run\\u005fin_background")
    [answer] = await observer.execute(asking(("anything", escaped)))
    assert ARGUMENT not in answer.content
    torn = await observer.execute(asking(("anything", text[:-1]), ("research", '{"nonsense": 1, "run_in_background"')))
    assert ARGUMENT not in torn[0].content
    assert torn[1].is_error


def test_U1_what_cannot_have_the_argument_is_refused_with_one_line():
    async def research(run_in_background: str) -> None: ...

    with pytest.raises(InvalidTool, match=r"has one of its own: rename it") as refused:
        tool(background="model")(research)
    assert "\n" not in str(refused.value)
    closed = {"type": "object", "anyOf": [{"properties": {"a": {}}, "additionalProperties": False}]}
    spec = {"name": "odd", "description": "Odd.", "input_schema": closed, "background": "model"}
    with pytest.raises(InvalidTool, match="anyOf at the root of the schema may forbid it"):
        hand_written(spec, lambda arguments: arguments)
    with pytest.raises(InvalidTool, match="leave background out"):
        tool(background="model", long_running=True)(lambda: None)
    with pytest.raises(InvalidTool, match="background"):
        tool(background="always")(lambda: None)


def test_U1_a_strict_schema_stays_one_for_every_provider():
    @tool(background="model")
    def look(path: str) -> str:
        """Look."""
        return path

    loose, strict = look.spec, look.spec.model_copy(update={"strict": True})
    assert loose.input_schema["required"] == ["path"]
    for schema in (for_openai(strict)["function"]["parameters"], for_anthropic(strict)["input_schema"]):
        assert (sorted(schema["properties"]), schema["additionalProperties"]) == (sorted(schema["required"]), False)
    assert for_openai(loose)["function"]["parameters"] == loose.input_schema
    assert ToolSpec.model_validate_json(loose.model_dump_json()) == loose


@pytest.mark.parametrize("where", [Point.REPLY_STORED, Point.DISPATCHED, Point.GATHERED])
async def test_U1_a_killed_orchestrators_call_goes_on_and_its_handle_is_given_by_whoever_adopts_the_run(
    fleet, stage, rehearsal, model, where
):
    question = f"call research {json.dumps({'stage': stage.path, ARGUMENT: True})} then fetch"
    async with lone(fleet, rehearsal.base_url, question, where) as (process, run_id):
        await process.wait()
    async with Orchestrator(model, settings=fleet.settings) as second:
        (await stage.enters()).returns("found")
        run = await asyncio.wait_for(second.wait(run_id), 30)
    assert json.loads(answers(run, "research")[0])["status"] == "submitted"
    assert json.loads(answers(run, "task_result")[0])["result"] == "found"
    assert (run.state, len(stage.actors)) == (State.DONE, 1)


async def test_U1_over_http_the_argument_makes_a_call_a_handle(api, stage):
    called = {"arguments": {"stage": stage.path, ARGUMENT: True}, "patience_s": 20}
    [listed] = [each for each in (await api.client.get("/v1/tools")).json()["tools"] if each["name"] == "research"]
    assert (listed["background"], listed["input_schema"]["properties"][ARGUMENT]["type"]) == ("model", "boolean")
    answer = await api.client.post("/v1/tools/research/call", json=called)
    assert answer.status_code == 202
    (await stage.enters()).returns("found")
    ended = (await api.client.get(answer.json()["url"], params={"wait": 20})).json()
    assert ended["result"]["content"] == "found"


async def test_U1_an_agent_of_another_framework_is_not_shown_the_argument_and_waits(observer):
    from toolfleet.orchestrator.adapters.langchain import fleet_tools  # LangChain is large

    [anything, research] = await fleet_tools(observer, ["anything", "research"])
    assert (ARGUMENT in research.args, list(research.args)) == (False, ["stage", "words"])
    assert await anything.ainvoke({"a": 1, ARGUMENT: True}) == '{"a": 1}'


@pytest.mark.parametrize("extensions", [[], [TasksExtension()]])
async def test_U1_over_mcp_the_argument_makes_a_call_a_task(fleet, stage, extensions):
    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator)) as address,
        Client(address, extensions=extensions) as client,
    ):
        given = {"stage": stage.path, ARGUMENT: True}
        answer = await client.session.call_tool("research", given, allow_claimed=bool(extensions))
        actor = await stage.enters()
        if extensions:
            assert answer.status == "working"
        else:
            assert answer.structured_content["status"] == "running"
            actor.returns("found")
            given = {"task_id": answer.structured_content["task_id"]}
            assert "found" in (await client.call_tool("task_result", given)).content[0].text
