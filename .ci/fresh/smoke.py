"""The commands as a user's first day has them: a module of tools, a fleet, a question, and Ctrl-C."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from account import Account
from install import ANEW, COMPILED, Wheel, image_installed
from pythons import Python
from shell import Shell

TOOLS = '''
from toolfleet import Context, tool


@tool(read_only=True)
async def word_count(text: str, ctx: Context) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(read_only=True)
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()
'''

QUESTION = 'call word_count {"text": "one two three"} and call shout {"text": "loud"}'
ANSWERS = re.compile(r"\b3\b.*\bLOUD\b", re.DOTALL)

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "fresh-machine", "version": "1"},
    },
}

OF_A_LAPTOP = "local,flower"

ANNOUNCED_WITHIN_S = 60


class Smoke:
    """Checks by name; each is a command or a few that belong together."""

    def __init__(self, wheel: Wheel, python: Python, account: Account, folder: Path) -> None:
        self._wheel = wheel
        self.python = python
        self.account = account
        self._folder = folder
        self._bare = folder / "venv-bare"

    def the_least(self) -> dict[str, Callable[[], object]]:
        """What most depends on the version of Python."""
        return {"install": self.install, "demo": self.demo, "up": self.up, "run --tools": self.run}

    def everything(self) -> dict[str, Callable[[], object]]:
        """All commands that serve, and those that ask."""
        return {
            **self.the_least(),
            "install": self.install_by_pip,
            "read-only home": self.read_only_home,
            "worker, orchestrator, flower, tools, batch": self.by_hand,
            "serve": self.serve,
            "bare": self.bare,
            "mcp": self.mcp,
        }

    def install(self) -> None:
        """The wheel with the extras of a laptop: a server of its own, and Celery's monitor."""
        self._wheel.installed_by_uv(self._folder / "venv", self.python, self.account, OF_A_LAPTOP, more=COMPILED)

    def install_by_pip(self) -> None:
        """The same by what everybody has."""
        self._wheel.installed(self._folder / "venv", self.python, self.account, OF_A_LAPTOP)

    def bare_environment(self) -> Path:
        """Install the wheel and nothing else, for `bare` and for what begins as a copy of it."""
        return self._wheel.installed_by_uv(self._bare, self.python, self.account, more=COMPILED).parent

    def bare(self) -> None:
        """The wheel and nothing else: commands that need a server or the monitor name the extra; the others work."""
        with self._shell("bare") as shell:
            shell.says("toolfleet[local]", "demo", status=78)
            shell.says("toolfleet[local]", "up", status=78)
            shell.says("toolfleet[flower]", "flower", status=78)
        with self._a_fleet(), self._shell("bare") as shell:
            self._joins(shell)

    def image(self, checkout: Path) -> None:
        """What the image has works beside a server of another machine, in a fleet that runs."""
        binaries = image_installed(checkout, self._folder / "image", self.python, self.account)
        with self._a_fleet(), Shell(binaries, self.account, self._folder) as shell:
            self._joins(shell)

    @contextmanager
    def _a_fleet(self) -> Iterator[None]:
        with self._shell() as laptop, laptop.running("Ready.", "up", "--tools", "my_tools", "--no-flower"):
            yield

    def _joins(self, shell: Shell) -> None:
        (shell.folder / "other_tools.py").write_text(TOOLS.replace("word_count", "count_words").replace("shout", "cry"))
        with (
            shell.running("Ready.", "orchestrator", status=0),
            shell.running("", "worker", "--pool", "io", "--import", "other_tools", status=0),
        ):
            _until_announced(shell, "count_words", "word_count")
            _has_answers(shell.says("", "run", QUESTION.replace("word_count", "count_words")))

    def demo(self) -> None:
        """About two hundred calls, from nothing to the answer."""
        with self._shell() as shell:
            shell.says("Of the", "demo")

    def up(self) -> None:
        """A fleet until Ctrl-C, and a question from another terminal."""
        with (
            self._shell() as shell,
            shell.running("Ready.", "up", "--tools", "my_tools", *_flower_port("--flower-port")),
        ):
            shell.says("word_count", "tools")
            _has_answers(shell.says("", "run", QUESTION))

    def run(self) -> None:
        """A fleet for one question."""
        with self._shell() as shell:
            _has_answers(shell.says("", "run", QUESTION, "--tools", "my_tools"))

    def read_only_home(self) -> None:
        """A home that cannot be written: what needs none works, all else says what to set."""
        if self.account.uid is None:
            return  # said already: this user's home can be written
        with self._shell() as shell:
            _has_answers(shell.says("", "run", QUESTION, "--tools", "my_tools", home_only=True))
            for remedy in ("XDG_DATA_HOME", "TOOLFLEET_REDIS_URL"):
                shell.says(remedy, "tools", status=1, home_only=True)

    def by_hand(self) -> None:
        """Each part of a fleet as a command of its own, and many questions from a file."""
        with self._shell() as shell:
            (shell.folder / "in.jsonl").write_text(json.dumps({"id": "a", "question": QUESTION}) + "\n")
            with (
                shell.running("Flower:", "flower", *_flower_port("--port")),
                shell.running("Ready.", "orchestrator", status=0),
                shell.running("", "worker", "--pool", "io", "--import", "my_tools", status=0),
                shell.running("", "worker", "--pool", "cpu", "--import", "my_tools", status=0),
            ):
                _until_announced(shell, "word_count", "shout")
                run_id = shell.says("", "run", QUESTION, "--detach").split()[-1]
                _has_answers(shell.says("", "runs", "show", run_id, "--wait"))
                shell.says("", "batch", "in.jsonl", "out.jsonl")
            _has_answers((shell.folder / "out.jsonl").read_text())

    def serve(self) -> None:
        """Without its extra it says which one it needs; with it, it answers."""
        with self._shell() as shell:
            shell.says("toolfleet[serve]", "serve", status=78)
        with self._shell("serve") as shell, shell.running("Ready.", "serve", "--port", "0", status=0) as said:
            [url] = re.findall(r"^API: +(http://\S+)", said, re.MULTILINE)
            with urllib.request.urlopen(f"{url}/openapi.json", timeout=30) as answer:
                assert json.load(answer)["openapi"].startswith("3.1"), "no OpenAPI document"

    def mcp(self) -> None:
        """Without its extra it says which one it needs; with it, it answers a host."""
        with self._shell() as shell:
            shell.says("toolfleet[mcp]", "mcp", status=78)
        with self._shell("mcp") as shell:
            said = shell.says('"serverInfo"', "mcp", "--tools", "my_tools", said=json.dumps(INITIALIZE) + "\n")
            [answer] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
            assert answer["result"]["serverInfo"]["name"], answer

    def _shell(self, extra: str = "") -> Shell:
        venv = self._folder / (f"venv-{extra}" if extra else "venv")
        if extra and not venv.exists():
            self._wheel.with_extras(self._bare, venv, self.account, f"local,{extra}", more=(*ANEW, *COMPILED))
        shell = Shell(venv / "bin", self.account, self._folder)
        (shell.folder / "my_tools.py").write_text(TOOLS)
        return shell


def _flower_port(option: str) -> tuple[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return option, str(probe.getsockname()[1])


def _has_answers(said: str) -> None:
    assert ANSWERS.search(said), f"the tools' results, 3 and LOUD, are missing:\n{said}"


def _until_announced(shell: Shell, *tools: str) -> None:
    give_up = time.monotonic() + ANNOUNCED_WITHIN_S
    while not all(tool in (said := shell.says("", "tools")) for tool in tools):
        assert time.monotonic() < give_up, f"not announced in time: {tools}\n{said}"
