"""Log messages to those who want them, news of tasks to those who listen, and what is declared beside the tools."""

import asyncio
from typing import Literal

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, PromptReference

from tests.mcp.doors import CreatedTask, TasksExtension, served, text
from tests.mcp.news import listening, until_told
from toolfleet.errors import ToolModuleError
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.mcp import Caller, mcp_app

WAIT_S = 30


class Heard:
    """What a client was told while it called a tool that says how it goes, and then fails."""

    def __init__(self, stage):
        self.messages = []
        self._stage = stage

    async def message(self, params):
        self.messages.append((params.level, params.logger, params.data["message"]))

    async def of_a_call(self, client, **options):
        self.messages.clear()
        progressed = asyncio.Event()

        async def progress(*_progress):
            progressed.set()

        calling = asyncio.create_task(
            client.call_tool("play", {"stage": self._stage.path}, progress_callback=progress, **options)
        )
        actor = await self._stage.enters()
        actor.progresses(0.5, "half of it")
        await asyncio.wait_for(progressed.wait(), WAIT_S)
        actor.fails("no luck")
        assert (await calling).is_error
        return self.messages


@pytest.fixture
def heard(stage):
    return Heard(stage)


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        ("debug", ["sent to the workers", "half of it", "no luck"]),
        ("info", ["half of it", "no luck"]),
        ("warning", ["no luck"]),
        ("error", []),
    ],
)
async def test_a_session_is_told_what_its_calls_come_to_from_the_level_it_has_set(address, heard, level, wanted):
    async with Client(address, mode="legacy", logging_callback=heard.message) as client:
        assert await heard.of_a_call(client) == []  # nobody has asked for any
        request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
        await client.session.send_request(request, types.EmptyResult)
        messages = await heard.of_a_call(client)
    assert [(tool, said) for _, tool, said in messages] == [("play", said) for said in wanted]


async def test_a_request_of_the_newest_revision_says_itself_what_it_wants_to_hear(address, heard):
    async with Client(address, logging_callback=heard.message) as client:
        assert await heard.of_a_call(client) == []
        asked = {"io.modelcontextprotocol/logLevel": "warning"}
        assert await heard.of_a_call(client, meta=asked) == [("warning", "play", "no luck")]


# --- tasks --------------------------------------------------------------------------------------------------------


async def test_who_listens_to_a_task_is_told_until_it_has_ended(fleet, stage):
    """With plain HTTP: the client of the SDK hands on no news of an extension."""
    async with (
        Orchestrator(settings=fleet.settings) as orchestrator,
        served(mcp_app(orchestrator, caller_of=lambda request: Caller(tenant=request.headers["x-user"]))) as address,
        httpx2.AsyncClient(headers={"x-user": "ann"}, timeout=WAIT_S) as http,
        Client(streamable_http_client(address, http_client=http), extensions=[TasksExtension()]) as client,
    ):
        created = await client.session.call_tool("play_long", {"stage": stage.path}, allow_claimed=True)
        assert isinstance(created, CreatedTask)
        actor = await stage.enters()
        async with listening(http, address, [created.task_id, "made-up"]) as frames:
            first = await anext(frames)
            assert first["params"]["notifications"] == {"taskIds": [created.task_id]}
            assert (await anext(frames))["params"]["status"] == "working"
            actor.progresses(0.5, "half")
            assert (await until_told(frames, statusMessage="50% half"))["params"]["status"] == "working"
            actor.returns({"done": 6})
            ended = await until_told(frames, status="completed")
            assert ended["method"] == "notifications/tasks"
            assert ended["params"]["result"]["structuredContent"] == {"done": 6}
            assert ended["params"]["_meta"] == first["params"]["_meta"] == {SUBSCRIPTION: 1}
        async with listening(http, address, [created.task_id], user="bob") as frames:
            assert (await anext(frames))["params"]["notifications"] == {}
        async with listening(http, address, [created.task_id], extensions={}) as frames:
            assert (await anext(frames))["error"]["code"] == MISSING_REQUIRED_CLIENT_CAPABILITY


SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


# --- beside the tools ---------------------------------------------------------------------------------------------


@pytest.fixture
async def with_prompts(orchestrator):
    beside = MCPServer("prompts of ours")

    @beside.prompt()
    def review(code: str, tone: Literal["kind", "blunt"] = "kind") -> str:
        """Review a piece of code."""
        return f"Review this, and be {tone}: {code}"

    @beside.prompt()
    def leaving(how: str) -> str:
        """Leave, as whoever reads arguments with argparse does."""
        raise SystemExit(how) if how == "exit" else RuntimeError("a secret")

    @beside.resource("rules://style", mime_type="text/markdown")
    def style() -> str:
        """How we write."""
        return "# Plainly"

    @beside.tool()
    def never_served() -> str:
        """A tool belongs on a worker."""
        return ""

    async with served(mcp_app(orchestrator, beside=beside)) as address:
        yield address


async def test_prompts_and_resources_that_are_declared_are_offered_beside_the_tools(with_prompts):
    async with Client(with_prompts) as client:
        prompt, _ = (await client.list_prompts()).prompts
        assert (prompt.name, [each.name for each in prompt.arguments]) == ("review", ["code", "tone"])
        [message] = (await client.get_prompt("review", {"code": "x = 1", "tone": "blunt"})).messages
        assert message.content.text == "Review this, and be blunt: x = 1"
        completed = await client.complete(PromptReference(name="review"), {"name": "tone", "value": "B"})
        assert completed.completion.values == ["blunt"]
        assert "rules://style" in [each.uri for each in (await client.list_resources()).resources]
        assert (await client.read_resource("rules://style")).contents[0].text == "# Plainly"
        assert "never_served" not in [tool.name for tool in (await client.list_tools()).tools]


async def test_what_is_not_declared_is_an_error_that_names_it(with_prompts):
    async with Client(with_prompts) as client:
        for asked in (client.get_prompt("none"), client.get_prompt("review", {}), client.read_resource("rules://none")):
            with pytest.raises(MCPError) as refused:
                await asked
            assert refused.value.code == INVALID_PARAMS


@pytest.mark.parametrize("how", ["exit", "raise"])
async def test_a_prompt_that_fails_ends_its_request_and_nothing_else(with_prompts, how):
    async with Client(with_prompts) as client:
        with pytest.raises(MCPError) as failed:
            await client.get_prompt("leaving", {"how": how})
        assert "secret" not in str(failed.value)
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"


async def test_without_a_declaration_there_are_no_prompts(address):
    async with Client(address) as client:
        assert client.server_capabilities.prompts is None


@pytest.mark.parametrize("name", ["no_such_module:server", "json:dumps"])
async def test_a_declaration_that_cannot_be_found_says_so_at_once(settings, name):
    async with Orchestrator(settings=settings.model_copy(update={"mcp_beside": name})) as orchestrator:
        with pytest.raises(ToolModuleError, match="TOOLFLEET_MCP_BESIDE"):
            mcp_app(orchestrator)
