"""The protocol's own conformance suite, and the official TypeScript client, against the real command and workers."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.docs.pages import ROOT
from tests.mcp.conftest import HERE
from tests.mcp.node import output_of, started, with_packages
from tests.mcp.suite import Suite
from toolfleet.local.fleet import LocalFleet

pytestmark = pytest.mark.timeout(400)  # a whole suite, beside other tests

EVERYTHING = ("--suite", "all")
BEFORE = (*EVERYTHING, "--spec-version", "2025-11-25")


@pytest.fixture(scope="module")
def fleet_of_suite():
    with LocalFleet(["conformance_tools"], pools={"io": 1, "long": 1}, environment=HERE) as running:
        yield running


@contextmanager
def serving(fleet, **settings):
    """`toolfleet mcp --http` on a port of its own; its address."""
    env = {**os.environ, **HERE, **fleet.settings.as_environment(), **settings}
    command = [sys.executable, "-m", "toolfleet.orchestrator.doors.cli", "mcp", "--http", "--port", "0"]
    server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield re.fullmatch(r"MCP:  (\S+)\n", server.stdout.readline())[1]
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)


@pytest.fixture(scope="module")
def address(fleet_of_suite):
    with serving(fleet_of_suite, TOOLFLEET_MCP_BESIDE="conformance_beside:server") as where:
        yield where


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return with_packages(tmp_path_factory.mktemp("npm"))


def on_the_page():
    """The scenarios that docs/mcp.md gives a reason for, some of them as patterns that end with a star."""
    section = (ROOT / "docs/mcp.md").read_text().partition("## The protocol's own tests")[2]
    return [
        name for row in re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE) for name in re.findall("`(.+?)`", row)
    ]


def test_all_scenarios_pass_but_those_that_the_page_gives_a_reason_for(installed, address, tmp_path):
    suite = Suite(installed)
    complaints = suite.complaints(address, [EVERYTHING, BEFORE], tmp_path)
    of_servers = set(suite.scenarios("server"))
    assert complaints.keys() == of_servers
    excused = set(on_the_page()) & of_servers
    assert {name: said for name, said in complaints.items() if said and name not in excused} == {}
    assert {name for name in excused if not complaints[name]} == set(), "they pass: take them off the page"


def test_the_page_names_every_scenario_that_is_not_for_this_server(installed):
    suite = Suite(installed)
    named = on_the_page()
    others = {*suite.scenarios("client"), *suite.scenarios("authorization")}
    assert {name for name in others if not any(covers(row, name) for row in named)} == set()
    known = {*others, *suite.scenarios("server")}
    assert [row for row in named if not any(covers(row, name) for name in known)] == []


def covers(row, name):
    return name.startswith(row.removesuffix("*")) if row.endswith("*") else row == name


def test_a_server_that_lets_nobody_wait_refuses_long_tools_as_the_suite_wants_it(installed, fleet_of_suite, tmp_path):
    with serving(fleet_of_suite, TOOLFLEET_MCP_WAIT_S="0") as impatient:
        refusing = ("--scenario", "tasks-required-task-error")
        assert Suite(installed).complaints(impatient, [refusing], tmp_path) == {"tasks-required-task-error": []}


def test_the_official_typescript_client_lists_calls_fails_sees_and_waits(installed, address):
    script = installed / "client.mjs"
    said = json.loads(output_of(started(installed, script, MCP_URL=address), within_s=60))
    assert {"greet", "slow_compute", "task_result"} <= set(said.pop("tools"))
    assert "toolfleet://runs/{run_id}" in said.pop("resources")
    progress = said.pop("progress")
    assert progress == sorted(progress) != []
    assert said == {
        "greeting": "Hello, Ann!",
        "failed": [True, "This tool intentionally returns an error for testing"],
        "image": ["image/png", True],
        "slow": "done",
        "long": "it computed",
    }
