"""The ledger of the tools' effects, and the judge: what a run's messages say of its calls must agree with it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator.run.value import Run

WAIT_S = 30

AGENT = "agent"
"""Stands in the ids of calls that runs answer; those have no effect of their own."""

UNDONE = "undone:"
"""How the line begins that a compensation writes."""


class Ledger:
    """What has happened outside of the program, by the keys of the calls that did it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def asks(self, tool: str, key: str, **more: Any) -> tuple[str, str, str]:
        """A call whose id and whose line in the ledger is `key`."""
        return key, tool, json.dumps({"ledger": str(self.path), "key": key, **more})

    @property
    def effects(self) -> Counter[str]:
        """How often each call has had its effect."""
        return Counter(self.path.read_text().split()) if self.path.exists() else Counter()

    async def has(self, *keys: str) -> None:
        """Wait until these calls have had their effects."""
        async with asyncio.timeout(WAIT_S):
            while not self.effects.keys() >= set(keys):
                await asyncio.sleep(0.01)


def told(run: Run) -> dict[str, str]:
    """What the run's history says of each call that its model has asked for, by the id that the model gave it."""
    said: dict[str, str] = {}
    for position, message in enumerate(run.messages):
        asked = message.tool_calls if isinstance(message, AssistantMessage) else ()
        answers = run.messages[position + 1 : position + 1 + len(asked)]
        assert [call.id for call in asked] == [each.tool_call_id for each in answers if isinstance(each, ToolMessage)]
        said |= {call.id: answer.content for call, answer in zip(asked, answers, strict=True)}
    return said


def verdict(key: str, content: str) -> str:
    """What a message says of its call: that it was made, was not, or may have been."""
    if "was rolled back" in content:
        return "made"  # it goes on with why, and so with what is said of others
    if "was not called" in content or "it has had no effect" in content:
        return "not called"
    return "made" if any(words in content for words in (f"charged {key}", "receipt", "is withheld")) else "may be"


def judge(run: Run, ledger: Ledger, *below: Run) -> dict[str, str]:
    """The verdicts of the messages of runs, each held to the ledger; and nothing that happened goes unsaid."""
    said = {key: content for each in (run, *below) for key, content in told(each).items()}
    effects, undone = Counter[str](), Counter[str]()
    for line, count in ledger.effects.items():
        (undone if line.startswith(UNDONE) else effects)[line.removeprefix(UNDONE)] += count
    verdicts = {
        key: verdict(key, content) for key, content in said.items() if not key.endswith("-late") and AGENT not in key
    }
    assert effects.keys() <= verdicts.keys(), "booked, and not in the history"
    assert [key for key, count in (effects + undone).items() if effects[key] > 1 or undone[key] > 1] == []
    assert {key for key in undone if "roll" not in said[key] and "may or may not" not in said[key]} == set()
    assert {key for key, content in said.items() if "was rolled back" in content} <= undone.keys()
    for key, word in verdicts.items():
        assert word != "not called" or key not in effects, (key, said[key])
        assert word != "made" or key in effects, (key, said[key])
        assert word != "may be" or "may or may not" in said[key] or '"task_id"' in said[key], (key, said[key])
    return verdicts
