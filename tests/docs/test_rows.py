"""The rows of behaviours that users of the neighbouring systems rely on: each has a test that carries its id."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]

ROWS = {"S": 10, "A": 11, "R": 9, "B": 10, "P": 9, "L": 7}
"""Schema, arguments, results, batches and loop, providers and agents, slow tools; and how many rows each has."""

NAMED = re.compile(r"^\s*(?:async )?def test_([A-Z]\d+)_", re.MULTILINE)


def test_every_row_has_a_test_by_its_id():
    wanted = {f"{section}{number}" for section, rows in ROWS.items() for number in range(1, rows + 1)}
    named = {row for path in TESTS.rglob("test_*.py") for row in NAMED.findall(path.read_text())}
    assert wanted - named == set()
    assert named - wanted == set(), "a test carries the id of no row"
