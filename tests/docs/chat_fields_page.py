"""The tables of docs/openai-compatible.md, printed from those that the code goes by.

`python -m tests.docs.chat_fields_page` puts them into the page; a test holds it to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tests.docs.pages import ROOT
from toolfleet.orchestrator.models.chat_fields import MESSAGE, PART, REQUEST, Decision, Fate

PAGE = ROOT / "docs" / "openai-compatible.md"
TOLD = {Fate.HERE: "used here", Fate.MODEL: "to the model", Fate.REFUSED: "refused"}


def tables() -> list[str]:
    """Each table, as the page has it."""
    headed = (("field of a request", REQUEST), ("field of a message", MESSAGE), ("part of a message", PART))
    return ["\n".join(_rows(heading, table)) for heading, table in headed]


def _rows(heading: str, table: Mapping[str, Decision]) -> Iterator[str]:
    yield f"| {heading} | | |"
    yield "|---|---|---|"
    for fate in Fate:
        for name, decision in sorted(table.items()):
            if decision.fate is fate:
                yield f"| `{name}` | {TOLD[fate]} | {decision.told} |".replace("|  |", "| |")


def page() -> str:
    """The page with these tables in place of those it has."""
    text = PAGE.read_text()
    for table in tables():
        old = re.compile(re.escape(table.partition("\n")[0]) + r"(\n\|.*)*")
        text = old.sub(lambda _: table, text)  # noqa: B023  # called at once
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
