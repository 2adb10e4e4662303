"""The rehearsal model as a `ChatModel`: its server starts with the first question and stops with the model.

Knows neither the planner nor the wire; both halves are what any other model and server have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

from toolfleet.messages import Message
from toolfleet.orchestrator.models.objections import objection_to_images
from toolfleet.orchestrator.models.openai import OpenAIChat
from toolfleet.orchestrator.models.openai_options import objection_to_options
from toolfleet.orchestrator.models.protocol import ChatModel, ModelEvent, OfferedTool
from toolfleet.orchestrator.models.rehearsal.own_thread import OwnThread
from toolfleet.orchestrator.models.rehearsal.reply import REHEARSAL_MODEL
from toolfleet.orchestrator.models.rehearsal.server import RehearsalServer


class RehearsalModel:
    """Asks a rehearsal server of its own, on a thread of its own, over HTTP on loopback.

    Belongs to the event loop that asks it first.
    """

    def __init__(self) -> None:
        self._exit = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._asked: ChatModel | None = None

    @property
    def name(self) -> str:
        """The same for all of them: orchestrators with a rehearsal model go on with one another's runs."""
        return REHEARSAL_MODEL

    def objection(self, messages: Sequence[Message], options: Mapping[str, Any]) -> str | None:
        """Return why it must not be asked this; None if nothing is known against it."""
        return objection_to_images(self.name, messages, sees=False) or objection_to_options(options)

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[OfferedTool],
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask for one reply; see `ChatModel.stream`. Raises PortInUse when no loopback port is free."""
        model = await self._start_once()
        async with aclosing(model.stream(messages, tools, extra_body=extra_body)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Close the connections and stop the server; the next question would start another one."""
        self._asked = None
        await self._exit.aclose()

    async def _start_once(self) -> ChatModel:
        async with self._starting:
            if self._asked is None:
                server = RehearsalServer()
                await self._exit.enter_async_context(OwnThread(server))
                model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
                self._exit.push_async_callback(model.aclose)
                self._asked = model
            return self._asked


def rehearsal_model() -> ChatModel:
    """A model for machines without a key: a fixed script behind a real HTTP server, which says so in its answers.

    It makes the calls that a question spells out: `call add {"a": 1} and call add {"a": 2} then call …`.
    """
    return RehearsalModel()
