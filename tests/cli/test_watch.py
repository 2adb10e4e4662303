"""`toolfleet watch` on real terminals: live, as large as the window, and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from rich.cells import cell_len

from tests.cli.screen import Screen, on_screen
from tests.cli.staffed import Staffed, orchestrating, staffed
from toolfleet.connections import connect
from toolfleet.settings import Settings
from toolfleet.testing import FaultyServer

OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
NO_CURSOR, CURSOR = "\x1b[?25l", "\x1b[?25h"

WICKED = "\x1b[2J\x1b]0;owned\x07 \x9b2J \u202edesrever \u2066"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staffed]:
    with staffed(tmp_path_factory.mktemp("watched")) as terminal, orchestrating(terminal):
        yield terminal


def shows(*texts: str) -> Any:
    return lambda frame: all(any(text in line for line in frame) for text in texts)


def widest(frame: list[str]) -> int:
    return max(map(cell_len, frame))


def was_left_as_it_was(screen: Screen, before: list[object]) -> bool:
    """Whether the terminal has its own screen and its cursor again, and treats what is typed as it did."""
    last = screen.raw.rindex
    return last(OWN_SCREEN) > last(OTHER_SCREEN) and last(CURSOR) > last(NO_CURSOR) and screen.manners == before


def test_W8_the_facts_of_a_fleet_are_shown_live_in_eighty_columns(fleet: Staffed) -> None:
    assert fleet.say("budget", "set", "acme", "--usd", "20").code == 0
    with on_screen(fleet, "watch", "--interval", "0.2", size=(80, 40)) as screen:
        before = screen.manners
        frame = screen.until_a_frame(shows("1 worker with 4 slots, 0 calls with them; 1 orchestrator with 0 runs"))
        assert "queue  waiting  running  slots  oldest  waiting and running" in [line.rstrip() for line in frame]
        run_id = fleet.begin('call walk {"name": "watched"}')
        frame = screen.until_a_frame(shows(run_id, "parked", "1 call with them", "▁█"))
        [of_the_queue] = [line.split() for line in frame if line.startswith("long ")]
        assert of_the_queue[:4] == ["long", "0", "1", "4"]
        assert any(line.startswith("acme ") and "20.0000 usd" in line for line in frame)
        [worker] = [line.split() for line in frame if line.startswith("io1-")]
        assert worker[1:4] == ["pool", "1", "4"]
        assert all((widest(each), len(each)) == (80, 40) for each in screen.frames)
        fleet.let_go("watched")
        screen.until_a_frame(shows(run_id, "1 done", "0 calls with them"))
        screen.type("q")
        assert screen.ended() == 0, screen.text
        assert screen.raw.endswith(f"{CURSOR}{OWN_SCREEN}")
        assert was_left_as_it_was(screen, before)


def test_W8_it_asks_redis_itself_and_starts_no_server(fleet: Staffed, tmp_path: Path) -> None:
    nobody = Staffed(tmp_path)
    found = nobody.say("watch", "--once", TOOLFLEET_SECRET="s" * 32)
    assert found.code == 1
    assert "no fleet runs here" in found.complaint()
    assert not list(tmp_path.rglob("*.aof*"))
    with on_screen(fleet, "watch", size=(80, 24)) as screen:
        screen.until_a_frame(shows("1 worker"))
        process = psutil.Process(screen.process.pid)
        assert process.children() == []
        assert [each for each in process.net_connections() if each.status == psutil.CONN_LISTEN] == []
        screen.type("q")
        assert screen.ended() == 0


def test_it_is_as_large_as_the_window_whatever_the_environment_says(fleet: Staffed) -> None:
    fleet.variables["LINES"] = "24"
    try:
        with on_screen(fleet, "watch", "--interval", "3600", size=(100, 50)) as screen:  # COLUMNS=80, too
            frame = screen.until_a_frame(shows("1 worker"))
            assert (widest(frame), len(frame)) == (100, 50)
            for columns, rows in ((60, 15), (132, 43), (20, 5), (1, 1), (80, 24)):
                screen.resize(columns, rows)
                screen.process.send_signal(signal.SIGWINCH)
                screen.until_a_frame(lambda frame, size=(columns, rows): (widest(frame), len(frame)) == size)
            screen.type("q")
            assert screen.ended() == 0
    finally:
        del fleet.variables["LINES"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_however_it_is_ended_the_terminal_is_as_it_was(fleet: Staffed, number: signal.Signals, status: int) -> None:
    with on_screen(fleet, "watch", size=(80, 24)) as screen:
        before = screen.manners
        screen.until_a_frame(shows("1 worker"))
        assert not int(str(screen.manners[3])) & termios.ECHO
        screen.process.send_signal(number)
        assert screen.ended() == status, screen.text
        assert was_left_as_it_was(screen, before)
        assert screen.text.endswith("toolfleet: stopped\n")


def test_stopped_by_ctrl_z_it_gives_the_terminal_back_and_takes_it_again(fleet: Staffed) -> None:
    with on_screen(fleet, "watch", size=(80, 24), is_job=True) as screen:
        before = screen.manners
        screen.until_a_frame(shows("1 worker"))
        screen.process.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(screen.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert screen.manners == before
        screen.process.send_signal(signal.SIGCONT)
        screen.until_a_frame(shows("1 worker"))
        assert screen.raw.count(OTHER_SCREEN) == 2
        screen.type("q")
        assert screen.ended() == 0
        assert was_left_as_it_was(screen, before)


def test_into_a_pipe_it_prints_one_frame_plainly(fleet: Staffed) -> None:
    printed = fleet.say("watch", FORCE_COLOR="1")
    assert (printed.code, printed.err) == (0, "")
    assert "\x1b" not in printed.out
    assert "1 worker with 4 slots" in printed.out
    assert printed.out.count("\nqueue  waiting") == 1


def test_for_programs_there_is_one_document_or_a_line_each_time(fleet: Staffed) -> None:
    [queue] = [each for each in fleet.ask("watch")["queues"] if each["queue"] == "io"]
    assert (queue["slots"], queue["workers"]) == (4, 1)
    assert fleet.ask("watch", "--once")["orchestrators"][0]["model"] == "toolfleet-rehearsal"
    with fleet.start("watch", "--json", "--interval", "0.2") as process:
        assert process.stdout
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert lines[0]["at_unix_s"] < lines[1]["at_unix_s"] < lines[2]["at_unix_s"]
    assert (process.returncode, err) == (130, "toolfleet: stopped\n")


def test_W9_a_redis_that_is_lost_is_told_of_and_what_was_seen_stays_until_it_is_back(tmp_path: Path) -> None:
    with FaultyServer() as server:
        here = {"TOOLFLEET_REDIS_URL": server.url, "TOOLFLEET_SECRET": "s" * 32}
        alone = Staffed(tmp_path, here)
        assert alone.say("budget", "set", "acme", "--usd", "20").code == 0
        with on_screen(alone, "watch", "--interval", "0.2", size=(80, 24)) as screen:
            screen.until_a_frame(shows("no worker is live", "acme"))
            server.kill()
            screen.until_a_frame(shows("as it was", "acme"))
            server.start()
            screen.until_a_frame(lambda frame: shows("acme")(frame) and not shows("as it was")(frame))
            with server.frozen():
                screen.until_a_frame(shows("ago: Redis has not answered for 3 s", "acme"))
            screen.until_a_frame(lambda frame: shows("acme")(frame) and not shows("as it was")(frame))
            with redis.Redis.from_url(server.url) as client:
                client.flushall()
                client.set("toolfleet:counters", "no hash")
            screen.until_a_frame(shows("as it was", "WRONGTYPE"))
            with redis.Redis.from_url(server.url) as client:
                client.delete("toolfleet:counters")
            screen.until_a_frame(lambda frame: shows("no worker is live")(frame) and not shows("as it was")(frame))
            screen.type("q")
            assert screen.ended() == 0
        alone.until_nothing_is_left()


def test_W9_a_watch_that_is_begun_anew_shows_what_was_visible(fleet: Staffed) -> None:
    run_id = fleet.begin('call pick {"n": 9}')
    fleet.say("runs", "show", run_id, "--wait")
    first = fleet.say("watch").out
    second = fleet.say("watch").out
    for printed in (first, second):
        [line] = [line for line in printed.splitlines() if line.startswith(run_id)]
        assert line.split()[1] == "done"
        assert "io1-" in printed


def test_W13_nothing_that_a_stranger_wrote_reaches_the_terminal_as_a_command(fleet: Staffed) -> None:
    settings = Settings.model_validate(
        {"redis_url": fleet.variables["TOOLFLEET_REDIS_URL"], "secret": fleet.variables["TOOLFLEET_SECRET"]}
    )
    keys = settings.keys
    run_id = fleet.begin(f"call pick {json.dumps({'n': WICKED}, ensure_ascii=False)}")
    with connect(settings) as client:
        client.xadd(keys.dead_letters(), {"reason": WICKED * 100, "task": WICKED, "id": "x" * 100_000})
        client.hset(keys.counters(), WICKED, 1)
        client.hset(keys.limits(), WICKED, '{"concurrency": 1}')
        client.hset(keys.tenants(), f"{WICKED}{'y' * 100_000}", '{"weight": 2}')
        client.hset(keys.budgets(), f"day:{WICKED}", '{"usd": 1}')
        client.hset(keys.head("forged"), mapping={"state": "done", "title": "\x1b[2J\n\n" * 1000, "model": WICKED})
        client.zadd(keys.runs(), {"forged": 9e15, WICKED: 9e15})
        client.hset(keys.head(WICKED), mapping={"state": "failed", "title": "z" * 100_000})
    with on_screen(fleet, "watch", size=(80, 60)) as screen:
        frame = screen.until_a_frame(shows(run_id, "dead letter", "forged", "tenant \\x1b[2J"))
        assert widest(frame) == 80
        screen.type("q")
        assert screen.ended() == 0
    for shown in (screen.raw, fleet.say("watch").out, fleet.say("watch", "--json").out):
        assert "\x1b[2J" not in shown
        assert "\x1b]0" not in shown
        assert not {"\u202e", "\u2066", "\x9b", "\x07"} & set(shown)
