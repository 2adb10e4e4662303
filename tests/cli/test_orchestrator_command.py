"""`toolfleet orchestrator`: adopts runs, hands them over, and says whether it is alive."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.cli.command import ended, interrupted, read_until
from tests.cli.staffed import Staffed, staffed

STOPPED = 130


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staffed]:
    with staffed(tmp_path_factory.mktemp("orchestrator")) as terminal:
        yield terminal


def test_a_detached_run_is_adopted_and_its_owner_says_what_it_does(fleet: Staffed) -> None:
    absent = fleet.say("orchestrator", "--check")
    assert absent.complaint().startswith("toolfleet: no orchestrator on ")
    begun = fleet.say("run", "What do you see?", "--detach")
    run_id = begun.out.strip()
    assert (begun.code, begun.out) == (0, f"{run_id}\n")
    assert "no orchestrator with the model toolfleet-rehearsal is there now" in begun.err
    with fleet.start("orchestrator") as process:
        said = read_until(process, "1 runs adopted so far")
        assert "a rehearsal model answers" in said[0]
        assert any(line.startswith("Redis: ") for line in said)
        run = fleet.ask("runs", "show", run_id, "--wait")
        alive = fleet.say("orchestrator", "--check")
        process.send_signal(signal.SIGTERM)
        stopped = ended(process)
    assert (run["state"], run["answer"].split(",")[0]) == ("done", "I am the rehearsal model")
    assert (alive.code, alive.out.split(": ")[1]) == (0, "toolfleet-rehearsal\n")
    assert (stopped.code, stopped.err) == (0, "")
    assert fleet.say("orchestrator", "--check").code == 1


def test_what_it_is_at_when_it_is_told_to_stop_another_one_ends_and_no_call_is_made_twice(fleet: Staffed) -> None:
    with fleet.start("orchestrator") as first:
        read_until(first, "Ready.")
        run_id = fleet.begin('call pause {"name": "short"} and call walk {"name": "long"}')
        fleet.until("short.begun")
        fleet.until("long.begun")
        with fleet.start("orchestrator", "--quiet") as second:
            first.send_signal(signal.SIGTERM)
            stopped = ended(first)
            fleet.let_go("short")
            fleet.let_go("long")
            run = fleet.ask("runs", "show", run_id, "--wait")
            quiet = interrupted(second)
    assert (stopped.code, stopped.err) == (0, "")
    assert "1 runs under way are handed over" in stopped.out
    assert run["state"] == "done"
    assert {"short came back" in run["answer"], "long came back" in run["answer"]} == {True}
    assert (fleet.begun("short"), fleet.begun("long")) == (1, 1)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_ctrl_c_on_a_question_cancels_its_run_and_its_calls(fleet: Staffed) -> None:
    with fleet.start("run", 'call pause {"name": "unwanted"} and call walk {"name": "unwanted too"}') as process:
        fleet.until("unwanted.begun")
        fleet.until("unwanted too.begun")
        stopped = interrupted(process)
    assert stopped.code == STOPPED
    [said, last] = stopped.err.splitlines()
    assert (said.split()[0:2], said.split()[3:], last) == (["toolfleet:", "run"], ["cancelled"], "toolfleet: stopped")
    fleet.until("unwanted.cancelled")
    fleet.until("unwanted too.cancelled")
    run = fleet.ask("runs", "show", said.split()[2])
    assert (run["state"], run["waits_for"]) == ("cancelled", [])


def test_a_detached_question_needs_a_fleet_that_stays(fleet: Staffed) -> None:
    refused = fleet.say("run", "anything", "--detach", "--tools", "mine")
    assert refused.code == 2
    assert "--detach needs a fleet that stays" in refused.err
    unknown = fleet.say("run", "anything", "--detach", "--offer", "nothing")
    assert unknown.complaint().startswith("toolfleet: no live worker serves nothing")
    assert json.loads(fleet.say("run", 'say "x"', "--detach", "--json").out).keys() == {"run_id"}


def test_a_detached_question_for_another_model_than_the_orchestrators_says_so_at_once(fleet: Staffed) -> None:
    with fleet.start("orchestrator", "--model", "rehearsal") as process:
        said = read_until(process, "Ready.")
        here = fleet.say("run", "anything", "--detach", "--model", "rehearsal")
        another = fleet.say("run", "anything", "--detach", "--model", "gpt-x", OPENAI_API_KEY="k")
        assert interrupted(process).code == 0
    assert said[0].startswith("A rehearsal model answers")
    assert (here.code, here.err) == (0, "")
    assert another.code == 0
    assert "no orchestrator with the model gpt-x is there now (those there have toolfleet-rehearsal)" in another.err
    assert "toolfleet orchestrator --model gpt-x" in another.err
    fleet.say("runs", "cancel", another.out.strip())
