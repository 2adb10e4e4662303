"""Junk for live workers. `python -m tests.fuzz` sends more of it, and to orchestrators too."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.fuzz.arena import fuzz
from tests.fuzz.inputs import OF_ORCHESTRATORS, OF_WORKERS
from toolfleet.skipped import skipped

INPUTS = 10_000


@pytest.mark.timeout(300)  # a shared machine
async def test_ten_thousand_inputs_that_nobody_signed_end_no_worker_and_run_nothing_and_are_counted(tmp_path) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")

    sent, counted = await fuzz(OF_WORKERS, INPUTS, seed, tmp_path)

    messages = sent["entry"] + sent["replayed"] + sent["scheduled"]
    # The rest are signed calls that only said to be second deliveries: each was answered for what it is.
    assert counted["dead_letters"] + counted["duplicate_messages"] > 0.9 * messages
    assert counted["refused_broadcasts"] == 2 * sent["command"]  # once for each worker


@pytest.mark.timeout(300)  # a shared machine
async def test_junk_for_orchestrators_is_passed_over_and_counted_and_runs_go_on(tmp_path) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    before = Counter(skipped())

    sent, _ = await fuzz(OF_ORCHESTRATORS, 2_500, seed, tmp_path)

    passed_over = Counter(skipped()) - before
    # The rest are news of calls that nobody waits for, and what was written over before it was looked at.
    assert passed_over["reply"] > 0.25 * sent["reply"]
    assert passed_over["announcement"] > 0
    assert passed_over["head"] > 0
