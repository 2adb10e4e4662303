"""Runs whose server is killed in the midst of a reply: their streams go on elsewhere, after any number."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from aiohttp import web

from tests.fleet.fleets import fleet_of
from tests.fleet.strict_provider import openai_calls, openai_chunk
from tests.http.agui_front_end import asked, front_end, of_kind, sent, text_of, user
from tests.http.responses import kinds, numbers, plain, rest_of
from tests.http.serving import Served, serving
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.doors.openai.responses.events import LOST

FIRST, SECOND = "It was a dark and stormy night. ", "On the whole it was a fine day."
FOUND_AGAIN_WITHIN_S = 60


class SlowProvider:
    """A model that calls a tool, then begins to write and never ends; asked again, it says something else."""

    def __init__(self) -> None:
        self.asked = 0
        self.goes_on = asyncio.Event()
        """Whether it says that something else; it does unless a test clears this."""
        self.goes_on.set()

    async def reply(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        said = json.loads(await request.read())["messages"]
        if said[-1]["role"] == "user":
            events = openai_calls(("add", ['{"a": 2, "b": 3}']))
        elif self.asked == 2:
            events = [openai_chunk({"content": word + " "}) for word in FIRST.split()]
        else:
            await self.goes_on.wait()
            events = [openai_chunk({"content": SECOND}), openai_chunk({}, "stop"), "[DONE]"]
        for event in events:
            await response.write(f"data: {event}\n\n".encode())
        if self.asked == 2:
            await asyncio.Event().wait()
        return response


@pytest.fixture(scope="module")
def short_leases() -> Iterator[LocalFleet]:
    with fleet_of(pools={"io": 1}, lease_s=2, heartbeat_s=0.3) as running:
        yield running


@pytest.fixture
async def provider() -> AsyncIterator[tuple[SlowProvider, str]]:
    model = SlowProvider()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.reply)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield model, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()


def client_of(served: Served) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=served.key, max_retries=0, timeout=60)


async def heard_until_killed(stream: Any, served: Served, heard: list[Any]) -> None:
    """What is heard of a stream whose server is killed in the midst of the model's first reply in words."""
    async for event in stream:
        heard.append(event)
        if getattr(event, "delta", "") == " stormy":
            served.process.kill()


async def test_a_stream_goes_on_after_its_server_was_killed_in_the_midst_of_a_reply(
    short_leases: LocalFleet, provider: tuple[SlowProvider, str], tmp_path: Path
) -> None:
    model, address = provider
    variables = {"OPENAI_BASE_URL": address, "OPENAI_MODEL": "slow", "OPENAI_API_KEY": "k"}
    heard: list[Any] = []
    with serving(short_leases.settings, tmp_path, **variables) as first:
        async with client_of(first) as client:
            stream = await client.responses.create(model="slow", input="Tell.", background=True, stream=True)
            with pytest.raises(openai.APIConnectionError):
                await heard_until_killed(stream, first, heard)
    told = plain(heard)
    response_id = told[0]["response"]["id"]
    assert "".join(event.get("delta", "") for event in told).startswith("It was a dark and stormy")
    with serving(short_leases.settings, tmp_path, **variables) as second:
        async with client_of(second) as client, asyncio.timeout(FOUND_AGAIN_WITHIN_S):
            rest = await rest_of(client, response_id, told[-1]["sequence_number"])
            whole = await rest_of(client, response_id)
            response = (await client.responses.retrieve(response_id)).to_dict()
            for at in range(len(told)):
                after = told[at]["sequence_number"]
                assert await rest_of(client, response_id, after) == [e for e in whole if e["sequence_number"] > after]
    assert model.asked == 3
    seen = numbers(told + rest)
    assert seen == sorted(set(seen)), "a number went back, or came twice"
    assert rest[0]["sequence_number"] > LOST
    assert kinds(rest)[0] == "output_item.added"
    assert rest[0]["item"]["id"] == response["output"][0]["id"]
    assert whole[-len(rest) :] == rest
    assert rest[-1]["response"] == response
    assert [item["content"][0]["text"] for item in response["output"]] == [SECOND]


async def test_U13_a_front_end_whose_server_was_killed_asks_another_one_and_has_everything_once(
    short_leases: LocalFleet, provider: tuple[SlowProvider, str], tmp_path: Path
) -> None:
    model, address = provider
    variables = {"OPENAI_BASE_URL": address, "OPENAI_MODEL": "slow", "OPENAI_API_KEY": "k"}
    body = asked("Tell.", thread="t1")
    (tmp_path / "client").mkdir()
    sign = tmp_path / "has-read"
    with front_end(tmp_path / "client") as client:
        with serving(short_leases.settings, tmp_path, **variables) as first:
            so_far = {"after": "stormy", "file": str(sign)}
            running = asyncio.create_task(client.run("t1", "r1", say=[user("Tell.")], sign=so_far, **where(first)))
            async with httpx.AsyncClient(base_url=first.url, headers=first.local_key) as http:
                begun = await sent(http, body, most=14)
            async with asyncio.timeout(FOUND_AGAIN_WITHIN_S):
                while not sign.exists():
                    await asyncio.sleep(0.01)
            first.process.kill()
            cut = await running
        assert cut["failed"]
        assert cut["messages"][-1]["content"].startswith("It was a dark")
        with serving(short_leases.settings, tmp_path, **variables) as second:
            again = await client.run("t1", "r1", **where(second))
            async with httpx.AsyncClient(base_url=second.url, headers=second.local_key) as http:
                whole = await sent(http, body)
                rest = await sent(http, body, last=begun[-1].id)
    assert model.asked == 3
    assert again["failed"] is None
    assert [message["role"] for message in again["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert again["messages"][-1]["content"] == text_of(whole) == SECOND
    assert len(of_kind(again["events"], "TOOL_CALL_RESULT")) == 1
    assert [each.type for each in rest][:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]  # what it had is void
    assert rest[1].event["messages"][-1]["content"] == SECOND


def where(served: Served) -> dict[str, str]:
    return {"url": f"{served.url}/agui", "key": served.key}
