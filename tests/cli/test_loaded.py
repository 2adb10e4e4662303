"""A command that is forked with its modules loaded does what the installed one does when it is started anew."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.cli.command import ENDS_WITHIN_S, Terminal, ended
from tests.cli.loaded import LOADED


@pytest.mark.parametrize("words", [("tools", "-h"), ("runs", "lits"), ("tools",)], ids=" ".join)
def test_it_says_and_ends_as_one_that_is_started_anew(terminal: Terminal, words: tuple[str, ...]) -> None:
    with terminal.start(*words) as process:
        anew = ended(process)
    assert terminal.say(*words) == anew
    assert anew.out or anew.err


def test_it_has_a_session_of_its_own_and_tells_by_what_it_was_killed(terminal: Terminal) -> None:
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    command = LOADED.start(("mcp",), terminal.folder, terminal.environment(), (reading, null, null))
    try:
        assert command.pid == os.getsid(command.pid) != os.getsid(0)
        command.send_signal(signal.SIGKILL)
        assert command.wait(ENDS_WITHIN_S) == -signal.SIGKILL
    finally:
        command.end()
        for each in (reading, writing, null):
            os.close(each)


def test_what_is_looked_at_when_an_interpreter_begins_takes_a_new_one(terminal: Terminal) -> None:
    assert LOADED.loads_for(terminal.environment(TOOLFLEET_SECRET="s" * 32))
    assert not LOADED.loads_for(terminal.environment(PYTHONPATH=str(terminal.folder)))
    assert not LOADED.loads_for(terminal.environment(OTEL_SDK_DISABLED="true"))


def test_a_script_is_run_as_python_runs_it(terminal: Terminal) -> None:
    terminal.write("beside", "WORD = 'beside'")
    terminal.write("script", "import sys, beside\nprint(__name__, sys.argv, beside.WORD)\nsys.exit('failed')")
    with terminal.start("script.py", program=(sys.executable,)) as process:
        anew = ended(process)
    forked = LOADED.run(["script.py"], terminal.folder, terminal.environment(), within_s=ENDS_WITHIN_S)
    assert (forked.returncode, forked.stdout, forked.stderr) == (anew.code, anew.out, anew.err)
    assert "__main__ ['script.py'] beside" in anew.out
