"""The gate runs once more alone what failed, where that is a few tests and nothing else; in a folder apart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFTEST = """
from tests.counting import CountedTests
from tests.few_failed import FewFailed
from tests.orphans import NoOrphans

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        counted, orphans = CountedTests(), NoOrphans(within_s=0)
        for plugin in (counted, orphans, FewFailed(counted, orphans)):
            config.pluginmanager.register(plugin)

def pytest_collection_modifyitems(items):
    items.extend(item for item in items[:] if "passed_over" in item.name)
"""

MAKEFILE = """
TESTS_AT_ONCE ?= 2
PYTEST ?=
fresh lint:
	@true
test:
	@{python} -m pytest -p xdist --numprocesses $(TESTS_AT_ONCE) --dist loadfile {options} $(PYTEST)
"""

ONLY_ALONE = """
from pathlib import Path

def test_patience():
    Path("run").open("a").write("x")
    assert Path("run").read_text() == "xx"

def test_other():
    Path("others").open("a").write("x")
"""
LEAVING = """
import subprocess

def test_that_leaves_a_process():
    subprocess.Popen(["sleep", "60"])
"""


def gate(folder: Path, options: str, **files: str) -> subprocess.CompletedProcess[str]:
    """What `.ci/run` says of these files of tests."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "Makefile").write_text(MAKEFILE.format(python=sys.executable, options=options))
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    inherited = {name: said for name, said in os.environ.items() if not name.startswith(("PYTEST_", "MAKE"))}
    environment = {**inherited, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [str(folder / ".ci" / "run")], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("options", ["", "-q --color=yes", "-qq -rN --no-summary"])
def test_what_fails_beside_others_and_passes_alone_passes_however_pytest_prints(tmp_path: Path, options: str) -> None:
    ended = gate(tmp_path, options, patience=ONLY_ALONE)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (
        0,
        "Everything passed; what failed above beside others, alone.",
    ), ended
    assert (tmp_path / "others").read_text() == "x"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"leaving": LEAVING}, "left behind by a test"),
        ({"twice": "def test_passed_over(): pass\n"}, "tests were collected"),
        ({"many": "".join(f"def test_{n}(): assert 0\n" for n in range(9))}, "10 failed"),
        ({"broken": "import nothing_of_this_name\n"}, "ModuleNotFoundError"),
    ],
    ids=["a_process_left", "a_test_passed_over", "many", "not_collected"],
)
def test_nothing_is_run_again_where_there_is_more_to_complain_of(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    ended = gate(tmp_path, "", patience=ONLY_ALONE, **files)
    assert (ended.returncode, said in ended.stdout) == (1, True), ended
    assert ended.stderr.endswith("FAILED: make test\n")
    assert "--last-failed" not in ended.stdout
    assert not (tmp_path / "run").exists() or (tmp_path / "run").read_text() == "x"


def test_what_fails_alone_too_has_failed(tmp_path: Path) -> None:
    ended = gate(tmp_path, "-q", patience="def test_it(): assert 0\n")
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        1,
        "FAILED: make test TESTS_AT_ONCE=1 PYTEST=--last-failed",
    ), ended
