"""What Redis holds of runs that have ended: as long as the retention says, and then nothing."""

from benchmarks.retention import TOOLS, Asking, Bench, until
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

QUESTION = "noop_read_only 1"
RUNS = 40
KEEP_S = 5.0
MOST_OF_A_RUN = 4096
"""Bytes: few runs pay for the lists that all are in. docs/operating.md says what a run of many takes."""


async def test_D12_what_ended_runs_hold_is_gone_after_their_time():
    with LocalFleet([TOOLS], pools={"io": 1}, keep_done_s=KEEP_S) as fleet:
        async with (
            connect_async(fleet.settings) as client,
            Orchestrator(model=Asking(), settings=fleet.settings) as orchestrator,
        ):
            bench = Bench(client, orchestrator)
            before = await bench.held()
            await bench.end(RUNS, QUESTION)
            floor = await bench.until_gone(before.keys + RUNS // 2)  # what the fleet itself has made meanwhile
            kept = await bench.end(RUNS, QUESTION)
            assert floor.keys + RUNS <= kept.keys <= floor.keys + 3 * RUNS
            assert (kept.bytes - floor.bytes) / RUNS < MOST_OF_A_RUN
            after = await bench.until_gone(floor.keys)
            assert after.bytes < kept.bytes
            lists = [fleet.settings.keys.runs(), fleet.settings.keys.runs_ending()]

            async def are_empty():  # they are trimmed as leases are renewed
                return [await client.zcard(name) for name in lists] == [0, 0]

            await until(are_empty)
