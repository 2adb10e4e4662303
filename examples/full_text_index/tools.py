"""Two tools: a long job that builds the index and survives its worker, and a quick one that searches it.

toolfleet up --tools examples.full_text_index.tools
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from typing_extensions import TypedDict

from examples.full_text_index import docstrings, index
from toolfleet import Context, ToolError, tool

INDEX = Path(os.environ.get("DOCS_INDEX", "docs-index.sqlite3")).absolute()


class Built(TypedDict):
    """What build_index did."""

    modules: int
    documentation_strings: int
    continued_after_modules: int


class Found(TypedDict):
    """One match."""

    name: str
    kind: str
    excerpt: str


@tool(long_running=True, idempotent=True)
def build_index(ctx: Context, modules: list[str] | None = None) -> Built:
    """Build a full-text index of the documentation strings in Python's standard library. Takes a while.

    Args:
        modules: only these top-level modules and packages; all by default
    """
    modules = modules or docstrings.modules()
    # The same for every attempt at this call, another one for every other call: two of them do not meet.
    unfinished = INDEX.with_name(f"{INDEX.name}.{ctx.idempotency_key}")
    # A checkpoint tells where to go on. On another machine there is nothing to go on with.
    done = ctx.last_checkpoint["modules"] if ctx.last_checkpoint and unfinished.exists() else 0
    continued_after = done
    with index.building(unfinished, steps_done=done) as builder:
        for step in range(done, len(modules)):
            builder.add(step, docstrings.documented(modules[step]))
            # First the work, then the word that it is done: whoever goes on may repeat a step, never leave one out.
            ctx.checkpoint({"modules": step + 1})
            ctx.progress((step + 1) / len(modules), f"{modules[step]} ({step + 1} of {len(modules)})")
        count = builder.count()
    unfinished.replace(INDEX)
    return Built(modules=len(modules), documentation_strings=count, continued_after_modules=continued_after)


@tool(read_only=True)
def search_docs(query: str, limit: int = 5) -> list[Found]:
    """Search the documentation strings of Python's standard library, best matches first. Needs build_index once.

    Args:
        query: words that must all occur; "a phrase" in quotes, OR, NOT and prefix* are understood
        limit: how many matches at most, up to 50
    """
    if not INDEX.exists():
        raise ToolError("there is no index yet: call build_index first")
    try:
        hits = index.search(INDEX, query, max(1, min(limit, 50)))
    except sqlite3.OperationalError as error:
        raise ToolError(f"the query {query!r} cannot be read ({error}): use plain words, or quote them") from error
    return [Found(name=hit.name, kind=hit.kind, excerpt=hit.excerpt) for hit in hits]
