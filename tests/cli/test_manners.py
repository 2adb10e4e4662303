"""What holds for every command: how it ends, how it is stopped, what it says of itself, and of what was mistyped."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import metadata
from itertools import pairwise

import psutil
import pytest

from tests.cli.command import ENDS_WITHIN_S, TOOLFLEET, Ended, Terminal, ended, interrupted, read_until
from tests.cli.screen import on_screen
from toolfleet.exit_status import ExitStatus

ARITHMETIC = "toolfleet.workers.packs.arithmetic"

SOON_STOPPED = """
import os, signal, sys, threading
from toolfleet.orchestrator.doors.cli import main
after_s, sys.argv = float(sys.argv[1]), ['toolfleet', *sys.argv[2:]]
threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT)).start()
main()
"""
"""The command that gets its Ctrl-C so soon after its first line."""

STOPPED_IN_A_FINALIZER = """
import os, signal, sys
from toolfleet.orchestrator.doors.cli import main

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

# Delivered to the main thread, wherever that is then.
signal.signal(signal.SIGUSR1, lambda *_: Dropped() and None)
sys.argv[0] = 'toolfleet'
main()
"""
"""The command in which SIGUSR1 has the effect of a Ctrl-C that comes while an object is being finalized."""

HEARS_ALL = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command that hears a hang-up, also where these tests are run under nohup."""

SERVICES = {
    "worker": ("worker", "--import", ARITHMETIC),
    "orchestrator": ("orchestrator",),
    "serve": ("serve", "--port", "0"),
}


def is_quiet(command: Ended) -> bool:
    noises = ("Traceback", "Exception ignored", "KeyboardInterrupt")
    return not any(noise in command.out + command.err for noise in noises)


# --- stopped ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("words", [("tools", "--watch"), ("orchestrator",)], ids=["tools", "orchestrator"])
def test_ctrl_c_in_the_first_second_is_quiet(terminal: Terminal, words: tuple[str, ...], after_s: float) -> None:
    with terminal.start(str(after_s), *words, program=(sys.executable, "-c", SOON_STOPPED)) as process:
        stopped = ended(process)
    assert is_quiet(stopped), stopped
    # An orchestrator that has come up by then stops in order.
    assert stopped.code in {ExitStatus.INTERRUPTED, ExitStatus.DONE}
    assert stopped.code or words[0] == "orchestrator"
    terminal.until_nothing_is_left()


def test_ctrl_c_is_heard_where_python_drops_what_is_raised(terminal: Terminal) -> None:
    words = ("up", "--tools", ARITHMETIC, "--cpu", "0", "--long", "0", "--orchestrators", "0", "--no-flower")
    program = (sys.executable, "-c", STOPPED_IN_A_FINALIZER)
    with terminal.start(*words, "--no-api", program=program) as process:
        read_until(process, "Ready")
        process.send_signal(signal.SIGUSR1)
        stopped = ended(process)
    assert is_quiet(stopped), stopped
    assert stopped.code == ExitStatus.INTERRUPTED
    terminal.until_nothing_is_left()


def test_ctrl_c_is_quiet_while_the_command_becomes_a_worker(terminal: Terminal) -> None:
    with terminal.start("worker", "--import", ARITHMETIC) as process:
        until_it_is_a_worker(process.pid)
        stopped = interrupted(process)
    assert is_quiet(stopped), stopped
    assert stopped.code == ExitStatus.INTERRUPTED
    terminal.until_nothing_is_left()


def until_it_is_a_worker(pid: int) -> None:
    """Return at the moment in which another program has taken the command's place."""
    give_up = time.monotonic() + ENDS_WITHIN_S
    while "toolfleet.workers" not in psutil.Process(pid).cmdline():
        assert time.monotonic() < give_up
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, ExitStatus.INTERRUPTED),
        (signal.SIGTERM, ExitStatus.TERMINATED),
        (signal.SIGHUP, ExitStatus.HUNG_UP),
    ],
)
def test_a_command_that_is_cut_short_says_by_what(terminal: Terminal, number: int, status: ExitStatus) -> None:
    with terminal.start("demo", program=(sys.executable, "-c", HEARS_ALL, TOOLFLEET)) as process:
        read_until(process, "No model is set")
        os.kill(process.pid, number)
        stopped = ended(process)
    assert stopped.code == status
    assert is_quiet(stopped), stopped
    terminal.until_nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", SERVICES.values(), ids=SERVICES)
def test_a_service_says_when_it_is_ready_and_stops_in_order(terminal: Terminal, words, number: int) -> None:
    with terminal.start(*words) as process:
        *before, ready = read_until(process, "Ready")
        os.kill(process.pid, number)
        stopped = ended(process)
    assert stopped.code == ExitStatus.DONE
    assert is_quiet(stopped), stopped
    if words[0] == "worker":
        assert ready.startswith("Ready: worker io-")
        assert ", pool io, queues io, 2 tools, Redis at unix://" in ready
    else:
        assert any("Redis:" in line for line in before)
    terminal.until_nothing_is_left()


# --- wrong -----------------------------------------------------------------------------------------------------------

CONFIGURED_WRONGLY = {
    "run": ("run", "?"),
    "batch": ("batch", "-", "-"),
    "demo": ("demo",),
    "up": ("up", "--no-flower"),
    "tools": ("tools",),
    "keys": ("keys", "list"),
    "runs": ("runs", "list"),
    "calls": ("calls", "list"),
    "dead": ("dead", "list"),
    "flower": ("flower", "--port", "59998"),
    **SERVICES,
}


@pytest.mark.parametrize("words", CONFIGURED_WRONGLY.values(), ids=CONFIGURED_WRONGLY)
def test_a_misspelt_variable_stops_every_command(terminal: Terminal, words: tuple[str, ...]) -> None:
    refused = terminal.run(*words, TOOLFLEET_REDISURL="redis://127.0.0.1")
    assert "TOOLFLEET_REDISURL is no setting: did you mean TOOLFLEET_REDIS_URL?" in refused.complaint()
    assert refused.code == ExitStatus.CONFIGURATION


NONSENSE = {
    "run": ("run", "?", "--timeout", "inf"),
    "run_calls": ("run", "?", "--max-calls", "0"),
    "batch": ("batch", "-", "-", "--concurrency", "-3"),
    "batch_price": ("batch", "-", "-", "--price-in", "nan"),
    "up": ("up", "--io", "-1"),
    "up_port": ("up", "--api-port", "65536"),
    "orchestrator": ("orchestrator", "--lifeline", "-1"),
    "serve": ("serve", "--port", "-1"),
    "mcp": ("mcp", "--port", "x"),
    "flower": ("flower", "--port", "-1"),
    "keys": ("keys", "add", "--days", "-1"),
    "keys_rate": ("keys", "add", "--rate", "0"),
    "runs": ("runs", "list", "--limit", "-1"),
    "calls": ("calls", "list", "--limit", "-1"),
    "dead": ("dead", "list", "--limit", "-1"),
    "dead_wait": ("dead", "replay", "1-0", "--wait", "inf"),
    "worker": ("worker", "--concurrency", "-1"),
    "worker_pool": ("worker", "--pool", ""),
}


@pytest.mark.parametrize("words", NONSENSE.values(), ids=NONSENSE)
def test_a_number_that_cannot_be_meant_is_wrong_usage_and_names_its_option(terminal: Terminal, words) -> None:
    refused = terminal.run(*words)
    assert refused.code == ExitStatus.USAGE, refused
    assert f"Invalid value for '{words[-2]}'" in refused.err


MISTYPED = {
    "command": (("wroker",), "Did you mean 'worker'?"),
    "command_of_a_group": (("runs", "lits"), "Did you mean 'list'?"),
    "option": (("run", "?", "--tool", "x"), "--tools"),
    "option_of_a_group": (("runs", "list", "--limt", "3"), "--limit"),
    "option_of_the_other_half": (("worker", "--pol", "io"), "--pool"),
}


@pytest.mark.parametrize(("words", "meant"), MISTYPED.values(), ids=MISTYPED)
def test_what_is_mistyped_is_answered_with_what_is_near(terminal: Terminal, words, meant: str) -> None:
    refused = terminal.run(*words)
    assert refused.code == ExitStatus.USAGE
    assert meant in refused.err


# --- what it says of itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_that_of_the_package(terminal: Terminal, word: str) -> None:
    assert terminal.run(word) == Ended(0, f"toolfleet {metadata.version('toolfleet')}\n", "")


@pytest.mark.parametrize("words", [(), ("run",), ("runs",), ("runs", "list"), ("worker",), ("keys", "add")])
def test_help_is_short_too(terminal: Terminal, words: tuple[str, ...]) -> None:
    asked = terminal.run(*words, "-h")
    assert asked.code == ExitStatus.DONE
    assert f"Usage: {' '.join(('toolfleet', *words))} " in asked.out
    assert asked == terminal.run(*words, "--help")


@pytest.mark.parametrize("words", [("up",), ("runs", "show"), ("worker",)], ids=" ".join)
def test_the_words_of_help_fill_the_lines_of_a_terminal(terminal: Terminal, words: tuple[str, ...]) -> None:
    text = terminal.run(*words, "--help", COLUMNS="80").out.partition("╭")[0].splitlines()
    broken = [(line, after) for line, after in pairwise(line.strip() for line in text) if line and after]
    assert broken, text
    # Where a line is broken, the next word had no room: Rich leaves a column free on each side.
    assert [each for each in broken if len(" ".join((each[0], each[1].split()[0]))) <= 78] == []


def test_up_breaks_what_it_says_between_words(terminal: Terminal) -> None:
    words = ("up", "--tools", ARITHMETIC, "--cpu", "0", "--long", "0", "--no-flower", "--no-api")
    with on_screen(terminal, *words) as screen:
        screen.until("Ready")
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == ExitStatus.INTERRUPTED
    [first] = [line for line in screen.lines if line.startswith("No model is set")]
    assert len(first) <= 80
    assert "so a rehearsal model answers: a fixed script" in " ".join(screen.text.split())
    terminal.until_nothing_is_left()


def test_a_server_for_hosts_says_on_a_terminal_what_it_waits_for(terminal: Terminal) -> None:
    with on_screen(terminal, "mcp") as screen:
        screen.until("Waits for an MCP host on standard input")
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == ExitStatus.INTERRUPTED
    terminal.until_nothing_is_left()


def test_only_the_whole_command_installs_its_completion(terminal: Terminal) -> None:
    assert "--install-completion" in terminal.run("--help").out
    assert "--install-completion" not in terminal.run("runs", "--help").out


def test_a_shell_can_complete_commands(terminal: Terminal) -> None:
    asked = {"_TOOLFLEET_COMPLETE": "complete_bash", "COMP_WORDS": "toolfleet wo", "COMP_CWORD": "1"}
    assert terminal.run(**asked).out.split() == ["worker"]
    # Otherwise typer goes by the shell that has started it, which is that of whoever runs the tests.
    named = terminal.run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_TOOLFLEET_COMPLETE=complete_bash" in named.out
