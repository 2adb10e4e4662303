"""Conversations whose model follows a plan, and a process that holds them and can be killed at any point.

The plan is the question itself, so that whoever takes a run over goes on with it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

from tests.faults.fault_tools import LEDGER
from toolfleet.background import ARGUMENT
from toolfleet.logs import configure_logs
from toolfleet.messages import AssistantMessage, Message, RequestedCall
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models.recorded import FunctionModel

MODEL = "planned"


@dataclass(frozen=True)
class Plan:
    """A run: so many turns of so many calls each, then an answer."""

    run: str
    turns: int
    calls: int
    tools: Sequence[str]
    seconds: float
    background: bool = False
    """Whether its calls ask to go on in the background."""

    @classmethod
    def read(cls, question: str) -> Self:
        return cls(**json.loads(question))

    @property
    def question(self) -> str:
        return json.dumps(asdict(self))

    def asks(self, turn: int) -> list[tuple[str, str, str]]:
        """Nonce, tool and arguments of each call of a turn, counted from 0."""
        asks = []
        for position in range(self.calls):
            nonce = f"{self.run}-{turn}-{position}"
            tool = self.tools[(turn + position) % len(self.tools)]
            arguments = {"nonce": nonce, "seconds": self.seconds, **({ARGUMENT: True} if self.background else {})}
            asks.append((nonce, tool, json.dumps(arguments)))
        return asks

    def asked_for(self, turn: int) -> str:
        """How the ledger says that the model was asked for this turn."""
        return f"model:{self.run}:{turn}"


def planned(ledger: str, messages: Sequence[Message]) -> AssistantMessage:
    """The next reply of the plan in the question; that it was asked for goes into the ledger."""
    plan = Plan.read(messages[0].content)
    turn = sum(isinstance(message, AssistantMessage) for message in messages)
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{plan.asked_for(turn)} - 0 {os.getpid()}\n".encode())
    os.close(file)
    if turn >= plan.turns:
        return AssistantMessage(content=f"{plan.run} is done")
    calls = (RequestedCall(id=f"id-{nonce}", name=tool, arguments=given) for nonce, tool, given in plan.asks(turn))
    return AssistantMessage(tool_calls=tuple(calls))


def planned_model(ledger: str) -> FunctionModel:
    return FunctionModel(partial(planned, ledger), name=MODEL)


async def hold(orders: Mapping[str, Any]) -> None:
    """Begin the runs that are ordered, say so for each, and go on until standard input ends."""
    at_once = asyncio.Semaphore(orders["at_once"])
    async with Orchestrator(model=planned_model(os.environ[LEDGER])) as orchestrator:

        async def converse(question: str) -> None:
            async with at_once:
                run_id = Plan.read(question).run
                await orchestrator.start(question, run_id=run_id, **orders["options"])
                print(run_id, flush=True)
                await orchestrator.wait(run_id)

        async with asyncio.TaskGroup() as group:
            for question in orders["questions"]:
                group.create_task(converse(question))
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    configure_logs("error")
    importlib.import_module("toolfleet.testing.instruments")
    asyncio.run(hold(json.loads(sys.stdin.readline())))
