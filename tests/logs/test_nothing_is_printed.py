"""A library prints nothing and sets up nobody's logging; and no traceback of ours shows what a function held."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolfleet.errors import InvalidSettings
from toolfleet.logs import configure_logs

SECRET = "correct-horse-battery"

A_RUN_THAT_FAILS = f"""
import asyncio, sys
from pydantic import SecretStr
from toolfleet import Orchestrator

class Broken:
    name = "broken"
    async def stream(self, messages, tools, **_):
        key, hidden = SecretStr("{SECRET}"), "{SECRET}"
        raise RuntimeError("no")
        yield
    async def aclose(self): pass

async def main():
    async with Orchestrator(Broken(), redis_url=sys.argv[1]) as fleet:
        run = await fleet.run("?", context={{"token": "{SECRET}"}})
        assert run.state == "failed", run
asyncio.run(main())
"""

A_COMMAND_THAT_LOGS = f"""
from toolfleet.logs import FactLog, configure_logs
configure_logs("info")
log = FactLog("toolfleet.workers")
def fail(password):
    hidden = password
    raise RuntimeError("no \\x1b[31mred\\x1b]0;title\\x07")
try:
    fail("{SECRET}")
except RuntimeError as error:
    log.warning("tool_raised", call_id="r.1.0", exc_info=error)
    log.info("said\\x1b[2J", text="\\x1b[2J")
"""


A_COMMAND_THAT_TRIES_AGAIN = """
import asyncio

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import configure_logs
from toolfleet.outages import while_it_may_be_away

configure_logs("warning")
tries = []

async def act():
    tries.append(1)
    if len(tries) < 3:
        raise StoreUnreachable("the server is away")

asyncio.run(while_it_may_be_away(act, for_s=10))
"""


@pytest.fixture
def run(redis_server, tmp_path):
    def run(script: str, **options):
        path = tmp_path / "script.py"
        path.write_text(script)
        command = [sys.executable, str(path), redis_server.url]
        environment = {**os.environ, "TOOLFLEET_NAMESPACE": tmp_path.name, "TOOLFLEET_SECRET": "s" * 32}
        return subprocess.run(command, check=True, timeout=60, env=environment, **options)

    return run


def on_a_terminal(run, script: str) -> str:
    outer, inner = pty.openpty()
    run(script, stdout=inner, stderr=inner)
    os.close(inner)
    with os.fdopen(outer, "rb") as shown:
        return shown.read1(100_000).decode()


def test_a_run_that_fails_in_a_users_program_prints_nothing(run):
    ended = run(A_RUN_THAT_FAILS, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_users_own_logging_shows_what_happened_and_no_locals(run):
    mine = "import logging; logging.basicConfig(format='%(name)s %(levelname)s %(message)s')\n"
    ended = run(mine + A_RUN_THAT_FAILS, capture_output=True, text=True)
    assert ended.stdout == ""
    assert "toolfleet.orchestrator ERROR run_failed run_id=" in ended.stderr
    assert "RuntimeError: no" in ended.stderr
    assert SECRET not in ended.stderr.replace(f'SecretStr("{SECRET}"), "{SECRET}"', "")


def test_importing_the_library_leaves_logging_as_it_was():
    script = (
        "import logging; before = logging.root.handlers[:]; import toolfleet.orchestrator.api, toolfleet.workers.app"
    )
    subprocess.run([sys.executable, "-c", f"{script}; assert logging.root.handlers == before"], check=True, timeout=60)


def test_a_traceback_on_a_commands_terminal_has_no_locals_and_no_escapes(run):
    shown = on_a_terminal(run, A_COMMAND_THAT_LOGS)
    assert "tool_raised call_id='r.1.0'" in shown
    assert "RuntimeError: no \\x1b[31mred" in shown
    assert SECRET not in shown.replace(f'fail("{SECRET}")', "")
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_elsewhere_each_fact_is_one_line_of_json(run):
    ended = run(A_COMMAND_THAT_LOGS, capture_output=True, text=True)
    raised, said = map(json.loads, ended.stderr.splitlines())
    assert (raised["event"], raised["level"], raised["call_id"]) == ("tool_raised", "warning", "r.1.0")
    assert "RuntimeError: no" in raised["exception"]
    assert (said["text"], ended.stdout) == ("\x1b[2J", "")
    assert "T" in raised["timestamp"]


def test_what_is_tried_again_is_logged_with_its_cause(run):
    ended = run(A_COMMAND_THAT_TRIES_AGAIN, capture_output=True, text=True)
    [tried] = map(json.loads, ended.stderr.splitlines())
    assert (tried["logger"], tried["level"]) == ("stamina", "warning")
    assert re.fullmatch(r"the server is away: again in [0-9.]+ s", tried["message"])


def test_an_unknown_level_is_refused_with_those_there_are():
    with pytest.raises(InvalidSettings, match="debug, info, warning and error"):
        configure_logs("loud")


def test_only_commands_set_up_logging_or_print():
    rooms = [Path(room) for room in ("toolfleet", "orchestrator", "workers")]
    modules = [path for room in rooms for path in room.rglob("*.py") if not path.is_symlink()]
    calls = [
        f"{path}" for path in modules if "configure_logs(" in path.read_text() or "basicConfig(" in path.read_text()
    ]
    assert sorted(set(calls)) == ["orchestrator/doors/cli/main.py", "toolfleet/logs.py", "workers/command.py"]
    assert logging.getLogger("toolfleet").handlers
