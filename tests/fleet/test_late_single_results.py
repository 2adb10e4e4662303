"""Late results of single calls, which belong to no run: nobody is told of a run that was lost."""

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest
from fleets import fleet_of
from stages import stage_of_its_own

from toolfleet.orchestrator import Orchestrator

HEARD_WITHIN_S = 1.0
"""For a push and two reads of the store, which take milliseconds."""


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_late_result_of_a_single_call_is_no_news_of_a_lost_run(fleet, caplog, is_closed):
    caplog.set_level(logging.INFO, logger="toolfleet")
    async with (
        stage_of_its_own() as stage,
        Orchestrator(settings=fleet.settings) as other,
        AsyncExitStack() as stack,
    ):
        asking = await stack.enter_async_context(Orchestrator(settings=fleet.settings))
        submitted = await asking.call("play_once", {"stage": stage.path}, patience_s=0.1)
        actor = await stage.enters()
        if is_closed:
            await stack.aclose()
        actor.returns("late")
        status = await other.task(submitted.handle, wait_s=20)
        assert status.result.content == "late"
        await asyncio.sleep(HEARD_WITHIN_S)
    assert "run_lost" not in caplog.text
