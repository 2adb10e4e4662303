"""The order of tests, and of collecting them.

The files that take longest are run first: one that begins last holds up the end, with a core that has nothing to do.

`--dist loadfile` gives files to processes in the order in which they were collected, told `--no-loadscope-reorder`:
without it those with the most tests would come first, and a file of two long tests last.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

TESTS: Final = Path(__file__).parent

LONGEST: Final = (
    "docs/test_first_pages.py",
    "docs/test_third_pages.py",
    "docs/test_second_pages.py",
    "faults/test_faults.py",
    "cli/test_manners.py",
    "cli/test_screens.py",
    "http/test_schema.py",
    "cli/test_bad_input.py",
    "cli/test_calls.py",
    "packs/test_changing.py",
    "http/test_repeats.py",
    "streams/test_workers.py",
    "cli/test_second_up.py",
    "faults/test_steered.py",
    "cli/test_runs.py",
    "page/test_pages.py",
    "cli/test_watch.py",
    "http/test_exhaustion.py",
    "fleet/test_refusals.py",
    "fleet/test_reconcile.py",
    "clients/test_litellm.py",
    "mcp/test_conformance.py",
    "http/test_pages_of_runs.py",
    "deploy/test_signs_of_life.py",
    "page/test_actions.py",
    "page/test_live.py",
    "page/test_showing.py",
    "store/test_failover.py",
    "fleet/test_lanes.py",
    "cli/test_orchestrator_command.py",
    "shards/test_commands.py",
    "truth/test_any_family.py",
    "budgets/test_tenants.py",
    "cli/test_demo.py",
    "fleet/test_older_store.py",
    "benchmarks/test_benchmarks.py",
    "work/test_laptops.py",
    "hosted/test_hosted_loops.py",
    "telemetry/test_traces.py",
    "cli/test_reload.py",
    "fleet/test_rolling.py",
    "fleet/test_outages.py",
    "fleet/test_pool_of_processes.py",
    "cli/test_up.py",
    "telemetry/test_doors.py",
    "metrics/test_scrapes.py",
    "waiting/test_workers.py",
    "fleet/test_durable_runs.py",
    "work/test_calls_over_https.py",
    "benchmarks/test_scale.py",
    "fleet/test_other_brokers.py",
    "shards/test_http_door.py",
    "cli/test_flower.py",
    "fuzz/test_fuzz.py",
    "packs/test_mcp.py",
    "cli/test_secrets_apart.py",
    "languages/test_life.py",
    "status/test_one_answer.py",
    "fleet/test_attacks.py",
    "fleet/test_effects.py",
    "cli/test_dead.py",
    "fleet/test_rotation.py",
    "truth/test_limits.py",
    "streams/test_loop_reader.py",
    "truth/test_crashes.py",
    "schedules/test_schedules.py",
    "fleet/test_two_ways.py",
    "fleet/test_rights.py",
    "fleet/test_failover.py",
    "fleet/test_shutdown.py",
    "fleet/test_stopping.py",
    "cli/test_images.py",
    "clients/test_clients_of_responses.py",
    "metrics/test_settled.py",
    "fleet/test_shared_answers.py",
    "http/test_response_requests.py",
    "cli/test_run.py",
    "http/test_a2a_pushes.py",
    "models/test_odd_records.py",
    "page/test_questions.py",
    "batch/test_notes.py",
    "deploy/test_compose_commands.py",
    "http/test_chat_fields.py",
    "truth/test_any_life.py",
    "fleet/test_bad_tools.py",
    "clients/test_python_clients.py",
    "workers_go/test_vectors.py",
    "telemetry/test_untraced.py",
    "streams/test_delivery.py",
    "packs/test_services.py",
    "fleet/test_conformance.py",
    "mcp/test_input_required.py",
    "shards/test_shards.py",
    "http/test_commands.py",
    "steering/test_replays.py",
    "mcp/test_media.py",
    "jobs/test_jobs.py",
    "http/test_a2a_tasks.py",
    "fleet/test_handed_to_a_child.py",
    "fleet/test_cancel.py",
    "page/test_lists.py",
    "steering/test_approvals.py",
    "fleet/test_sleeping.py",
    "fleet/test_announce.py",
    "steering/test_messages.py",
    "http/test_agui.py",
    "page/test_tool_versions.py",
    "benchmarks/test_soak.py",
    "store/test_multiplexing.py",
)
"""Those that take longest on a busy machine, the longest first; `pytest --durations=0` has the times."""


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The same tests; those of one file stay together, in their order, and the other files follow by name."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    return sorted(items, key=lambda item: (ranks.get(item.path, len(ranks)), item.path))


def begin_elsewhere(config: pytest.Config) -> None:
    """Have each of xdist's processes collect the same directories, beginning with others.

    At a first run each file's assertions are to be rewritten: so each process does a part, and finds the others' done.
    """
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is not None and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        share = int(given["workerid"].removeprefix("gw")) / given["workercount"]
        there = [path for path in TESTS.iterdir() if path.is_dir() or path.match("test_*.py")]
        names = sorted(str(path) for path in there if not path.name.startswith((".", "_")))
        first = int(share * len(names))
        config.args[:] = [*names[first:], *names[:first]]
