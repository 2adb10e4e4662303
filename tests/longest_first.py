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

LONGEST: Final = (
    "faults/test_faults.py",
    "cli/test_manners.py",
    "cli/test_screens.py",
    "cli/test_second_up.py",
    "docs/test_first_pages.py",
    "docs/test_second_pages.py",
    "streams/test_workers.py",
    "http/test_repeats.py",
    "cli/test_bad_input.py",
    "docs/test_third_pages.py",
    "clients/test_litellm.py",
    "cli/test_runs.py",
    "cli/test_calls.py",
    "mcp/test_conformance.py",
    "benchmarks/test_benchmarks.py",
    "cli/test_dead.py",
    "http/test_exhaustion.py",
    "cli/test_demo.py",
    "cli/test_secrets_apart.py",
    "cli/test_orchestrator_command.py",
    "clients/test_clients_of_responses.py",
    "cli/test_reload.py",
    "truth/test_any_family.py",
    "mcp/test_media.py",
    "fleet/test_bad_tools.py",
    "clients/test_python_clients.py",
    "fuzz/test_fuzz.py",
    "fleet/test_slow_calls.py",
    "fleet/test_outages.py",
    "cli/test_images.py",
    "fleet/test_durable_runs.py",
    "examples/test_full_text_index.py",
    "http/test_schema.py",
    "fleet/test_attacks.py",
    "truth/test_crashes.py",
    "fleet/test_checkpoints.py",
    "fleet/test_shutdown.py",
    "streams/test_loop_reader.py",
    "store/test_failover.py",
)
"""Those that take longest on a busy machine, the longest first; `pytest --durations=0` has the times."""


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The same tests; those of one file stay together, in their order."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    return sorted(items, key=lambda item: ranks.get(item.path, len(ranks)))
