"""Thousands of calls of one reply, each sent as it is complete: their results cost no more than themselves."""

import asyncio
import time

from tests.truth.ledger import told
from tests.truth.slow_writer import Reply, slow_writer
from toolfleet.orchestrator import Limits, Orchestrator
from toolfleet.orchestrator.run.states import State

CALLS = 3000
PAUSE_S = 0.002
RUN_MAX_S = 90
LAG_MAX_S = 3.0
"""Far above what is seen on a busy machine, far below minutes."""


async def longest_wait_s(orchestrator, other, stopped):
    """How long the slowest answer about another run took while this went on."""
    longest_s = 0.0
    while not stopped.is_set():
        asked = time.monotonic()
        await orchestrator.get(other)
        longest_s = max(longest_s, time.monotonic() - asked)
        await asyncio.sleep(0.05)
    return longest_s


async def test_three_thousand_quick_early_calls_end_in_time_and_the_rest_goes_on_being_answered(fleet, ledger):
    calls = [ledger.asks("charge", f"k{n}") for n in range(CALLS)]
    async with (
        slow_writer(Reply(text="first"), Reply(calls, PAUSE_S)) as writer,
        Orchestrator(writer.model(), settings=fleet.settings) as orchestrator,
    ):
        other, stopped = await orchestrator.run("?"), asyncio.Event()
        watching = asyncio.create_task(longest_wait_s(orchestrator, other.run_id, stopped))
        limits = Limits(calls=None, calls_per_tool=None)
        run = await asyncio.wait_for(orchestrator.run("?", limits=limits), RUN_MAX_S)
        stopped.set()
        lag_s = await watching
        entries = await orchestrator._services.store.entries(run.run_id)
    assert run.state is State.DONE
    assert told(run) == {f"k{n}": f"charged k{n}" for n in range(CALLS)}
    assert ledger.effects.total() == CALLS
    assert lag_s < LAG_MAX_S
    # Each call stands in the history a few times, however many batches it was sent in.
    assert sum(len(entry.event.model_dump_json()) for entry in entries) < CALLS * 2000
