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
    "faults/test_steered.py",
    "docs/test_first_pages.py",
    "cli/test_manners.py",
    "cli/test_screens.py",
    "fleet/test_other_brokers.py",
    "streams/test_workers.py",
    "docs/test_third_pages.py",
    "docs/test_second_pages.py",
    "http/test_repeats.py",
    "http/test_schema.py",
    "clients/test_litellm.py",
    "cli/test_bad_input.py",
    "cli/test_second_up.py",
    "mcp/test_conformance.py",
    "fleet/test_reconcile.py",
    "http/test_exhaustion.py",
    "clients/test_clients_of_responses.py",
    "benchmarks/test_scale.py",
    "http/test_response_requests.py",
    "fleet/test_refusals.py",
    "cli/test_up.py",
    "truth/test_any_family.py",
    "fleet/test_durable_runs.py",
    "benchmarks/test_benchmarks.py",
    "http/test_commands.py",
    "fleet/test_rotation.py",
    "deploy/test_signs_of_life.py",
    "webhooks/test_delivery.py",
    "fleet/test_sleeping.py",
    "budgets/test_tenants.py",
    "metrics/test_settled.py",
    "benchmarks/test_soak.py",
    "hosted/test_hosted_loops.py",
    "work/test_laptops.py",
    "workers_go/test_vectors.py",
    "run/test_run_machine.py",
    "fleet/test_failover.py",
    "batch/test_notes.py",
    "clients/test_python_clients.py",
    "http/test_chat_fields.py",
    "cli/test_calls.py",
    "fleet/test_lanes.py",
    "cli/test_runs.py",
    "cli/test_demo.py",
    "page/test_pages.py",
    "cli/test_watch.py",
    "fleet/test_conformance.py",
    "truth/test_crashes.py",
    "store/test_failover.py",
    "examples/test_full_text_index.py",
    "http/test_endings.py",
    "http/test_openai_errors.py",
    "http/test_runs.py",
    "fleet/test_pool_of_processes.py",
    "mcp/test_media.py",
    "fleet/test_outages.py",
    "cli/test_secrets_apart.py",
    "cli/test_reload.py",
    "fleet/test_bad_tools.py",
    "fuzz/test_fuzz.py",
    "fleet/test_slow_calls.py",
    "cli/test_images.py",
    "http/test_pages_of_runs.py",
    "page/test_showing.py",
    "fleet/test_rolling.py",
    "fleet/test_older_store.py",
    "page/test_actions.py",
    "fleet/test_effects.py",
    "cli/test_orchestrator_command.py",
    "cli/test_dead.py",
    "fleet/test_attacks.py",
    "fleet/test_checkpoints.py",
    "fleet/test_shutdown.py",
    "streams/test_loop_reader.py",
)
"""Those that take longest on a busy machine, the longest first; `pytest --durations=0` has the times."""


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The same tests; those of one file stay together, in their order."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    return sorted(items, key=lambda item: ranks.get(item.path, len(ranks)))
