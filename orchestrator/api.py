"""The library's front door: an `Orchestrator` that runs conversations, streams them, or performs one batch of calls.

Arguments in, one line of delegation out. Every method raises NotOpen while the orchestrator is not open.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Any, Unpack

from toolfleet.artifacts import Artifact, OfTenant
from toolfleet.calls import Failed, Returned, Submitted
from toolfleet.messages import AssistantMessage, Message, ToolMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.calls.answers import OnUnknownTool
from toolfleet.orchestrator.calls.kept_media import MAX_SHOWN_BYTES, Result, with_media
from toolfleet.orchestrator.fleet_connection import FleetConnection
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.options import BatchOptions, RunOptions
from toolfleet.orchestrator.replay.export import Export
from toolfleet.orchestrator.replay.exporting import export_run
from toolfleet.orchestrator.replay.offline import Code
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import RunUpdate
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.run.words import Words
from toolfleet.orchestrator.status.below import with_approvals_below
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.status.questions import QuestionPage
from toolfleet.orchestrator.store.run_pages import RunPage
from toolfleet.orchestrator.store.run_store import Head
from toolfleet.orchestrator.sync import run_sync
from toolfleet.orchestrator.tools.agents import Agent, Agents
from toolfleet.orchestrator.tools.chain import Interceptors
from toolfleet.orchestrator.tools.interceptors import Interceptor, RequestedToolCall
from toolfleet.orchestrator.tools.meanings import own_names_must_differ
from toolfleet.orchestrator.tools.offer import ToolProvider
from toolfleet.orchestrator.tools.tool_search import ToolSearch, by_shared_words
from toolfleet.orchestrator.wiring import Config
from toolfleet.questions import Question
from toolfleet.settings import Settings, read_settings
from toolfleet.strict_json import written


class Orchestrator(FleetConnection):
    """Runs conversations whose tool calls are performed by a fleet of workers.

    Use it as an async context manager; any number of runs may go on at once. Every run is stored as it goes: when an
    orchestrator is lost, another one with the same model goes on with its runs. `model` is closed with it, and so
    are its agents' own, unless others use them (`closes_models=False`). With `adopts=False` it works on nothing but
    what was begun here.

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
        closes_models: bool = True,
        words: Words | None = None,
    ) -> None:
        """`interceptors` see every call, `named_interceptors` those of runs that ask for them by name.

        `tool_provider` chooses the tools of runs that name none. `resolve_tool` may say which tool a name means that
        was not offered. `needs_approval` adds to what tools themselves require. `tool_search` says which tools a query
        of `search_tools` means. `words` are what models read of calls that ended without their tools, in runs that
        begin here or were begun without any.

        Raises DuplicateTool where two of these would answer to one name, or one to that of a built-in tool.
        """
        asked = settings or read_settings(**({} if redis_url is None else {"redis_url": redis_url}))
        own_agents = Agents(
            agents,
            model="" if model is None else model.name,
            max_turns=asked.max_turns,
            max_depth=asked.max_depth,
            prices=asked.prices,
        )
        own_interceptors = Interceptors(interceptors, named_interceptors)
        for names in own_agents.interceptors.values():
            own_interceptors.chosen(names)
        own_names_must_differ(own_agents.specs, own_interceptors.brought)
        config = Config(
            model=model,
            agents=own_agents,
            interceptors=own_interceptors,
            tool_provider=tool_provider,
            resolve_tool=resolve_tool,
            on_unknown_tool=on_unknown_tool,
            needs_approval=needs_approval,
            tool_search=tool_search,
            adopts=adopts,
            closes_models=closes_models,
            words=words,
        )
        super().__init__(asked, config)

    @property
    def code(self) -> Code:
        """What of it is its users' own code and decides what runs do: for a replay, `toolfleet runs replay --with`."""
        config = self._config
        return Code(
            interceptors=config.interceptors,
            needs_approval=config.needs_approval,
            resolve_tool=config.resolve_tool,
            on_unknown_tool=config.on_unknown_tool,
            tool_provider=config.tool_provider,
            tool_search=config.tool_search,
        )

    # --- runs ---------------------------------------------------------------------------------------------------

    @exact(RunOptions)
    async def run(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
        """Run one conversation to its end; look at `state`, `answer`, `reason`, `messages`, `calls`, `usage`.

        A run that fails is returned, not raised; only what stops it from beginning is (UnknownTool, StoreUnreachable).
        Whoever stops waiting cancels the run; `start` begins one that nobody has to wait for.
        """
        return await self._services.control.run(question, options)

    @exact(RunOptions)
    def run_sync(self, question: str | Sequence[Message], **options: Unpack[RunOptions]) -> Run:
        """Do as `run`, for callers without an event loop: scripts, notebooks, threads.

        Opens this orchestrator by itself. See `toolfleet.sync` for its other methods, and for when it is
        closed. Raises NotHere after `async with`.
        """
        return run_sync(self, question, **options)

    @exact(RunOptions)
    def stream(
        self, question: str | Sequence[Message], **options: Unpack[RunOptions]
    ) -> AsyncGenerator[RunUpdate, None]:
        """Do as `run`, and yield everything that happens on the way; `RunEnded` comes last.

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

        `on_event` hears what happens for as long as the run is worked on here, `RunBegan` first; nothing of a run that
        was stored already. It must not block.
        """
        return await self._services.control.start(question, options, on_event)

    @exact(RunOptions)
    async def submit(self, question: str | Sequence[Message], *, model: str, **options: Unpack[RunOptions]) -> str:
        """Store a run for whichever orchestrator has this model, and return its id at once. Needs no model here."""
        return await self._services.control.submit(question, options, model=model)

    async def wait(self, run_id: str) -> Run:
        """Wait until a run has ended, whichever orchestrator works on it, and return it. Raises RunNotFound."""
        return await self._services.control.wait(run_id)

    async def get(self, run_id: str) -> Run:
        """Return any run as it stands, with those calls of its agents' runs that wait for approval.

        Raises RunNotFound, StoreUnreachable.
        """
        store = self._services.store
        return await with_approvals_below(store, (await store.load(run_id)).run)

    @exact()
    async def runs(
        self, *, limit: int = 50, offset: int = 0, states: Collection[State] = (), tenant: str | None = None
    ) -> Sequence[Head]:
        """List runs by their heads, newest first; only those of `tenant` if it is named. Raises StoreUnreachable."""
        return await self._services.store.heads(limit=limit, offset=offset, states=states, tenant=tenant)

    @exact()
    async def run_page(
        self, *, before: str = "", limit: int = 50, states: Collection[State] = (), tenant: str | None = None
    ) -> RunPage:
        """List the same page by page: each begins behind the last run of the one before, whatever begins meanwhile.

        The next one is asked for with the `before` that this one has, "" when there is none. Raises BadCursor,
        StoreUnreachable.
        """
        return await self._services.pages.page(before=before, limit=limit, states=states, tenant=tenant)

    async def tenant_of(self, run_id: str) -> str:
        """Return whose run it is by its history, "" for nobody's. Raises RunNotFound, StoreUnreachable."""
        return await self._services.store.tenant(run_id)

    async def cancel(self, run_id: str, reason: str = "cancelled by request", *, by: str = "") -> Run:
        """End a run now: its model is not asked again, its open calls are cancelled on the workers.

        `by` whom is written into its history. Raises RunNotOpen for a run that has ended, RunNotFound.
        """
        return await self._services.control.cancel(run_id, reason, by)

    async def resume(
        self, run_id: str, messages: str | Sequence[Message] = (), *, subject: str | None = None, by: str = ""
    ) -> Run:
        """Let a run that has ended go on, with more messages if there are any; `wait` for it as for any other.

        From here on `subject` is who asks, if it is given; `by` whom is written into its history. Raises
        RunNotOpen for a run that has not ended, RunNotFound,
        BudgetSpent where its tokens or cost, or its tenant's budget, leave nothing.
        """
        return await self._services.control.resume(run_id, messages, subject, by)

    @exact()
    async def say(
        self,
        run_id: str,
        message: str | Sequence[Message],
        *,
        interrupt: bool = False,
        idempotency_key: str = "",
        by: str = "",
    ) -> Run:
        """Say something to a run that goes on, whoever works on it, and return the run as it stands then.

        It is stored in the run's history, and its model reads it before its next reply, behind the results of the calls
        that are open now. With `interrupt` those are called off first: cancelled on the workers, denied where they
        waited for approval; tasks that its model has handles of go on. Said again under the same `idempotency_key` it
        is not said twice. Raises RunNotOpen for a run that has ended (`resume` lets it go on), RunNotFound,
        InvalidOption.
        """
        return await self._services.steering.say(run_id, message, interrupt=interrupt, key=idempotency_key, by=by)

    async def approve(self, call_id_: str, approval: Approval) -> Run:
        """Decide about a call that waits for approval.

        Raises RunNotOpen for one that does not, RunNotFound, BadArguments for edited ones that do not fit its tool.
        """
        return await self._services.control.approve(call_id_, approval)

    async def questions(self, *, limit: int = 50, after: str = "", tenant: str = "", call_id: str = "") -> QuestionPage:
        """List what a tenant's tools ask people (`ctx.ask`), of so many calls, those first that have waited longest.

        With a `call_id`, all that this call asks. Raises StoreUnreachable.
        """
        questions = self._services.direct_answers.questions
        if call_id:
            return QuestionPage(await questions.waiting_for(call_id, tenant=tenant), "")
        return await questions.waiting(tenant=tenant, limit=limit, after=after)

    async def question(self, question_id: str) -> Question:
        """Return what a tool has asked, answered or not, by the ids that `answer` takes.

        Raises QuestionNotFound, AmbiguousId, StoreUnreachable.
        """
        return await self._services.direct_answers.find(question_id)

    async def answer(self, question_id: str, answer: Any, *, by: str = "") -> Question:
        """Answer what a tool asks, under the id of the question or of a call that asks one thing only.

        `by` whom is written into the history. Raises QuestionNotFound, AmbiguousId, QuestionClosed for one that is
        answered already or waits no more, InvalidAnswer for what does not fit its schema.
        """
        return await self._services.direct_answers.answer(question_id, written(answer), by=by)

    async def decline(self, question_id: str, reason: str = "", *, by: str = "") -> Question:
        """Say that nobody will answer what a tool asks; its `ask` raises Declined. Raises as `answer`."""
        return await self._services.direct_answers.answer(question_id, None, reason=reason, by=by)

    async def export(self, run_id: str) -> Export:
        """Return a run with all that was written down of it, for files: `lines()` are those of one.

        `toolfleet runs replay` and `toolfleet eval` read them. Raises RunNotFound, StoreUnreachable.
        """
        services, config = self._services, self._config
        own = {**config.agents.specs, **config.interceptors.specs}
        return await export_run(services.store, services.catalog, run_id, own)

    async def delete(self, run_id: str) -> bool:
        """Delete a run; False when there was none. The orchestrator that works on it stops. Raises StoreUnreachable."""
        return await self._services.store.delete(run_id)

    # --- single calls -------------------------------------------------------------------------------------------

    async def calls(self, run_id: str) -> Sequence[CallStanding]:
        """Return how each call of a run stands, in the order of asking. Raises RunNotFound, StoreUnreachable."""
        return (await self._services.overview.run(run_id)).calls

    async def cancel_call(self, call_id_: str, *, by: str = "") -> CallStanding:
        """Cancel one call, of a run or of `execute`, whoever works on it, and return how it stands a moment later.

        The run goes on with its other calls; `by` whom is written into its history. Raises RunNotOpen for a call that
        has ended or waits for approval.
        """
        return await self._services.direct_cancel.cancel(call_id_, by)

    @exact(RunOptions)
    async def fork(
        self,
        source_id: str,
        question: str | Sequence[Message] = (),
        *,
        at: int,
        model: str | None = None,
        messages: Sequence[Message] | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Begin a new run with what another one had come to after `at` replies of its model; the new run's id.

        Its calls of until then are not made again: their results are part of the conversation, and the tools' shared
        state is as it was. It stays as it is. `question` is said behind that, `messages` stand in the place of the
        conversation, `model` is another one, which some orchestrator must have. Other options are as that run had them
        where none are given. Raises RunNotFound, RunNotOpen for a turn that it has not had, or whose calls go on.
        """
        control = self._services.control
        return await control.fork(source_id, question, options, at=at, model=model, messages=messages)

    @exact(RunOptions)
    async def retry_call(self, call_id_: str, *, force: bool = False, **options: Unpack[RunOptions]) -> str:
        """Make a call that has failed again: in a new run, which begins where its reply had asked for it; the run's id.

        The other calls of that reply are not made again, the new run has their results; those that were taken back
        because of the failed one are. The run that it was a call of stays as it is. Options are as that one had them
        where none are given. Raises RunNotFound, RunNotOpen for a call that has not failed or while others of its
        reply go on, MayHaveRun without `force` where an effect may happen twice.
        """
        return await self._services.control.retry(call_id_, options, force=force)

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
        subject: str = "",
        handle_if_asks: bool = False,
        approved: bool = True,
    ) -> Returned | Failed | Submitted:
        """Call a tool once. Returns its result or, when it takes longer than `patience_s`, a handle for what goes on.

        `arguments` are values, or JSON text. `tenant` and `subject` say who asks; the tool reads them in its context.
        With `handle_if_asks` there is a handle, too, as soon as the tool asks a person (`ctx.ask`). With
        `approved=False` a tool that needs approval is not called. A failing call is a Failed record; raises
        UnknownTool, ApprovalMissing, InvalidOption, BrokerUnreachable, StoreUnreachable.
        """
        return await self._services.direct_calls.call(
            tool,
            arguments,
            patience_s=patience_s,
            context=context,
            timeout_s=timeout_s,
            on_event=on_event,
            tenant=tenant,
            subject=subject,
            handle_if_asks=handle_if_asks,
            approved=approved,
        )

    @exact()
    async def task(self, handle: str, *, wait_s: float = 0.0, tenant: str | None = None) -> Status:
        """Return how a handle's call stands, after waiting up to `wait_s` for its result. Raises HandleNotFound.

        With a `tenant`, a handle of another one is not found. A handle is unguessable, and all that is asked for: give
        it to nobody who may not see the result.
        """
        return await self._services.direct_calls.status(handle, wait_s=wait_s, tenant=tenant)

    @exact()
    async def cancel_task(self, handle: str, *, tenant: str | None = None, by: str = "") -> Status:
        """Cancel a handle's call, queued, running or elsewhere, and return how it ended. Raises HandleNotFound.

        `by` whom is written into the history of its run, where it has one.
        """
        return await self._services.direct_calls.cancel(handle, tenant=tenant, by=by)

    # --- what is too large for a result -------------------------------------------------------------------------

    @exact()
    async def artifact(self, artifact: str, *, tenant: str = "") -> Artifact:
        """Return what was too large for a result of this tenant, by the id that `artifact` of it or of its media names.

        What it is stands there; `await read(offset, size)` and `async for piece in stream(offset, size)` give its
        bytes. It is kept for `keep_artifact_s` after it was last looked at, and no longer than its run. Raises
        ArtifactNotFound, also for what only other tenants were given, StoreUnreachable.
        """
        return await self._services.artifacts.find(artifact, OfTenant(tenant))

    @exact()
    async def with_media(self, result: Result, *, tenant: str = "", max_bytes: int = MAX_SHOWN_BYTES) -> Result:
        """Return a result, or a ToolMessage, with those of its media put back that are kept as artifacts.

        They are in `media` in the order of the tool, as far as all of them fit into `max_bytes`. Raises
        StoreUnreachable.
        """
        return await with_media(self._services.artifacts, result, OfTenant(tenant), max_bytes)

    # --- bring your own loop ------------------------------------------------------------------------------------

    @exact(BatchOptions)
    async def execute(
        self, message: AssistantMessage, *, history: Sequence[Message] = (), **options: Unpack[BatchOptions]
    ) -> list[ToolMessage]:
        """Make the calls of one assistant message. Returns one ToolMessage for each, in the order of the message.

        Calls of this message that `history` answers already are not run again; those of tools that require approval
        are denied unless their id is in `approved`. Raises UnknownTool for `tools` that no worker serves,
        BrokerUnreachable and StoreUnreachable; a failing call is a ToolMessage with `is_error`.
        """
        return await self._services.direct_batches.messages(message, history, options)

    @exact(BatchOptions)
    async def execute_results(
        self, message: AssistantMessage, *, history: Sequence[Message] = (), **options: Unpack[BatchOptions]
    ) -> list[Returned | Failed | Submitted]:
        """Do as `execute`, and return the results themselves: with kinds of failure and attributes no model sees."""
        return await self._services.direct_batches.results(message, history, options)

    @exact(BatchOptions)
    async def complete(self, messages: Sequence[Message], **options: Unpack[BatchOptions]) -> tuple[Message, ...]:
        """Return the conversation with an answer behind each call of its last reply; those it has are not run again.

        Raises what `execute` raises, and CallerError for a conversation that ends with something else.
        """
        return await self._services.direct_batches.complete(messages, options)
