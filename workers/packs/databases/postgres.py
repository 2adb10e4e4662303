"""A PostgreSQL database that is only read: connected to anew for each question, in a transaction that cannot write.

A query is declared as a cursor. So it is the server's own grammar that says what is a query: one SELECT, VALUES or
TABLE, and nothing that writes, copies or sets; and of a result only the next rows ever leave the server. What else a
role may do (read files, end sessions) is for the database to forbid: give it one that only selects.

Imported by the child process that asks, so it knows no settings and no tool.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from toolfleet.errors import ToolError
from toolfleet.workers.packs.databases.answers import QueryLimits, Rows, Table, TableColumn, first_rows

CONNECT_TIMEOUT_S: Final = 10

ROWS_AT_ONCE: Final = 50

AS_TEXT: Final = (
    "date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid", "inet", "cidr", "bytea",
    "int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange",
    "int4multirange", "int8multirange", "nummultirange", "datemultirange", "tsmultirange", "tstzmultirange",
)  # fmt: skip
"""Types that JSON does not have, and whose values Python does not all have: as PostgreSQL writes them."""

TABLES: Final = """
SELECT c.table_schema, c.table_name, lower(t.table_type) AS kind, c.column_name, c.data_type, c.is_nullable = 'YES',
  EXISTS (
    SELECT FROM information_schema.key_column_usage k JOIN information_schema.table_constraints p
      USING (constraint_schema, constraint_name)
    WHERE p.constraint_type = 'PRIMARY KEY' AND k.table_schema = c.table_schema AND k.table_name = c.table_name
      AND k.column_name = c.column_name
  )
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
WHERE c.table_schema NOT IN ('information_schema', 'pg_catalog')
ORDER BY c.table_schema, c.table_name, c.ordinal_position
"""


def query(url: str, text: str, limits: QueryLimits) -> Rows:
    """The first rows of a query. Raises ToolError."""
    with _connection(url, limits) as connection, connection.cursor("asked", row_factory=dict_row) as cursor:
        cursor.itersize = ROWS_AT_ONCE
        # As bytes and without parameters psycopg takes it as it stands, `%` included.
        cursor.execute(text.encode())
        return first_rows(({name: _plain(value) for name, value in row.items()} for row in cursor), limits)


def tables(url: str, limits: QueryLimits) -> list[Table]:
    """The tables and views that the role may see; those outside of `public` with their schema. Raises ToolError."""
    found: dict[str, Table] = {}
    with _connection(url, limits) as connection:
        for schema, name, kind, column, data_type, nullable, key in connection.execute(TABLES):
            full_name = name if schema == "public" else f"{schema}.{name}"
            kind_of = "view" if kind == "view" else "table"
            table = found.setdefault(full_name, Table(name=full_name, kind=kind_of, columns=[]))
            table["columns"].append(TableColumn(name=column, type=data_type, nullable=nullable, key=key))
    return list(found.values())


@contextmanager
def _connection(url: str, limits: QueryLimits) -> Iterator[psycopg.Connection[Any]]:
    try:
        with _connected(url, limits) as connection, _cancelled_after(limits.timeout_s, connection):
            connection.read_only = True
            for name in AS_TEXT:
                connection.adapters.register_loader(name, TextLoader)
            yield connection
    except psycopg.errors.QueryCanceled:
        raise ToolError(f"the query took longer than {limits.timeout_s:g} s") from None
    except psycopg.OperationalError as error:
        raise ToolError(f"PostgreSQL cannot be reached ({type(error).__name__})") from None
    except psycopg.Error as error:
        raise ToolError(f"PostgreSQL: {_first_line(error)}") from None


def _connected(url: str, limits: QueryLimits) -> psycopg.Connection[Any]:
    limit_ms = int(limits.timeout_s * 1000)
    return psycopg.connect(
        url,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="toolfleet",
        options=f"-c default_transaction_read_only=on -c statement_timeout={limit_ms} -c lock_timeout={limit_ms}",
    )


@contextmanager
def _cancelled_after(timeout_s: float, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """End what the server does for us after a time, also where the query has set its time limit off."""
    # watched: in a child process of one call, whose cancelling may fail as it likes
    timer = threading.Timer(timeout_s, connection.cancel_safe)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _plain(value: Any) -> Any:
    match value:
        case Decimal() if value.is_finite():
            return float(value) if value % 1 else int(value)
        case Decimal() | float() if not math.isfinite(value):
            return str(value)
        case list():
            return [_plain(item) for item in value]
        case bool() | int() | float() | str() | dict() | None:
            return value
    return str(value)


def _first_line(error: Exception) -> str:
    return re.split(r"\n(?:LINE|DETAIL|CONTEXT)", str(error).strip())[0][:500]
