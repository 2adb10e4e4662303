"""Any Celery broker will do, with its own guarantees: here stock Celery's on Redis lists."""

from collections.abc import Iterator

import pytest
from fleets import asking, fleet_of
from processes import lines, until_announced

from toolfleet.errors import InvalidSettings
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.workers.app import worker_app
from toolfleet.workers.modules import load_tools


@pytest.fixture(scope="module", params=["asyncio", "prefork"])
def fleet(request) -> Iterator[LocalFleet]:
    with EmbeddedServer(temporary=True, port=0) as server:
        options = ("--kind", request.param, "--concurrency", "4", "--queues", "io,cpu")
        with fleet_of(*options, redis_url=server.url, broker_url=server.url) as running:
            yield running


async def test_calls_come_back(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        messages = await orchestrator.execute(asking(*(("echo", {"value": n}) for n in range(50))))
    assert [message.content for message in messages] == [str(n) for n in range(50)]


async def test_a_tool_with_an_effect_runs_once_though_its_message_comes_twice(fleet, tmp_path):
    path = tmp_path / "effects"
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        publish = orchestrator._services.dispatcher._publisher.publish

        async def twice(messages):
            await publish(messages)
            await publish(messages)

        orchestrator._services.dispatcher._publisher.publish = twice
        [message] = await orchestrator.execute(asking(("write_line", {"path": str(path), "seconds": 0.2})))
        await orchestrator.execute(asking(("echo", {"value": "both copies are through"})))
    assert message.content == "written"
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.timeout(900)  # a call goes from worker to worker by chance there, which takes seconds or minutes
async def test_workers_with_different_tools_pass_on_one_anothers_calls(fleet, tmp_path):
    path = tmp_path / "ledger"
    modules, fleet._modules = fleet._modules, ["lane_tools"]
    until_announced(fleet, fleet.start_worker("io"))
    fleet._modules = modules
    calls = [
        call for n in range(20) for call in (("note_here", {"path": str(path), "line": str(n)}), ("echo", {"value": n}))
    ]
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        contents = [message.content for message in await orchestrator.execute(asking(*calls))]
    assert contents == [text for n in range(20) for text in (f"here {n}", str(n))]
    assert sorted(lines(path)) == sorted(f"here {n}" for n in range(20))


async def test_an_unknown_scheme_is_refused_by_name(fleet):
    with pytest.raises(Exception, match=r"unknown scheme carrier-pigeon://"):
        async with Orchestrator(settings=fleet.settings.model_copy(update={"broker_url": "carrier-pigeon://x"})):
            pass


def test_tools_with_limits_are_refused_there_with_the_remedy(fleet):
    tools = load_tools(["limited_tools"])
    with pytest.raises(InvalidSettings, match=r"search.*unset TOOLFLEET_BROKER_URL, or take them out of @tool"):
        worker_app(fleet.settings, tools)
