"""Lists on the command line: aligned columns for a person at a terminal, tab-separated lines for anything else.

What the columns mean, their owners know. A terminal's line is never longer than it is wide, as long as the columns that
must be whole fit into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from toolfleet.orchestrator.doors.cli.wording import one_line

GAP: Final = 2
ELASTIC_CELLS_MIN: Final = 24
"""Less of a text says nothing: before it comes to that, columns that can be spared are left out."""

UNBOUNDED: Final = 1_000_000
"""Cells of a line that nobody reads on a screen."""

CELL_CHARACTERS_MAX: Final = 64
"""Ids and names are shorter, unless a stranger made them up."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column, which is never cut. Those that may be left out where there is no room are: the rightmost first."""

    name: str
    is_spared: bool = False


class Listing:
    """Records, one a line; the last column takes what room is left, and is the one that is cut."""

    def __init__(self, *columns: Column | str, elastic: str) -> None:
        self._columns = [Column(each) if isinstance(each, str) else each for each in columns]
        self._elastic = elastic
        self._rows: list[list[str]] = []

    def add(self, *cells: object) -> None:
        """Add a record, with a cell for each column, the elastic one last."""
        assert len(cells) == len(self._columns) + 1, cells  # noqa: S101  # a bug of ours
        self._rows.append([one_line(str(cell)) for cell in cells])

    def print(self, console: Console, title: str = "") -> None:
        """Print a heading and aligned columns on a terminal; elsewhere the records alone, whole, with tabs."""
        if console.is_terminal:
            self.draw(console, title)
        else:
            for row in self._rows:
                console.file.write("\t".join(row) + "\n")

    def draw(self, console: Console, title: str = "") -> None:
        """Print it as a part of a longer text: with a heading and aligned, anywhere; cut only on a terminal."""
        for line in self.lines(console.width if console.is_terminal else UNBOUNDED, title):
            console.print(line, soft_wrap=True)

    def lines(self, cells: int, title: str = "") -> Sequence[Text]:
        """Return the lines of a screen. None is wider than `cells`, unless what must be whole is."""
        rows = [[_bounded(cell) for cell in row[:-1]] + row[-1:] for row in self._rows]
        widths = [
            max(map(cell_len, [column.name, *(row[at] for row in rows)])) for at, column in enumerate(self._columns)
        ]
        kept = self._kept(widths, rows, cells)
        room = max(1, cells - sum(widths[at] + GAP for at in kept))
        names = [*(column.name for column in self._columns), self._elastic]
        drawn = [Text(title, "italic")] if title else []
        drawn.append(Text(_line(names, kept, widths, room), "bold"))
        return [*drawn, *(Text(_line(row, kept, widths, room)) for row in rows)]

    def _kept(self, widths: Sequence[int], rows: Sequence[Sequence[str]], cells: int) -> list[int]:
        """Return the columns that are shown: those that are not empty and that there is room for."""
        kept = [at for at, column in enumerate(self._columns) if not column.is_spared or any(row[at] for row in rows)]
        for at in reversed(kept.copy()):
            if sum(widths[each] + GAP for each in kept) + ELASTIC_CELLS_MIN <= cells:
                break
            if self._columns[at].is_spared:
                kept.remove(at)
        return kept


def _line(row: Sequence[str], kept: Sequence[int], widths: Sequence[int], room: int) -> str:
    whole = "".join(_padded(row[at], widths[at]) + " " * GAP for at in kept)
    return (whole + fitting(row[-1], room)).rstrip()


def fitting(text: str, cells: int) -> str:
    """Return as much of a line as fits, with a sign that there is more."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def _padded(text: str, cells: int) -> str:
    return text + " " * (cells - cell_len(text))


def _bounded(text: str) -> str:
    return text if cell_len(text) <= CELL_CHARACTERS_MAX else fitting(text, CELL_CHARACTERS_MAX)
