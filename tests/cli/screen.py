"""What a command shows on a terminal of a given width, line by line, with somebody at the keyboard."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.cells import cell_len

from tests.cli.command import ENDS_WITHIN_S, TOOLFLEET, Terminal

COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """One command on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
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


@contextmanager
def on_screen(terminal: Terminal, *words: str, columns: int = 80) -> Iterator[Screen]:
    """`toolfleet …` on a terminal of this width."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [TOOLFLEET, *words],
        cwd=terminal.folder,
        env=terminal.environment(TERM="xterm", COLUMNS=str(columns)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            yield Screen(process, ours)
        finally:
            os.close(ours)
            if process.poll() is None:
                process.kill()


def seen(terminal: Terminal, *words: str, columns: int = 80) -> Screen:
    """The screen of a command that has ended well."""
    with on_screen(terminal, *words, columns=columns) as screen:
        assert screen.ended() == 0, screen.text
        return screen
