"""What docs/bring-your-own-loop.md defines for frameworks, used by them; its scripts are run in tests/docs."""

from tests.adapters import test_openai_agents as openai_agents, test_pydantic_ai as pydantic_ai
from tests.docs.pages import Page
from tests.imported_when_used import ImportedWhenUsed

agents = ImportedWhenUsed("agents")
langchain = ImportedWhenUsed("langchain_core.messages")
models = ImportedWhenUsed("langchain_core.language_models.fake_chat_models")


def defined(framework, name):
    """What the page defines under the framework's heading."""
    [text] = [block.text for block in Page("docs/bring-your-own-loop.md").blocks if block.heading == framework]
    names = {}
    exec(compile(text, "bring-your-own-loop.md", "exec"), names)
    return names[name]


def bindable(*replies):
    """A scripted model that lets tools be bound to it."""

    class Bindable(models.GenericFakeChatModel):
        def bind_tools(self, tools, **kwargs):
            assert {"add", "pay"} <= {tool.name for tool in tools}
            return self

    return Bindable(messages=iter(replies))


async def test_the_graph_of_the_page_runs(orchestrator):
    asked = langchain.AIMessage("", tool_calls=[{"id": "c", "name": "add", "args": {"a": 1, "b": 2}}])
    graph = await defined("LangGraph and LangChain", "graph_of")(
        orchestrator, bindable(asked, langchain.AIMessage("thanks"))
    )
    *_, answer, last = (await graph.ainvoke({"messages": [langchain.HumanMessage("go")]}))["messages"]
    assert (answer.content, last.content) == ("3", "thanks")


async def test_the_agent_of_the_page_runs_on_the_openai_sdk(orchestrator):
    model = openai_agents.scripted(openai_agents.asks(("add", {"a": 1, "b": 2})), openai_agents.says("thanks"))
    agent = await defined("OpenAI Agents SDK", "agent_of")(orchestrator, model)
    run = await agents.Runner.run(agent, "go", run_config=openai_agents.quiet())
    assert (run.final_output, model.outputs) == ("thanks", ["3"])


async def test_the_agent_of_the_page_runs_on_pydantic_ai(orchestrator):
    model, told = pydantic_ai.scripted(pydantic_ai.asks(("add", {"a": 1, "b": 2})), pydantic_ai.says("thanks"))
    assert isinstance(model, pydantic_ai.functions.FunctionModel)
    run = await defined("pydantic-ai", "agent_of")(orchestrator, model).run("go")
    assert (run.output, pydantic_ai.returned(told)) == ("thanks", ["3"])
