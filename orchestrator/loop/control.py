"""What callers ask of runs: to begin one, wait for it, look on, end it, resume it, or decide about a call of it.

Any orchestrator may be asked about any run; who works on it hears of what was written. Takes no turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from toolfleet.calls import Failed, run_of
from toolfleet.errors import CallerError, StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.messages import Message
from toolfleet.orchestrator.budgets.spending import Spending
from toolfleet.orchestrator.calls.scope import Emit
from toolfleet.orchestrator.errors import (
    InvalidOption,
    MayHaveRun,
    OrchestratorClosed,
    RunExists,
    RunNotFound,
    RunNotOpen,
    UnknownWebhook,
)
from toolfleet.orchestrator.loop.above import tell_above
from toolfleet.orchestrator.loop.driver import Runs
from toolfleet.orchestrator.loop.ending import Ending
from toolfleet.orchestrator.loop.images import KeptImages
from toolfleet.orchestrator.models.objections import must_take
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.models.sight import images_said
from toolfleet.orchestrator.options import RunOptions, conversation, options_given, run_started
from toolfleet.orchestrator.run.events import Approval, ApprovalGiven, RunEvent, RunResumed, RunStarted
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.updates import RunBegan, RunEnded, RunUpdate
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.run.words import Words
from toolfleet.orchestrator.spans.runs import RunSpans
from toolfleet.orchestrator.store.forking import MAY_HAVE_RUN, AskedAgain, after_turn, asked_again
from toolfleet.orchestrator.store.journal import write_from_outside
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.secret_arguments import Vault
from toolfleet.orchestrator.tools.edited_arguments import must_fit
from toolfleet.orchestrator.tools.offer import Offering
from toolfleet.orchestrator.webhooks.endpoints import Endpoints

log = FactLog("toolfleet.orchestrator")


@dataclass(frozen=True, slots=True)
class RunControl:
    """Does what callers ask of runs; each method is that of `Orchestrator` with the same name."""

    model: ChatModel | None
    """This orchestrator's model."""
    default_max_turns: int
    runs: Runs
    store: RunStore
    offering: Offering
    ending: Ending
    vault: Vault
    images: KeptImages
    spending: Spending
    endpoints: Endpoints
    spans: RunSpans | None = None
    words: Words | None = None

    # --- begin --------------------------------------------------------------------------------------------------

    async def run(self, question: str | Sequence[Message], options: RunOptions) -> Run:
        """Begin a run and wait for its end; whoever stops waiting cancels it."""
        run_id, is_new = await self._begin(question, options)
        try:
            return await self.wait(run_id)
        except asyncio.CancelledError:
            if is_new:
                self.runs.run_in_background(self._abandon(run_id))
            raise

    async def stream(self, question: str | Sequence[Message], options: RunOptions) -> AsyncGenerator[RunUpdate, None]:
        """Begin a run; everything that happens on the way, `RunEnded` last. Raises RunExists, OrchestratorClosed."""
        updates: asyncio.Queue[RunUpdate | None] = asyncio.Queue()
        run_id, is_new = await self._begin(question, options, updates.put_nowait)
        if not is_new:
            raise RunExists(f"run {run_id} is stored already: `wait` for it, or choose another run_id")
        self._end_with_run(updates, run_id)
        is_over = False
        try:
            yield RunBegan(run_id=run_id)
            while update := await updates.get():
                is_over = isinstance(update, RunEnded)
                yield update
                if is_over:
                    return
            raise _closed(run_id)
        finally:
            if not is_over:
                self.runs.run_in_background(self._abandon(run_id))

    async def start(self, question: str | Sequence[Message], options: RunOptions, on_event: Emit | None) -> str:
        """Begin a run here, or leave it as it is when its id is stored already; its id."""
        run_id, is_new = await self._begin(question, options, on_event)
        if is_new and on_event is not None:
            on_event(RunBegan(run_id=run_id))  # before its task has taken a step
        return run_id

    async def submit(self, question: str | Sequence[Message], options: RunOptions, *, model: str) -> str:
        """Store a run for whichever orchestrator has this model; its id."""
        started = await self._started(question, options, model, is_elsewhere=True)
        if self.model is not None and self.model.name == model:
            must_take(self.model, started.messages, started.terms.model_options)
        started = await self._with_images_kept(started)
        await self.store.begin(started)
        return started.run_id

    async def fork(
        self,
        run_id: str,
        question: str | Sequence[Message],
        options: RunOptions,
        *,
        at: int,
        model: str | None,
        messages: Sequence[Message] | None,
    ) -> str:
        """Begin a run with what another one had come to after a turn; its id. Raises RunNotFound, RunNotOpen."""
        if at < 0:
            raise InvalidOption(f"at: {at} is no turn: 0 is the run's beginning, 1 its model's first reply")
        stored, entries = await self.store.history(run_id)
        source, before = stored.run, after_turn(entries, at)
        given: RunOptions = {**_as_before(source), "state": before.state, **options}
        given["asked_as"] = {"forked_from": run_id, "turn": at, **(options.get("asked_as") or {})}
        until_then = before.messages if messages is None else messages
        said = conversation(question) if question else ()
        chosen = model or source.model
        is_ours = self.model is not None and self.model.name == chosen
        started = await self._started((*until_then, *said), given, chosen, is_elsewhere=not is_ours)
        if self.model is not None and is_ours:
            must_take(self.model, started.messages, started.terms.model_options)
        started = await self._with_images_kept(started)
        await self.images.share_results(before.results, started.run_id, tenant=started.terms.tenant)
        await self._begin_stored(started, is_ours=is_ours)
        return started.run_id

    async def retry(self, failed_id: str, options: RunOptions, *, force: bool) -> str:
        """Begin a run in which a call that has failed is made again, the results of its neighbours being kept; its id.

        Raises RunNotFound, RunNotOpen, MayHaveRun.
        """
        stored, entries = await self.store.history(run_of(failed_id))
        source = stored.run
        turn = asked_again(source, entries, failed_id)
        if not force:
            await self._must_be_repeatable(source, turn)
        options = {**_as_before(source), **options, "state": turn.state}
        options["asked_as"] = {"forked_from": source.run_id, "retried": failed_id, **(options.get("asked_as") or {})}
        is_ours = self.model is not None and self.model.name == source.model
        started = await self._started(turn.messages, options, source.model, is_elsewhere=not is_ours)
        # The call was written for the version that the run had.
        versions = {**started.versions, **source.versions}
        started = started.model_copy(update={"agent": source.agent, "versions": versions})
        started = await self._with_images_kept(started)
        await self.images.share_results(turn.results.values(), started.run_id, tenant=started.terms.tenant)
        await self._begin_stored(started, then=turn.events(started.run_id), is_ours=is_ours)
        return started.run_id

    async def _begin_stored(self, started: RunStarted, *, then: Sequence[RunEvent] = (), is_ours: bool) -> None:
        if is_ours:
            await self.runs.begin(started, then=then)
        else:
            await self.store.begin(started, then=then)

    async def _must_be_repeatable(self, run: Run, turn: AskedAgain) -> None:
        """Raise MayHaveRun where a call may have had an effect that must not happen twice."""
        known = await self.offering.known(run)
        for call in turn.again:
            result = call.late_result or call.result
            spec = known.get(call.tool)
            is_repeatable = spec is not None and spec.effect.repeatable
            if isinstance(result, Failed) and result.kind in MAY_HAVE_RUN and not is_repeatable:
                kind = result.kind.replace("_", " ")
                raise MayHaveRun(f"call {call.call_id} of {call.tool} ended {kind}: its effect may happen twice")

    # --- wait ---------------------------------------------------------------------------------------------------

    async def wait(self, run_id: str) -> Run:
        """Any run once it has ended, wherever it goes on. Raises RunNotFound, OrchestratorClosed."""
        ended = self.runs.end_of(run_id)
        if ended is None:
            return await self.store.end_of(run_id)
        try:
            # Shielded: others may wait for the same end.
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            if ended.cancelled():
                raise _closed(run_id) from None
            raise

    def _end_with_run(self, updates: asyncio.Queue[RunUpdate | None], run_id: str) -> None:
        """Close the queue when the run is no longer worked on here, however that comes."""
        ended = self.runs.end_of(run_id)
        if ended is not None:
            ended.add_done_callback(lambda _: updates.put_nowait(None))

    # --- change -------------------------------------------------------------------------------------------------

    async def cancel(self, run_id: str, reason: str, by: str = "") -> Run:
        """End a run now, and cancel what is under way for it. Raises RunNotOpen, RunNotFound."""
        return await self.ending.cancel(run_id, reason, by)

    async def resume(self, run_id: str, messages: str | Sequence[Message], subject: str | None, by: str = "") -> Run:
        """Let a run that has ended go on. Raises RunNotOpen, RunNotFound, BudgetSpent."""
        run = (await self.store.load(run_id)).run
        if run.state.is_terminal:  # else it is refused for that
            await self.spending.must_be_left_for(run)
        added = conversation(messages) if messages else ()
        if images_said(added):
            await self._must_be_taken(run_id, added)
            added = await self.images.kept(added, run_id, tenant=await self.store.tenant(run_id))
            if _name_kept(added):
                await self._must_be_taken(run_id, added)

        async def resumed(run: Run) -> RunResumed:
            trace = self.spans.resumed(run) if self.spans is not None and run.state.is_terminal else None
            return RunResumed(messages=added, subject=subject, trace=trace, by=by)

        return await write_from_outside(self.store, run_id, resumed)

    async def approve(self, call_id: str, approval: Approval) -> Run:
        """Decide about a call.

        Raises RunNotOpen for one that does not wait for approval, RunNotFound, BadArguments for edited ones.
        """
        run_id = run_of(call_id)
        event = ApprovalGiven(call_id=call_id, approval=approval)
        if approval.arguments is not None:
            run = (await self.store.load(run_id)).run
            event = await self._with_secrets_kept(_of_what_stands(event, run), approval.arguments, run)

        async def of_what_stands(run: Run) -> ApprovalGiven:
            return _of_what_stands(event, run)

        try:
            run = await write_from_outside(self.store, run_id, of_what_stands)
        except (RunNotOpen, RunNotFound):
            await self.vault.forget([event.kept_as] if event.kept_as else [])
            raise
        decided = [call for call in run.calls if call.call_id == call_id]
        await tell_above(self.store, run, decided, decided[0].approval)
        return run

    async def _with_secrets_kept(self, event: ApprovalGiven, arguments: str, run: Run) -> ApprovalGiven:
        """The decision as it may be stored: what a person wrote may hold secrets as what a model writes."""
        call = next((call for call in run.awaiting_approval if call.call_id == event.call_id), None)
        if call is None:
            return event  # which is refused
        spec = (await self.offering.known(run)).get(call.tool)
        meant = await self.vault.as_meant(call, arguments)
        if spec is not None:  # else its worker checks them, as it does in any case
            must_fit(meant, spec)
        shown, kept_as = await self.vault.keep_edited(call, meant, spec)
        approval = event.approval.model_copy(update={"arguments": shown})
        return event.model_copy(update={"approval": approval, "kept_as": kept_as})

    async def _must_be_taken(self, run_id: str, messages: Sequence[Message]) -> None:
        """Raise NotForThisModel for what the run's model does not take, if that is ours."""
        run = (await self.store.load(run_id)).run
        if self.model is not None and run.model == self.model.name and not run.agent:
            must_take(self.model, messages, run.terms.model_options)

    async def _abandon(self, run_id: str) -> None:
        try:
            await self.cancel(run_id, "nobody waits for it any more")
        except (RunNotOpen, RunNotFound):
            pass  # it has ended meanwhile
        except StoreUnreachable as error:
            log.warning("run_not_cancelled", run_id=run_id, error=str(error))

    async def _begin(
        self, question: str | Sequence[Message], options: RunOptions, emit: Callable[[RunUpdate], None] | None = None
    ) -> tuple[str, bool]:
        if self.model is None:
            raise CallerError(
                "this Orchestrator has no model: pass one, such as `model_from_environment() or rehearsal_model()` of "
                "orchestrator.models, or use `call` and `execute` with calls of your own"
            )
        started = await self._started(question, options, self.model.name)
        must_take(self.model, started.messages, started.terms.model_options)
        started = await self._with_images_kept(started)
        if _name_kept(started.messages):
            must_take(self.model, started.messages, started.terms.model_options)
        return started.run_id, await self.runs.begin(started, emit)

    async def _with_images_kept(self, started: RunStarted) -> RunStarted:
        """The same as it is stored: large images are kept once, beside all the runs that have them."""
        if not images_said(started.messages):
            return started
        kept = await self.images.kept(started.messages, started.run_id, tenant=started.terms.tenant)
        return started.model_copy(update={"messages": kept})

    async def _started(
        self, question: str | Sequence[Message], options: RunOptions, model: str, *, is_elsewhere: bool = False
    ) -> RunStarted:
        """The first event of a run that can be begun: every tool it asks for is served."""
        messages = conversation(question)
        if options.get("tools") is None:
            chosen = await self.offering.chosen_at_start(messages, options.get("context") or {})
            options = {**options, "tools": chosen}
        run_id = options.get("run_id") or self.store.new_id()
        started = run_started(messages, options, run_id=run_id, model=model, default_max_turns=self.default_max_turns)
        terms = await self._with_webhook(await self._payable(started.terms, model))
        if self.words is not None:
            terms = terms.model_copy(update={"words": self.words})
        if terms is not started.terms:
            started = started.model_copy(update={"terms": terms})
        # Of interceptors elsewhere nothing is known here: a run that names one which is not there fails, and says so.
        # Now, and not at the first turn: whoever asks for a tool that nobody serves should hear of it at once.
        await self.offering.must_be_clear(started.terms.tools, () if is_elsewhere else started.terms.interceptors)
        started = self.offering.pinned(started)
        return started if self.spans is None else self.spans.begun(started)

    async def _with_webhook(self, terms: RunTerms) -> RunTerms:
        """The terms with the id of the endpoint that they name. Raises UnknownWebhook."""
        if terms.webhook is None:
            return terms
        endpoint = await self.endpoints.named(terms.webhook, tenant=terms.tenant)
        if endpoint is None:
            raise UnknownWebhook(
                f"webhook {terms.webhook[:80]!r} is no endpoint's id or URL: `toolfleet webhooks add URL` makes one"
            )
        return terms.model_copy(update={"webhook": endpoint.endpoint_id})

    async def _payable(self, terms: RunTerms, model: str) -> RunTerms:
        """The terms with the price of the model, where anything limits its cost. Raises UnknownPrice, BudgetSpent."""
        price = await self.spending.price_at_start(model, terms)
        return terms if price is None else terms.model_copy(update={"price": price})


def _of_what_stands(event: ApprovalGiven, run: Run) -> ApprovalGiven:
    """Return the decision with the digest of what it is about: of the call as it stands, where it does not say."""
    call = next((call for call in run.awaiting_approval if call.call_id == event.call_id), None)
    if call is None or event.approval.digest:
        return event
    return event.model_copy(update={"approval": event.approval.model_copy(update={"digest": call.digest})})


def _as_before(source: Run) -> RunOptions:
    """Return the options that a run has, for another one that is to be like it."""
    return {**options_given(source.terms), "tenant": source.terms.tenant, "subject": source.terms.subject}


def _closed(run_id: str) -> OrchestratorClosed:
    return OrchestratorClosed(f"run {run_id} did not end before its orchestrator was closed")


def _name_kept(messages: Sequence[Message]) -> bool:
    """Return whether there are images that are kept: what those are that were sent as such is known only then."""
    return any(image.artifact is not None for image in images_said(messages))
