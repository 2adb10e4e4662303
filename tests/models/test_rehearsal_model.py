"""`rehearsal_model()`: a real server that comes and goes with the model."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from contextlib import aclosing

import psutil

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.models import REHEARSAL_MODEL, rehearsal_model, reply


def ports() -> set[int]:
    return {each.laddr.port for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_LISTEN}


def listening() -> int:
    return len(ports())


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


async def test_it_answers_while_the_loop_that_asked_it_stands_still() -> None:
    """So what it computes never holds up that loop: an API's, for instance."""
    before = ports()
    async with aclosing(rehearsal_model()) as model:
        await reply(model, [UserMessage(content="hello")])
        [port] = ports() - before
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=20) as answer:  # blocks this loop
            assert json.load(answer)["data"][0]["id"] == REHEARSAL_MODEL


async def test_whoever_is_cancelled_while_it_starts_leaves_no_server_behind() -> None:
    before, model = ports(), rehearsal_model()
    asked = asyncio.create_task(reply(model, [UserMessage(content="hello")]))
    await asyncio.sleep(0)  # it has begun to start
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await model.aclose()
    async with asyncio.timeout(20):
        while ports() != before or any(each.name == "rehearsal-model" for each in threading.enumerate()):
            await asyncio.sleep(0.01)
