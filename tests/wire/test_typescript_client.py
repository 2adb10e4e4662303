"""The client in twenty lines of TypeScript, on Node, against a real worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fleets import fleet_of
from stages import stage_of_its_own

from tests.clients.environments import NODE, wire_packages

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "typescript_client" / "call.ts"
ENDS_WITHIN_S = 60


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1, "cpu": 1}) as running:
        yield running


@pytest.fixture
async def stage():
    async with stage_of_its_own() as its_own:
        yield its_own


@pytest.fixture
def begun(fleet, tmp_path):
    """Begin the program with a tool, its arguments and perhaps its queue."""
    (tmp_path / "node_modules").symlink_to(wire_packages())
    (tmp_path / "call.ts").write_text(PROGRAM.read_text())
    processes = []

    def begin(*words):
        server, secret = urlsplit(fleet.settings.redis_url).path, fleet.settings.secret.get_secret_value()
        command = [str(NODE), "--disable-warning=ExperimentalWarning", "call.ts", *words]
        environment = {**os.environ, "TOOLFLEET_REDIS_URL": server, "TOOLFLEET_SECRET": secret}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def call(begun):
    """Run the program with a tool and its arguments; what it prints."""

    def run(tool, arguments):
        process = begun(tool, arguments)
        out, err = process.communicate(timeout=ENDS_WITHIN_S)
        assert process.returncode == 0, err
        return out

    return run


def test_X7_twenty_lines_of_typescript_send_a_call_and_get_its_result(call):
    said = call("echo", json.dumps({"value": "ahoj 🦄"}))
    assert "type: 'returned'" in said
    assert "content: 'ahoj 🦄'" in said
    assert "kind: 'bad_arguments'" in call("echo", "{}")


@pytest.mark.parametrize(("tool", "queue"), [("play", "io"), ("play_in_process", "cpu")])
async def test_X7_the_same_program_cancels_a_call_that_runs_in_python(begun, stage, tool, queue):
    process = begun(tool, json.dumps({"stage": stage.path}), queue)
    await stage.enters()
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate, timeout=ENDS_WITHIN_S)
    assert process.returncode == 0, err
    assert "kind: 'cancelled'" in out


def test_X7_the_program_is_as_short_as_is_said_and_stands_on_the_page_word_for_word():
    written = PROGRAM.read_text()
    body = written.partition("export async function call")[2].partition("\n}\n")[0]
    assert len(body.splitlines()) < 20
    assert written in (ROOT / "docs" / "wire.md").read_text()
