"""Orchestrators that ask a model: the rehearsal's real server, or replies written down in the test."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from toolfleet.messages import AssistantMessage, Message, RequestedCall, Usage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer, ReplyComplete
from toolfleet.settings import Settings


@asynccontextmanager
async def rehearsed(settings: Settings, *, api_key: str = "rehearsal", **options: Any) -> AsyncIterator[Orchestrator]:
    """An orchestrator whose model follows the program in the question; see models/rehearsal/program.py."""
    async with RehearsalServer(**options) as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key=api_key)
        async with Orchestrator(model=model, settings=settings) as orchestrator:
            yield orchestrator


class WrittenModel:
    """A model that says what a test wrote down, then "done".

    Each reply is a message and a finish reason; instead of a message it may be a function of the conversation, which
    may be async.
    """

    name = "written"

    def __init__(self, *replies: tuple[Any, str]) -> None:
        self._replies = list(replies)
        self.heard: list[Sequence[Message]] = []

    async def stream(self, messages: Sequence[Message], tools: Any, **_: Any) -> AsyncIterator[ReplyComplete]:
        self.heard.append(messages)
        said, reason = self._replies.pop(0) if self._replies else (AssistantMessage(content="done"), "stop")
        if callable(said):
            said = said(messages)
            said = await said if inspect.isawaitable(said) else said
        yield ReplyComplete(message=said, usage=Usage(), model=self.name, finish_reason=reason)

    async def aclose(self) -> None:
        pass


def requesting(*calls: tuple[str, str, str]) -> AssistantMessage:
    """A reply that asks for calls: (id, name, arguments), as they are."""
    return AssistantMessage(
        tool_calls=tuple(RequestedCall(id=id_, name=name, arguments=arguments) for id_, name, arguments in calls)
    )
