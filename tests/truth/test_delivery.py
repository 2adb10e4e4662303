"""A run is not done while its model holds a handle whose result was not delivered, whatever it ends with."""

import asyncio

from tests.truth.ledger import WAIT_S, judge, told
from tests.truth.slow_writer import Reply, slow_writer
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.run.states import State
from toolfleet.tool import ToolSpec

MINE = ToolSpec(name="mine", description="the caller's own", input_schema={"type": "object"})


def slow_then(ledger, *calls):
    return Reply([ledger.asks("charge_slowly", "slow", seconds=1.5)]), Reply(calls)


def deliveries(run):
    """The messages that bring the result of the slow call."""
    return [m for m in run.messages if isinstance(m, ToolMessage) and "charged slow" in m.content]


async def test_B6_results_that_are_the_answer_wait_for_a_slow_one_that_is_open(fleet, ledger):
    replies = slow_then(ledger, ledger.asks("charge_directly", "direct"))
    async with slow_writer(*replies) as writer, Orchestrator(writer.model(), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?", slow="handle")
        await ledger.has("slow", "direct")
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
    assert (run.state, run.open_slow_calls) == (State.DONE, ())
    assert len(deliveries(run)) == 1
    assert judge(run, ledger) == {"slow": "may be", "direct": "made"}
    assert run.calls[0].late_result.content == "charged slow"


async def test_results_are_the_answer_at_once_when_the_slow_one_was_fetched(fleet, ledger):
    replies = slow_then(ledger, ledger.asks("charge_directly", "direct"))
    async with slow_writer(*replies) as writer, Orchestrator(writer.model(), settings=fleet.settings) as orchestrator:
        run = await asyncio.wait_for(orchestrator.run("?", slow="wait"), WAIT_S)
    assert (run.state, run.answer, len(writer.asked)) == (State.DONE, "charged direct", 2)


async def test_a_run_hands_over_only_when_its_slow_result_is_delivered(fleet, ledger):
    replies = slow_then(ledger, ("hand", "mine", "{}"), ledger.asks("charge", "quick"))
    async with slow_writer(*replies) as writer, Orchestrator(writer.model(), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?", slow="handle", client_tools=[MINE])
        await ledger.has("slow", "quick")
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
    assert (run.state, run.open_slow_calls) == (State.DONE, ())
    assert [call.requested_id for call in run.handed_over] == ["hand"]
    assert len(deliveries(run)) == 1
    assert list(told(run)) == ["slow", "slow-late", "hand", "quick"]


async def test_a_run_that_waits_to_hand_over_is_adopted_and_delivers(fleet, ledger):
    replies = slow_then(ledger, ("hand", "mine", "{}"))
    async with slow_writer(*replies) as writer:
        async with Orchestrator(writer.model(), settings=fleet.settings) as first:
            run_id = await first.start("?", slow="handle", client_tools=[MINE])
            async with asyncio.timeout(WAIT_S):
                while (await first.get(run_id)).turn < 2:
                    await asyncio.sleep(0.01)
        async with Orchestrator(writer.model(), settings=fleet.settings) as second:
            run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert (run.state, len(deliveries(run)), len(run.handed_over)) == (State.DONE, 1, 1)
