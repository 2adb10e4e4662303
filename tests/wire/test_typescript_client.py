"""The client in twenty lines of TypeScript, on Node, against a real worker."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fleets import fleet_of

from tests.clients.environments import NODE, wire_packages

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "typescript_client" / "call.ts"
ENDS_WITHIN_S = 60


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


@pytest.fixture
def call(fleet, tmp_path):
    """Run the program with a tool and its arguments; what it prints."""
    (tmp_path / "node_modules").symlink_to(wire_packages())
    (tmp_path / "call.ts").write_text(PROGRAM.read_text())

    def run(tool, arguments):
        server, secret = urlsplit(fleet.settings.redis_url).path, fleet.settings.secret.get_secret_value()
        command = [str(NODE), "--disable-warning=ExperimentalWarning", "call.ts", tool, arguments]
        environment = {**os.environ, "TOOLFLEET_REDIS_URL": server, "TOOLFLEET_SECRET": secret}
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


def test_X7_twenty_lines_of_typescript_send_a_call_and_get_its_result(call):
    said = call("echo", json.dumps({"value": "ahoj 🦄"}))
    assert "type: 'returned'" in said
    assert "content: 'ahoj 🦄'" in said
    assert "kind: 'bad_arguments'" in call("echo", "{}")


def test_X7_the_program_is_as_short_as_is_said_and_stands_on_the_page_word_for_word():
    written = PROGRAM.read_text()
    body = written.partition("export async function call")[2].partition("\n}\n")[0]
    assert len(body.splitlines()) < 20
    assert written in (ROOT / "docs" / "wire.md").read_text()
