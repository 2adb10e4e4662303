"""`rehearsal_model()`: a real server that comes and goes with the model."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import psutil

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.models import REHEARSAL_MODEL, rehearsal_model, reply


def listening() -> int:
    return sum(1 for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_LISTEN)


async def test_its_server_listens_from_the_first_question_until_it_is_closed() -> None:
    before = listening()
    model = rehearsal_model()
    assert (model.name, listening()) == (REHEARSAL_MODEL, before)
    async with aclosing(model):
        said = await asyncio.gather(*(reply(model, [UserMessage(content="hello")]) for _ in range(5)))
        assert all("rehearsal model" in each.message.content for each in said)
        assert listening() == before + 1
    assert listening() == before


async def test_it_may_be_asked_again_after_it_was_closed() -> None:
    model = rehearsal_model()
    for _ in range(2):
        assert (await reply(model, [UserMessage(content="hello")])).message.content
        await model.aclose()
