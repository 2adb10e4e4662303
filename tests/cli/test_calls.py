"""`toolfleet calls`: the calls that somebody still works on, and what a person may do to one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.staffed import WAIT_S, Staffed, orchestrating, staffed


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staffed]:
    with staffed(tmp_path_factory.mktemp("calls")) as terminal, orchestrating(terminal):
        yield terminal


def test_calls_are_listed_as_they_stand_and_a_running_one_is_cancelled_alone(fleet: Staffed) -> None:
    run_id = fleet.begin(
        'call walk {"name": "far"} and call wipe {"path": "all"} and call print_book {"title": "Emma"}'
    )
    fleet.until("far.begun")
    fleet.until_parked(run_id)
    fleet.until_submitted(f"{run_id}.1.2")
    walk, wipe, book = fleet.ask("calls", "list", "--run", run_id[:7])
    assert [call["state"] for call in (walk, wipe, book)] == ["running", "awaiting_approval", "submitted"]
    assert walk["progress"]["message"] == "page 4 of 8"
    assert book["job"]["external_id"] == "job-Emma"
    assert walk["handle"]
    assert (wipe["age_s"], wipe["handle"]) == (None, "")
    listed = fleet.say("calls", "list").out
    assert all(word in listed for word in (walk["handle"][:8], "waits for approval", "submitted", "page 4 of 8"))

    refused = fleet.say("calls", "cancel", f"{run_id}.1.1")
    assert refused.complaint() == f"toolfleet: call {run_id}.1.1 waits for approval: toolfleet runs deny {run_id}.1.1"
    cancelled = fleet.say("calls", "cancel", f"{run_id}.1.0")
    assert cancelled.out.startswith(f"call {run_id}.1.0 cancelled: ")
    fleet.until("far.cancelled")
    again = fleet.say("calls", "cancel", f"{run_id}.1.0")
    assert again.complaint() == f"toolfleet: call {run_id}.1.0 has ended already: it is cancelled"
    assert fleet.ask("runs", "show", run_id)["state"] == "parked"

    shown = fleet.say("calls", "show", f"{run_id[:7]}.1.2").out
    assert all(word in shown for word in ("print_book", "submitted", "job-Emma", '{"title": "Emma"}'))
    completed = fleet.say("calls", "complete", f"{run_id}.1.2", "--json-result", '{"pages": 42}')
    assert completed.out == f"call {run_id}.1.2 completed\n"
    # Which of the two it says depends on whether its run has taken the result up by now.
    second = fleet.say("calls", "complete", f"{run_id}.1.2", "--error", "x").complaint()
    assert "had a result already" in second or "it has ended" in second
    fleet.say("runs", "deny", f"{run_id}.1.1")
    answer = fleet.ask("runs", "show", run_id, "--wait")["answer"]
    assert '{"pages":42}' in answer
    assert fleet.ask("calls", "list") == []


def test_a_call_that_waits_for_a_worker_is_cancelled_without_one(fleet: Staffed) -> None:
    run_id = fleet.begin(" and ".join(f'call walk {{"name": "in line {each}"}}' for each in range(5)))
    for busy in range(4):
        fleet.until(f"in line {busy}.begun")
    *_, last = fleet.ask("calls", "list", "--run", run_id)
    assert (last["state"], last["queue_position"]) == ("queued", 0)
    cancelled = fleet.say("calls", "cancel", last["call_id"])
    assert cancelled.out == f"call {last['call_id']} cancelled: walk was cancelled before it started.\n"
    fleet.say("calls", "cancel", *(f"{run_id}.1.{each}" for each in range(4)))
    run = fleet.ask("runs", "show", run_id, "--wait")
    assert {call["result"]["kind"] for call in run["calls"]} == {"cancelled"}
    assert not (fleet.folder / "in line 4.begun").exists()


def test_a_job_that_failed_elsewhere_is_told_to_the_model(fleet: Staffed) -> None:
    run_id = fleet.begin('call print_book {"title": "Persuasion"}')
    fleet.until_submitted(f"{run_id}.1.0")
    fleet.say("calls", "complete", f"{run_id}.1.0", "--error", "out of paper")
    assert "out of paper" in fleet.ask("runs", "show", run_id, "--wait")["answer"]


def test_a_picture_is_told_by_its_size_and_not_poured_out(fleet: Staffed) -> None:
    run_id = fleet.begin("call photo {}")
    assert fleet.ask("runs", "show", run_id, "--wait")["state"] == "done"
    shown = fleet.say("calls", "show", f"{run_id}.1.0").out
    assert "[image/png a.png, 100 bytes]" in shown
    assert "MDEyMzQ1Njc4OT" not in shown + fleet.say("runs", "show", run_id).out


def test_what_is_no_call_is_one_clear_line(fleet: Staffed) -> None:
    assert fleet.say("calls", "show", "nonsense").code == 2
    assert fleet.say("calls", "complete", "x.1.0").code == 2
    assert "nothing is known of call nobody.1.0" in fleet.say("calls", "show", "nobody.1.0").complaint()
    assert "waits for no job" in fleet.say("calls", "complete", "nobody.1.0", "--result", "x").complaint()
    bare = fleet.say("calls", "cancel", "nobody.1.0")
    assert bare.out == "call nobody.1.0 is cancelled if it exists: it belongs to no stored run\n"


def test_what_a_tool_logged_is_printed_line_by_line_with_nothing_a_terminal_obeys(fleet: Staffed) -> None:
    run_id = fleet.begin('call pick {"n": 9007199254740993}')
    followed = fleet.say("calls", "logs", f"{run_id}.1.0", "--follow").out.splitlines()
    assert followed[0].startswith("attempt 1, worker io")
    assert followed[1].endswith(" warning picker: picking \\x1b[2J 9007199254740993")
    assert followed[2:] == ["    with care"]
    [line] = fleet.say("calls", "logs", f"{run_id[:7]}.1.0", "--json").out.splitlines()
    said = json.loads(line)
    assert (said["attempt"], said["level"], said["logger"]) == (1, "warning", "picker")
    assert said["text"] == "picking \x1b[2J 9007199254740993\nwith care"
    nothing = fleet.say("calls", "logs", f"{run_id}.9.9")
    assert (nothing.out, nothing.err) == ("", f"Nothing that call {run_id}.9.9 has logged is kept.\n")


def test_a_log_is_waited_for_until_its_call_is_asked_for_and_no_longer_than_it_may_be(fleet: Staffed) -> None:
    run_id = fleet.begin('call pause {"name": "first"} then call pick {"n": 7}')
    fleet.until("first.begun")
    with fleet.start("calls", "logs", f"{run_id}.2.0", "--follow") as process:
        assert process.stderr
        said = process.stderr.readline()
        assert said.startswith(f"toolfleet: call {run_id}.2.0 is not asked for yet: waiting for its run, which is ")
        beside = fleet.say("calls", "logs", f"{run_id}.1.7", "--follow")
        assert f"has no call {run_id}.1.7" in beside.complaint()
        fleet.let_go("first")
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, err) == (0, "")
    assert "picking \\x1b[2J 7" in out
    fleet.ask("runs", "show", run_id, "--wait")
    assert f"has no call {run_id}.3.0" in fleet.say("calls", "logs", f"{run_id}.3.0", "--follow").complaint()
    assert "nothing is known of call nobody.1.0" in fleet.say("calls", "logs", "nobody.1.0", "--follow").complaint()
