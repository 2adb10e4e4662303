"""Runs whose replies, limits and ends are drawn at random, on real workers: their messages agree with the ledger."""

import asyncio
import random
from contextlib import suppress

import pytest

from tests.truth.ledger import WAIT_S, judge
from tests.truth.slow_writer import Reply, slow_writer
from toolfleet.orchestrator import Limits, Orchestrator
from toolfleet.orchestrator.errors import RunNotOpen

SETTLED_S = 1.5
"""How long what was in the queues at the end may still begin."""


def replies_of(chance, ledger):
    return [
        Reply(
            [
                ledger.asks(chance.choice(["charge", "charge", "charge_slowly"]), f"{turn}-{n}", seconds=seconds)
                for n in range(chance.randint(1, 12))
                for seconds in [chance.choice([0, 0, 0.3, 20])]
            ],
            chance.choice([0.0, 0.01, 0.1]),
        )
        for turn in range(2)
    ]


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_to_a_run_its_messages_agree_with_the_ledger(fleet, ledger, seed):
    chance = random.Random(seed)  # a test's choice, no secret
    options = {
        "slow": chance.choice(["wait", "handle"]),
        "limits": Limits(calls=chance.choice([3, 8, 40])),
        "timeout_s": chance.choice([1.0, 2.0, 60.0]),
    }
    async with slow_writer(*replies_of(chance, ledger)) as writer, Orchestrator(settings=fleet.settings) as outsider:
        async with Orchestrator(writer.model(), settings=fleet.settings) as first:
            run_id = await first.start("?", **options)
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            is_adopted = chance.random() < 0.5
            if not is_adopted:
                await cancelled(chance.choice([first, outsider]), run_id)
        if is_adopted:
            async with Orchestrator(writer.model(), settings=fleet.settings) as second:
                await asyncio.sleep(chance.uniform(0.1, 1.0))
                await cancelled(outsider, run_id)
                await asyncio.wait_for(second.wait(run_id), WAIT_S)
        await asyncio.sleep(SETTLED_S)
        run = await outsider.get(run_id)
    assert run.state.is_terminal
    judge(run, ledger)
    assert ledger.effects.total() <= options["limits"].calls


async def cancelled(orchestrator, run_id):
    """End the run, unless it has ended by itself."""
    with suppress(RunNotOpen):
        await orchestrator.cancel(run_id)
