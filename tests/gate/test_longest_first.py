"""The files that take longest begin first, and one that goes by another name now is not forgotten there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.longest_first import LONGEST, TESTS, longest_first

TWO_TESTS = "def test_one(): pass\ndef test_other(): pass\n"

CONFTEST = """
from pathlib import Path
from tests import longest_first as order

order.TESTS = Path(__file__).parent
order.LONGEST = ("test_long.py", "test_less_long.py")

def pytest_collection_modifyitems(items):
    items[:] = order.longest_first(items)
"""

FILES = {"test_a.py": TWO_TESTS, "test_less_long.py": "def test_lone(): pass\n", "test_long.py": TWO_TESTS}


def test_every_file_that_is_named_is_there_once() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_xdist_begins_with_the_longest_files_and_keeps_the_order_within_each(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in {"conftest.py": CONFTEST, **FILES}.items():
        (tmp_path / name).write_text(text)

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--numprocesses", "1", "--dist", "loadfile", "--no-loadscope-reorder"),
            *("-p", "xdist", "-p", "no:cacheprovider", "-v"),
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    run = [line.split()[-1] for line in ended.stdout.splitlines() if " PASSED " in line]
    files = ["test_long.py::test_one", "test_long.py::test_other", "test_less_long.py::test_lone"]
    assert run == [*files, "test_a.py::test_one", "test_a.py::test_other"], ended


NOTING = """
import os
from pathlib import Path

with Path(__file__).parents[1].joinpath(os.environ["PYTEST_XDIST_WORKER"]).open("a") as file:
    file.write(Path(__file__).parent.name)

def test_it(): pass
"""


def test_each_of_xdists_processes_begins_to_collect_at_another_directory_and_has_the_same_tests(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    hook = "\ndef pytest_collection(session):\n    order.begin_elsewhere(session.config)\n"
    (tmp_path / "conftest.py").write_text(CONFTEST + hook)
    for name in "abcd":
        (tmp_path / name).mkdir()
        (tmp_path / name / f"test_{name}.py").write_text(NOTING)

    ended = subprocess.run(
        [*(sys.executable, "-m", "pytest", "--numprocesses", "2", "-p", "xdist", "-p", "no:cacheprovider")],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "4 passed" in ended.stdout, ended
    assert [(tmp_path / worker).read_text() for worker in ("gw0", "gw1")] == ["abcd", "cdab"]


def test_tests_of_no_named_file_keep_their_order(request: pytest.FixtureRequest) -> None:
    here = [item for item in request.session.items if item.path == Path(__file__)]
    assert longest_first(here) == here
