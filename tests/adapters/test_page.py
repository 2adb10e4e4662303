"""What docs/bring-your-own-loop.md says to copy, as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from agents import RunConfig, Runner
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from pydantic_ai.models.function import FunctionModel

from tests.adapters import test_openai_agents as openai_agents, test_pydantic_ai as pydantic_ai
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import sync

PAGE = Path("docs/bring-your-own-loop.md").read_text()
FIRST, LANGGRAPH, OPENAI, PYDANTIC, SYNC = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def defined(block, name):
    names = {}
    exec(compile(block, "bring-your-own-loop.md", "exec"), names)
    return names[name]


class Bindable(GenericFakeChatModel):
    """A scripted model that lets tools be bound to it."""

    def bind_tools(self, tools, **kwargs):
        assert {"add", "pay"} <= {tool.name for tool in tools}
        return self


def test_the_first_example_runs_as_it_stands(tmp_path):
    command = [sys.executable, "-c", FIRST]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    root, total, failed = ended.stdout.splitlines()
    assert root.startswith("1 1.414213562")
    assert total == "2 6.0"
    assert "no real square root" in failed


async def test_the_graph_of_the_page_runs(orchestrator):
    asked = AIMessage("", tool_calls=[{"id": "c", "name": "add", "args": {"a": 1, "b": 2}}])
    graph = await defined(LANGGRAPH, "graph_of")(orchestrator, Bindable(messages=iter([asked, AIMessage("thanks")])))
    *_, answer, last = (await graph.ainvoke({"messages": [HumanMessage("go")]}))["messages"]
    assert (answer.content, last.content) == ("3", "thanks")


async def test_the_agent_of_the_page_runs_on_the_openai_sdk(orchestrator):
    model = openai_agents.ScriptedModel(openai_agents.asks(("add", {"a": 1, "b": 2})), openai_agents.says("thanks"))
    agent = await defined(OPENAI, "agent_of")(orchestrator, model)
    run = await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
    assert (run.final_output, model.outputs) == ("thanks", ["3"])


async def test_the_agent_of_the_page_runs_on_pydantic_ai(orchestrator):
    model, told = pydantic_ai.scripted(pydantic_ai.asks(("add", {"a": 1, "b": 2})), pydantic_ai.says("thanks"))
    assert isinstance(model, FunctionModel)
    run = await defined(PYDANTIC, "agent_of")(orchestrator, model).run("go")
    assert (run.output, pydantic_ai.returned(told)) == ("thanks", ["3"])


def test_the_view_of_the_page_answers_without_await():
    with (
        LocalFleet(["toolfleet.workers.packs.arithmetic"], pools={"io": 1}) as arithmetic,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in arithmetic.settings.as_environment().items():
            patch.setenv(name, value)
        view = defined(SYNC, "view")
        try:
            assert view(4) == "2.0"
        finally:
            sync.close(view.__globals__["orchestrator"])
