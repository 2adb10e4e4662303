"""The harness with tiny numbers: what it reports and what it leaves behind, never how fast anything is."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from benchmarks import registry
from benchmarks.about import about
from benchmarks.cli import app, buildable
from benchmarks.cores import cores, with_a_core_of_their_own
from benchmarks.figures import WrongResults, check
from benchmarks.observed_figures import OBSERVED_MEASURES, values_of_traces, values_of_watching
from benchmarks.report import OWN, as_json, as_tables, reached
from benchmarks.rounds import Failure, Record, measure, trials
from benchmarks.sizes import FULL, OWN_FIGURES, Figure
from benchmarks.summary import summarise
from benchmarks.telemetry import Found
from benchmarks.trial import Finding
from benchmarks.watching import Finding as Watching, Half

TINY = replace(
    FULL,
    rounds=1,
    warm_up_calls=20,
    latency_calls=10,
    burst_calls=100,
    conversations=5,
    calls_each=2,
    sleeps=10,
    drain_sizes=(10, 100),
    memory_calls=200,
    memory_step=100,
    trial_timeout_s=60.0,
    runs=4,
    short_turns=2,
    runs_at_once=2,
    long_turns=20,
    streams=2,
    streams_at_once=2,
    stream_tokens=10,
    ended_runs=4,
    waiting_calls=200,
    waiting_runs=10,
    idle_s=0.1,
    room_calls=200,
    room_tenants=50,
    room_pairs=1,
)
OBSERVED = {name for name in OWN if name.startswith(("traces_", "watched_", "unseen_"))}
FLOOR = {"floor": registry.PATHS["floor"]}
FLOORS = FLOOR | {"floor (raw protocol)": registry.PATHS["floor (raw protocol)"]}
OURS = {"toolfleet": registry.PATHS["toolfleet"]}
VALUES = {
    *(
        f"{figure}{process}_us_per_call"
        for figure in ("lone_cpu", "cpu", "conversations_cpu")
        for process in ("", "_orchestrator", "_worker", "_redis")
    ),
    "latency_p50_ms",
    "latency_p99_ms",
    "burst_calls_per_s",
    "conversations_calls_per_s",
    "burst_on_own_core",
    "conversations_on_own_core",
    "sleep_fanout_s",
    "drain_10_calls_per_s",
    "drain_100_calls_per_s",
    "drain_ratio",
    "memory_growth_mib",
    "memory_orchestrator_growth_mib",
    "memory_worker_growth_mib",
    "memory_orchestrator_before_mib",
    "memory_orchestrator_after_mib",
    "memory_worker_before_mib",
    "memory_worker_after_mib",
}


def found(**values: float) -> Finding:
    return Finding(figure=Figure.LATENCY, values=values, calls={"latency": 10}, settings="")


LONE = {
    *("latency_p50_ms", "latency_p99_ms", "lone_cpu_us_per_call"),
    *(f"lone_cpu_{process}_us_per_call" for process in ("orchestrator", "worker", "redis")),
}


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_yields_every_figure_that_queues_have_and_leaves_no_process(floor: str):
    before = psutil.Process().children(recursive=True)
    record = measure({floor: FLOORS[floor]}, list(Figure), TINY)

    report = json.loads(json.dumps(as_json(summarise(record), about(quick=False))))

    assert record.failures == []
    assert set(report) == {"about", floor}
    assert set(report[floor]) == VALUES
    assert all(isinstance(value, float) for value in report[floor].values())
    assert report["about"]["calls"][floor] == {
        "latency": 10,
        "burst": 100,
        "conversations": 10,
        "sleeps": 10,
        "drain": 100,
        "memory": 200,
    }
    assert set(psutil.Process().children(recursive=True)) <= set(before)


def test_a_worker_has_a_core_of_its_own_while_it_is_measured_so_and_goes_free_afterwards():
    every = set(cores())
    [*others, own] = sorted(every)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        with with_a_core_of_their_own([worker.pid], beside=[os.getpid()]):
            placed = os.sched_getaffinity(worker.pid), os.sched_getaffinity(0)
        after = os.sched_getaffinity(worker.pid), os.sched_getaffinity(0)
        worker.kill()
    assert placed == (({own}, set(others)) if others else (every, every))
    assert after == (every, every)


def test_toolfleets_own_figures_are_taken_of_toolfleet_and_of_nobody_else():
    figures = [figure for figure in OWN_FIGURES if figure not in OBSERVED_MEASURES]  # with fleets of their own
    record = measure(OURS | FLOOR, figures, TINY)

    report = as_json(summarise(record), {})
    assert record.failures == []
    assert set(report) == {"about", "toolfleet"}
    assert set(report["toolfleet"]) == set(OWN) - OBSERVED
    assert report["about"]["calls"]["toolfleet"] == {
        "turns": 8,
        "long_turns": 20,
        "stream": 2,
        "stream_tokens": 10,
        "ended_runs": 4,
        "waiting_calls": 200,
        "waiting_runs": 10,
        "limits": 500,
        "limits_lone": 10,
        "room": 200,
        "room_tenants": 50,
    }
    titles = [table.title for table in as_tables(summarise(record))]
    assert len(titles) == 2
    assert "own figures" in titles[0]
    assert "Goals" in titles[1]


def test_what_it_costs_to_look_on_is_taken_from_the_programs_that_measure_it():
    ways = {way: asdict(Found(1.0, 2.0, more_us)) for way, more_us in (("off", 0.0), ("api", 0.5), ("1 %", 4.0))}
    assert values_of_traces({"burst": ways, "lone": ways})["traces_lone_sampled_more_us"] == 4.0
    halves = [Half(seen, 40, 1.0, 100.0, 300.0 if seen else 200.0, 50.0, 2) for seen in (True, False)]
    found = values_of_watching(asdict(Watching(2, 2, halves, 0.9)))
    assert (found["watched_redis_us_per_call"], found["unseen_redis_us_per_call"]) == (300.0, 200.0)
    assert {*found, *values_of_traces({"burst": ways, "lone": ways})} == OBSERVED


def test_a_figure_of_fewer_calls_than_its_heading_says_its_n():
    record = Record(rounds=1)
    for name, n in (("toolfleet", 735), ("floor", 10_000)):
        burst = Finding(figure=Figure.BURST, values={"burst_calls_per_s": 3_000.0}, calls={"burst": n}, settings="")
        record.findings[1, name] = [burst]

    table, _goals = as_tables(summarise(record))

    assert list(table.columns[1].cells) == ["3,000 n=735", "3,000"]


def test_goals_are_compared_with_the_same_run_and_left_out_where_a_figure_is_missing():
    record = Record(rounds=1)
    record.findings[1, "toolfleet"] = [found(latency_p50_ms=0.4, drain_ratio=0.5)]
    record.findings[1, "floor"] = [found(latency_p50_ms=0.8)]

    goals = as_json(summarise(record), {})["about"]["goals"]

    assert goals == {
        "lone call, p50 over the floor's": {"found": 0.5, "goal": "≤ 0.8"},
        "drain, the longest queue over the shortest": {"found": 0.5, "goal": "≥ 0.9"},
    }
    assert [goal.is_met(0.5) for goal, _ in reached(summarise(record))] == [True, False]


def test_a_contender_that_fails_is_reported_and_the_next_one_is_measured():
    broken = {"broken": "benchmarks.contenders.floor:NoSuchContender"}

    record = measure(broken | FLOOR, [Figure.LATENCY], TINY)

    report = as_json(summarise(record), {})
    assert [failure["contender"] for failure in report["about"]["failures"]] == ["broken"]
    assert "NoSuchContender" in report["about"]["failures"][0]["reason"]
    assert "broken" not in report
    assert set(report["floor"]) == LONE


def test_a_trial_that_takes_too_long_is_ended_with_all_its_processes():
    before = psutil.Process().children(recursive=True)
    record = measure(FLOOR, [Figure.LATENCY], replace(TINY, trial_timeout_s=0.05))

    assert [failure.figures for failure in record.failures] == [(Figure.LATENCY,)]
    assert "no end within 0.05 s" in record.failures[0].reason
    assert set(psutil.Process().children(recursive=True)) <= set(before)


def test_the_command_writes_json_and_picture(tmp_path: Path):
    options = ["--quick", "--rounds", "1", "--only", "floor", "--figures", "latency", "--out", str(tmp_path)]

    result = CliRunner().invoke(app, options)

    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "latest.json").read_text())
    assert report["about"]["quick"] is True
    assert report["about"]["machine"]["cores"] >= 1
    assert set(report["floor"]) == LONE
    assert "<svg" in (tmp_path / "latest.svg").read_text()


def test_quick_and_long_at_once_are_refused(tmp_path: Path):
    result = CliRunner().invoke(app, ["--quick", "--long", "--out", str(tmp_path)])

    assert result.exit_code == 2
    assert "contradict each other" in result.output


def test_an_unknown_contender_is_refused_with_the_names_there_are(tmp_path: Path):
    result = CliRunner().invoke(app, ["--only", "nobody", "--out", str(tmp_path)])

    assert result.exit_code == 2
    assert "floor" in result.output
    assert list(tmp_path.iterdir()) == []


def test_ratios_are_taken_round_by_round_and_then_the_median():
    record = Record()
    for round_, (celery_ms, floor_ms) in enumerate([(2.0, 1.0), (9.0, 3.0), (4.0, 1.0)], start=1):
        record.findings[round_, "celery"] = [found(latency_p50_ms=celery_ms)]
        record.findings[round_, "floor"] = [found(latency_p50_ms=floor_ms)]

    summary = summarise(record)

    assert summary.values == {"celery": {"latency_p50_ms": 4.0}, "floor": {"latency_p50_ms": 1.0}}
    assert summary.times_better == {"floor": {"latency_p50_ms": 3.0}}
    assert summary.spread["floor"]["latency_p50_ms"] == (1.0, 3.0)


def test_figures_that_failed_are_not_tried_again_in_the_next_round():
    record = Record(failures=[Failure("rq", 1, (Figure.SLEEPS,), "too slow")])

    assert record.has_failed("rq", (Figure.SLEEPS,))
    assert not record.has_failed("rq", (Figure.LATENCY, Figure.BURST))
    assert not record.has_failed("floor", (Figure.SLEEPS,))


def test_memory_and_what_waits_are_measured_in_the_first_round_only():
    later = [figures for _, figures in trials(2, list(Figure))]

    assert later == [
        (Figure.LATENCY, Figure.BURST, Figure.CONVERSATIONS),
        (Figure.SLEEPS,),
        (Figure.DRAIN,),
        (Figure.TURNS, Figure.STREAM, Figure.ENDED_RUNS),
    ]


@pytest.mark.parametrize("results", [[], [{"x": 1}], [{"x": 1}, None], [{"x": 1}, {"x": 2}]])
def test_missing_or_wrong_results_are_an_error_not_a_figure(results: list[object]):
    with pytest.raises(WrongResults):
        check(results, 2)


def test_who_cannot_be_built_here_is_left_out_with_a_line_that_says_why(monkeypatch, capsys):
    go = "toolfleet (worker in Go)"
    monkeypatch.setitem(registry.PATHS, go, "benchmarks.contenders.no_such_compiler:Nobody")
    assert buildable(FLOOR | {go: registry.PATHS[go]}) == FLOOR
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{go} is left out, as it cannot be built here: ")
    assert "no_such_compiler" in line
