"""What py-spy sees, as stages of a call: shares of what was measured, never how much that is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.stages import read_stacks, stages

ROOT = "main (/here/benchmarks/profile.py:9);Runner.run (/usr/lib/python3.11/asyncio/runners.py:118)"
CELERY = "start (/here/toolfleet/workers/command.py:5);asynloop (/lib/celery/worker/loops.py:9)"


def test_a_library_counts_for_whoever_of_ours_called_it():
    raw = (
        f"{ROOT};Gatherer.hear (/here/toolfleet/orchestrator/fleet/gather.py:3);Barrier.put (/lib/x.py:1) 30\n"
        f"{ROOT};Gatherer.hear (/here/toolfleet/orchestrator/fleet/gather.py:7) 10\n"
        f"{ROOT} 40\n"
        f"{CELERY};poll (/lib/kombu/poll.py:2) 15\n"
        f"{ROOT};Stage.calls (/here/benchmarks/figures.py:2) 5\n"
    )

    found = stages(read_stacks(raw), us_per_call=200.0)

    assert [(stage.name, stage.us_per_call, stage.mostly_in) for stage in found] == [
        ("orchestrator/fleet/gather", 80.0, "Barrier.put"),
        ("(event loop)", 80.0, "Runner.run"),
        ("(Celery)", 30.0, "poll"),
        ("(the benchmark)", 10.0, "Stage.calls"),
    ]


def test_a_name_that_was_read_while_it_left_spoils_nothing():
    found = stages(read_stacks(f"{ROOT} 40\n{ROOT};torn\nname (/here/x.py:1)\n{ROOT};half 4x\n"), us_per_call=200.0)
    assert [(stage.name, stage.us_per_call) for stage in found] == [("(event loop)", 200.0)]


def test_the_stages_of_a_process_add_up_to_what_it_has_used():
    command = (sys.executable, "-m", "benchmarks.profile", "--only", "burst", "--seconds", "1", "--json")
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    if "ptrace_scope" in ran.stderr:
        pytest.skip("this machine lets nobody look at another process")
    assert ran.returncode == 0, ran.stderr

    (profile,) = json.loads(ran.stdout)["profiles"]

    assert profile["scenario"] == "burst"
    assert profile["calls"] >= 2_000
    assert set(profile["cpu_us"]) == {"orchestrator", "worker", "redis"}
    for process in ("orchestrator", "worker"):
        shares = [stage["us_per_call"] for stage in profile["stages"][process]]
        assert sum(shares) == pytest.approx(profile["cpu_us"][process])
        assert len(shares) > 3
    assert profile["commands"]["xadd"] >= 1
    assert 0 < profile["round_trips"] < 1


def test_its_help_has_examples():
    command = (sys.executable, "-m", "benchmarks.profile", "--help")
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]).stdout

    assert "python -m benchmarks.profile --only lone" in " ".join(said.split())
