"""Calls that are sent in portions: what becomes of one says nothing of the next, and no answer is left out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from conversations import requesting
from fleets import fleet_of

from toolfleet.batcher import Batcher
from toolfleet.calls import Returned
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.calls.group import AT_ONCE
from toolfleet.orchestrator.fleet.barrier import Barrier


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


async def test_calls_that_are_refused_before_others_are_made_are_answered_like_those(fleet):
    settings = fleet.settings.model_copy(update={"max_message_bytes": 1024})
    large, small = json.dumps({"value": "x" * 1000}), json.dumps({"value": 1})
    arguments = [*[large] * AT_ONCE, small, large]
    asked = requesting(*((str(n), "echo", each) for n, each in enumerate(arguments)))
    async with Orchestrator(settings=settings) as orchestrator:
        answers = await orchestrator.execute(asked)
    assert [answer.tool_call_id for answer in answers] == [str(n) for n in range(AT_ONCE + 2)]
    assert all("max_message_bytes" in answer.content for answer in (*answers[:AT_ONCE], answers[-1]))
    assert answers[AT_ONCE].content == "1"


async def test_a_barrier_waits_for_what_is_added_once_all_before_is_back():
    barrier = Barrier()
    for call_id in ("a", "b"):
        barrier.add(call_id)
        waiting = asyncio.ensure_future(barrier.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        barrier.arrive(call_id, "t", Returned(content=call_id))
        await waiting
    assert set(barrier.results) == {"a", "b"}


@pytest.mark.parametrize("outcomes", [(False, True, True), (True, False, True), (True, True, False), (True,) * 3])
async def test_a_portion_is_sent_when_each_of_its_batches_is(outcomes):
    to_come = iter(outcomes)

    async def send(items: Sequence[int]) -> list[bool]:
        return [next(to_come)] * len(items)

    assert await Batcher(send, max_batch=2).add_all(range(6)) is all(outcomes)
