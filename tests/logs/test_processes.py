"""What worker, orchestrator and `serve` write where no terminal reads: one JSON object per line, with its ids."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path

import pytest

from toolfleet import Orchestrator
from toolfleet.broker import celery_app
from toolfleet.calls import ToolCall
from toolfleet.connections import connect_async
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.envelopes import task_message
from toolfleet.orchestrator.fleet.publishers import publisher_for
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.wire import Seal

TOOLFLEET = str(Path(sys.executable).with_name("toolfleet"))
HERE = Path(__file__).parent
SECRET = "correct-horse-battery-staple-0123456789"
API_KEY = "sk-never-to-be-seen"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
WITHIN_S = 60
CALLS = {"chatter": {"text": SECRET}, "stumble": {"password": "hunter-two-of-a-user"}, "heavy": {"text": API_KEY}}


@contextmanager
def running(folder, name, *words, **variables):
    """A service of `toolfleet` whose standard error is a file; ends it in order."""
    with (folder / f"{name}.err").open("w") as err:
        process = subprocess.Popen(
            [TOOLFLEET, *words], env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, text=True
        )
    with process:
        try:
            assert any(line.startswith("Ready") for line in process.stdout), (folder / f"{name}.err").read_text()
            yield process
            process.send_signal(signal.SIGUSR2)
            give_up = time.monotonic() + WITHIN_S
            while "KeyError" not in (folder / f"{name}.err").read_text():
                assert time.monotonic() < give_up, (folder / f"{name}.err").read_text()
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What each process wrote while calls ran, one of which was traced."""
    folder = tmp_path_factory.mktemp("logs")
    with EmbeddedServer(temporary=True) as server, ExitStack() as stack:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFLEET_", "OPENAI_"))}
        here = ours | {
            "TOOLFLEET_REDIS_URL": server.url,
            "TOOLFLEET_SECRET": SECRET,
            "TOOLFLEET_PREVIOUS_SECRET": SECRET[::-1],
            "ANTHROPIC_API_KEY": API_KEY,
            "PYTHONPATH": f"{HERE}:{HERE / 'in_every_process'}",
            "XDG_DATA_HOME": str(folder),
        }
        serving = ("--import", "noisy_tools", "--log-level", "info")
        stack.enter_context(running(folder, "io", "worker", "--pool", "io", *serving, **here))
        stack.enter_context(running(folder, "cpu", "worker", "--pool", "cpu", *serving, **here))
        stack.enter_context(running(folder, "orchestrator", "orchestrator", **here))
        stack.enter_context(running(folder, "serve", "serve", "--port", "0", "--no-model", **here))
        settings = Settings(redis_url=server.url, secret=SECRET)
        asyncio.run(call_all(settings))
    return {path.stem: path.read_text() for path in folder.glob("*.err")}


async def call_all(settings):
    """Each tool in a call that has a place in a trace, signed as the fleet does; until they ended."""
    async with aclosing(connect_async(settings)) as client:
        catalog, seal = Catalog(client, settings), Seal(settings)
        offered = await catalog.offered()
        calls = [
            ToolCall(
                call_id=f"run.1.{at}",
                run_id="run",
                tool=tool,
                arguments=json.dumps(arguments),
                deadline_unix_s=time.time() + WITHIN_S,
                reply_to="nobody",
                traceparent=f"00-{TRACE}-00f067aa0ba902b7-01",
            )
            for at, (tool, arguments) in enumerate(CALLS.items())
        ]
        messages = [task_message(each, offered[each.tool], Priority.NORMAL, seal, "") for each in calls]
        await publisher_for(settings, client, celery_app(settings)).publish(messages)
        async with asyncio.timeout(WITHIN_S):
            while not all(await client.mget([settings.keys.result(each.call_id) for each in calls])):
                await asyncio.sleep(0.05)
        async with Orchestrator(settings=settings) as fleet:  # and one that nobody traces
            assert (await fleet.call("chatter", {"text": "untraced"})).content == "UNTRACED"


def lines(written, name):
    return [json.loads(line) for line in written[name].splitlines()]


@pytest.mark.parametrize("name", ["io", "cpu", "orchestrator", "serve"])
def test_T14_where_no_terminal_reads_each_line_is_one_json_object(written, name):
    for line in lines(written, name):
        assert {"timestamp", "level", "logger", "run_id", "call_id", "trace_id"} <= line.keys()
        assert ("event" in line) != ("message" in line)
    said = {line["logger"]: line for line in lines(written, name)}
    assert said["some.library"]["message"] == "my key is ***"
    assert said["toolfleet"]["message"] == "uncaught"


def test_T14_each_line_about_a_call_has_its_run_its_id_and_its_trace(written):
    told = [*lines(written, "io"), *lines(written, "cpu")]
    for at, tool in enumerate(CALLS):
        about = [line for line in told if line["call_id"] == f"run.1.{at}"]
        assert {(line["run_id"], line["trace_id"]) for line in about} == {("run", TRACE)}, tool
    loggers = {line["logger"] for line in told if line["call_id"] == "run.1.2"}
    assert {"my.tools", "celery.redirected"} <= loggers  # its own, and what it prints
    raised = next(line for line in told if line.get("event") == "tool_raised")
    assert (raised["call_id"], raised["trace_id"]) == ("run.1.1", TRACE)
    untraced = [line for line in told if line["run_id"] not in {None, "run"}]
    assert untraced
    assert {line["trace_id"] for line in untraced} == {None}
    mentioning = [line for line in told if "run.1." in json.dumps(line)]
    assert all(line["call_id"] for line in mentioning)


def test_T14_no_locals_and_no_secrets_stand_in_any_line(written):
    for name, text in written.items():
        for secret in (SECRET, SECRET[::-1], API_KEY, "hunter-two-of-a-user"):
            assert secret not in text, name
    assert "logged ***\\nin two lines" in written["io"]


def test_T14_whatever_way_a_tool_says_things_it_breaks_no_line(written):
    said = {line.get("message") for line in lines(written, "io")}
    assert {"printed", "written", "%d of them (its arguments do not fit: TypeError)", "escapes \x1b[2J"} <= said
    assert any("warned" in (text or "") for text in said)
    ends = [line["exception"].splitlines()[-1] for line in lines(written, "io") if line.get("message") == "uncaught"]
    assert ends[0] == "ZeroDivisionError: division by zero"


HOLDING = """
import threading
import time
from toolfleet import tool

@tool(read_only=True)
async def nothing() -> None:
    "Do nothing."

def hold(password):
    time.sleep(3600)

threading.Thread(target=hold, args=("hunter-two-of-a-user",), daemon=True).start()
"""


def test_T14_the_stacks_that_a_signal_asks_a_worker_for_have_no_values(tmp_path):
    (tmp_path / "holding.py").write_text(HOLDING)
    told = tmp_path / "worker.err"
    words = [TOOLFLEET, "worker", "--pool", "io", "--import", "holding"]
    with EmbeddedServer(temporary=True) as server, told.open("w") as err:
        here = os.environ | {"TOOLFLEET_REDIS_URL": server.url, "PYTHONPATH": str(tmp_path)}
        process = subprocess.Popen(words, env=here, stdout=subprocess.PIPE, stderr=err, text=True)
        with process:
            try:
                assert any(line.startswith("Ready") for line in process.stdout), told.read_text()
                process.send_signal(signal.SIGUSR1)
                give_up = time.monotonic() + WITHIN_S
                while "in hold" not in told.read_text():
                    assert time.monotonic() < give_up, told.read_text()
                    time.sleep(0.02)
                assert process.poll() is None
            finally:
                process.terminate()
    assert process.returncode == 0
    assert "hunter-two-of-a-user" not in told.read_text()
