"""A terminal, used whole for a while and given back as it was: its other screen, keys as they are typed, its size.

Knows nothing of what is shown. POSIX only, as the fleet is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from contextlib import suppress
from typing import Final, NamedTuple, Self

from rich.console import Console, RenderableType
from rich.control import Control
from rich.screen import Screen

from toolfleet.orchestrator.doors.cli.tables import UNBOUNDED

BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Around a frame: a terminal that knows this mode shows it all at once, and any other passes over it."""

_TYPED_BYTES: Final = 1024


class Room(NamedTuple):
    """How much room there is."""

    columns: int
    rows: int

    @classmethod
    def of(cls, console: Console) -> Room:
        """Return the room of a terminal; elsewhere there is all that is wanted."""
        if not console.is_terminal:
            return cls(UNBOUNDED, UNBOUNDED)
        try:
            # Asked of the terminal: LINES and COLUMNS in the environment, which rich believes, stay what they were.
            columns, rows = os.get_terminal_size(console.file.fileno())
        except (OSError, ValueError):
            columns, rows = 0, 0
        return cls(columns or console.size.width, rows or console.size.height)


class FullScreen:
    """A context manager within a running event loop. `news` is set when a key was typed or the size is another."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.keys: set[str] = set()
        """What was typed so far."""
        self._console = Console()
        self._loop = asyncio.get_running_loop()
        self._typing = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._as_it_was: list[object] | None = None

    def __enter__(self) -> Self:
        self._take()
        for number, heard in ((signal.SIGWINCH, self.news.set), (signal.SIGTSTP, self._pause)):
            self._loop.add_signal_handler(number, heard)
        if self._typing is not None:
            self._loop.add_reader(self._typing, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        if self._typing is not None:
            self._loop.remove_reader(self._typing)
        for number in (signal.SIGWINCH, signal.SIGTSTP):
            self._loop.remove_signal_handler(number)
        self._give_back()

    @property
    def room(self) -> Room:
        """How much room there is now: the terminal says so, whatever LINES and COLUMNS in the environment do."""
        return Room.of(self._console)

    def show(self, drawn: RenderableType) -> None:
        """Show this and nothing else."""
        room = self.room
        self._console.size = (room.columns, room.rows)
        with self._console.capture() as captured:
            self._console.print(Control.home(), Screen(drawn), sep="", end="")
        with suppress(OSError):  # a terminal that was closed: SIGHUP comes next
            self._console.file.write(f"{BEGIN}{captured.get()}{END}")
            self._console.file.flush()

    def _read(self) -> None:
        assert self._typing is not None  # noqa: S101  # only then it is read
        try:
            typed = os.read(self._typing, _TYPED_BYTES)
        except OSError:
            typed = b""
        if not typed:
            self._loop.remove_reader(self._typing)
        self.keys |= set(typed.decode(errors="replace"))
        self.news.set()

    def _pause(self) -> None:
        """Ctrl-Z: the shell gets its terminal as it was, and we take it again when we go on."""
        self._give_back()
        self._loop.remove_signal_handler(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        self._loop.add_signal_handler(signal.SIGTSTP, self._pause)
        self._take()
        self.news.set()

    def _take(self) -> None:
        if self._typing is not None:
            self._as_it_was = termios.tcgetattr(self._typing)
            tty.setcbreak(self._typing)
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)

    def _give_back(self) -> None:
        with suppress(OSError):
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)
        if self._typing is not None and self._as_it_was is not None:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(self._typing, termios.TCSADRAIN, self._as_it_was)  # type: ignore[arg-type]  # as tcgetattr gave it
