"""Read-only SQL on one SQLite or PostgreSQL database: queries with limits on rows, size and time, and the schema.

The database itself refuses to write; what a query says is never judged by its text.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, field_validator
from typing_extensions import TypedDict

from toolfleet import ToolError, tool
from toolfleet.errors import InvalidSettings
from toolfleet.workers.packs.pack_settings import Count, PackSettings, Seconds, for_pack, read_pack_settings

if TYPE_CHECKING:
    import psycopg

STEPS: Final = 10_000
"""Instructions of SQLite's machine between two looks at the clock: about a millisecond."""

CONNECT_TIMEOUT_S: Final = 10


class SqlSettings(PackSettings):
    """Which database, and how much of it at a time."""

    model_config = for_pack("sql")

    url: SecretStr
    """`sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user:password@host/database`. Required."""

    timeout_s: Seconds = 10.0
    """How long one query may take."""

    max_rows: Count = 200
    """Rows of one answer; the model is told when there were more."""

    max_bytes: Annotated[int, Field(ge=1024)] = 256 * 1024
    """JSON of one answer, and the largest row."""

    @field_validator("url")
    @classmethod
    def _is_known(cls, url: SecretStr) -> SecretStr:
        if urlsplit(url.get_secret_value()).scheme not in ("sqlite", "postgresql", "postgres"):
            raise ValueError("only sqlite:// and postgresql:// are known")
        return url


class Rows(TypedDict):
    """What a query gave: objects by column name. `cut` if there was more."""

    rows: list[dict[str, Any]]
    cut: bool


class TableColumn(TypedDict):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    key: bool


class Table(TypedDict):
    """A table or a view."""

    name: str
    kind: str
    columns: list[TableColumn]


class Database(ABC):
    """One database that is only read."""

    @abstractmethod
    def rows(self, query: str) -> Generator[dict[str, Any], None, None]:
        """The rows of a query, one after the other. Raises ToolError."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """All tables and views. Raises ToolError."""


class Sql:
    """Queries within the limits of its settings."""

    def __init__(self, settings: SqlSettings) -> None:
        self._settings = settings
        self._database = database_at(settings)

    @tool(read_only=True, queue="io")
    def sql_query(self, query: str) -> Rows:
        """Run one SELECT on the database. Nothing can be changed; rows and time are limited.

        Args:
            query: one statement; sql_schema tells tables, columns and the kind of database
        """
        rows: list[dict[str, Any]] = []
        left_bytes = self._settings.max_bytes
        with closing(self._database.rows(query)) as found:
            for row in found:
                left_bytes -= len(json.dumps(row, default=str))
                if len(rows) >= self._settings.max_rows or left_bytes < 0:
                    return Rows(rows=rows, cut=True)
                rows.append(row)
        return Rows(rows=rows, cut=False)

    @tool(read_only=True, queue="io")
    def sql_schema(self, table: str | None = None) -> list[Table]:
        """List the tables and views of the database with their columns.

        Args:
            table: only this one
        """
        tables = [each for each in self._database.tables() if table in (None, each["name"])]
        if table is not None and not tables:
            raise ToolError(f"there is no table {table!r}")
        return tables


def database_at(settings: SqlSettings) -> Database:
    """The database of the settings. Raises InvalidSettings when what it needs is not installed."""
    url = settings.url.get_secret_value()
    if urlsplit(url).scheme == "sqlite":
        return Sqlite(Path(unquote(urlsplit(url).path[1:])), settings)
    try:
        import psycopg  # noqa: F401, PLC0415  # the extra [postgres]
    except ImportError as error:
        raise InvalidSettings(f"PostgreSQL needs the extra `toolfleet[postgres]`: {error}") from error
    return Postgres(url, settings)


# --- SQLite -----------------------------------------------------------------------------------------------------------

READING: Final = frozenset({
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
})  # fmt: skip


class Sqlite(Database):
    """A SQLite file, opened anew for each question, in a mode in which it cannot be written."""

    def __init__(self, path: Path, settings: SqlSettings) -> None:
        self._path = path
        self._settings = settings

    def rows(self, query: str) -> Generator[dict[str, Any], None, None]:
        """The rows; bytes as hexadecimal text."""
        with self._connection() as connection:
            connection.set_authorizer(_only_reading)
            cursor = connection.execute(query)
            if cursor.description is None:
                raise ToolError("this is not a query")
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield {name: _plain(value) for name, value in zip(names, row, strict=True)}

    def tables(self) -> list[Table]:
        """The tables and views of the main schema."""
        with self._connection() as connection:
            names = connection.execute(
                "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
                "ORDER BY name"
            ).fetchall()
            return [Table(name=name, kind=kind, columns=_columns(connection, name)) for name, kind in names]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        ends = time.monotonic() + self._settings.timeout_s
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=self._settings.timeout_s)) as connection:
                connection.execute("PRAGMA query_only = ON")
                # Also of values on the way: zeroblob(1000000000) is a short query.
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._settings.max_bytes)
                connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
                connection.set_progress_handler(lambda: time.monotonic() > ends, STEPS)
                yield connection
        except sqlite3.Error as error:
            if time.monotonic() > ends:
                raise ToolError(f"the query took longer than {self._settings.timeout_s:g} s") from None
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


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

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

AS_JSON: Final = 'SELECT left(row_to_json("row")::text, {chars}) FROM (\n{query}\n) AS "row" LIMIT {rows}'
"""The server makes the JSON and cuts it, so that a row of a gigabyte never leaves it. The line breaks end comments."""


class Postgres(Database):
    """A PostgreSQL database, connected to anew for each question, in a transaction that cannot write.

    What else a role may do (read files, end sessions) is for the database to forbid: give it one that only selects.
    """

    def __init__(self, url: str, settings: SqlSettings) -> None:
        self._url = url
        self._settings = settings

    def rows(self, query: str) -> Generator[dict[str, Any], None, None]:
        """The rows, as PostgreSQL writes them in JSON."""
        chars = self._settings.max_bytes + 1
        wrapped = AS_JSON.format(query=query.rstrip().rstrip(";"), chars=chars, rows=self._settings.max_rows + 1)
        for (text,) in self._asked(wrapped):
            if len(text) >= chars:
                raise ToolError(f"a row has more than {self._settings.max_bytes} bytes: select less of it")
            yield json.loads(text)

    def tables(self) -> list[Table]:
        """The tables and views that the role may see; those outside of `public` with their schema."""
        tables: dict[str, Table] = {}
        for schema, name, kind, column, data_type, nullable, key in self._asked(TABLES):
            full_name = name if schema == "public" else f"{schema}.{name}"
            table = tables.setdefault(
                full_name, Table(name=full_name, kind="view" if kind == "view" else "table", columns=[])
            )
            table["columns"].append(TableColumn(name=column, type=data_type, nullable=nullable, key=key))
        return list(tables.values())

    def _asked(self, query: str) -> list[tuple[Any, ...]]:
        import psycopg  # noqa: PLC0415  # the extra [postgres]

        try:
            with self._connection() as connection:
                # As text, and with the extended protocol, in which a second statement is an error.
                connection.read_only = True
                cursor = connection.execute(_verbatim(query), binary=True)
                return cursor.fetchall()
        except psycopg.errors.QueryCanceled:
            raise ToolError(f"the query took longer than {self._settings.timeout_s:g} s") from None
        except psycopg.OperationalError as error:
            raise ToolError(f"PostgreSQL cannot be reached ({type(error).__name__})") from None
        except psycopg.Error as error:
            raise ToolError(f"PostgreSQL: {_first_line(error)}") from None

    def _connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        import psycopg  # noqa: PLC0415  # the extra [postgres]

        limit_ms = int(self._settings.timeout_s * 1000)
        return psycopg.connect(
            self._url,
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="toolfleet",
            options=f"-c default_transaction_read_only=on -c statement_timeout={limit_ms} -c lock_timeout={limit_ms}",
        )


def _verbatim(query: str) -> Any:
    """Without parameters psycopg takes a query as it stands, `%` included."""
    return query.encode()


def _first_line(error: Exception) -> str:
    return re.split(r"\n(?:LINE|DETAIL|CONTEXT)", str(error).strip())[0][:500]


_sql = Sql(read_pack_settings(SqlSettings))
sql_query, sql_schema = _sql.sql_query, _sql.sql_schema
