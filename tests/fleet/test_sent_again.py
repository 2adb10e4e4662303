"""What is sent again when the store has lost its last seconds: what may be lost, and nothing that is done."""

import asyncio
import math

import psutil
import pytest
from fleets import fleet_of

from toolfleet.calls import ToolCall
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.fleet.dispatch import Dispatcher, Outgoing
from toolfleet.streams import Priority
from toolfleet.wire import Seal

WAIT_S = 30


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


async def sent(dispatcher, *, times):
    async with asyncio.timeout(WAIT_S):
        while dispatcher.dispatched < times:
            await asyncio.sleep(0.01)


async def stopped(pid):
    """Stop a process. It may do a little more before the system has told it."""
    process = psutil.Process(pid)
    process.suspend()
    async with asyncio.timeout(WAIT_S):
        while process.status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.01)


async def test_a_call_that_has_its_result_is_not_sent_again(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        await orchestrator.call("echo", {"value": "done"})
        assert orchestrator._services.dispatcher.send_again(-math.inf) == 0


class RecordingPublisher:
    """Has the results of what it publishes recorded before anybody hears that it is published."""

    def __init__(self):
        self.record = lambda call_ids: None

    async def publish(self, messages):
        self.record([message.headers["id"] for message in messages])

    async def aclose(self):
        pass


@pytest.mark.parametrize(("is_recorded", "again"), [(True, 0), (False, 1)])
async def test_a_result_that_is_recorded_before_its_call_is_known_to_be_sent_counts(fleet, is_recorded, again):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        gatherer, catalog = orchestrator._services.dispatcher._gatherer, orchestrator._services.dispatcher._catalog
        publisher = RecordingPublisher()
        dispatcher = Dispatcher(publisher, Seal(fleet.settings), gatherer, catalog)
        if is_recorded:
            publisher.record = dispatcher.forget
        call = {"call_id": "r.1.0", "run_id": "r", "tool": "echo", "arguments": "{}", "reply_to": "o"}
        spec = (await catalog.offered())["echo"]
        assert await dispatcher.send([Outgoing(ToolCall(**call, deadline_unix_s=math.inf), spec, Priority.NORMAL)])
        assert dispatcher.send_again(-math.inf) == again
        await dispatcher.aclose()


async def test_a_call_that_is_lost_twice_is_sent_again_twice_and_not_more_often(fleet, client):
    """It is handed over by then: nobody waits here, and its handle is owed its result."""
    queue, [worker] = fleet.settings.keys.queue("io", Priority.NORMAL), fleet.workers
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        dispatcher = orchestrator._services.dispatcher
        await stopped(worker.pid)
        try:
            submitted = await orchestrator.call("echo", {"value": "back"}, patience_s=0)
            await sent(dispatcher, times=1)
            for times in (2, 3):
                assert dispatcher.send_again(-math.inf) == 1
                await sent(dispatcher, times=times)
            assert await client.xlen(queue) == 3
        finally:
            psutil.Process(worker.pid).resume()
        status = await orchestrator.task(submitted.handle, wait_s=WAIT_S)
        assert status.result.content == "back"
