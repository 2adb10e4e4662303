"""Pages of documentation, and a reader who does what they say: in a folder, a home and an environment of their own.

A page's fenced blocks are what is done, in the order of the page:

- one that begins with `# name.py` is a piece of that file; all pieces are there before anything is run;
- any other `python` block is a script, saved and run by `python`, and ends without a word on standard error;
- `console` blocks hold commands behind `$ `, and below a command what it prints (`…` stands for anything); those that
  stay (`toolfleet up`) run to the end of the page, and so long lasts what is exported;
- `bash` and `sh` blocks are run as a whole; a `text` or `json` block right below one, or below a script, is what it
  prints; any other `json` block must be JSON.

The reader has nothing but PATH and HOME. What differs from a user's terminal is the ports (see `Reader.placed`), what
`toolfleet up` starts for others (`Page.uses`), and that commands, and scripts after the first, are forks of a process
that has loaded what they import (`tests.cli.loaded`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import psutil

from tests.cli.loaded import LOADED, LoadedCommand
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

ENDS_WITHIN_S = 100
READY_WITHIN_S = 90
GONE_WITHIN_S = 60

STAYS = re.compile(
    r"\b(toolfleet up|toolfleet serve|toolfleet orchestrator|toolfleet mcp --http|toolfleet worker --over|uvicorn)\b"
)
"""Commands that run until Ctrl-C."""

NEEDS_A_SHELL = re.compile(r"[$`|&;<>~\\\n]")
"""What a shell does more with than to find the words of a line."""

READY = ("Ready.", "Ready: worker", "Application startup complete.")
"""What they say when they can be used."""

PLAIN_PYTEST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""What a user who follows a page has installed has no plugins; those of our tests take two seconds to import."""

LOG_LINE = re.compile(r"^\S+ \S+ (DEBUG|INFO|WARNING|ERROR) toolfleet", re.MULTILINE)
"""As a command writes one for a person."""

PORT_OPTIONS = {
    "toolfleet up": {5555: "--flower-port", 8642: "--api-port"},
    "toolfleet serve": {8000: "--port"},
    "toolfleet mcp --http": {8765: "--port"},
}
"""Where a command listens unless it is told otherwise, and how it is told."""


LEFT_OUT = {
    "flower": "--no-flower",
    "api": "--no-api",
    "orchestrators": "--orchestrators 0",
    "cpu": "--cpu 0",
    "long": "--long 0",
}
"""How `toolfleet up` leaves out each of its parts, most of which take a second to start. No page does; one has all."""


@dataclass(frozen=True)
class Block:
    """One fenced block: the line of its fence, the heading above it, and the block right above it if that is close."""

    line: int
    language: str
    text: str
    heading: str
    below: Block | None = None

    @property
    def saved_as(self) -> str | None:
        """The file that it is a piece of."""
        name = re.match(r"# ([\w./-]+\.\w+)\n", self.text)
        return name[1] if name else None

    @property
    def is_output(self) -> bool:
        """Whether it shows what the block above it prints."""
        return self.language in {"text", "json"} and self.below is not None and not self.below.saved_as

    @property
    def typed(self) -> list[str]:
        """The commands of a console block."""
        return [command for command, _ in self.commands] if self.language == "console" else []

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Each command of a console block, and the lines that it prints as the page has it."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and found[-1][0].endswith("\\"):
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            else:
                found[-1][1].append(line)
        return found


@dataclass(frozen=True)
class Page:
    """A page, and what of it cannot be done here: how a block or a command begins, and why.

    `files` are what its reader has in the folder already (they have the repository). A word in `stand_ins` stands for
    something that differs each time: what the expression finds last in what commands have printed. `uses` are
    the parts of `toolfleet up` that some step comes near, beside its workers for async tools; it leaves out the others.
    """

    path: str
    unrun: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    uses: Collection[str] = ()

    @cached_property
    def blocks(self) -> list[Block]:
        """All of them, in the order of the page."""
        return list(_blocks((ROOT / self.path).read_text()))

    @property
    def steps(self) -> list[Block]:
        """The blocks that a reader does, one after the other; pieces of files, outputs and pictures belong to none."""
        return [
            block for block in self.blocks if not (block.saved_as or block.is_output or block.language == "mermaid")
        ]

    def why_not(self, text: str) -> str | None:
        """Why this block or command is not done here."""
        return next((reason for start, reason in self.unrun.items() if text.startswith(start)), None)


class Reader:
    """Somebody who does what one page says."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page = page
        self._has_run_a_script = False
        self.folder = folder / "work"
        self.home = folder / "home"
        self.folder.mkdir()
        self.home.mkdir()
        self._ports: dict[int, int] = {}
        self._staying: list[tuple[subprocess.Popen[bytes] | LoadedCommand, Path]] = []
        self._done: set[int] = set()
        self._said = ""
        self._exported: dict[str, str] = {}
        for name in page.files:
            shutil.copy(ROOT / name, self.folder / name)
        for block in page.blocks:
            if block.saved_as:
                self._save(block)

    @property
    def environment(self) -> dict[str, str]:
        """All of it."""
        return {"HOME": str(self.home), "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin", **self._exported}

    def does(self, step: Block) -> None:
        """Do one step, after the commands above it that are not done yet."""
        for _, earlier in cases([self.page]):
            if earlier.line < step.line and earlier.language == "console" and earlier.line not in self._done:
                self.does(earlier)
        self._done.add(step.line)
        match step.language:
            case "console":
                for command, shown in step.commands:
                    if not self.page.why_not(command):
                        self._type(command, shown)
            case "bash" | "sh":
                _must_match(self._run(["sh", "-euc", self.placed(step.text)]), self._shown_below(step))
            case "python":
                script = self.folder / f"line_{step.line}.py"
                script.write_text(self.placed(step.text))
                _must_match(self._run_script(script), self._shown_below(step))
            case "json":
                json.loads(step.text)
            case language:
                raise AssertionError(f"{self.page.path}:{step.line}: nobody knows how to do {language}")

    def placed(self, text: str) -> str:
        """The text with the ports of this reader, who is not alone on the machine, and with what stands in for ids."""
        for port in (8000, 8765):
            text = re.sub(rf"(?<=[:=\s]){port}\b", str(self._port(port)), text)
        for word, expression in self.page.stand_ins.items():
            if re.search(rf"\b{word}\b", text):
                text = re.sub(rf"\b{word}\b", re.findall(expression, self._said, re.MULTILINE)[-1], text)
        return text

    def leaves(self) -> None:
        """Press Ctrl-C in every terminal, the last first; nothing that was started may be left."""
        codes = []
        for process, _ in reversed(self._staying):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            try:
                codes.append(process.wait(GONE_WITHIN_S))
            except (subprocess.TimeoutExpired, TimeoutError):
                os.killpg(process.pid, signal.SIGKILL)
                codes.append(process.wait())
        give_up = time.monotonic() + GONE_WITHIN_S
        while left := [process for process in psutil.process_iter() if self._started(process)]:
            assert time.monotonic() < give_up, [process.cmdline() for process in left if process.is_running()]
            time.sleep(0.05)
        assert set(codes) <= {0, 130}, [log.read_text() for _, log in self._staying]

    def _save(self, block: Block) -> None:
        path = self.folder / str(block.saved_as)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(self.placed(block.text))

    def _type(self, command: str, shown: list[str]) -> None:
        if command.startswith("pip install"):
            _must_be_extras(command)
        elif asked := re.fullmatch(r"export (\w+)=(\$\(.+\))", command):
            self._exported[asked[1]] = self._run(["sh", "-c", f'printf %s "{self.placed(asked[2])}"'])
        elif command.startswith("export "):
            self._exported |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
        elif stays := STAYS.search(command):
            assert not shown
            self._start(self.placed(command.partition(" #")[0]) + self._options(stays[1], command))
        else:
            command = self.placed(command)
            words = _words_of(command)
            said = self._run_forked(words) if words else self._run(["sh", "-c", command])
            _must_match(said, "\n".join(shown))

    def _run_forked(self, words: list[str]) -> str:
        # Most of what another command takes is to import once more what others have, for each of seventy.
        return self._heard(LOADED.run(words, self.folder, self.environment, within_s=ENDS_WITHIN_S))

    def _run_script(self, script: Path) -> str:
        if self._has_run_a_script:
            # Most of what another one takes is to import once more what the first one has, a second for each of eighty.
            ended = LOADED.run([script.name], self.folder, self.environment, within_s=ENDS_WITHIN_S)
        else:
            self._has_run_a_script = True
            ended = self._to_its_end(["python", script.name], self.environment)
        said = self._heard(ended)
        # An MCP client may not wait until its server's workers have stopped; told to hurry, the server says this.
        assert not ended.stderr.replace("toolfleet: stopped\n", ""), ended.stderr
        return said

    def _run(self, command: list[str]) -> str:
        environment = self.environment | PLAIN_PYTEST if command[-1].startswith("pytest") else self.environment
        return self._heard(self._to_its_end(command, environment))

    def _to_its_end(self, command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )

    def _heard(self, ended: subprocess.CompletedProcess[str]) -> str:
        assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
        assert not LOG_LINE.search(ended.stdout), f"a log line where only the script should print: {ended.stdout}"
        self._said += ended.stdout + ended.stderr
        return ended.stdout

    def _start(self, command: str) -> None:
        log = self.folder.parent / f"terminal{len(self._staying)}.log"
        with log.open("wb") as output, Path(os.devnull).open("rb") as nothing:
            streams = (nothing.fileno(), output.fileno(), output.fileno())
            process = self._started_with(command, streams)
        self._staying.append((process, log))
        give_up = time.monotonic() + READY_WITHIN_S
        while not any(word in log.read_text() for word in READY):
            is_starting = process.poll() is None and time.monotonic() < give_up
            assert is_starting, log.read_text()
            time.sleep(0.05)

    def _started_with(self, command: str, streams: tuple[int, int, int]) -> subprocess.Popen[bytes] | LoadedCommand:
        if words := _words_of(command):
            return LOADED.start(words, self.folder, self.environment, streams)
        return subprocess.Popen(
            ["sh", "-c", f"exec env {command}"],
            cwd=self.folder,
            env=self.environment,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
        )

    def _options(self, name: str, command: str) -> str:
        is_up = name == "toolfleet up"
        left_out = {part: option for part, option in LEFT_OUT.items() if is_up and part not in self.page.uses}
        ports = {
            option: self._port(port)
            for port, option in PORT_OPTIONS.get(name, {}).items()
            if option not in command and option.strip("-").removesuffix("-port") not in left_out
        }
        return " ".join(["", *left_out.values(), *(f"{option} {port}" for option, port in ports.items())])

    def _port(self, named: int) -> int:
        return self._ports.setdefault(named, free_port())

    def _shown_below(self, step: Block) -> str:
        return next((block.text for block in self.page.blocks if block.is_output and block.below is step), "")

    def _started(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.environ().get("HOME") == str(self.home) and process.status() != psutil.STATUS_ZOMBIE
        return False


def _words_of(command: str) -> list[str]:
    """The words behind `toolfleet`; none where it takes a shell."""
    if not command.startswith("toolfleet ") or NEEDS_A_SHELL.search(command):
        return []
    return shlex.split(command, comments=True)[1:]


def cases(pages: Sequence[Page]) -> list[tuple[Page, Block]]:
    """Every step of every page that can be done here."""
    return [(page, step) for page in pages for step in page.steps if not page.why_not(step.text)]


def _blocks(text: str) -> Iterator[Block]:
    above, above_end = None, 0
    for found in re.finditer(r"^```(\w+)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before = text[: found.start()]
        headings = re.findall(
            r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", before, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
        )
        is_close = not text[above_end : found.start()].strip()
        above = Block(
            line=before.count("\n") + 1,
            language=found[1],
            text=found[2],
            heading=headings[-1] if headings else "",
            below=above if is_close else None,
        )
        above_end = found.end()
        yield above


def _must_match(said: str, shown: str) -> None:
    """What a page shows is what was said; `…` stands for anything. A page that shows nothing promises nothing."""
    if not shown.strip():
        return
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    assert re.fullmatch(pattern, said.strip(), re.DOTALL), f"the page shows\n{shown}\nand this was said:\n{said}"


def _must_be_extras(command: str) -> None:
    """Nothing is installed here; but the extras that a page asks for must be there to be installed."""
    asked = re.findall(r"toolfleet\[([\w,-]+)\]", command) + re.findall(r"\.\[([\w,-]+)\]", command)
    known: Any = metadata("toolfleet").get_all("Provides-Extra")
    for extras in asked:
        assert set(extras.split(",")) <= set(known), f"{command}: there is no such extra"
