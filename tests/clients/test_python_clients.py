"""Python clients of Chat Completions that live together in one environment."""

from __future__ import annotations

from tests.clients.every_client import EveryClient
from tests.clients.started import Client, each_of, python

CLIENTS = [
    Client("openai", python, "openai_chat.py"),
    Client("langchain", python, "langchain_client.py", ("chat",)),
    Client("pydantic-ai", python, "pydantic_ai_client.py", ("chat",)),
    Client("openai-agents", python, "agents_client.py", ("chat",)),
]


@each_of(CLIENTS)
class TestPythonClients(EveryClient):
    """All of them, as they come."""
