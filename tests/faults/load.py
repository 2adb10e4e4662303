"""Conversations' worth of calls through a real orchestrator, with a note of every call and every answer."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.faults.judge import IN_DOUBT, RETURNED, UNASKED, Ask
from toolfleet.errors import ToolfleetError
from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.run.updates import CallEnded, CallStarted, RunUpdate

MIXED = ("once", "again")
IN_PROCESSES = ("once_in_process", "again_in_process")
IN_NODE = ("once_in_node", "again_in_node")
IN_GO = ("once_in_go", "again_in_go")
OVER_HTTPS = ("once_over_https", "again_over_https")
MOSTLY_QUICK = (*MIXED, *MIXED, *MIXED, *MIXED, *IN_PROCESSES)
"""Few in processes: there are two of those, and hundreds of places for the others."""

ASKING = ("ask_once", "ask_again", "ask_once_elsewhere", "ask_again_elsewhere")
SLEEPING = ("sleep_once", "sleep_again")
YIELDING = ("recite_once", "recite_again")
VERSIONED = ("versioned", "versioned_again")

LIMITED = ("narrow", "narrow_in_process", "rated")
"""With limits of the fleet, which a ledger of their own judges."""

REPEATABLE = frozenset(
    {
        "again",
        "again_in_process",
        "again_in_node",
        "again_in_go",
        "again_over_https",
        "poison",
        "poison_in_process",
        "swallow",
        "ask_again",
        "ask_again_elsewhere",
        "sleep_again",
        "recite_again",
        "versioned_again",
        *LIMITED,
    }
)

ONCE_ENDS = frozenset({RETURNED, IN_DOUBT})
AGAIN_ENDS = frozenset({RETURNED})

UNFINISHED_AFTER_S = 90.0
"""A call without an end after this never ends."""


class Load:
    """Sends calls and keeps what became of them."""

    def __init__(self, orchestrator: Orchestrator, rng: random.Random) -> None:
        self.orchestrator = orchestrator
        self.rng = rng
        self.asks: list[Ask] = []
        self._numbers = itertools.count()
        self._mark = f"{rng.getrandbits(32):08x}"

    def ask(self, tool: str, *, expects: frozenset[str] | None = None, **arguments: Any) -> Ask:
        """A call to be made, with a nonce of its own."""
        once = tool not in REPEATABLE
        nonce = f"n{self._mark}-{next(self._numbers)}"
        return Ask(
            nonce=nonce,
            tool=tool,
            arguments=json.dumps({"nonce": nonce, **arguments}),
            once=once,
            expects=expects or (ONCE_ENDS if once else AGAIN_ENDS),
        )

    def mixture(self, count: int, seconds: float = 0.05, tools: Sequence[str] = MIXED, **options: Any) -> list[Ask]:
        """Calls of several tools that take about so long."""
        return [
            self.ask(self.rng.choice(tools), seconds=round(seconds * self.rng.uniform(0.5, 1.5), 3), **options)
            for _ in range(count)
        ]

    async def perform(self, asks: Sequence[Ask], **options: Any) -> None:
        """Make the calls in one message, and wait for every answer."""
        self.asks += asks
        by_arguments = {ask.arguments: ask for ask in asks}
        by_call_id: dict[str, Ask] = {}

        def hear(event: RunUpdate) -> None:
            match event:
                case CallStarted():
                    ask = by_call_id[event.call_id] = by_arguments[event.arguments]
                    ask.call_id, ask.sent_s = event.call_id, time.monotonic()
                case CallEnded():
                    by_call_id[event.call_id].answer(event.result, time.monotonic())

        message = AssistantMessage(
            tool_calls=tuple(
                RequestedCall(id=f"id-{ask.nonce}", name=ask.tool, arguments=ask.arguments) for ask in asks
            )
        )
        try:
            async with asyncio.timeout(UNFINISHED_AFTER_S):
                answers = await self.orchestrator.execute(message, on_event=hear, **options)
        except TimeoutError:
            return  # whoever has no outcome is unfinished
        except ToolfleetError as error:
            for ask in asks:
                ask.error = "" if ask.outcome else f"{type(error).__name__}: {error}"[:200]
            return
        for ask, answer in zip(asks, answers, strict=True):
            ask.message = answer.content if answer.tool_call_id == f"id-{ask.nonce}" else "another call's message"
            if not ask.outcome:  # nobody was asked: it has its answer, but nothing was done
                ask.outcome, ask.content, ask.ended_s = UNASKED, answer.content, time.monotonic()

    @asynccontextmanager
    async def running(
        self,
        conversations: int = 8,
        calls: int = 5,
        seconds: float = 0.05,
        tools: Sequence[str] = MIXED,
        pause_s: float = 0.02,
    ) -> AsyncIterator[None]:
        """Conversations that go on asking until this is left, and are then waited for."""
        over = asyncio.Event()

        async def converse() -> None:
            while not over.is_set():
                await self.perform(self.mixture(calls, seconds, tools))
                await asyncio.sleep(pause_s * self.rng.random())

        async with asyncio.TaskGroup() as group:
            for _ in range(conversations):
                group.create_task(converse())
            try:
                yield
            finally:
                over.set()
