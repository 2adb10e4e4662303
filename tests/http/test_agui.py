"""`/agui`: the official front end's client, and every event held to the types of the official package."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from tests.http.agui_front_end import asked, front_end, kinds, of_kind, sent, text_of, user

LOOKUP = {
    "name": "lookup",
    "description": "Look up a price in the front end's own database.",
    "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
}
TEXT = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
CALL = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


@pytest.fixture
def thread():
    return secrets.token_hex(8)


@pytest.fixture
async def client(api, tmp_path):
    with front_end(tmp_path, api.url, api.local_key.read()) as running:
        yield running


async def test_U13_text_calls_results_and_steps_are_told_in_the_protocols_order(api, thread):
    events = await sent(api.client, asked('say "Well, now." call add {"a": 2, "b": 3}', thread=thread))
    assert kinds(events) == [
        *("RUN_STARTED", "STEP_STARTED", *TEXT, *CALL, "TOOL_CALL_RESULT", "STEP_FINISHED"),
        *("STEP_STARTED", *TEXT, "STEP_FINISHED", "RUN_FINISHED"),
    ]
    print(events)
    assert 0
