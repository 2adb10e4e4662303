"""OpenAI's Agents SDK as a client: its default model class with another address, its own tools beside the fleet's."""

import json
from contextlib import asynccontextmanager

import openai
import pytest
from openai.types.shared import Reasoning
from pydantic import BaseModel

from tests.http.fleet_of_doors import api_of
from tests.imported_when_used import ImportedWhenUsed
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator.models import REHEARSAL_MODEL
from toolfleet.orchestrator.models.recorded import FunctionModel

agents = ImportedWhenUsed("agents")

QUESTION = 'say "Let me see." call add {"a": 2, "b": 3} then call price {"item": "tea"} and call add {"a": 1, "b": 1}'


def quiet():
    return agents.RunConfig(tracing_disabled=True)


@asynccontextmanager
async def model_of(api, name=REHEARSAL_MODEL):
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), max_retries=0) as client:
        yield agents.OpenAIResponsesModel(name, client)


@pytest.fixture
async def default_model(api):
    async with model_of(api) as model:
        yield model


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_agents_own_tools_and_the_fleets_work_together(default_model, is_streamed):
    priced = []

    @agents.function_tool
    def price(item: str) -> str:
        """Look up a price."""
        priced.append(item)
        return "4 EUR"

    settings = agents.ModelSettings(
        reasoning=Reasoning(effort="low", summary="auto"), verbosity="low", metadata={"of": "test"}
    )
    agent = agents.Agent("agent", instructions="Be brief.", model=default_model, tools=[price], model_settings=settings)
    kinds = []
    if is_streamed:
        result = agents.Runner.run_streamed(agent, QUESTION, run_config=quiet())
        events = [event async for event in result.stream_events()]
        kinds += [event.data.type for event in events if event.type == "raw_response_event"]
    else:
        result = await agents.Runner.run(agent, QUESTION, run_config=quiet())
    assert priced == ["tea"]
    assert result.final_output.splitlines()[-3:] == ["add: 5", "price: 4 EUR", "add: 2"]
    if is_streamed:
        assert kinds.count("response.completed") == 2
        assert kinds.count("response.output_text.delta") > 5
        assert "response.function_call_arguments.done" in kinds
    # And further, with all that was said before as the SDK gives it back, or with the last response's id.
    question = {"role": "user", "content": 'call add {"a": 4, "b": 4}'}
    result = await agents.Runner.run(agent, [*result.to_input_list(), question], run_config=quiet())
    assert result.final_output.splitlines()[-1] == "add: 8"
    last = result.last_response_id
    result = await agents.Runner.run(agent, 'call add {"a": 5, "b": 5}', previous_response_id=last, run_config=quiet())
    assert result.final_output.splitlines()[-1] == "add: 10"


class City(BaseModel):
    city: str


async def test_an_agent_has_an_answer_of_its_type(http_fleet):
    model = FunctionModel(lambda messages: AssistantMessage(content=json.dumps({"city": "Oslo"})))
    async with api_of(http_fleet.settings, model) as api, model_of(api, "function") as asked:
        agent = agents.Agent("agent", model=asked, output_type=City)
        result = agents.Runner.run_streamed(agent, "Which city?", run_config=quiet())
        async for _ in result.stream_events():
            pass
    assert result.final_output == City(city="Oslo")


async def test_an_agent_is_told_of_a_response_that_failed(default_model):
    settings = agents.ModelSettings(extra_body={"toolfleet": {"max_turns": 1}})
    agent = agents.Agent("agent", model=default_model, model_settings=settings)
    result = agents.Runner.run_streamed(agent, QUESTION, run_config=quiet())
    with pytest.raises(agents.ModelBehaviorError, match="failed"):
        async for _ in result.stream_events():
            pass
