"""`toolfleet runs`: what is stored of runs, and what a person may do to one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.staffed import Staffed, orchestrating, staffed


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staffed]:
    with staffed(tmp_path_factory.mktemp("runs")) as terminal, orchestrating(terminal):
        yield terminal


@pytest.fixture(scope="module")
def done(fleet: Staffed) -> str:
    """The id of a run that has ended."""
    run_id = fleet.begin("What do you see?")
    assert fleet.ask("runs", "show", run_id, "--wait")["state"] == "done"
    return run_id


def test_a_run_is_listed_and_shown_by_the_beginning_of_its_id(fleet: Staffed, done: str) -> None:
    [head] = fleet.ask("runs", "list", "--state", "done")
    assert (head["run_id"], head["title"], head["model"]) == (done, "What do you see?", "toolfleet-rehearsal")
    shown = fleet.say("runs", "show", done[:7])
    assert shown.code == 0, shown
    assert done in shown.out
    assert "user What do you see?" in shown.out
    assert "assistant I am the rehearsal model" in shown.out
    assert "No runs are stored that are failed." in fleet.say("runs", "list", "--state", "failed").out


def test_an_unknown_run_is_one_clear_line(fleet: Staffed) -> None:
    for command in ("show", "events", "cancel", "resume"):
        assert fleet.say("runs", command, "nobody").complaint().startswith("toolfleet: no run nobody is stored")


def test_a_person_decides_about_a_call_and_the_events_tell_of_it(fleet: Staffed) -> None:
    run_id = fleet.begin('call wipe {"path": "all"} and call wipe {"path": "some"}')
    waiting = fleet.until_parked(run_id)["waits_for"]
    assert [(call["state"], call["arguments"]) for call in waiting] == [
        ("awaiting_approval", '{"path": "all"}'),
        ("awaiting_approval", '{"path": "some"}'),
    ]
    assert f"toolfleet runs approve {run_id}.1.1" in fleet.say("runs", "show", run_id).out
    with fleet.start("runs", "events", run_id, "--follow") as following:
        denied = fleet.say("runs", "deny", f"{run_id}.1.0", "--reason", "it is in use")
        assert denied.out == f"call {run_id}.1.0 denied; run {run_id} goes on\n"
        fleet.say("runs", "approve", f"{run_id}.1.1", "--arguments", '{"path": "one"}')
        told, _ = following.communicate(timeout=60)
    events = [line[len("2026-01-01 00:00:00.000 ") :] for line in told.splitlines()]
    assert events[0] == 'run started: toolfleet-rehearsal; call wipe {"path": "all"} and call wipe {"path": "some"}'
    assert f"approval given: {run_id}.1.0 denied: it is in use" in events
    assert f"approval given: {run_id}.1.1 approved" in events
    assert events[-1].startswith("model replied")
    run = fleet.ask("runs", "show", run_id)
    assert "wiped one" in run["answer"]
    assert "it is in use" in run["answer"]
    late = fleet.say("runs", "approve", f"{run_id}.1.1")
    assert late.complaint().startswith(f"toolfleet: call {run_id}.1.1 was approved already by ")


def test_arguments_that_are_no_object_are_refused_before_anything_is_done(fleet: Staffed) -> None:
    assert fleet.say("runs", "approve", "x.1.0", "--arguments", "[1]").code == 2


def test_a_cancelled_run_takes_its_calls_along_can_be_resumed_and_is_deleted_only_when_it_has_ended(
    fleet: Staffed,
) -> None:
    run_id = fleet.begin('call walk {"name": "far"}')
    fleet.until("far.begun")
    refused = fleet.say("runs", "delete", run_id, "--yes")
    assert f"run {run_id} has not ended" in refused.complaint()
    cancelled = fleet.say("runs", "cancel", run_id, "--reason", "too far")
    assert cancelled.out == f"run {run_id} cancelled, and 1 call with it\n"
    fleet.until("far.cancelled")
    again = fleet.say("runs", "cancel", run_id)
    assert again.complaint() == f"toolfleet: run {run_id} has ended already: it is cancelled"
    failed = fleet.say("runs", "show", run_id, "--wait")
    assert failed.complaint() == f"toolfleet: run {run_id} cancelled: too far"
    fleet.say("runs", "resume", run_id, "What do you see?")
    run = fleet.ask("runs", "show", run_id, "--wait")
    assert (run["state"], run["messages"][-2]["content"]) == ("done", "What do you see?")
    asked = fleet.say("runs", "delete", run_id, said="n\n")
    assert (asked.code, "Delete 1 run for good?" in asked.out) == (1, True)
    assert fleet.say("runs", "delete", run_id, said="y\n").out.endswith("1 deleted\n")
    assert fleet.say("runs", "show", run_id).code == 1


def test_force_cancels_what_has_not_ended_and_deletes_it(fleet: Staffed) -> None:
    run_id = fleet.begin('call walk {"name": "further"}')
    fleet.until("further.begun")
    assert fleet.say("runs", "delete", run_id, "--yes", "--force").out == "1 deleted\n"
    fleet.until("further.cancelled")


def test_events_in_json_are_one_document(fleet: Staffed, done: str) -> None:
    events = json.loads(fleet.say("runs", "events", done, "--json").out)
    assert [event["type"] for event in events] == ["run_started", "run_adopted", "model_replied"]
    assert all(event["at_unix_s"] > 1e9 for event in events)
