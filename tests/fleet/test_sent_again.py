"""What is sent again when the store has lost its last seconds: what may be lost, and nothing that is done."""

import asyncio
import math
import time
from contextlib import asynccontextmanager

import psutil
import pytest
from fleets import fleet_of

from toolfleet.calls import ToolCall
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.fleet.dispatch import REMEMBERED, Dispatcher, Outgoing
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


class HeldPublisher:
    """Publishes once it may, after the results of what it publishes may have been recorded."""

    def __init__(self):
        self.record = lambda call_ids: None
        self.may = asyncio.Event()
        self.may.set()
        self.published = []

    async def publish(self, messages):
        await self.may.wait()
        call_ids = [message.headers["id"] for message in messages]
        self.published += call_ids
        self.record(call_ids)

    async def aclose(self):
        pass


@asynccontextmanager
async def dispatching(fleet):
    """A dispatcher, its publisher, and a call that may be sent again."""
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        gatherer, catalog = orchestrator._services.dispatcher._gatherer, orchestrator._services.dispatcher._catalog
        publisher = HeldPublisher()
        dispatcher = Dispatcher(publisher, Seal(fleet.settings), gatherer, catalog)
        call = {"call_id": "r.1.0", "run_id": "r", "tool": "echo", "arguments": "{}", "reply_to": "o"}
        spec = (await catalog.offered())["echo"]
        yield dispatcher, publisher, Outgoing(ToolCall(**call, deadline_unix_s=math.inf), spec, Priority.NORMAL)
        await dispatcher.aclose()


@pytest.mark.parametrize(("is_recorded", "again"), [(True, 0), (False, 1)])
async def test_a_result_that_is_recorded_before_its_call_is_known_to_be_sent_counts(fleet, is_recorded, again):
    async with dispatching(fleet) as (dispatcher, publisher, call):
        if is_recorded:
            publisher.record = dispatcher.forget
        assert await dispatcher.send([call])
        assert dispatcher.send_again(-math.inf) == again


async def test_a_call_that_is_on_its_way_is_not_sent_beside_that(fleet):
    async with dispatching(fleet) as (dispatcher, publisher, call):
        publisher.may.clear()
        sending = dispatcher.send([call])
        await asyncio.sleep(0.05)
        assert dispatcher.send_again(-math.inf) == 0
        publisher.may.set()
        assert await sending
        assert publisher.published == ["r.1.0"]


async def test_a_call_that_is_queued_again_is_not_queued_once_more(fleet):
    async with dispatching(fleet) as (dispatcher, publisher, call):
        assert await dispatcher.send([call])
        assert [dispatcher.send_again(-math.inf) for _ in range(3)] == [1, 0, 0]
        await sent(dispatcher, times=2)
        assert publisher.published == ["r.1.0", "r.1.0"]
        assert dispatcher.send_again(-math.inf) == 1  # it may be lost once more


async def test_of_the_newest_calls_only_those_without_a_result_are_sent_again(fleet):
    async with dispatching(fleet) as (dispatcher, _, call):
        calls = [
            call._replace(call=call.call.model_copy(update={"call_id": f"r.1.{n}"})) for n in range(REMEMBERED + 1)
        ]
        for some in batched(calls, 200):
            assert await dispatcher.send(some)
        dispatcher.forget(each.call.call_id for each in calls[3:])
        assert dispatcher.send_again(-math.inf) == 2


async def test_a_call_past_its_deadline_is_not_sent_again(fleet):
    async with dispatching(fleet) as (dispatcher, _, call):
        past = call._replace(call=call.call.model_copy(update={"deadline_unix_s": time.time() + 0.2}))
        assert await dispatcher.send([past])
        await asyncio.sleep(0.3)
        assert dispatcher.send_again(-math.inf) == 0


def batched(calls, size):
    return [calls[at : at + size] for at in range(0, len(calls), size)]


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
