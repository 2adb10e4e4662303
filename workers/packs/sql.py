"""Read-only SQL on one SQLite or PostgreSQL database: queries with limits on rows, size and time, and the schema.

The database itself refuses to write; what a query says is never judged by its text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeVar, TypeVarTuple
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, field_validator

from toolfleet import ToolError, tool
from toolfleet.errors import InvalidSettings
from toolfleet.workers.packs.bounded import TookTooLong, in_bounded_child
from toolfleet.workers.packs.databases import sqlite
from toolfleet.workers.packs.databases.answers import QueryLimits, Rows, Table
from toolfleet.workers.packs.pack_settings import Count, PackSettings, Seconds, for_pack, read_pack_settings

Arguments = TypeVarTuple("Arguments")
R = TypeVar("R")

GRACE_S: Final = 1.0
"""How long a database that was told to stop may take to do so; then its child process is ended."""


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


class Database(NamedTuple):
    """One database that is only read: the functions that ask it, and what they are given to find it."""

    kind: str
    address: str
    query: Callable[[str, str, QueryLimits], Rows]
    tables: Callable[[str, QueryLimits], list[Table]]


class Sql:
    """Queries within the limits of its settings, each asked by a child process that can be ended."""

    def __init__(self, settings: SqlSettings) -> None:
        self._limits = QueryLimits(settings.timeout_s, settings.max_rows, settings.max_bytes)
        self._database = database_at(settings.url.get_secret_value())

    @tool(read_only=True)
    async def sql_query(self, query: str) -> Rows:
        """Run one SELECT on the database. Nothing can be changed; rows and time are limited.

        Args:
            query: one statement; sql_schema tells tables, columns and the kind of database
        """
        return await self._asked(self._database.query, self._database.address, query, self._limits)

    @tool(read_only=True)
    async def sql_schema(self, table: str | None = None) -> list[Table]:
        """List the tables and views of the database with their columns.

        Args:
            table: only this one
        """
        found = await self._asked(self._database.tables, self._database.address, self._limits)
        tables = [each for each in found if table in (None, each["name"])]
        if table is not None and not tables:
            raise ToolError(f"there is no table {table!r}")
        return tables

    async def _asked(self, function: Callable[[*Arguments], R], *arguments: *Arguments) -> R:
        try:
            return await in_bounded_child(
                self._limits.timeout_s + GRACE_S, f"the query to {self._database.kind}", function, *arguments
            )
        except TookTooLong:
            raise ToolError(f"the query took longer than {self._limits.timeout_s:g} s") from None


def database_at(url: str) -> Database:
    """The database of a URL. Raises InvalidSettings when what it needs is not installed."""
    if urlsplit(url).scheme == "sqlite":
        path = Path(unquote(urlsplit(url).path[1:])).absolute()
        return Database("SQLite", f"{path.as_uri()}?mode=ro", sqlite.query, sqlite.tables)
    try:
        from toolfleet.workers.packs.databases import postgres  # noqa: PLC0415  # the extra [postgres]
    except ImportError as error:
        raise InvalidSettings(f"PostgreSQL needs the extra `toolfleet[postgres]`: {error}") from error
    return Database("PostgreSQL", url, postgres.query, postgres.tables)


_sql = Sql(read_pack_settings(SqlSettings))
sql_query, sql_schema = _sql.sql_query, _sql.sql_schema
