"""`toolfleet demo`: its answer is true, its calls are many, and nothing of it stays."""

from __future__ import annotations

import ast
import json
import re
import sys
import sysconfig
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Ended, Terminal, interrupted, read_until

STDLIB = Path(sysconfig.get_path("stdlib"))
NOT_OF_THE_LIBRARY = {"test", "tests", "idle_test", "site-packages"}

INTERRUPTED = 130

IDENTIFIERS = {
    ast.alias: ("name", "asname"),
    ast.arg: ("arg",),
    ast.AsyncFunctionDef: ("name",),
    ast.Attribute: ("attr",),
    ast.ClassDef: ("name",),
    ast.ExceptHandler: ("name",),
    ast.FunctionDef: ("name",),
    ast.Global: ("names",),
    ast.ImportFrom: ("module",),
    ast.keyword: ("arg",),
    ast.MatchAs: ("name",),
    ast.MatchClass: ("kwd_attrs",),
    ast.MatchMapping: ("rest",),
    ast.MatchStar: ("name",),
    ast.Name: ("id",),
    ast.Nonlocal: ("names",),
}
"""Where Python's grammar has an identifier. (Type parameters, new in 3.12, are not yet used by the library.)"""


@dataclass
class Library:
    """What a plain walk over the standard library finds."""

    functions: Counter[str] = field(default_factory=Counter)
    with_docstring: int = 0
    longest: tuple[int, str, str] = (0, "", "")
    identifiers: Counter[str] = field(default_factory=Counter)

    def read(self, module: str, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            self.identifiers.update(identifiers_in(node))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions[module] += 1
                self.with_docstring += ast.get_docstring(node) is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > self.longest[0]:
                    self.longest = (lines, node.name, module)


def identifiers_in(node: ast.AST) -> list[str]:
    found = []
    for name in IDENTIFIERS.get(type(node), ()):
        value = getattr(node, name) or []
        found += [part for each in ([value] if isinstance(value, str) else value) for part in each.split(".")]
    return [name for name in found if name != "*"]


def files_of(module: str) -> list[Path]:
    package = [
        path
        for path in sorted((STDLIB / module).rglob("*.py"))
        if not NOT_OF_THE_LIBRARY & set(path.relative_to(STDLIB).parts)
    ]
    return [path for path in [STDLIB / f"{module}.py"] if path.exists()] + package


@pytest.fixture(scope="module")
def library() -> Library:
    found = Library()
    for module in sorted(sys.stdlib_module_names - {"test"}):
        for path in files_of(module):
            with tokenize.open(path) as file:
                found.read(module, ast.parse(file.read()))
    return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return Terminal(tmp_path_factory.mktemp("demo")).run("demo", "--json")


@pytest.fixture(scope="module")
def run(demo: Ended) -> dict[str, Any]:
    """The run, which is all that is on standard output."""
    assert demo.code == 0, demo.err
    found: dict[str, Any] = json.loads(demo.out)
    return found


@pytest.fixture(scope="module")
def answer(run: dict[str, Any]) -> str:
    return str(run["answer"])


def test_the_answer_names_the_five_modules_with_the_most_functions(answer: str, library: Library) -> None:
    most = sorted(library.functions.items(), key=lambda item: (-item[1], item[0]))[:5]
    assert "the most functions: " + ", ".join(f"{name} ({count:,})" for name, count in most) + "." in answer


def test_the_answer_names_the_longest_function(answer: str, library: Library) -> None:
    lines, name, module = library.longest
    assert f"The longest function is {name} in {module}, with {lines:,} lines." in answer


def test_the_answer_gives_the_share_of_functions_with_a_docstring(answer: str, library: Library) -> None:
    functions = library.functions.total()
    share = 100 * library.with_docstring / functions
    assert f"Of all {functions:,} functions, {share:.1f} % have a docstring ({library.with_docstring:,})." in answer


def test_the_answer_counts_the_identifiers(answer: str, library: Library) -> None:
    [(name, count)] = library.identifiers.most_common(1)
    assert f"counts {len(library.identifiers):,} distinct identifiers" in answer
    assert f"the most common being {name} ({count:,} times)" in answer


def test_at_least_150_calls_are_asked_for_in_one_reply(run: dict[str, Any]) -> None:
    calls_in_turn = Counter(call["turn"] for call in run["calls"])
    assert max(calls_in_turn.values()) >= 150


def test_no_call_fails_and_the_slow_one_comes_back_as_a_handle_first(run: dict[str, Any]) -> None:
    slow = {call["tool"] for call in run["calls"] if call["result"]["type"] == "submitted"}
    assert slow == {"index_identifiers"}
    assert {call["result"]["type"] for call in run["calls"]} == {"returned", "submitted"}


def test_it_says_that_the_model_is_a_rehearsal(demo: Ended, answer: str) -> None:
    assert "rehearsal model" in demo.err
    assert "rehearsal model" in answer


def test_it_makes_no_noise(demo: Ended) -> None:
    expected = re.compile(r"(Which five|No model is set|turn \d|index_identifiers: |$)")
    assert [line for line in demo.err.splitlines() if not expected.match(line)] == []


def test_ctrl_c_while_calls_run_cancels_the_run_and_leaves_no_process(terminal: Terminal) -> None:
    with terminal.start("demo") as process:
        read_until(process, "turn 2: ")
        stopped = interrupted(process)
    assert stopped.code == INTERRUPTED, stopped
    assert re.fullmatch(r"toolfleet: run \w+ cancelled\ntoolfleet: stopped\n", stopped.err)
    terminal.until_nothing_is_left()
