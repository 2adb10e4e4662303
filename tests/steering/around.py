"""A run whose interceptors ask a model, in a process that is killed; each time that they do is a line in a file."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.steering.steered import dies_at
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, UserMessage
from toolfleet.orchestrator import (
    FunctionModel,
    Guardrail,
    Interceptor,
    JudgedBy,
    Orchestrator,
    Summaries,
    ToolSelection,
)

ROUNDS = 6


def _adds(messages: Sequence[Message]) -> AssistantMessage:
    """Six sums, one after another, whatever is left of the conversation; the last result says how far it is."""
    last = messages[-1]
    done = int(last.content) if isinstance(last, ToolMessage) else 0
    if done == ROUNDS:
        return AssistantMessage(content=f"done, with {sum(isinstance(each, UserMessage) for each in messages)} said")
    call = RequestedCall(id=f"c{done}", name="add", arguments=json.dumps({"a": done, "b": 1}))
    return AssistantMessage(content="thinking " * 40, tool_calls=(call,))


ADDING = FunctionModel(_adds, name="adding")


def asking(kind: str, ledger: Path) -> FunctionModel:
    """A model that notes each question put to it."""
    answers = {
        "summary": "The user wants six sums.",
        "tools": '{"tools": ["add"]}',
        "verdict": '{"allowed": true}',
    }

    def answer(messages: Sequence[Message]) -> AssistantMessage:
        with ledger.open("a") as lines:
            lines.write(json.dumps([kind, str(messages[-1].content)]) + "\n")
        return AssistantMessage(content=answers[kind])

    return FunctionModel(answer, name=kind)


def interceptors(ledger: Path) -> list[Interceptor]:
    return [
        Guardrail(input=JudgedBy(asking("verdict", ledger), "be kind")),
        ToolSelection(asking("tools", ledger), max_tools=2),
        Summaries(asking("summary", ledger), above_tokens=300, keep=2),
    ]


async def _main(ledger: str, where: str) -> None:
    dies_at(where)
    async with Orchestrator(ADDING, interceptors=interceptors(Path(ledger))) as orchestrator:
        run_id = orchestrator.settings.new_run_id()
        print(run_id, flush=True)  # before: it may die at once
        await orchestrator.start("Add six times.", run_id=run_id)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
