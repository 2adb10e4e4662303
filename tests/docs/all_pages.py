"""Every page that says how to do something. One more needs a line here, and nothing else.

`tests.docs.pages` has the rules for the blocks of a page. Whatever is left out has its reason here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from tests.docs.pages import LEFT_OUT, Block, Page, cases

SCRAPED: Final = "it never ends; tests/metrics/test_scrapes.py has each of them scraped"

PAGES: Final = [
    Page("docs/tools.md"),
    Page(
        "README.md",
        files=["README.md"],
        unrun={
            "$ make demo": "they build an environment from the package index, and `make test` is what runs this",
            "$ python3 -m venv": "it installs from the package index; `toolfleet demo` is in tests/cli/test_demo.py",
            "$ export TOOLFLEET_REDIS_URL": "it needs a Redis elsewhere; tests/deploy runs the commands of a cluster",
        },
        stand_ins={"3f9c": r"^([0-9a-f]{16,})$"},
        uses=LEFT_OUT,  # nothing of it is left out
    ),
    Page("docs/workers-over-https.md"),
    Page("docs/steering.md"),
    Page("docs/around-the-model.md"),
    Page("docs/replay.md"),
    Page("docs/versions.md"),
    Page("docs/http-api.md", stand_ins={"3f9c": r"Its id is (\w+)"}),
    Page(
        "docs/slow-tools.md",
        unrun={"$ toolfleet run 'call pay": "a person answers at a terminal; tests/cli/test_screens.py does"},
        uses=["long"],
    ),
    Page("docs/openai-compatible.md"),
    Page(
        "docs/ag-ui.md",
        unrun={
            'import { HttpAgent } from "@ag-ui/client"': "tests/http/test_agui.py runs that client, with its packages",
            'await agent.runAgent({ runId: "run-1" });': "likewise, after each of several cuts",
        },
    ),
    Page("docs/limits.md"),
    Page("docs/questions.md"),
    Page("docs/webhooks.md"),
    Page(
        "docs/schedules.md",
        stand_ins={"s3fa1c2b09d77": r"^(s[0-9a-f]{12})$", "now-5b1f20aa": r"^s[0-9a-f]{12}-(now-[0-9a-f]{8})$"},
        uses=["orchestrators"],
    ),
    Page(
        "docs/shards.md",
        unrun={
            "$ export TOOLFLEET_SHARDS": "it needs two servers; tests/shards/test_commands.py runs these commands",
            "from toolfleet import ShardedOrchestrator": "it needs two servers; tests/shards/test_shards.py has them",
            "$ toolfleet shards drain": "it needs two servers; tests/shards/test_commands.py drains one",
        },
    ),
    Page("docs/mcp.md"),
    Page("docs/packs.md"),
    Page("docs/testing.md"),
    Page(
        "docs/tutorial.md",
        unrun={
            "python3 -m venv": "it installs from the package index; `make fresh` does that",
            "$ export OPENAI_API_KEY": "it needs a key; tests/models has the wire format",
        },
        stand_ins={"3f9c": r"^([0-9a-f]{16,})$"},
        uses=["orchestrators", "long"],
    ),
    Page("docs/cli.md", stand_ins={"3f9c": r"^([0-9a-f]{16,})$"}, uses=["orchestrators"]),
    Page("docs/bring-your-own-loop.md"),
    Page("docs/budgets.md"),
    Page("docs/operating.md", stand_ins={"3f9c": r"^([0-9a-f]{16,})$"}, uses=["orchestrators"]),
    Page(
        "docs/telemetry.md",
        unrun={
            "toolfleet worker --pool io --import my_tools --metrics-port": SCRAPED,
            "toolfleet orchestrator --metrics-port": SCRAPED,
            "curl -s http://127.0.0.1:9101/metrics": SCRAPED,
        },
    ),
    Page(
        "docs/watching.md",
        unrun={"$ toolfleet watch": "it needs a fleet that runs, and one never ends; tests/cli/test_watch.py has both"},
    ),
    Page("docs/a2a.md"),
    Page(
        "docs/hosted-loops.md",
        unrun={"$ export ANTHROPIC_ENVIRONMENT_KEY": "it needs the vendor; tests/hosted has its protocol"},
    ),
    Page(
        "docs/wire.md",
        unrun={"// Sends a signed call": "it needs Node and a package; tests/wire/test_typescript_client.py runs it"},
    ),
]


def steps_of(pages: Sequence[Page]) -> pytest.MarkDecorator:
    """Parametrize a test by every step of these pages, in order; the fixture `reader` is the one of `page`."""
    return pytest.mark.parametrize(("page", "step"), cases(pages), ids=map(_name, cases(pages)))


def _name(case: tuple[Page, Block]) -> str:
    page, step = case
    return f"{page.path}:{step.line} {step.heading}"
