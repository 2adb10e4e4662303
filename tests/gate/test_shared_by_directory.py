"""What the files of a directory share is made once, and is gone before another directory's first test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CONFTEST = """
from contextlib import contextmanager
import pytest
from tests.shared_by_directory import shared

@contextmanager
def thing():
    print("made in {name}")
    yield "{name}"
    print("ended in {name}")

@pytest.fixture(scope="module")
def its_thing(request):
    yield shared(request, thing)
    print("module's end in {name}")
"""
TEST = "def test_it(its_thing):\n    print('test with', its_thing)\n"
PLUGIN = """
from tests.shared_by_directory import NAME, SharedByDirectory

def pytest_configure(config):
    config.pluginmanager.register(SharedByDirectory(), NAME)
"""


def test_a_thing_is_shared_by_files_of_one_directory_and_by_no_others(tmp_path):
    (tmp_path / "conftest.py").write_text(PLUGIN)
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "conftest.py").write_text(CONFTEST.format(name=directory))
        for number in range(2):
            (tmp_path / directory / f"test_{directory}{number}.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--rootdir", tmp_path, "a", "b"]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = [line.lstrip(".") for line in ran.stdout.splitlines() if " in " in line or " with " in line]
    assert [line for line in said if "passed" not in line] == [
        line
        for name in ("a", "b")
        for line in (
            f"made in {name}",
            f"test with {name}",
            f"module's end in {name}",
            f"test with {name}",
            f"module's end in {name}",
            f"ended in {name}",
        )
    ]
