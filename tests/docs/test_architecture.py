"""ARCHITECTURE.md names files, rooms and classes: each is there, and what is there is named.

A path is written from the top of the repository or from inside one of its three parts.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = [ROOT / name for name in ("orchestrator", "workers", "toolfleet")]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]

CELERYS = {"AsyncResult"}

PATH = re.compile(r"(?:\.?\w[\w.-]*/)+[\w.-]*|[\w-]+\.(?:py|lua)")
"""A folder, a file in a folder, or a lone file: `run/`, `loop/turn.py`, `conftest.py`."""


def in_code_font(text):
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def paths(text):
    """What is a path, without the name of a function behind it (`wire.py::sign`)."""
    named = [code.partition("::")[0] for code in in_code_font(text)]
    return sorted({name for name in named if PATH.fullmatch(name)})


def meant_by(name):
    """The files and folders that a name may mean; the links in toolfleet/ lead to the same ones."""
    return {(base / name).resolve() for base in (ROOT, *PARTS) if (base / name).exists()}


def test_every_path_that_is_named_is_there_and_means_one_thing():
    assert len(paths(TEXT)) > 60
    assert {name: meant_by(name) for name in paths(TEXT) if len(meant_by(name)) != 1} == {}


def test_a_path_that_is_not_there_would_be_found():
    assert paths("`loop/turns.py`, `vaults/`, not `a b/c` or `x = 1`") == ["loop/turns.py", "vaults/"]
    assert meant_by("loop/turns.py") == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_other_pages_name_of_the_repository_is_there(page):
    tops = {entry.name for entry in ROOT.iterdir()}
    named = [name for name in paths(page.read_text()) if "/" in name and name.split("/")[0] in tops]
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_room_stands_in_the_table_of_its_part(part):
    rows = re.search(rf"^\| `{part.name}/`.*\n\|---\|---\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)[1].splitlines()
    named = {name for row in rows for name in in_code_font(row.split("|")[1])}
    there = {
        f"{entry.name}/" if entry.is_dir() else entry.stem
        for entry in part.iterdir()
        if not entry.is_symlink() and (entry.suffix == ".py" or (entry.is_dir() and entry.name != "__pycache__"))
    } - {"__init__"}
    assert named == there


def test_every_class_that_is_named_is_there():
    source = "\n".join(path.read_text() for part in PARTS for path in part.rglob("*.py") if not path.is_symlink())
    named = {code for code in in_code_font(TEXT) if re.fullmatch(r"(?:[A-Z][a-z]+){2,}|[A-Z][a-z]+[A-Z]\w+", code)}
    assert {"CallScope", "CallGroup", "RunStarted"} <= named
    assert {name for name in named - CELERYS if not re.search(rf"\b{name}\b", source)} == set()
