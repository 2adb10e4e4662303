"""What people read: lists at 80 columns and in a pipe, the screen of a run, and calls that wait for somebody."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.screen import on_screen, seen
from tests.cli.staffed import Staffed, orchestrating, staffed

WICKED = "\x1b[2J\x1b]0;owned\x07 \x9b2J\x7f 表示する 🧑\u200d🤝\u200d🧑 \u202edesrever"
ROUNDS = 24


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staffed]:
    with staffed(tmp_path_factory.mktemp("screens")) as terminal, orchestrating(terminal):
        yield terminal


@pytest.fixture(scope="module")
def many(fleet: Staffed) -> str:
    """A run with more calls than anybody wants to read, some of which failed."""
    calls = [*(f"call pick `[{n}]`" for n in range(12)), *(f'call wipe_nothing {{"n": {n}}}' for n in range(ROUNDS))]
    run_id = fleet.begin(" and ".join([*calls, f'call pick {{"n": 1}} {WICKED}']))
    assert fleet.ask("runs", "show", run_id, "--wait")["state"] == "done"
    return run_id


def test_runs_fit_eighty_columns_with_whole_ids_and_a_question_that_is_cut(fleet: Staffed, many: str) -> None:
    screen = seen(fleet, "runs", "list", "--state", "done")
    title, heading, *rows = screen.lines
    assert title == f"{len(rows)} run" + "s" * (len(rows) > 1)
    assert heading.split()[:4] == ["id", "state", "age", "calls"]
    assert heading.split()[-1] == "question"
    [row] = [row for row in rows if row.startswith(f"{many}  done  ")]
    assert row.endswith("…")
    assert " 37 " in row
    assert screen.widest <= 80
    narrow = seen(fleet, "runs", "list", "--state", "done", columns=50)
    assert narrow.widest <= 50
    assert any(line.startswith(many) for line in narrow.lines)


def test_in_a_pipe_a_record_is_one_whole_line_with_tabs(fleet: Staffed, many: str) -> None:
    listed = fleet.say("runs", "list", "--limit", "0").out
    [row] = [line.split("\t") for line in listed.splitlines() if line.startswith(many)]
    assert (row[1], row[3], row[4], row[5]) == ("done", "37", "2", "toolfleet-rehearsal")
    assert row[6].startswith("call pick `[0]` and call pick `[1]`")
    assert "\x1b" not in listed
    tools = {line.split("\t")[0]: line.split("\t") for line in fleet.say("tools").out.splitlines()}
    assert tools["walk"][-1] == "Walk for long."
    screen = seen(fleet, "tools")
    assert screen.widest <= 80
    assert screen.lines[0] == "1 live worker"


def test_the_screen_of_a_large_run_counts_its_calls_and_tells_failures_first(fleet: Staffed, many: str) -> None:
    lines = seen(fleet, "runs", "show", many).lines
    assert len(lines) < 70
    assert f"tools 37 results, {ROUNDS + 12} of them failed" in lines
    [counted] = [line.split() for line in lines if line.startswith("pick ")]
    assert counted[:4] == ["pick", "13", "12", "0"]
    assert counted[-3:] == ["12", "bad", "arguments"]
    first = lines.index(
        next(line for line in lines if line.startswith(f"{many}.1.0 pick failed (bad arguments) after "))
    )
    assert " on io1-" in lines[first]
    assert lines[first].endswith(", attempt 1")
    assert lines[first + 1] == "    [0]"
    assert "object" in lines[first + 2]
    assert lines[-1] == f"{ROUNDS + 2} failures more: toolfleet runs show {many} --calls"

    with_calls = seen(fleet, "runs", "show", many, "--calls")
    rows = [line for line in with_calls.lines if line.startswith(f"{many}.1.") and " failed (" not in line]
    assert len(rows) == 37
    assert [" failed " in row for row in rows] == [True] * 36 + [False]
    assert "succeeded" in rows[-1]


def test_what_a_worker_did_is_on_record_with_its_name_and_times(fleet: Staffed, many: str) -> None:
    [worker] = fleet.ask("tools")
    call = fleet.ask("calls", "show", f"{many}.1.36")
    assert (call["worker"], call["attempt"]) == (worker["worker"], 1)
    assert call["began_unix_s"] <= call["ended_unix_s"]
    assert call["took_s"] < 10
    shown = fleet.say("calls", "show", f"{many}.1.36").out
    assert f"worker       {worker['worker']}" in shown
    nobody = fleet.ask("calls", "show", f"{many}.1.12")
    assert (nobody["worker"], nobody["began_unix_s"]) == ("", None)


def test_nothing_that_a_stranger_wrote_reaches_the_terminal_as_a_command(fleet: Staffed) -> None:
    asked = f"call wipe {json.dumps({'path': WICKED}, ensure_ascii=False)}"
    run_id = fleet.begin(asked)
    fleet.until_parked(run_id)
    looks = (("runs", "list"), ("runs", "show", run_id), ("calls", "list"), ("runs", "events", run_id))
    for words in (*looks, *((*each, "--json") for each in looks)):
        screen = seen(fleet, *words)
        assert "\x1b[2J" not in screen.raw, words
        assert "\x1b]0" not in screen.raw, words
        assert not {"\u202e", "\x9b", "\x7f"} & set(screen.raw), words
        assert "\x1b" not in fleet.say(*words).out, words
    shown = fleet.say("runs", "show", run_id).out
    assert "表示する 🧑\u200d🤝\u200d🧑" in shown
    assert seen(fleet, "calls", "list").widest <= 80
    fleet.say("runs", "deny", run_id)
    fleet.say("runs", "show", run_id, "--wait")


def test_lists_are_filtered_by_state_tool_and_time(fleet: Staffed, many: str) -> None:
    run_id = fleet.begin('call wipe {"path": "all"} and call walk {"name": "away"}')
    fleet.until("away.begun")
    fleet.until_parked(run_id)
    assert [run["run_id"] for run in fleet.ask("runs", "list", "--awaiting-approval")] == [run_id]
    assert f"{run_id}\twaits for approval\t" in fleet.say("runs", "list", "--since", "1h").out
    assert many in fleet.say("runs", "list", "--since", "1h").out
    later = fleet.say("runs", "list", "--since", "2100-01-01").out
    assert later == "No runs are stored that began since 2100-01-01 00:00:00 UTC.\n"
    assert fleet.say("runs", "list", "--since", "yesterday").code == 2
    [wipe] = fleet.ask("calls", "list", "--state", "awaiting_approval")
    [walk] = fleet.ask("calls", "list", "--tool", "walk", "--since", "1h")
    assert (wipe["tool"], walk["state"]) == ("wipe", "running")
    assert fleet.say("calls", "list", "--tool", "pause").out == "No such calls are under way.\n"
    fleet.let_go("away")
    fleet.say("runs", "deny", run_id)
    fleet.say("runs", "show", run_id, "--wait")


def test_a_runs_id_is_enough_where_one_call_waits_and_several_are_asked_about(fleet: Staffed) -> None:
    run_id = fleet.begin('call wipe {"path": "one"} and call wipe {"path": "two"}')
    fleet.until_parked(run_id)
    several = fleet.say("runs", "approve", run_id[:8])
    assert several.code == 1
    assert f"2 calls of run {run_id} wait for approval: name one, or say --all" in several.err
    assert f'  {run_id}.1.1  wipe {{"path": "two"}}' in several.err.splitlines()
    fleet.say("runs", "approve", f"{run_id[:8]}.1.0")
    with fleet.start("runs", "show", run_id, "--wait") as waiting:
        assert waiting.stderr
        told = waiting.stderr.readline()
        assert told == f"toolfleet: wipe waits for approval: toolfleet runs approve {run_id}.1.1\n"
        alone = fleet.say("runs", "approve", run_id)
        assert alone.out == f"call {run_id}.1.1 approved; run {run_id} goes on\n"
        out, _ = waiting.communicate(timeout=60)
    assert "wiped two" in out
    ended = fleet.say("runs", "approve", run_id).complaint()
    assert ended == f"toolfleet: no call of run {run_id} waits for approval: the run is done"


def test_a_terminal_asks_about_each_call_and_takes_other_arguments(fleet: Staffed) -> None:
    question = 'call wipe {"path": "one"} and call wipe {"path": "two"} and call wipe {"path": "three"}'
    with on_screen(fleet, "run", question) as screen:
        screen.until('{"path": "one"}\n[a]pprove')
        screen.type("what?\n")
        screen.type("a\n")
        screen.until('{"path": "two"}\n[a]pprove')
        screen.type("e\n")
        screen.until("Arguments, a JSON object: ")
        screen.type('{"path": "another"}\n')
        screen.until('{"path": "three"}\n[a]pprove')
        screen.type("d\nnot that one\n")
        assert screen.ended() == 0, screen.text
    assert "wiped one" in screen.text
    assert "wiped another" in screen.text
    assert "not that one" in screen.text.partition("These are the results")[2]
    assert "3/3" in screen.text


def test_a_prompt_goes_away_when_somebody_else_decides(fleet: Staffed) -> None:
    with on_screen(fleet, "run", 'call wipe {"path": "here or there"}') as screen:
        screen.until("[a]pprove")
        [run] = fleet.ask("runs", "list", "--awaiting-approval")
        fleet.say("runs", "approve", run["run_id"])
        assert screen.ended() == 0, screen.text
    assert "was decided about elsewhere" in screen.text
    assert "wiped here or there" in screen.text


def test_ctrl_c_at_the_prompt_cancels_the_run(fleet: Staffed) -> None:
    with on_screen(fleet, "run", 'call wipe {"path": "never"}') as screen:
        screen.until("[a]pprove")
        [run] = fleet.ask("runs", "list", "--awaiting-approval")
        screen.process.send_signal(2)
        assert screen.ended() == 130, screen.text
    assert f"toolfleet: run {run['run_id']} cancelled" in screen.text


def test_who_waits_for_a_run_that_waits_for_approval_hears_of_its_cancel(fleet: Staffed) -> None:
    with fleet.start("run", 'call wipe {"path": "nobody says"}') as waiting:
        assert waiting.stdout
        assert any(line.startswith("wipe waits for approval: ") for line in waiting.stdout)
        [run] = fleet.ask("runs", "list", "--awaiting-approval")
        fleet.say("runs", "cancel", run["run_id"], "--reason", "never mind")
        _, err = waiting.communicate(timeout=60)
    assert err == f"toolfleet: run {run['run_id']} cancelled: never mind\n"


def test_a_private_fleet_without_a_terminal_says_how_its_call_is_approved(fleet: Staffed) -> None:
    alone = Staffed(fleet.folder)
    with alone.start("run", 'call wipe {"path": "private"}', "--tools", "mine") as asking:
        assert asking.stdout
        told = next(line for line in asking.stdout if line.startswith("wipe waits for approval: "))
        url, secret, *words, call_id = (
            told.removeprefix("wipe waits for approval: ").removesuffix(" (or deny)\n").split()
        )
        assert words == ["toolfleet", "runs", "approve"]
        variables = dict(word.split("=", 1) for word in (url, secret))
        assert variables.keys() == {"TOOLFLEET_REDIS_URL", "TOOLFLEET_SECRET"}
        with alone.start("runs", "approve", call_id, **variables) as approving:
            out, err = approving.communicate(timeout=60)
        assert (out.startswith(f"call {call_id} approved"), err.count("Traceback")) == (True, 0), err
        answer, _ = asking.communicate(timeout=60)
    assert "wiped private" in answer


def test_bars_are_full_at_the_end_of_a_call_that_failed(fleet: Staffed) -> None:
    with on_screen(fleet, "run", 'call walk {"name": "to be cancelled"}') as screen:
        fleet.until("to be cancelled.begun")
        [walk] = fleet.ask("calls", "list", "--tool", "walk")
        fleet.say("calls", "cancel", walk["call_id"])
        assert screen.ended() == 0, screen.text
    last = [line for line in screen.lines if line.startswith("  walk ")][-1]
    assert "100%" in last
    assert "cancelled" in last
