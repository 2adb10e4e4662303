"""Clients of Chat Completions from npm."""

from __future__ import annotations

from tests.clients.every_client import EveryClient
from tests.clients.started import Client, each_of, node

CLIENTS = [
    Client("openai", node, "openai_chat.mjs"),
    Client("ai-sdk-openai", node, "ai_sdk.mjs", ("chat",)),
    Client("ai-sdk-openai-compatible", node, "ai_sdk.mjs", ("compatible",)),
]


@each_of(CLIENTS)
class TestNodeClients(EveryClient):
    """All of them, as they come."""
