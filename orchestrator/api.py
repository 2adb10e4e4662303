"""The library's front door: an `Orchestrator` that runs conversations, streams them, or performs one batch of calls.

Builds the parts and closes them; decides nothing about a run.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Self, Unpack

import structlog

from toolfleet.calls import Failed, Returned, Submitted, run_of
from toolfleet.connections import address
from toolfleet.errors import CallerError, RunNotFound, RunNotOpen, StoreUnreachable
from toolfleet.messages import AssistantMessage, Message, ToolMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.calls.group import OnUnknownTool
from toolfleet.orchestrator.fleet.cancel import CancelRequest
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.options import BatchOptions, RunOptions, conversation, run_started
from toolfleet.orchestrator.run.events import Approval, ApprovalGiven, RunResumed, RunStarted, RunStopped
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.transcript import last_reply, tool_messages
from toolfleet.orchestrator.run.updates import RunBegan, RunEnded, RunUpdate
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.status.overview import AWAITING_APPROVAL, QUEUED, CallStanding
from toolfleet.orchestrator.store.journal import write_from_outside
from toolfleet.orchestrator.store.run_store import Head
from toolfleet.orchestrator.sync import run_sync
from toolfleet.orchestrator.tools.agents import Agent, Agents
from toolfleet.orchestrator.tools.builtin import CANCEL_WAIT_S
from toolfleet.orchestrator.tools.interceptors import Interceptor, Interceptors, RequestedToolCall, contributed
from toolfleet.orchestrator.tools.offer import ToolProvider
from toolfleet.orchestrator.wiring import Wishes, assemble, found_redis
from toolfleet.settings import Settings, read_settings
from toolfleet.wire import Seal

log = structlog.get_logger("toolfleet.orchestrator")


class OrchestratorClosed(CallerError):
    """A run was still going on when its orchestrator was closed: another one with its model goes on with it."""


class RunExists(CallerError):
    """A run with this id is stored already."""


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
        redis_url: str | None = None,
        settings: Settings | None = None,
        adopts: bool = True,
    ) -> None:
        """`interceptors` see every call, `named_interceptors` those of runs that ask for them by name.

        `tool_provider` chooses the tools of runs that name none. `resolve_tool` may say which tool a name means that
        was not offered. `needs_approval` adds to what tools themselves require.
        """
        overrides = {} if redis_url is None else {"redis_url": redis_url}
        self._asked = self._settings = settings or read_settings(**overrides)
        self._model = model
        self._agents = Agents(
            agents,
            model="" if model is None else model.name,
            max_turns=self._settings.max_turns,
            max_depth=self._settings.max_depth,
        )
        self._interceptors = Interceptors(interceptors, named_interceptors)
        self._wishes = Wishes(
            model=model,
            agents=self._agents,
            interceptors=self._interceptors,
            tool_provider=tool_provider,
            resolve_tool=resolve_tool,
            on_unknown_tool=on_unknown_tool,
            needs_approval=needs_approval,
            adopts=adopts,
        )
        self._id = _new_id()
        self._seal = Seal(self._settings)
        self._exit = AsyncExitStack()
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Connect, and take over runs that others have left."""
        # Anew each time: one that was made before a fork would share its reply stream with its siblings.
        self._id = _new_id()
        async with AsyncExitStack() as stack:
            self._settings = await found_redis(stack, self._asked)
            parts = await assemble(stack, self._settings, self._seal, self._id, self._wishes)
            self._exit = stack.pop_all()
        self.catalog, self.conversations = parts.catalog, parts.conversations
        self._dispatcher, self._runs, self._store = parts.dispatcher, parts.runs, parts.store
        self._offering, self._overview, self._canceller = parts.offering, parts.overview, parts.canceller
        self._single, self._batches = parts.single_calls, parts.batches
        self._is_open = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Hand over what is going on, and disconnect. Who awaits such a run here gets OrchestratorClosed."""
        self._is_open = False
        await self._exit.aclose()

    @property
    def is_open(self) -> bool:
        """Whether it has been entered and not been left."""
        return self._is_open

    @property
    def settings(self) -> Settings:
        """How the fleet is set up that it uses; where its Redis was found, once it has been entered."""
        return self._settings

    @property
    def address(self) -> str:
        """Where the Redis of its fleet is, without password; certain only once it has been entered."""
        return address(self._settings.redis_url)

    @property
    def dispatched(self) -> int:
        """How many calls this orchestrator has put into the queues so far."""
        return self._dispatcher.dispatched

    @property
    def orchestrator_id(self) -> str:
        """What it calls itself in Redis: host, process, and a random part."""
        return self._id

    @property
    def adopted(self) -> int:
        """How many runs of others this orchestrator has taken over so far."""
        return self._runs.adopted_so_far

    @property
    def working(self) -> int:
        """How many runs this orchestrator works on now; those that rest cost nothing and do not count."""
        return self._runs.working

    # --- runs ---------------------------------------------------------------------------------------------------

    @exact(RunOptions)
    async def run(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
        """One conversation to its end; look at `state`, `answer`, `reason`, `messages`, `calls`, `usage`.

        A run that fails is returned, not raised; only what stops it from beginning is (UnknownTool, StoreUnreachable).
        Whoever stops waiting cancels the run; `start` begins one that nobody has to wait for.
        """
        run_id, is_new = await self._begin(question, options)
        try:
            return await self.wait(run_id)
        except asyncio.CancelledError:
            if is_new:
                self._runs.run_errand(self._abandon(run_id))
            raise

    @exact(RunOptions)
    def run_sync(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
        """As `run`, for callers without an event loop: scripts, notebooks, threads. Opens this orchestrator by itself.

        See orchestrator.sync for its other methods, and for when it is closed. Raises NotHere after `async with`.
        """
        return run_sync(self, question, **options)

    @exact(RunOptions)
    async def stream(
        self, question: str | Sequence[Message], **options: Unpack[RunOptions]
    ) -> AsyncGenerator[RunUpdate, None]:
        """As `run`, with everything that happens on the way; `RunEnded` comes last.

        Raises RunExists for a `run_id` that is stored already: its beginning is missed.
        """
        events: asyncio.Queue[RunUpdate | None] = asyncio.Queue()
        run_id, is_new = await self._begin(question, options, emit=events.put_nowait)
        if not is_new:
            raise RunExists(f"run {run_id} is stored already: `wait` for it, or choose another run_id")
        ended = self._runs.end_of(run_id)
        if ended is not None:
            ended.add_done_callback(lambda _: events.put_nowait(None))
        is_over = False
        try:
            yield RunBegan(run_id=run_id)
            while event := await events.get():
                is_over = isinstance(event, RunEnded)
                yield event
                if is_over:
                    return
            raise OrchestratorClosed(f"run {run_id} did not end before its orchestrator was closed")
        finally:
            if not is_over:
                self._runs.run_errand(self._abandon(run_id))

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
        run_id, _ = await self._begin(question, options, emit=on_event)
        return run_id

    @exact(RunOptions)
    async def submit(self, question: str | Sequence[Message], *, model: str, **options: Unpack[RunOptions]) -> str:
        """Store a run for whichever orchestrator has this model, and return its id at once. Needs no model here."""
        started = await self._started(question, options, model)
        await self._store.begin(started)
        return started.run_id

    async def wait(self, run_id: str) -> Run:
        """Any run once it has ended, wherever it goes on. Raises RunNotFound."""
        ended = self._runs.end_of(run_id)
        if ended is None:
            return await self._store.end_of(run_id)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            if ended.cancelled():
                raise OrchestratorClosed(f"run {run_id} did not end before its orchestrator was closed") from None
            raise

    async def get(self, run_id: str) -> Run:
        """Any run as it stands. Raises RunNotFound, StoreUnreachable."""
        return (await self._store.load(run_id)).run

    @exact()
    async def runs(
        self, *, limit: int = 50, offset: int = 0, states: Collection[State] = (), tenant: str | None = None
    ) -> Sequence[Head]:
        """The newest runs first, as far as their heads tell; those of one tenant if named. Raises StoreUnreachable."""
        return await self._store.heads(limit=limit, offset=offset, states=states, tenant=tenant)

    async def tenant_of(self, run_id: str) -> str:
        """Whose run it is. Raises RunNotFound, StoreUnreachable."""
        return await self._store.tenant(run_id)

    async def cancel(self, run_id: str, reason: str = "cancelled by request") -> Run:
        """End a run now: its model is not asked again, its open calls are cancelled on the workers.

        Raises RunNotOpen for a run that has ended, RunNotFound.
        """
        under_way = (await self.get(run_id)).calls_under_way
        run = await write_from_outside(self._store, run_id, RunStopped(state="cancelled", reason=reason))
        for call in under_way:
            with suppress(RunNotFound, RunNotOpen):
                await self.cancel(call.call_id, reason)  # an agent's run has its call's id
        await self._canceller.cancel(
            [CancelRequest(call.call_id, call.tool, call.deadline_unix_s or time.time()) for call in under_way]
        )
        return run

    async def resume(self, run_id: str, messages: str | Sequence[Message] = ()) -> Run:
        """Let a run that has ended go on, with more messages if there are any; `wait` for it as for any other.

        Raises RunNotOpen for a run that has not ended, RunNotFound.
        """
        added = conversation(messages) if messages else ()
        return await write_from_outside(self._store, run_id, RunResumed(messages=added))

    async def approve(self, call_id_: str, approval: Approval) -> Run:
        """Decide about a call that waits for approval. Raises RunNotOpen for one that does not, RunNotFound."""
        given = ApprovalGiven(call_id=call_id_, approval=approval)
        return await write_from_outside(self._store, run_of(call_id_), given)

    async def delete(self, run_id: str) -> bool:
        """Forget a run. Whether there was one. Raises StoreUnreachable."""
        return await self._store.delete(run_id)

    # --- single calls -------------------------------------------------------------------------------------------

    async def calls(self, run_id: str) -> Sequence[CallStanding]:
        """How each call of a run stands, in the order of asking. Raises RunNotFound, StoreUnreachable."""
        return (await self._overview.run(run_id)).calls

    async def cancel_call(self, call_id_: str) -> CallStanding:
        """Cancel one call, of a run or of `execute`, whoever works on it; how it stands a moment later.

        The run goes on with its other calls. Raises RunNotOpen for a call that has ended or waits for approval.
        """
        standing = await self._overview.call(call_id_)
        if standing.is_over:
            raise RunNotOpen(f"call {call_id_} has ended already: it is {standing.state}")
        if standing.state == AWAITING_APPROVAL:
            raise RunNotOpen(f"call {call_id_} waits for approval: toolfleet runs deny {call_id_}")
        deadline_unix_s = standing.deadline_unix_s or time.time() + self._settings.long_call_timeout_s
        unwanted = CancelRequest(call_id_, standing.tool or "the call", deadline_unix_s)
        await self._canceller.cancel([unwanted])
        standing = await self._overview.until_over(call_id_, within_s=CANCEL_WAIT_S)
        if standing.state == QUEUED:
            # No worker has it, nor will one say so soon. Its owner finds the stored result when it is told to look.
            await self._canceller.end_unstarted([unwanted])
            await self._store.notify(run_of(call_id_))
            standing = await self._overview.until_over(call_id_, within_s=CANCEL_WAIT_S)
        return standing

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
        return await self._single.call(
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
        return await self._single.status(handle, wait_s=wait_s, tenant=tenant)

    @exact()
    async def cancel_task(self, handle: str, *, tenant: str | None = None) -> Status:
        """Cancel a handle's call, queued, running or elsewhere; how it has ended. Raises HandleNotFound."""
        return await self._single.cancel(handle, tenant=tenant)

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
        records, results = await self._batches.execute(message, history, options)
        return list(tool_messages(records, results))

    @exact(BatchOptions)
    async def execute_results(
        self, message: AssistantMessage, *, history: Sequence[Message] = (), **options: Unpack[BatchOptions]
    ) -> list[Returned | Failed | Submitted]:
        """As `execute`, with the results themselves: kinds of failure and attributes that no model sees."""
        records, results = await self._batches.execute(message, history, options)
        return [results[record.call_id] for record in records]

    @exact(BatchOptions)
    async def complete(self, messages: Sequence[Message], **options: Unpack[BatchOptions]) -> tuple[Message, ...]:
        """The same conversation with an answer behind each call of its last reply; those it has are not run again.

        Raises what `execute` raises, and CallerError for a conversation that ends with something else.
        """
        reply, answers = last_reply(messages)
        fresh = iter(await self.execute(reply, history=messages, **options))
        asked = [answers.get(call.id) or next(fresh) for call in reply.tool_calls]
        return (*messages[: len(messages) - len(answers)], *asked)

    async def _abandon(self, run_id: str) -> None:
        try:
            await self.cancel(run_id, "nobody waits for it any more")
        except (RunNotOpen, RunNotFound):
            pass  # it has ended meanwhile
        except StoreUnreachable as error:
            log.warning("run_not_cancelled", run_id=run_id, error=str(error))

    async def _begin(
        self,
        question: str | Sequence[Message],
        options: RunOptions,
        *,
        emit: Callable[[RunUpdate], None] | None = None,
    ) -> tuple[str, bool]:
        if self._model is None:
            raise CallerError(
                "this Orchestrator has no model: pass one, such as `model_from_environment() or rehearsal_model()` of "
                "orchestrator.models, or use `call` and `execute` with calls of your own"
            )
        started = await self._started(question, options, self._model.name)
        return started.run_id, await self._runs.begin(started, emit)

    async def _started(self, question: str | Sequence[Message], options: RunOptions, model: str) -> RunStarted:
        """The first event of a run that can be begun: every tool it asks for is served."""
        messages = conversation(question)
        if options.get("tools") is None:
            chosen = await self._offering.chosen_at_start(messages, options.get("context") or {})
            options = {**options, "tools": chosen}
        tools = options.get("tools")
        started = run_started(messages, options, model=model, default_max_turns=self._settings.max_turns)
        own = contributed(self._interceptors.chosen(started.interceptors))
        served = None if tools is None else [name for name in tools if name not in self._agents and name not in own]
        await self.catalog.choose(served)
        return started


def _new_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
