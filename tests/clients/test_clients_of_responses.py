"""Clients that ask the Responses API: for several of them it is what they do unless told otherwise."""

from __future__ import annotations

from tests.clients.every_client import EveryClient
from tests.clients.started import Client, each_of, node, python

CLIENTS = [
    Client("openai", python, "openai_responses.py"),
    Client("langchain", python, "langchain_client.py", ("responses",)),
    Client("pydantic-ai", python, "pydantic_ai_client.py", ("responses",)),
    Client("openai-agents", python, "agents_client.py", ("responses",)),
    Client("openai-npm", node, "openai_responses.mjs"),
    Client("ai-sdk-openai", node, "ai_sdk.mjs", ("responses",)),
]


@each_of(CLIENTS)
class TestClientsOfResponses(EveryClient):
    """All of them, as they come."""
