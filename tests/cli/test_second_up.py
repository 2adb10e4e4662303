"""A second `toolfleet up` on one machine: it says what runs, joins it, takes its place, or keeps to itself."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.cli.command import TOOLFLEET, Terminal, ended, interrupted, read_until

QUESTION = "What is the square root of 475695037565?"
ROOT = "689706.486532"

RUNS_ALREADY = 75
STOPPED = 130
TERMINATED = 143

SMALL = (
    "--tools",
    "toolfleet.workers.packs.arithmetic",
    "--cpu",
    "0",
    "--long",
    "0",
    "--no-flower",
    "--orchestrators",
    "0",
)
ALONE = (*SMALL, "--no-api")


@contextmanager
def running(terminal: Terminal, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    with terminal.start("up", *options) as process:
        yield process, read_until(process, "Ready")


def worker_in(said: list[str]) -> str:
    [name] = [found[1] for line in said if (found := re.match(r"worker: +([\w-]+) ", line))]
    return name


def announced(terminal: Terminal, **variables: str) -> set[str]:
    seen = Terminal(terminal.folder).run("tools", "--json", **variables)
    return {worker["worker"].partition("@")[0] for worker in json.loads(seen.out)}


def test_without_a_terminal_it_says_what_runs_and_what_may_be_done(terminal: Terminal) -> None:
    with running(terminal, *SMALL, "--api-port", "0") as (process, said):
        url = re.search(r"API: +(\S+)", "\n".join(said))
        second = Terminal(terminal.folder).run("up", *ALONE)
        assert process.poll() is None
        interrupted(process)
    assert (second.code, second.out) == (RUNS_ALREADY, "")
    assert f"a fleet runs already: pid {process.pid}, since 20" in second.err
    assert "tools toolfleet.workers.packs.arithmetic; workers 1 io; namespace toolfleet" in second.err
    assert url is not None
    assert f"API {url[1]}" in second.err
    assert {"--join", "--replace", "--namespace"} <= set(second.err.split())


def test_one_that_was_killed_is_not_taken_for_running(terminal: Terminal) -> None:
    with running(terminal, *ALONE) as (process, _):
        process.kill()
        process.wait()
        terminal.until_nothing_is_left()
    with running(terminal, *ALONE) as (process, _):
        assert interrupted(process).code == STOPPED


def test_on_a_terminal_it_asks(terminal: Terminal) -> None:
    with running(terminal, *ALONE) as (process, _):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [TOOLFLEET, "up", *ALONE],
            cwd=terminal.folder,
            env=terminal.environment(TERM="dumb"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as second:
            os.close(theirs)
            asked = read_pty(ours, "quit?")
            os.write(ours, b"quit\n")
            assert second.wait(60) == 0
        os.close(ours)
        interrupted(process)
    assert f"pid {process.pid}" in asked


def read_pty(descriptor: int, until: str) -> str:
    said = ""
    while until not in said:
        said += os.read(descriptor, 1024).decode()
    return said


def test_joining_adds_workers_and_leaving_takes_only_them(terminal: Terminal) -> None:
    other = Terminal(terminal.folder)
    with running(terminal, *ALONE) as (first, said):
        with running(other, "--join", "--cpu", "0", "--long", "0") as (second, joined):
            both = announced(terminal)
            assert Terminal(terminal.folder).run("run", QUESTION).code == 0
            assert interrupted(second).code == STOPPED
        left = announced(terminal)
        interrupted(first)
    assert both == {worker_in(said), worker_in(joined)}
    assert len(both) == 2
    assert left == {worker_in(said)}


def test_there_must_be_one_to_join(terminal: Terminal) -> None:
    assert "no fleet of `toolfleet up` runs here to join" in terminal.run("up", "--join").complaint()
    assert terminal.run("up", "--join", "--replace").code == 2


def test_replacing_stops_the_first_in_order_and_takes_over(terminal: Terminal) -> None:
    other = Terminal(terminal.folder)
    with running(terminal, *ALONE) as (first, said), running(other, *ALONE, "--replace") as (second, replaced):
        stopped = ended(first)
        assert announced(terminal) == {worker_in(replaced)}
        assert ROOT in Terminal(terminal.folder).run("run", QUESTION).out
        interrupted(second)
    assert (stopped.code, stopped.err) == (TERMINATED, "toolfleet: stopped\n")
    assert worker_in(said) != worker_in(replaced)
    assert any(f"(pid {first.pid}) to stop" in line for line in replaced)


def test_a_namespace_is_a_fleet_of_its_own(terminal: Terminal) -> None:
    other = Terminal(terminal.folder)
    with running(terminal, *ALONE) as (first, said):
        with running(other, *SMALL, "--api-port", "0", "--namespace", "other") as (second, apart):
            assert announced(terminal) == {worker_in(said)}
            assert announced(terminal, TOOLFLEET_NAMESPACE="other") == {worker_in(apart)}
            url = re.search(r"API: +(\S+)", "\n".join(apart))
            assert url is not None
            key = (terminal.folder / "data" / "toolfleet" / "api.key").read_text().strip()
            asked = httpx.get(f"{url[1]}/v1/tools", timeout=30, headers={"authorization": f"Bearer {key}"})
            assert asked.status_code == 200
            interrupted(second)
        interrupted(first)
    assert any('TOOLFLEET_NAMESPACE=other toolfleet run "' in line for line in apart)


def test_a_taken_port_of_the_api_is_said_with_its_holder_and_the_remedy(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        complaint = terminal.run("up", *SMALL, "--api-port", str(port)).complaint()
    assert f"the API cannot listen on 127.0.0.1:{port}" in complaint
    assert f"pid {os.getpid()}" in complaint
    assert "choose another --api-port (0 takes a free one), or --no-api" in complaint


def test_the_api_is_at_the_same_address_each_time_unless_it_is_told_otherwise(terminal: Terminal) -> None:
    assert "[default: 8642]" in terminal.run("up", "--help").out


def test_two_workers_of_one_name_are_not_served_side_by_side(terminal: Terminal) -> None:
    other = Terminal(terminal.folder)
    with running(terminal, *ALONE) as (fleet, _):
        options = ("worker", "--import", "toolfleet.workers.packs.arithmetic", "--name", "twin")
        with other.start(*options) as first:
            read_until(first, "Ready")
            while "twin" not in announced(terminal):
                assert first.poll() is None
            second = Terminal(terminal.folder).run(*options)
            first.send_signal(signal.SIGTERM)
            assert ended(first).code == 0
        # A name that was given back is free at once.
        with other.start(*options) as third:
            read_until(third, "Ready")
            third.kill()
            third.wait()
        # That of a worker which was killed is free in a moment.
        with other.start(*options) as fourth:
            read_until(fourth, "Ready")
            while fourth.pid not in pids(terminal, "twin"):
                assert fourth.poll() is None
            fourth.send_signal(signal.SIGTERM)
            assert ended(fourth).code == 0
        interrupted(fleet)
    node = f"twin@{os.uname().nodename}"
    assert f"another worker is called {node}: choose another --name" in second.complaint()


def pids(terminal: Terminal, name: str) -> set[int]:
    seen = json.loads(Terminal(terminal.folder).run("tools", "--json").out)
    return {worker["pid"] for worker in seen if worker["worker"].partition("@")[0] == name}
