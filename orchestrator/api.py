"""The library's front door: an `Orchestrator` that runs conversations, streams them, or performs one batch of calls.

Builds the parts and closes them; decides nothing about a run.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, Self

from orchestrator.builtin import BuiltIn
from orchestrator.calls import Batch, Calls
from orchestrator.catalog import Catalog
from orchestrator.dispatch import Dispatcher
from orchestrator.events import Event, RunBegan, RunEnded
from orchestrator.gather import Gatherer
from orchestrator.handles import Handles
from orchestrator.loop import TurnLoop
from orchestrator.messages import answered_ids, tool_messages
from orchestrator.models.protocol import ChatModel
from orchestrator.publishers import publisher_for
from orchestrator.run import CallRecord, Run, RunStarted
from orchestrator.store import RunStore
from toolfleet.broker import celery_app
from toolfleet.calls import call_id
from toolfleet.connections import connect_async, translating
from toolfleet.errors import CallerError
from toolfleet.messages import AssistantMessage, Message, ToolMessage, UserMessage
from toolfleet.settings import Settings, read_settings
from toolfleet.streams import Priority
from toolfleet.wire import Seal


class OrchestratorClosed(CallerError):
    """A run was still going on when its orchestrator was closed; its record is kept as far as it came."""


class Orchestrator:
    """Runs conversations whose tool calls are performed by a fleet of workers.

    Use it as an async context manager; any number of runs may go on at once. `model` is closed with it.
    Raises StoreUnreachable on entry when Redis does not answer.
    """

    def __init__(
        self,
        model: ChatModel | None = None,
        *,
        redis_url: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        overrides = {} if redis_url is None else {"redis_url": redis_url}
        self._settings = settings or read_settings(**overrides)
        self._model = model
        self._id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Connect."""
        settings = self._settings
        seal = Seal(settings)
        async with AsyncExitStack() as stack:
            client = connect_async(settings)
            stack.push_async_callback(client.aclose)
            with translating(settings):
                await client.ping()
            self.catalog = Catalog(client, settings)
            self._gatherer = Gatherer(client, settings, seal, self._id)
            self._gatherer.start()
            stack.push_async_callback(self._gatherer.aclose)
            app = celery_app(settings)
            self._dispatcher = Dispatcher(publisher_for(settings, client, app), seal, self._gatherer)
            stack.push_async_callback(self._dispatcher.aclose)
            handles = Handles(client, settings, seal, self._gatherer)
            self._calls = Calls(
                settings,
                self._id,
                dispatcher=self._dispatcher,
                gatherer=self._gatherer,
                handles=handles,
                built_in=BuiltIn(handles, app),
            )
            self._store = RunStore(client, settings)
            if self._model is not None:
                stack.push_async_callback(self._model.aclose)
                self._loop = TurnLoop(
                    self._model, catalog=self.catalog, calls=self._calls, handles=handles, store=self._store
                )
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Disconnect. Runs still going on end with OrchestratorClosed where they are awaited."""
        await self._exit.aclose()

    @property
    def dispatched(self) -> int:
        """How many calls this orchestrator has put into the queues so far."""
        return self._dispatcher.dispatched

    async def run(
        self,
        question: str | Sequence[Message],
        *,
        tools: Sequence[str] | None = None,
        slow: Literal["wait", "handle"] = "wait",
        context: Mapping[str, Any] | None = None,
        max_turns: int | None = None,
        timeout_s: float | None = None,
    ) -> Run:
        """One conversation to its end; look at `state`, `answer`, `reason`, `messages`, `calls`, `usage`.

        `tools`: names to offer, or None for all that live workers serve. `slow`: wait for long-running tools, or give
        the model a handle. `context`: your own JSON, handed to the tools and hidden from the model. A run that fails
        is returned, not raised; only what stops it from beginning is (UnknownTool, StoreUnreachable).
        """
        async for event in self.stream(
            question, tools=tools, slow=slow, context=context, max_turns=max_turns, timeout_s=timeout_s
        ):
            if isinstance(event, RunEnded):
                return event.run
        raise AssertionError("a stream ends with RunEnded")

    async def stream(
        self,
        question: str | Sequence[Message],
        *,
        tools: Sequence[str] | None = None,
        slow: Literal["wait", "handle"] = "wait",
        context: Mapping[str, Any] | None = None,
        max_turns: int | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Event]:
        """As `run`, with everything that happens on the way; `RunEnded` comes last."""
        started = RunStarted(
            run_id=secrets.token_hex(8),
            messages=_conversation(question),
            tools=None if tools is None else tuple(tools),
            slow=slow,
            context=dict(context or {}),
            max_turns=max_turns or self._settings.max_turns,
            deadline_unix_s=None if timeout_s is None else time.time() + timeout_s,
        )
        loop = self._turn_loop()
        await self.catalog.choose(tools)
        await self._store.append(started.run_id, started)
        run = Run.start(started)
        yield RunBegan(run_id=run.run_id)
        events: asyncio.Queue[Event | None] = asyncio.Queue()

        async def drive() -> None:
            events.put_nowait(RunEnded(run=await loop.drive(run, events.put_nowait)))

        driving = asyncio.create_task(drive())
        driving.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while event := await events.get():
                yield event
            if driving.cancelled():
                raise OrchestratorClosed(f"run {run.run_id} did not end before its orchestrator was closed")
            driving.result()  # an error that no run can end in is a bug, and is not kept quiet
        finally:
            driving.cancel()

    async def execute(
        self,
        message: AssistantMessage,
        *,
        tools: Sequence[str] | None = None,
        history: Sequence[Message] = (),
        context: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        priority: Priority = Priority.NORMAL,
        on_event: Callable[[Event], None] | None = None,
    ) -> list[ToolMessage]:
        """Bring your own loop: the calls of one assistant message in, one ToolMessage for each out, in its order.

        Calls of this message that `history` answers already are not run again. Raises UnknownTool for `tools` that no
        worker serves, BrokerUnreachable and StoreUnreachable; a failing call is a ToolMessage with `is_error`.
        """
        run_id = secrets.token_hex(8)
        answered = answered_ids(message, history)
        records = [
            CallRecord(
                call_id=call_id(run_id, 1, position),
                turn=1,
                requested_id=request.id,
                tool=request.name,
                arguments=request.arguments,
            )
            for position, request in enumerate(message.tool_calls)
            if request.id not in answered
        ]
        batch = Batch(
            run_id=run_id,
            offered=await self.catalog.choose(tools),
            emit=on_event,
            context=dict(context or {}),
            deadline_unix_s=None if timeout_s is None else time.time() + timeout_s,
            priority=priority,
        )
        gathered = await self._calls.perform(records, batch)
        self._calls.recorded(gathered.results)
        return list(tool_messages(records, gathered.results))

    def _turn_loop(self) -> TurnLoop:
        if self._model is None:
            raise CallerError("this Orchestrator has no model: pass one, or use `execute` with calls of your own")
        return self._loop


def _conversation(question: str | Sequence[Message]) -> tuple[Message, ...]:
    return (UserMessage(content=question),) if isinstance(question, str) else tuple(question)
