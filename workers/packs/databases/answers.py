"""What a question to a database gives, and how much of it: the same for every database.

Imported by the child process that asks, so it knows no settings and no tool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from toolfleet.errors import ToolError


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


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How much one answer may take: seconds, rows, and bytes of JSON, also of one row."""

    timeout_s: float
    max_rows: int
    max_bytes: int


def first_rows(found: Iterable[dict[str, Any]], limits: QueryLimits) -> Rows:
    """As many rows as the limits allow; no more are asked for. Raises ToolError for a row that is too large alone."""
    rows: list[dict[str, Any]] = []
    left_bytes = limits.max_bytes
    for row in found:
        row_bytes = len(json.dumps(row))
        if row_bytes > limits.max_bytes:
            raise ToolError(f"a row has more than {limits.max_bytes} bytes: select less of it")
        left_bytes -= row_bytes
        if len(rows) >= limits.max_rows or left_bytes < 0:
            return Rows(rows=rows, cut=True)
        rows.append(row)
    return Rows(rows=rows, cut=False)
