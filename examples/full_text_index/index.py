"""The index: one SQLite file with a full-text table. It is built beside its place and moved there when it is whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from examples.full_text_index.docstrings import Documented


class Hit(NamedTuple):
    """A documentation string that matches, with the words around the match."""

    name: str
    kind: str
    excerpt: str


class Builder:
    """An index that is being built, one transaction for each step."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, step: int, entries: Iterable[Documented]) -> None:
        """Add what belongs to a step, all of it or nothing."""
        rows = ((entry.name, entry.kind, entry.text, step) for entry in entries)
        with self._connection:
            self._connection.executemany("INSERT INTO docs (name, kind, text, step) VALUES (?, ?, ?, ?)", rows)

    def count(self) -> int:
        """How many documentation strings are in it."""
        (found,) = self._connection.execute("SELECT count(*) FROM docs").fetchone()
        return int(found)


@contextmanager
def building(path: Path, *, steps_done: int) -> Iterator[Builder]:
    """The index at `path` with the first `steps_done` steps in it, and nothing of later ones."""
    with closing(sqlite3.connect(path)) as connection:
        with connection:
            connection.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS docs USING fts5"
                "(name, kind UNINDEXED, text, step UNINDEXED, tokenize = 'porter unicode61')"
            )
            # A lost attempt may have come further than it could say.
            connection.execute("DELETE FROM docs WHERE step >= ?", (steps_done,))
        yield Builder(connection)


def search(path: Path, query: str, limit: int) -> list[Hit]:
    """The best matches first. Raises sqlite3.OperationalError for a query that FTS5 cannot read."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        found = connection.execute(
            # A match in the name counts four times one in the text.
            "SELECT name, kind, snippet(docs, 2, '', '', ' … ', 30) FROM docs WHERE docs MATCH ? "
            "ORDER BY bm25(docs, 4.0, 0.0, 1.0, 0.0) LIMIT ?",
            (query, limit),
        )
        return [Hit(*row) for row in found]
