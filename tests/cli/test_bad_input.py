"""Whatever the user gets wrong: one clear line that names it and what to do, a status, and no process left."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from tests.cli.command import Terminal, ended
from toolfleet.exit_status import ExitStatus
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.models.rehearsal import Garbage, RehearsalServer

ARITHMETIC = "toolfleet.workers.packs.arithmetic"
QUESTION = "What is the square root of 475695037565?"

NOBODY = "redis://127.0.0.1:1/0"

MODULES = {
    "toolless": "x = 1\n",
    "broken": "from toolfleet import tool\n\nimport not_there_at_all\n",
    "misspelt": "from toolfleet import tool\n\ndef (:\n",
    "exiting": "import sys\nsys.exit('licence expired')\n",
    "misdeclared": "from toolfleet import tool\n\n\n@tool(readonly=True)\ndef f() -> str:\n    'F.'\n    return ''\n",
    "twice": "from toolfleet import tool\n\n@tool(name='sum')\ndef other(x: int) -> int:\n    'Other.'\n    return x\n",
}


@pytest.fixture
def folder(terminal: Terminal) -> Terminal:
    """A terminal beside modules that cannot be served."""
    for name, text in MODULES.items():
        terminal.write(name, text)
    return terminal


BROKEN_MODULES = {
    "missing": (["nosuchmodule"], ["'nosuchmodule'", "No module named", "looked in"]),
    "syntax_error": (["misspelt"], ["'misspelt'", "SyntaxError", "misspelt.py:3"]),
    "ends_the_program": (["exiting"], ["'exiting'", "licence expired", "exiting.py:2"]),
    "declares_wrongly": (
        ["misdeclared"],
        ["unknown option 'readonly'", "mean 'read_only'", "misdeclared.py:4"],
    ),
    "a_file": (["./toolless.py"], ["name the module, not its file: toolless"]),
    "without_tools": (["toolless"], ["no tools found in module toolless", "@tool"]),
    "two_tools_of_one_name": (["twice", ARITHMETIC], ["'sum'", "twice:other", f"{ARITHMETIC}:sum", "rename one"]),
}


@pytest.mark.parametrize(("modules", "named"), BROKEN_MODULES.values(), ids=BROKEN_MODULES)
def test_a_module_that_cannot_be_served(folder: Terminal, modules: list[str], named: list[str]) -> None:
    complaint = folder.run("worker", *(word for module in modules for word in ("--import", module))).complaint()
    assert complaint.startswith("toolfleet worker: ")
    assert [part for part in named if part not in complaint] == []


@pytest.mark.parametrize("command", [("run", QUESTION), ("up", "--no-flower", "--no-api")], ids=["run", "up"])
def test_a_fleet_says_why_its_workers_did_not_come_up(folder: Terminal, command: tuple[str, ...]) -> None:
    complaint = folder.run(*command, "--tools", "broken").complaint()
    assert complaint.startswith("toolfleet: cannot load tools from 'broken': ModuleNotFoundError")
    assert "not_there_at_all" in complaint
    assert "broken.py:3" in complaint


@pytest.mark.parametrize("command", [("run", QUESTION, "--tools"), ("worker", "--import")], ids=["run", "worker"])
def test_a_pack_says_which_of_its_settings_is_missing(terminal: Terminal, command: tuple[str, ...]) -> None:
    refused = terminal.run(*command, "toolfleet.workers.packs.sql")
    said = "TOOLFLEET_SQL_URL is required, and not set (a setting of toolfleet.workers.packs.sql)"
    assert refused.complaint().partition(": ")[2] == said
    assert refused.code == ExitStatus.CONFIGURATION


@pytest.mark.parametrize("question", ["", " \n"])
def test_a_question_that_is_empty_is_not_asked(terminal: Terminal, question: str) -> None:
    refused = terminal.say("run", question)
    assert refused.code == ExitStatus.USAGE
    assert "the question is empty" in refused.err


def test_no_tool_module(terminal: Terminal) -> None:
    assert "no tool module: name one, for example --import" in terminal.run("worker").complaint()


def test_no_worker_that_could_be_asked(terminal: Terminal) -> None:
    complaint = terminal.run("run", QUESTION).complaint()
    assert "no live worker offers a tool" in complaint
    assert "toolfleet up" in complaint


COMMANDS = {
    "run": ("run", QUESTION),
    "tools": ("tools",),
    "up": ("up", "--no-flower", "--no-api"),
    "worker": ("worker", "--import", ARITHMETIC),
    "flower": ("flower", "--port", "59999"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_redis_that_does_not_answer(terminal: Terminal, command: tuple[str, ...]) -> None:
    complaint = terminal.run(*command, TOOLFLEET_REDIS_URL=NOBODY).complaint()
    assert f"Redis at {NOBODY} does not answer" in complaint
    assert "set TOOLFLEET_REDIS_URL" in complaint


def test_sentinels_that_do_not_answer_are_told_in_a_few_words(terminal: Terminal) -> None:
    complaint = terminal.run("tools", TOOLFLEET_REDIS_URL="sentinel://127.0.0.1:1/shop").complaint()
    assert "Redis at sentinel://127.0.0.1:1/shop does not answer (No master found for 'shop' : " in complaint
    assert "redis.client" not in complaint


@pytest.fixture(scope="module")
def locked_redis() -> Iterator[str]:
    """The address of a server that asks for a password, without it."""
    with EmbeddedServer(temporary=True, port=0) as server:
        with redis.Redis.from_url(server.url) as client:
            client.config_set("requirepass", "open sesame")
        yield server.url.removeprefix("redis://")


@pytest.mark.parametrize("credentials", ["", ":wrong-password@"], ids=["none", "wrong"])
def test_a_password_that_redis_refuses(terminal: Terminal, locked_redis: str, credentials: str) -> None:
    complaint = terminal.run("tools", TOOLFLEET_REDIS_URL=f"redis://{credentials}{locked_redis}").complaint()
    assert f"Redis at redis://{locked_redis} refused us" in complaint
    assert "check user and password in TOOLFLEET_REDIS_URL" in complaint
    assert "wrong-password" not in complaint


BAD_URLS = {
    "unknown_scheme": ("TOOLFLEET_REDIS_URL", "http://localhost", ["redis_url", "http://", "redis://, rediss://"]),
    "not_a_port": ("TOOLFLEET_REDIS_URL", "redis://localhost:port/0", ["TOOLFLEET_REDIS_URL", "'port'"]),
    "no_number": ("TOOLFLEET_REDIS_URL", "redis://localhost/shop", ["redis_url", "'shop'", "such as /0"]),
    "unknown_broker": ("TOOLFLEET_BROKER_URL", "foo://x", ["broker_url", "foo://", "streams://", "amqp://"]),
    "no_broker": ("TOOLFLEET_BROKER_URL", "amqp://127.0.0.1:1//", ["amqp://127.0.0.1:1", "TOOLFLEET_BROKER_URL"]),
}


@pytest.mark.parametrize(("variable", "url", "named"), BAD_URLS.values(), ids=BAD_URLS)
def test_a_url_that_no_worker_can_use(terminal: Terminal, variable: str, url: str, named: list[str]) -> None:
    complaint = terminal.run("worker", "--import", ARITHMETIC, **{variable: url}).complaint()
    assert [part for part in named if part not in complaint] == []


BAD_SETTINGS = {
    "too_small": ("TOOLFLEET_LEASE_S", "1", "lease_s (1) must exceed three heartbeats"),
    "not_a_number": ("TOOLFLEET_LEASE_S", "long", "TOOLFLEET_LEASE_S: "),
    "secret": ("TOOLFLEET_SECRET", "short", "at least 16 bytes"),
}


@pytest.mark.parametrize(("variable", "value", "named"), BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_a_setting_that_cannot_be(terminal: Terminal, variable: str, value: str, named: str) -> None:
    assert named in terminal.run("run", QUESTION, "--tools", ARITHMETIC, **{variable: value}).complaint()


BAD_OPTIONS = {
    "kind": (("--kind", "quantum"), ["--kind", "'quantum'", "'asyncio', 'prefork', 'threads', 'solo'"]),
    "log_level": (("--log-level", "loud"), ["--log-level", "'loud'", "'debug', 'info', 'warning'"]),
    "concurrency": (("--concurrency", "0"), ["--concurrency", "greater than or equal to"]),
    "queues": (("--queues", ","), ["--queues", "names no queue"]),
}


@pytest.mark.parametrize(("options", "named"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_an_option_that_a_worker_does_not_know(terminal: Terminal, options: tuple[str, ...], named: list[str]) -> None:
    refused = terminal.run("worker", "--import", ARITHMETIC, *options)
    assert refused.code == ExitStatus.USAGE
    assert [part for part in named if part not in refused.err] == []


@pytest.mark.parametrize(
    ("command", "remedy"),
    [(("up", "--flower-port"), "--flower-port"), (("flower", "--port"), "--port")],
    ids=["up", "flower"],
)
def test_a_port_in_use(terminal: Terminal, command: tuple[str, ...], remedy: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        complaint = terminal.run(*command, port).complaint()
    assert f"127.0.0.1:{port}" in complaint
    assert f"choose another {remedy}" in complaint


def test_a_login_without_a_password(terminal: Terminal) -> None:
    assert (
        "TOOLFLEET_FLOWER_AUTH must be user:password"
        in terminal.run("flower", "--port", "59999", TOOLFLEET_FLOWER_AUTH="admin").complaint()
    )


# --- with live workers ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal in which a fleet can be reached."""
    with LocalFleet([ARITHMETIC], pools={"io": 1}) as running:
        yield Terminal(tmp_path_factory.mktemp("fleet"), running.settings.as_environment())


def test_a_tool_that_nobody_serves(fleet: Terminal) -> None:
    complaint = fleet.run("run", QUESTION, "--offer", "square_root", "--offer", "cube_root").complaint()
    assert "no live worker serves cube_root; the fleet offers square_root, sum" in complaint


async def test_a_key_that_the_model_refuses(fleet: Terminal) -> None:
    async with RehearsalServer(api_key="the right key") as model:
        complaint = await asyncio.to_thread(complaint_with, fleet, model.base_url)
    assert f"{model.base_url} answered 401 Unauthorized" in complaint
    assert "set OPENAI_API_KEY" in complaint
    assert "the-wrong-key" not in complaint


async def test_a_model_that_answers_nonsense(fleet: Terminal) -> None:
    async with RehearsalServer(faults=[Garbage()]) as model:
        complaint = await asyncio.to_thread(complaint_with, fleet, model.base_url)
    assert f"{model.base_url} answered text/html, not a model's reply (is base_url right?)" in complaint


def test_a_model_that_cannot_be_reached(fleet: Terminal) -> None:
    assert "http://127.0.0.1:1/v1 cannot be reached" in complaint_with(fleet, "http://127.0.0.1:1/v1")


def test_a_run_that_fails_is_still_one_json_document(fleet: Terminal) -> None:
    variables = {"OPENAI_BASE_URL": "not-a-url", "OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}
    failed = fleet.run("run", "call sum {}", "--json", **variables)
    assert json.loads(failed.out)["state"] == "failed"
    assert "correct base_url" in failed.complaint()


def complaint_with(fleet: Terminal, base_url: str) -> str:
    variables = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "the-wrong-key", "OPENAI_MODEL": "rehearsal"}
    return fleet.run("run", QUESTION, **variables).complaint()


# --- help -----------------------------------------------------------------------------------------------------------


def test_every_commands_help_shows_an_example(terminal: Terminal) -> None:
    with ExitStack() as stack:
        asked = {name: stack.enter_context(terminal.start(name, "--help")) for name in ("demo", *COMMANDS)}
        helped = {name: ended(process) for name, process in asked.items()}
    for name, shown in helped.items():
        assert shown.code == 0
        assert f"Example: toolfleet {name}" in shown.out
    assert "--concurrency" in helped["worker"].out  # from the half that the command must not import


@pytest.mark.parametrize("command", ["run", "batch", "demo", "up", "orchestrator", "serve"])
def test_a_model_that_cannot_be_asked_is_said_before_anything_is_started(terminal: Terminal, command: str) -> None:
    (terminal.folder / "in.jsonl").write_text('{"question": "x"}\n')
    words = {"run": ("anything", "--tools", "toolfleet.workers.packs.arithmetic"), "batch": ("in.jsonl", "out.jsonl")}
    complaint = terminal.run(command, *words.get(command, ()), "--model", "gpt-x").complaint()
    assert "the model gpt-x needs OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own" in complaint
