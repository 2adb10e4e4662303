"""What the pages say works as they say it, for somebody who has nothing but this project.

A page is added with one line in PAGES; `tests.docs.pages` has the rules for its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, Block, Page, Reader, cases

PAGES = [
    Page(
        "README.md",
        files=["README.md"],
        unrun={
            "$ make demo": "they build an environment from the package index, and `make test` is what runs this",
            "$ python3 -m venv": "it installs from the package index; `toolfleet demo` is in tests/cli/test_demo.py",
            "$ export TOOLFLEET_REDIS_URL": "it needs a Redis elsewhere; tests/deploy runs the commands of a cluster",
        },
        stand_ins={"3f9c": r"^([0-9a-f]{16,})$"},
    ),
    Page("docs/tools.md"),
    Page("docs/slow-tools.md"),
    Page("docs/testing.md"),
    Page("docs/packs.md"),
    Page("docs/http-api.md", stand_ins={"3f9c": r"Its id is (\w+)"}),
    Page("docs/openai-compatible.md"),
    Page(
        "docs/mcp.md",
        unrun={"PYTHONPATH=tests/mcp toolfleet mcp": "the conformance suite needs Node and the npm registry"},
    ),
    Page("docs/bring-your-own-loop.md"),
]


def _name(case: tuple[Page, Block]) -> str:
    page, step = case
    return f"{page.path}:{step.line} {step.heading}"


@pytest.fixture(scope="module")
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The reader of one page."""
    reading = Reader(request.param, tmp_path_factory.mktemp("page"))
    yield reading
    reading.leaves()


@pytest.mark.parametrize(
    ("reader", "step"),
    cases(PAGES),
    indirect=["reader"],
    ids=map(_name, cases(PAGES)),
)
def test_a_page_does_what_it_says(reader: Reader, step: Block) -> None:
    reader.does(step)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_what_is_left_out_is_on_the_page(page: Page) -> None:
    texts = [text for step in page.steps for text in (step.text, *(command for command, _ in _commands(step)))]
    for start, reason in page.unrun.items():
        assert any(text.startswith(start) for text in texts), f"{start!r} ({reason}) is not there any more"


def test_every_page_is_read() -> None:
    fenced = {path for path in (*ROOT.glob("docs/*.md"), ROOT / "README.md") if Page(str(path)).steps}
    assert fenced == {ROOT / page.path for page in PAGES}


def _commands(step: Block) -> list[tuple[str, list[str]]]:
    return step.commands if step.language == "console" else []
