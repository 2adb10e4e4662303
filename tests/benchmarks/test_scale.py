"""The scale bench: real processes at small sizes, and the arithmetic of its model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scale.model import Costs, Fleet, needed, predicted

ROOT = Path(__file__).parents[2]
COSTS = Costs(orchestrator_us=50, worker_us=100, redis_us=50)


def test_D11_a_call_costs_no_more_the_more_wait_and_takes_at_most_one_and_a_half_kibibytes_of_redis(tmp_path):
    points = points_of(tmp_path, "--only", "waiting", "--quick")

    assert [(point["at"], point["calls"]) for point in points] == [(1_000, 11_000), (10_000, 10_100)]
    assert all(100 < point["redis_bytes_per_waiting_call"] <= 1536 for point in points)
    # What each costs the server in commands does not grow with how many wait. Processor time is told, not tested.
    few, many = (point["commands"] for point in points)
    assert many <= 1.1 * few


def test_calls_that_wait_cost_a_few_commands_more_where_each_run_has_few(tmp_path):
    points = points_of(tmp_path, "--only", "runs", "--quick")

    assert [(point["axis"], point["at"], point["calls"]) for point in points] == [
        ("runs", 10, 10_100),
        ("runs", 1_000, 10_100),
    ]
    # Each time round one call of each run goes on: where that is a single one, it is read and removed by itself.
    few, many = (point["commands"] for point in points)
    assert few < many <= few + 3


def test_every_call_of_every_worker_and_orchestrator_is_counted(tmp_path):
    points = points_of(tmp_path, "--only", "orchestrators", "--quick")

    assert [(point["axis"], point["tool"], point["workers"], point["orchestrators"]) for point in points] == [
        ("orchestrators", "nothing", 2, 1),
        ("orchestrators", "nothing", 2, 2),
    ]
    for point in points:
        assert min(point["orchestrator_us"], point["worker_us"], point["redis_us"], point["commands"]) > 1


@pytest.mark.parametrize(
    ("fleet", "tool_s", "rate", "bound"),
    [
        (Fleet(orchestrators=1, workers=1, shards=1, cores=100, slots=1000), 0.0, 10_000, "workers"),
        (Fleet(orchestrators=1, workers=9, shards=9, cores=100, slots=1000), 0.0, 20_000, "orchestrators"),
        (Fleet(orchestrators=9, workers=9, shards=1, cores=100, slots=1000), 0.0, 20_000, "servers"),
        (Fleet(orchestrators=9, workers=9, shards=9, cores=2, slots=1000), 0.0, 10_000, "cores"),
        (Fleet(orchestrators=9, workers=2, shards=9, cores=99, slots=100), 0.1, 2_000, "slots"),
    ],
)
def test_a_fleet_is_as_quick_as_what_is_used_up_first(fleet, tool_s, rate, bound):
    assert predicted(COSTS, fleet, tool_s) == (rate, bound)


def test_what_a_number_of_calls_needs_is_what_keeps_that_fleet_busy():
    assert needed(COSTS, 10_000, 0.1, 100) == {"orchestrators": 0.5, "workers": 10.0, "servers": 0.5, "cores": 2.0}


def test_an_axis_that_there_is_not_is_named():
    ran = subprocess.run(
        (sys.executable, "-m", "benchmarks.scale", "--only", "sharks"),
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
    )

    assert ran.returncode == 2
    assert "'sharks' is none of" in ran.stderr


def points_of(folder: Path, *options: str) -> list[dict]:
    """What a run of the bench has written."""
    file, picture = folder / "points.json", folder / "points.svg"
    command = (sys.executable, "-m", "benchmarks.scale", *options, "--json", str(file), "--picture", str(picture))
    ran = subprocess.run(command, capture_output=True, check=False, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert "<svg" in picture.read_text()
    return json.loads(file.read_text())["points"]
