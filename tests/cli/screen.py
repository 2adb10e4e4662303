"""What a command shows on a terminal of a given width, line by line, with somebody at the keyboard."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.cells import cell_len

from tests.cli.command import ENDS_WITHIN_S, TOOLFLEET, Terminal
from tests.cli.loaded import LOADED, LoadedCommand

FRAME = re.compile(r"\x1b\[\?2026h\x1b\[H(.*?)\x1b\[\?2026l", re.DOTALL)
"""A frame of a screen that is used whole, from its upper left corner."""

COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """One command on a terminal."""

    def __init__(self, process: Job | LoadedCommand, terminal: int) -> None:
        self._terminal = terminal
        self._shown = b""
        self.process = process

    def type(self, text: str) -> None:
        """What somebody types."""
        os.write(self._terminal, text.encode())

    def until(self, text: str) -> None:
        """Wait until this is shown."""
        give_up = time.monotonic() + ENDS_WITHIN_S
        while text not in self.text:
            assert time.monotonic() < give_up, self.text
            assert self._reads() or text in self.text, self.text

    def ended(self) -> int:
        """Wait for the command's end; its exit status."""
        while self._reads():
            pass
        return self.process.wait(ENDS_WITHIN_S)

    @property
    def raw(self) -> str:
        return self._shown.decode(errors="replace")

    @property
    def text(self) -> str:
        """Without colours and movements of the cursor."""
        return COLOURS.sub("", self.raw).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def frames(self) -> list[list[str]]:
        """What a command shows that uses the screen whole: the lines of each frame that was drawn to its end."""
        return [COLOURS.sub("", each).replace("\r", "").split("\n") for each in FRAME.findall(self.raw)]

    def until_a_frame(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """Wait for a frame like this, from now on."""
        give_up, passed = time.monotonic() + ENDS_WITHIN_S, len(self.frames)
        while True:
            for drawn in self.frames[passed:]:
                passed += 1
                if wanted(drawn):
                    return drawn
            assert time.monotonic() < give_up, self.frames[-1:]
            assert self._reads(), self.text

    def resize(self, columns: int, rows: int) -> None:
        """As the window's edge is dragged; a process hears of it by SIGWINCH, if the terminal is its own."""
        set_size(self._terminal, columns, rows)

    @property
    def manners(self) -> list[object]:
        """How the terminal treats what is typed: echo, lines, signals."""
        return termios.tcgetattr(self._terminal)

    @property
    def widest(self) -> int:
        return max(map(cell_len, self.lines))

    def _reads(self) -> bool:
        """Whether there may be more to come."""
        if not select.select([self._terminal], [], [], ENDS_WITHIN_S)[0]:
            return False
        with suppress(OSError):  # how Linux says that nobody has the other side any more
            some = os.read(self._terminal, 65536)
            self._shown += some
            return bool(some)
        return False


def set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def on_screen(
    terminal: Terminal, *words: str, columns: int = 80, size: tuple[int, int] = (0, 0), is_job: bool = False
) -> Iterator[Screen]:
    """`toolfleet …` on a terminal of this width; of this `size` in truth, whatever the environment says.

    With `is_job` it can be stopped, as what a shell has started: in a session of its own nobody could let it go on.
    """
    ours, theirs = pty.openpty()
    set_size(ours, *size)
    environment = terminal.environment(TERM="xterm", COLUMNS=str(columns))
    try:
        process = (
            Job([TOOLFLEET, *words], terminal.folder, environment, theirs)
            if is_job
            else LOADED.start(words, terminal.folder, environment, [theirs] * 3)
        )
    finally:
        os.close(theirs)
    try:
        yield Screen(process, ours)
    finally:
        os.close(ours)
        process.end()


class Job(subprocess.Popen[bytes]):
    """A command that a shell has started: of the tests' own session, in a group of its own."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str], terminal: int) -> None:
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        super().__init__(words, cwd=folder, env=environment, process_group=0, **streams)

    def end(self) -> None:
        if self.poll() is None:
            self.kill()
            self.wait()


def seen(terminal: Terminal, *words: str, columns: int = 80) -> Screen:
    """The screen of a command that has ended well."""
    with on_screen(terminal, *words, columns=columns) as screen:
        assert screen.ended() == 0, screen.text
        return screen
