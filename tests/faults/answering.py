"""A person who answers whatever tools ask, and a process of one that can be killed at any point."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator

from toolfleet.errors import StoreUnreachable
from toolfleet.logs import configure_logs
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.errors import QuestionClosed, QuestionNotFound

LOOK_EVERY_S = 0.1


async def answer_all(orchestrator: Orchestrator, person: str) -> AsyncIterator[tuple[str, str]]:
    """Answer for ever: what was asked, and the answer, of those that count as far as this person was told."""
    while True:
        try:
            waiting = (await orchestrator.questions()).waiting
        except StoreUnreachable:
            continue
        for asked in waiting:
            word = f"{person}-{asked.message}"
            try:
                await orchestrator.answer(asked.question_id, word, by=person)
            except (QuestionClosed, QuestionNotFound, StoreUnreachable):
                continue
            yield asked.message, word
        await asyncio.sleep(LOOK_EVERY_S)


async def main() -> None:
    async with Orchestrator() as orchestrator:
        async for _ in answer_all(orchestrator, "ghost"):
            pass


if __name__ == "__main__":
    configure_logs("error")
    importlib.import_module("toolfleet.testing.instruments")
    asyncio.run(main())
