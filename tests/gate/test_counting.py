"""A test run in which a test is passed over does not pass: pytest and pytest-xdist as they are, in a folder apart."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from tests.counting import CountedTests

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CountedTests())

def pytest_collection_modifyitems(items):
    items.extend(items[:{repeated}])
"""


@pytest.mark.parametrize(
    ("repeated", "status", "said"), [(0, 0, "2 passed"), (1, 1, "3 tests were collected, 2 were run")]
)
def test_tests_of_the_same_id_of_which_xdist_runs_one_fail_the_run(tmp_path, repeated, status, said):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST.format(repeated=repeated))
    (tmp_path / "test_two.py").write_text("def test_one(): pass\ndef test_other(): pass\n")

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--numprocesses", "1", "--dist", "loadfile"),
            *("-p", "xdist", "-p", "no:cacheprovider"),
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == status, ended
    assert said in ended.stdout
