"""The names of ours in docs/coming-from.md exist."""

import re
from pathlib import Path

import toolfleet
from toolfleet import Run, RunOptions

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
OURS = (toolfleet,)
ELSEWHERE = {"Annotated", "AsyncIterator", "Enum", "Field", "JSON", "Literal", "None", "Protocol", "Schema"}


def right_hand_side():
    for row in re.findall(r"^\| .+? \| (.+) \|$", PAGE.read_text(), re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", row)


def known(name):
    return name in ELSEWHERE or any(hasattr(module, name) for module in OURS)


def test_every_class_that_is_named_is_there():
    named = {name for code in right_hand_side() for name in re.findall(r"\b[A-Z]\w+\b", re.sub(r'"[^"]*"', "", code))}
    assert len(named) > 15
    assert {name for name in named if not known(name)} - {"T", "Type", "Run", "True"} == set()


def test_every_member_that_is_named_is_there():
    members = {found for code in right_hand_side() for found in re.findall(r"\b([A-Z]\w+)\.(\w+)", code)}
    assert ("Orchestrator", "execute_results") in members
    for name, member in members - {("Protocol", "method")}:
        owner = Run if name == "Run" else next(getattr(module, name) for module in OURS if hasattr(module, name))
        fields = getattr(owner, "model_fields", {})
        assert hasattr(owner, member) or member in fields or member == "catalog", f"{name}.{member}"


def test_every_option_of_a_run_that_is_named_is_there():
    options = {found for code in right_hand_side() for found in re.findall(r"(?:run|assistant)\(…, (\w+)=", code)}
    assert {"tools", "merging", "interceptors"} <= options
    assert options - {"remembers"} <= RunOptions.__annotations__.keys()
