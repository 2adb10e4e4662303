"""The library's front door: an `Orchestrator` that runs conversations, streams them, or performs one batch of calls.

Arguments in, one line of delegation out. It is open or it is not: its services are one value, built on entry and given
up on exit, and whatever needs them raises NotOpen where there are none.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, Unpack

from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.connections import address
from toolfleet.errors import CallerError
from toolfleet.messages import AssistantMessage, Message, ToolMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.calls.answers import OnUnknownTool
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.options import BatchOptions, RunOptions
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import RunUpdate
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.status.overview import CallStanding
from toolfleet.orchestrator.store.conversations import Conversations
from toolfleet.orchestrator.store.run_store import Head
from toolfleet.orchestrator.sync import run_sync
from toolfleet.orchestrator.tools.agents import Agent, Agents
from toolfleet.orchestrator.tools.interceptors import Interceptor, Interceptors, RequestedToolCall
from toolfleet.orchestrator.tools.offer import ToolProvider
from toolfleet.orchestrator.tools.tool_search import ToolSearch, by_shared_words
from toolfleet.orchestrator.wiring import Config, Services, find_redis, open_services
from toolfleet.settings import Settings, read_settings
from toolfleet.wire import Seal


class NotOpen(CallerError):
    """The orchestrator was asked for something before it was opened, or after it was closed."""


class Orchestrator:
    """Runs conversations whose tool calls are performed by a fleet of workers.

    Use it as an async context manager; any number of runs may go on at once. Every run is stored as it goes: when an
    orchestrator is lost, another one with the same model goes on with its runs. `model` is closed with it; with
    `adopts=False` it works on nothing but what was begun here.

    Its fleet is the one at `redis_url`, at TOOLFLEET_REDIS_URL, that of `toolfleet up` on this machine, or the one at
    redis://127.0.0.1:6379/0: the first of these that is named or runs, found on entry (`address` says which). Raises
    StoreUnreachable on entry when there is none, OtherSecret when all its live workers have another secret.
    """

    @exact()
    def __init__(
        self,
        model: ChatModel | None = None,
        *,
        agents: Sequence[Agent] = (),
        interceptors: Sequence[Interceptor] = (),
        named_interceptors: Mapping[str, Interceptor] | None = None,
        tool_provider: ToolProvider | None = None,
        resolve_tool: Callable[[str], str | None] | None = None,
        on_unknown_tool: OnUnknownTool = "tell",
        needs_approval: Callable[[RequestedToolCall], bool] | None = None,
        tool_search: ToolSearch = by_shared_words,
        redis_url: str | None = None,
        settings: Settings | None = None,
        adopts: bool = True,
    ) -> None:
        """`interceptors` see every call, `named_interceptors` those of runs that ask for them by name.

        `tool_provider` chooses the tools of runs that name none. `resolve_tool` may say which tool a name means that
        was not offered. `needs_approval` adds to what tools themselves require. `tool_search` says which tools a query
        of `search_tools` means.
        """
        overrides = {} if redis_url is None else {"redis_url": redis_url}
        self._asked = self._settings = settings or read_settings(**overrides)
        own_agents = Agents(
            agents,
            model="" if model is None else model.name,
            max_turns=self._settings.max_turns,
            max_depth=self._settings.max_depth,
        )
        self._config = Config(
            model=model,
            agents=own_agents,
            interceptors=Interceptors(interceptors, named_interceptors),
            tool_provider=tool_provider,
            resolve_tool=resolve_tool,
            on_unknown_tool=on_unknown_tool,
            needs_approval=needs_approval,
            tool_search=tool_search,
            adopts=adopts,
        )
        self._id = _new_id()
        self._seal = Seal(self._settings)
        self._exit = AsyncExitStack()
        self._opened: Services | None = None

    async def __aenter__(self) -> Self:
        """Connect, and take over runs that others have left."""
        # Anew each time: one that was made before a fork would share its reply stream with its siblings.
        self._id = _new_id()
        async with AsyncExitStack() as stack:
            self._settings = await find_redis(stack, self._asked)
            self._opened = await open_services(stack, self._settings, self._seal, self._id, self._config)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Hand over what is going on, and disconnect. Who awaits such a run here gets OrchestratorClosed."""
        try:
            await self._exit.aclose()
        finally:
            # Not before: what is handed over may still ask, an interceptor that makes a call of its own for example.
            self._opened = None

    @property
    def _services(self) -> Services:
        if self._opened is None:
            raise NotOpen(
                "this Orchestrator is not open: use it inside `async with Orchestrator(…) as orchestrator:`; without "
                "an event loop, use `run_sync` or `toolfleet.sync.do`, which open it"
            )
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether it has been entered and not been left."""
        return self._opened is not None

    @property
    def settings(self) -> Settings:
        """How the fleet is set up that it uses; where its Redis was found, once it has been entered."""
        return self._settings

    @property
    def address(self) -> str:
        """Where the Redis of its fleet is, without password; certain only once it has been entered."""
        return address(self._settings.redis_url)

    @property
    def orchestrator_id(self) -> str:
        """What it calls itself in Redis: host, process, and a random part."""
        return self._id

    @property
    def catalog(self) -> Catalog:
        """The tools of its fleet. Raises NotOpen, as everything below."""
        return self._services.catalog

    @property
    def conversations(self) -> Conversations:
        """Which run of a conversation was its last."""
        return self._services.conversations

    @property
    def dispatched(self) -> int:
        """How many calls this orchestrator has put into the queues since it was opened."""
        return self._services.dispatcher.dispatched

    @property
    def adopted(self) -> int:
        """How many runs of others this orchestrator has taken over since it was opened."""
        return self._services.runs.adopted_so_far

    @property
    def working(self) -> int:
        """How many runs this orchestrator works on now; those that rest cost nothing and do not count."""
        return self._services.runs.working

    # --- runs ---------------------------------------------------------------------------------------------------

    @exact(RunOptions)
    async def run(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
        """One conversation to its end; look at `state`, `answer`, `reason`, `messages`, `calls`, `usage`.

        A run that fails is returned, not raised; only what stops it from beginning is (UnknownTool, StoreUnreachable).
        Whoever stops waiting cancels the run; `start` begins one that nobody has to wait for.
        """
        return await self._services.control.run(question, options)

    @exact(RunOptions)
    def run_sync(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
        """As `run`, for callers without an event loop: scripts, notebooks, threads. Opens this orchestrator by itself.

        See orchestrator.sync for its other methods, and for when it is closed. Raises NotHere after `async with`.
        """
        return run_sync(self, question, **options)

    @exact(RunOptions)
    def stream(
        self, question: str | Sequence[Message], **options: Unpack[RunOptions]
    ) -> AsyncGenerator[RunUpdate, None]:
        """As `run`, with everything that happens on the way; `RunEnded` comes last.

        Raises RunExists for a `run_id` that is stored already: its beginning is missed.
        """
        return self._services.control.stream(question, options)

    @exact(RunOptions)
    async def start(
        self,
        question: str | Sequence[Message],
        *,
        on_event: Callable[[RunUpdate], None] | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Begin a run and return its id at once; with a `run_id` that is stored already, do nothing else.

        `on_event` hears what happens for as long as the run is worked on here. It must not block.
        """
        return await self._services.control.start(question, options, on_event)

    @exact(RunOptions)
    async def submit(self, question: str | Sequence[Message], *, model: str, **options: Unpack[RunOptions]) -> str:
        """Store a run for whichever orchestrator has this model, and return its id at once. Needs no model here."""
        return await self._services.control.submit(question, options, model=model)

    async def wait(self, run_id: str) -> Run:
        """Any run once it has ended, wherever it goes on. Raises RunNotFound."""
        return await self._services.control.wait(run_id)

    async def get(self, run_id: str) -> Run:
        """Any run as it stands. Raises RunNotFound, StoreUnreachable."""
        return (await self._services.store.load(run_id)).run

    @exact()
    async def runs(
        self, *, limit: int = 50, offset: int = 0, states: Collection[State] = (), tenant: str | None = None
    ) -> Sequence[Head]:
        """The newest runs first, as far as their heads tell; those of one tenant if named. Raises StoreUnreachable."""
        return await self._services.store.heads(limit=limit, offset=offset, states=states, tenant=tenant)

    async def tenant_of(self, run_id: str) -> str:
        """Whose run it is. Raises RunNotFound, StoreUnreachable."""
        return await self._services.store.tenant(run_id)

    async def cancel(self, run_id: str, reason: str = "cancelled by request") -> Run:
        """End a run now: its model is not asked again, its open calls are cancelled on the workers.

        Raises RunNotOpen for a run that has ended, RunNotFound.
        """
        return await self._services.control.cancel(run_id, reason)

    async def resume(self, run_id: str, messages: str | Sequence[Message] = ()) -> Run:
        """Let a run that has ended go on, with more messages if there are any; `wait` for it as for any other.

        Raises RunNotOpen for a run that has not ended, RunNotFound.
        """
        return await self._services.control.resume(run_id, messages)

    async def approve(self, call_id_: str, approval: Approval) -> Run:
        """Decide about a call that waits for approval. Raises RunNotOpen for one that does not, RunNotFound."""
        return await self._services.control.approve(call_id_, approval)

    async def delete(self, run_id: str) -> bool:
        """Forget a run. Whether there was one. Raises StoreUnreachable."""
        return await self._services.store.delete(run_id)

    # --- single calls -------------------------------------------------------------------------------------------

    async def calls(self, run_id: str) -> Sequence[CallStanding]:
        """How each call of a run stands, in the order of asking. Raises RunNotFound, StoreUnreachable."""
        return (await self._services.overview.run(run_id)).calls

    async def cancel_call(self, call_id_: str) -> CallStanding:
        """Cancel one call, of a run or of `execute`, whoever works on it; how it stands a moment later.

        The run goes on with its other calls. Raises RunNotOpen for a call that has ended or waits for approval.
        """
        return await self._services.direct_cancel.cancel(call_id_)

    # --- one call, without a model ------------------------------------------------------------------------------

    @exact()
    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        *,
        patience_s: float | None = None,
        context: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        on_event: Callable[[RunUpdate], None] | None = None,
        tenant: str = "",
    ) -> Returned | Failed | Submitted:
        """One call of a tool: its result or, when it takes longer than `patience_s`, a handle for what goes on.

        `arguments` are values, or JSON text. A failing call is a Failed record; raises UnknownTool, InvalidOption,
        BrokerUnreachable, StoreUnreachable.
        """
        return await self._services.direct_calls.call(
            tool,
            arguments,
            patience_s=patience_s,
            context=context,
            timeout_s=timeout_s,
            on_event=on_event,
            tenant=tenant,
        )

    @exact()
    async def task(self, handle: str, *, wait_s: float = 0.0, tenant: str | None = None) -> Status:
        """How a handle's call stands, after waiting up to `wait_s` for its result. Raises HandleNotFound.

        With a `tenant`, a handle of another one is not found.

        A handle is unguessable, and all that is asked for: give it to nobody who may not see the result.
        """
        return await self._services.direct_calls.status(handle, wait_s=wait_s, tenant=tenant)

    @exact()
    async def cancel_task(self, handle: str, *, tenant: str | None = None) -> Status:
        """Cancel a handle's call, queued, running or elsewhere; how it has ended. Raises HandleNotFound."""
        return await self._services.direct_calls.cancel(handle, tenant=tenant)

    # --- bring your own loop ------------------------------------------------------------------------------------

    @exact(BatchOptions)
    async def execute(
        self, message: AssistantMessage, *, history: Sequence[Message] = (), **options: Unpack[BatchOptions]
    ) -> list[ToolMessage]:
        """Bring your own loop: the calls of one assistant message in, one ToolMessage for each out, in its order.

        Calls of this message that `history` answers already are not run again; those of tools that require approval
        are denied unless their id is in `approved`. Raises UnknownTool for `tools` that no worker serves,
        BrokerUnreachable and StoreUnreachable; a failing call is a ToolMessage with `is_error`.
        """
        return await self._services.direct_batches.messages(message, history, options)

    @exact(BatchOptions)
    async def execute_results(
        self, message: AssistantMessage, *, history: Sequence[Message] = (), **options: Unpack[BatchOptions]
    ) -> list[Returned | Failed | Submitted]:
        """As `execute`, with the results themselves: kinds of failure and attributes that no model sees."""
        return await self._services.direct_batches.results(message, history, options)

    @exact(BatchOptions)
    async def complete(self, messages: Sequence[Message], **options: Unpack[BatchOptions]) -> tuple[Message, ...]:
        """The same conversation with an answer behind each call of its last reply; those it has are not run again.

        Raises what `execute` raises, and CallerError for a conversation that ends with something else.
        """
        return await self._services.direct_batches.complete(messages, options)


def _new_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
