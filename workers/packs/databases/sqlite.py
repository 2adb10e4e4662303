"""A SQLite file that is only read: opened anew for each question, in a mode in which it cannot be written.

Imported by the child process that asks, so it knows no settings and no tool. A query may spend any time inside one
instruction of SQLite's machine (a LIKE, a sort), where only the end of its process stops it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from toolfleet.errors import ToolError
from toolfleet.workers.packs.databases.answers import QueryLimits, Rows, Table, TableColumn, first_rows

STEPS: Final = 10_000
"""Instructions of SQLite's machine between two looks at the clock: about a millisecond."""

READING: Final = frozenset({
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
})  # fmt: skip


def query(uri: str, text: str, limits: QueryLimits) -> Rows:
    """The first rows of a query; bytes as hexadecimal text. Raises ToolError."""
    with _connection(uri, limits) as connection:
        connection.set_authorizer(_only_reading)
        cursor = connection.execute(text)
        if cursor.description is None:
            raise ToolError("this is not a query")
        names = [column[0] for column in cursor.description]
        found = ({name: _plain(value) for name, value in zip(names, row, strict=True)} for row in cursor)
        return first_rows(found, limits)


def tables(uri: str, limits: QueryLimits) -> list[Table]:
    """The tables and views of the main schema. Raises ToolError."""
    with _connection(uri, limits) as connection:
        names = connection.execute(
            "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
            "ORDER BY name"
        ).fetchall()
        return [Table(name=name, kind=kind, columns=_columns(connection, name)) for name, kind in names]


@contextmanager
def _connection(uri: str, limits: QueryLimits) -> Iterator[sqlite3.Connection]:
    ends = time.monotonic() + limits.timeout_s
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=limits.timeout_s)) as connection:
            connection.execute("PRAGMA query_only = ON")
            # Also of values on the way: zeroblob(1000000000) is a short query.
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.max_bytes)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.set_progress_handler(lambda: time.monotonic() > ends, STEPS)
            yield connection
    except sqlite3.Error as error:
        if time.monotonic() > ends:
            raise ToolError(f"the query took longer than {limits.timeout_s:g} s") from None
        raise ToolError(f"SQLite: {error}") from None


def _only_reading(action: int, *about: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and about[1] in ("load_extension", "fts3_tokenizer"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


def _columns(connection: sqlite3.Connection, table: str) -> list[TableColumn]:
    return [
        TableColumn(name=name, type=kind, nullable=not not_null, key=bool(key))
        for name, kind, not_null, key in connection.execute(
            'SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,)
        )
    ]


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
