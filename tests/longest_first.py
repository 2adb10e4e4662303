"""The files that take longest are run first: one that begins last holds up the end, with a core that has nothing to do.

`--dist loadfile` gives files to processes in the order in which they were collected, told `--no-loadscope-reorder`:
without it those with the most tests would come first, and a file of two long tests last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent

LONGEST: Final = ("faults/test_faults.py",)
"""Those that take half a minute and more, the longest first; `pytest --durations=0` has the times."""


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The same tests; those of one file stay together, in their order."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    return sorted(items, key=lambda item: ranks.get(item.path, len(ranks)))
