"""No task or thread is started where its end could go unseen: only in `supervision`, or with a word on who watches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "toolfleet" / "supervision.py"
STARTS = {"create_task", "ensure_future", "Thread", "Timer"}
REASON = re.compile(r"# watched: \S")


def product_files() -> list[Path]:
    return sorted(path for room in ("orchestrator", "workers", "toolfleet") for path in (ROOT / room).rglob("*.py"))


def unwatched(source: str) -> Iterator[int]:
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first, last = max(node.lineno - 2, 0), node.end_lineno or node.lineno
        if name in STARTS and not any(REASON.search(line) for line in lines[first:last]):
            yield node.lineno


def test_every_task_and_thread_is_supervised_or_says_who_watches_it() -> None:
    files = product_files()
    assert len(files) > 250
    found = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        if path != ROOM
        for number in unwatched(path.read_text("utf-8"))
    }
    assert found == set()


def test_a_naked_task_is_found() -> None:
    assert list(unwatched("import asyncio\n\n\nasyncio.create_task(work())")) == [4]
    assert list(unwatched("loop.create_task(work())")) == [1]
    assert list(unwatched("threading.Thread(target=work).start()")) == [1]
    assert not list(unwatched("asyncio.create_task(work())  # watched: awaited below"))
