"""However a run ends, its history tells of each call what the ledger tells: with results, and without a wrong "not"."""

import asyncio

import pytest

from tests.truth.ledger import WAIT_S, judge
from tests.truth.slow_writer import Reply, slow_writer
from toolfleet.errors import StoreUnreachable
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.tools.interceptors import Interceptor, OnFailure


async def until_back(orchestrator, run_id, position):
    """Wait until the result of a call of the first reply is stored."""
    async with asyncio.timeout(WAIT_S):
        while not (await orchestrator._services.store.results([f"{run_id}.1.{position}"]))[0]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("by", ["its own orchestrator", "another one"])
@pytest.mark.parametrize("is_whole", [True, False], ids=["whole reply", "half a reply"])
async def test_L5_a_cancelled_run_keeps_the_results_that_are_there_and_doubts_the_rest(fleet, ledger, by, is_whole):
    reply = Reply([ledger.asks("charge", "quick"), ledger.asks("charge", "slow", seconds=60)], 0.1)
    async with (
        slow_writer(reply if is_whole else reply.held()) as writer,
        Orchestrator(writer.model(), settings=fleet.settings) as owner,
        Orchestrator(settings=fleet.settings) as outsider,
    ):
        run_id = await owner.start("?")
        await ledger.has("quick", "slow")
        await until_back(owner, run_id, 0)
        run = await (owner if by == "its own orchestrator" else outsider).cancel(run_id)
        assert run.state is State.CANCELLED
        assert judge(run, ledger) == {"quick": "made", "slow": "may be"}
        assert judge(await owner.get(run_id), ledger) == judge(run, ledger)


async def test_a_run_that_is_resumed_after_a_cancel_knows_what_was_done(fleet, ledger):
    reply = Reply([ledger.asks("charge", "quick"), ledger.asks("charge", "slow", seconds=60)], 0.1).held()
    async with slow_writer(reply) as writer, Orchestrator(writer.model(), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        await ledger.has("quick", "slow")
        await until_back(orchestrator, run_id, 0)
        await orchestrator.cancel(run_id)
        await orchestrator.resume(run_id, "go on")
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
    assert (run.state, run.answer) == (State.DONE, "done")
    heard = [message for message in writer.asked[-1]["messages"] if message["role"] == "tool"]
    assert heard[0]["content"] == "charged quick"
    assert "may or may not" in heard[1]["content"]


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole reply", "half a reply"])
async def test_B7_a_run_that_times_out_tells_what_was_done(fleet, ledger, is_whole):
    reply = Reply([ledger.asks("charge", "quick"), ledger.asks("charge", "slow", seconds=60)], 0.1)
    async with (
        slow_writer(reply if is_whole else reply.held()) as writer,
        Orchestrator(writer.model(), settings=fleet.settings) as orchestrator,
    ):
        run = await orchestrator.run("?", timeout_s=1.5)
    assert run.state is State.FAILED
    told = judge(run, ledger)
    assert (told["quick"], told["slow"]) == ("made", "may be")


async def test_what_a_model_has_asked_for_before_it_broke_off_is_its_reply(fleet, ledger):
    reply = Reply([ledger.asks("charge", "quick"), ledger.asks("charge", "slow", seconds=1)], 0.1, breaks=True).held()
    async with slow_writer(reply) as writer, Orchestrator(writer.model(), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        await ledger.has("quick", "slow")
        await until_back(orchestrator, run_id, 0)
        reply.goes_on.set()
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
    assert judge(run, ledger) == {"quick": "made", "slow": "made"}
    assert run.state is State.DONE


async def test_a_handler_that_raises_takes_no_sibling_along(fleet, ledger):
    reply = Reply([ledger.asks("charge", "a", seconds=0.5), ("b", "nobody", "{}"), ledger.asks("charge", "c")])
    async with (
        slow_writer(reply) as writer,
        Orchestrator(writer.model(), settings=fleet.settings, on_unknown_tool="raise") as orchestrator,
    ):
        run = await orchestrator.run("?")
    assert (run.state, "nobody" in run.reason) == (State.FAILED, True)
    said = {message.tool_call_id: message.content for message in run.messages if message.role == "tool"}
    assert (said["a"], said["c"]) == ("charged a", "charged c")
    assert "There is no tool 'nobody'" in said["b"]


class Refuses(Interceptor):
    """Raises at every result of one call."""

    async def after(self, call, result):
        if '"b"' in call.arguments:
            raise RuntimeError("what was that?")
        return result


class RefusesBefore(Interceptor):
    """Raises at one call before it is sent."""

    async def before(self, call):
        if '"b"' in call.arguments:
            raise RuntimeError("what is that?")
        return call


async def test_an_interceptor_that_raises_at_a_call_stops_that_call_and_no_sibling(fleet, ledger):
    reply = Reply([ledger.asks("charge", key) for key in "abc"])
    async with (
        slow_writer(reply) as writer,
        Orchestrator(writer.model(), settings=fleet.settings, interceptors=[RefusesBefore()]) as orchestrator,
    ):
        run = await orchestrator.run("?")
    assert (run.state, "what is that?" in run.reason) == (State.FAILED, True)
    assert judge(run, ledger) == {"a": "made", "b": "not called", "c": "made"}


class AwayForOnce(Interceptor):
    """Finds the store away at its first result."""

    def __init__(self):
        self.asked = 0

    async def after(self, call, result):
        self.asked += 1
        if self.asked == 1:
            raise StoreUnreachable("gone for a moment")
        return result


async def test_a_store_that_is_away_while_results_are_looked_at_costs_none_of_them(fleet, ledger):
    reply = Reply([ledger.asks("charge", key) for key in "ab"])
    async with (
        slow_writer(reply) as writer,
        Orchestrator(writer.model(), settings=fleet.settings, interceptors=[AwayForOnce()]) as orchestrator,
    ):
        run = await asyncio.wait_for(orchestrator.run("?"), WAIT_S)
    assert run.state is State.DONE
    assert judge(run, ledger) == {"a": "made", "b": "made"}


def cannot_say(call, failure):
    raise RuntimeError("what was that?")


@pytest.mark.parametrize(
    ("interceptor", "tool", "word"),
    [(OnFailure(execution=cannot_say), "charge_and_fail", "made"), (Refuses(), "charge", "may be")],
    ids=["OnFailure", "after"],
)
async def test_an_interceptor_that_raises_at_a_result_takes_no_sibling_along(fleet, ledger, interceptor, tool, word):
    reply = Reply([ledger.asks("charge", "a", seconds=0.5), ledger.asks(tool, "b"), ledger.asks("charge", "c")])
    async with (
        slow_writer(reply) as writer,
        Orchestrator(writer.model(), settings=fleet.settings, interceptors=[interceptor]) as orchestrator,
    ):
        run = await orchestrator.run("?")
    assert (run.state, "what was that?" in run.reason) == (State.FAILED, True)
    said = {message.tool_call_id: message.content for message in run.messages if message.role == "tool"}
    assert (said["a"], said["c"]) == ("charged a", "charged c")
    assert ledger.effects.keys() == {"a", "b", "c"}
    assert (
        "receipt" in said["b"]
        if word == "made"
        else "b has returned" in said["b"] or "charge has returned" in said["b"]
    )


async def test_a_slow_call_that_is_back_when_its_run_is_cancelled_stands_in_the_history(fleet, ledger):
    slow = Reply([ledger.asks("charge_slowly", "slow")])
    busy = Reply([ledger.asks("charge", "busy", seconds=60)])
    async with slow_writer(slow, busy) as writer, Orchestrator(writer.model(), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?", slow="handle")
        await ledger.has("slow", "busy")
        await until_back(orchestrator, run_id, 0)
        run = await orchestrator.cancel(run_id)
    assert judge(run, ledger) == {"slow": "may be", "busy": "may be"}
    assert run.calls[0].late_result.content == "charged slow"
    assert "charged slow" in run.messages[-1].content


async def test_a_result_is_withheld_by_whoever_ends_a_run_without_having_its_interceptors(fleet, ledger):
    reply = Reply([ledger.asks("charge", "quick"), ledger.asks("charge", "slow", seconds=60)])
    async with (
        slow_writer(reply) as writer,
        Orchestrator(
            writer.model(), settings=fleet.settings, named_interceptors={"redacts": Interceptor()}
        ) as orchestrator,
        Orchestrator(settings=fleet.settings) as outsider,
    ):
        run_id = await orchestrator.start("?", interceptors=["redacts"])
        await ledger.has("quick", "slow")
        await until_back(orchestrator, run_id, 0)
        run = await outsider.cancel(run_id)
    quick, slow = (message.content for message in run.messages if message.role == "tool")
    assert "charge has returned, but its result is withheld" in quick
    assert "may or may not" in slow
