"""The services of an open orchestrator: built once, in the order in which they need one another, closed in reverse.

Nothing is set afterwards: each service gets what it needs when it is made. Two of them need each other only while they
work, so that one hands itself over then: runs begin the runs of agents (`RunAtWork.begin`), and the reader of the reply
stream is made last, with the runs as its listener. The only file that knows all services. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import redis.asyncio

from toolfleet.artifacts import Artifacts
from toolfleet.broker import celery_app
from toolfleet.connections import connect_async, must_be_one_redis
from toolfleet.local.finding import running_redis
from toolfleet.orchestrator.budgets.ledger import Ledger
from toolfleet.orchestrator.budgets.spending import Spending
from toolfleet.orchestrator.budgets.tenants import TenantBudgets
from toolfleet.orchestrator.budgets.tending import Tending
from toolfleet.orchestrator.calls.answers import CallAnswers, OnUnknownTool
from toolfleet.orchestrator.calls.direct_answer import DirectAnswers
from toolfleet.orchestrator.calls.direct_batch import DirectBatches
from toolfleet.orchestrator.calls.direct_call import DirectCalls
from toolfleet.orchestrator.calls.direct_cancel import DirectCancel
from toolfleet.orchestrator.calls.late_results import LateResults
from toolfleet.orchestrator.calls.placement import Placement
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.calls.terms import CallTerms
from toolfleet.orchestrator.fleet.cancel import Canceller
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.dispatch import Dispatcher
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.fleet.limits import FleetLimits
from toolfleet.orchestrator.fleet.publishers import publisher_for
from toolfleet.orchestrator.fleet.queues import Queues
from toolfleet.orchestrator.fleet.replies import ReplyReader
from toolfleet.orchestrator.fleet.trials import Trials
from toolfleet.orchestrator.fleet.version_shares import VersionShares
from toolfleet.orchestrator.fleet.versions import FleetVersions
from toolfleet.orchestrator.loop.ask import Asking
from toolfleet.orchestrator.loop.call import Calling
from toolfleet.orchestrator.loop.control import RunControl
from toolfleet.orchestrator.loop.driver import Runs
from toolfleet.orchestrator.loop.ending import Ending
from toolfleet.orchestrator.loop.healing import Healing
from toolfleet.orchestrator.loop.images import KeptImages
from toolfleet.orchestrator.loop.rest import Resting
from toolfleet.orchestrator.loop.scopes import Scopes
from toolfleet.orchestrator.loop.steering import Steering
from toolfleet.orchestrator.loop.turn import TurnLoop
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.run.words import Words
from toolfleet.orchestrator.schedules.kept import KeptSchedules
from toolfleet.orchestrator.schedules.schedules import Schedules
from toolfleet.orchestrator.schedules.ticking import Ticking
from toolfleet.orchestrator.spans.runs import RunSpans
from toolfleet.orchestrator.status.handles import Handles
from toolfleet.orchestrator.status.overview import Overview
from toolfleet.orchestrator.store.conversations import Conversations
from toolfleet.orchestrator.store.leases import Leases
from toolfleet.orchestrator.store.packing import Packing
from toolfleet.orchestrator.store.recent import RecentWrites
from toolfleet.orchestrator.store.resealing import Resealing
from toolfleet.orchestrator.store.run_pages import RunPages
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.secret_arguments import Vault
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.orchestrator.tools.builtin import BuiltIn
from toolfleet.orchestrator.tools.chain import Interceptors
from toolfleet.orchestrator.tools.interceptors import RequestedToolCall
from toolfleet.orchestrator.tools.offer import Offering, ToolProvider
from toolfleet.orchestrator.tools.tool_search import ToolSearch
from toolfleet.orchestrator.webhooks.asked import AskedQuestions
from toolfleet.orchestrator.webhooks.delivering import Delivering
from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.orchestrator.webhooks.outbox import Outbox
from toolfleet.orchestrator.webhooks.owing import Owing
from toolfleet.orchestrator.webhooks.pushes import Pushes
from toolfleet.redis_clients import AsyncClient
from toolfleet.settings import Settings
from toolfleet.shard_record import must_be_its_shard_async
from toolfleet.supervision import Supervisor
from toolfleet.tracing import find_tracing
from toolfleet.wire import Seal

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing


@dataclass(frozen=True, slots=True)
class Config:
    """What an orchestrator was made with; the words are those of `Orchestrator`."""

    model: ChatModel | None
    agents: Agents
    interceptors: Interceptors
    tool_provider: ToolProvider | None
    resolve_tool: Callable[[str], str | None] | None
    on_unknown_tool: OnUnknownTool
    needs_approval: Callable[[RequestedToolCall], bool] | None
    tool_search: ToolSearch
    adopts: bool
    closes_models: bool = True
    words: Words | None = None

    @property
    def model_name(self) -> str | None:
        """What its model is called, and so which runs it can go on with."""
        return None if self.model is None else self.model.name


@dataclass(frozen=True, slots=True)
class Services:
    """What an open orchestrator works with."""

    supervisor: Supervisor
    catalog: Catalog
    conversations: Conversations
    dispatcher: Dispatcher
    runs: Runs
    control: RunControl
    steering: Steering
    store: RunStore
    pages: RunPages
    overview: Overview
    canceller: Canceller
    direct_calls: DirectCalls
    direct_batches: DirectBatches
    direct_cancel: DirectCancel
    direct_answers: DirectAnswers
    artifacts: Artifacts
    limits: FleetLimits
    versions: FleetVersions
    queues: Queues
    schedules: Schedules


@dataclass(frozen=True, slots=True)
class _Connected:
    """What every part is made of."""

    settings: Settings
    seal: Seal
    orchestrator_id: str
    config: Config
    client: AsyncClient
    """For calls and their results, and for the lease."""
    shared: redis.asyncio.Redis
    """For everything else: a long answer on its connection holds up no call."""
    catalog: Catalog
    tracing: Tracing | None


@dataclass(frozen=True, slots=True)
class _Parts:
    """What both runs and direct calls are made with."""

    calls: CallServices
    offering: Offering
    store: RunStore
    packing: Packing
    handles: Handles
    built_in: BuiltIn
    canceller: Canceller
    artifacts: Artifacts
    scopes: Scopes
    ending: Ending
    images: KeptImages
    spending: Spending
    webhooks: Delivering
    endpoints: Endpoints
    spans: RunSpans | None
    trials: Trials


async def find_redis(stack: AsyncExitStack, settings: Settings) -> Settings:
    """Name the Redis that is found, unless the settings name one; `stack` lets it go. Raises StoreUnreachable."""
    must_be_one_redis(settings)
    if settings.names_redis:
        return settings
    finding = running_redis(settings)
    found = await asyncio.to_thread(finding.__enter__)  # a server that is just starting takes its time
    # Not in a thread: at the end of the interpreter, when `orchestrator.sync` closes, there are no new ones. Only the
    # server's last user waits here, until it has written its file.
    stack.callback(finding.__exit__, None, None, None)
    return found


async def open_services(
    stack: AsyncExitStack, settings: Settings, seal: Seal, orchestrator_id: str, config: Config
) -> Services:
    """Connect, and build every service; `stack` closes them, and the model. Raises StoreUnreachable, OtherSecret."""
    base = await _connect(stack, settings, seal, orchestrator_id, config)
    supervisor = Supervisor()
    parts = _build_parts(stack, base, supervisor)
    loop = _build_loop(stack, base, parts)
    runs = Runs(parts.store, parts.calls.gatherer, orchestrator_id, loop, parts.spans, config.words)
    await _begin_to_work(stack, base, parts, runs, supervisor)
    overview = Overview(base.shared, settings, seal)
    control = _build_control(base, parts, runs)
    _begin_to_tick(stack, base, control, supervisor)
    return Services(
        supervisor=supervisor,
        catalog=base.catalog,
        conversations=Conversations(base.shared, settings, seal),
        dispatcher=parts.calls.dispatcher,
        runs=runs,
        control=control,
        steering=Steering(config.model, parts.store, parts.ending, parts.canceller, overview, parts.images),
        store=parts.store,
        pages=RunPages(base.shared, base.settings.keys, parts.store),
        overview=overview,
        canceller=parts.canceller,
        direct_calls=DirectCalls(
            base.catalog,
            parts.calls,
            parts.handles,
            parts.built_in,
            config.interceptors,
            LateResults(base.catalog, parts.offering, parts.store, config.interceptors, settings.argument_limits),
            parts.store,
        ),
        direct_batches=DirectBatches(base.catalog, parts.calls, config.interceptors, config.words),
        direct_cancel=DirectCancel(settings, overview, parts.canceller, parts.store),
        direct_answers=DirectAnswers.through(base.shared, settings, seal, parts.store),
        artifacts=parts.artifacts,
        limits=FleetLimits(base.shared, settings.keys, base.catalog),
        versions=FleetVersions(base.catalog, VersionShares(base.shared, settings.keys, seal), parts.trials),
        queues=Queues(base.shared, settings),
        schedules=Schedules(base.shared, settings, seal, control),
    )


def _build_control(base: _Connected, parts: _Parts, runs: Runs) -> RunControl:
    return RunControl(
        base.config.model,
        base.settings.max_turns,
        runs=runs,
        store=parts.store,
        offering=parts.offering,
        ending=parts.ending,
        vault=parts.calls.vault,
        images=parts.images,
        spending=parts.spending,
        endpoints=parts.endpoints,
        spans=parts.spans,
        words=base.config.words,
    )


async def _connect(
    stack: AsyncExitStack, settings: Settings, seal: Seal, orchestrator_id: str, config: Config
) -> _Connected:
    client = connect_async(settings)
    stack.push_async_callback(client.aclose)
    shared = connect_async(settings)
    stack.push_async_callback(shared.aclose)
    catalog = Catalog(client, settings)
    await must_be_its_shard_async(client, settings)
    # Before it takes a lease: with another secret it would adopt runs and fail them.
    await catalog.check_secret()
    return _Connected(settings, seal, orchestrator_id, config, client, shared, catalog, find_tracing())


def _build_parts(stack: AsyncExitStack, base: _Connected, supervisor: Supervisor) -> _Parts:
    settings, seal, config, shared = base.settings, base.seal, base.config, base.shared
    app = celery_app(settings)
    trials = Trials(shared, settings.keys, base.catalog, VersionShares(shared, settings.keys, seal))
    stack.callback(trials.close)
    gatherer = Gatherer(base.client, settings, seal, base.orchestrator_id, trials)
    stack.push_async_callback(gatherer.aclose)
    dispatcher = Dispatcher(publisher_for(settings, base.client, app), seal, gatherer, base.catalog, base.tracing)
    stack.push_async_callback(dispatcher.aclose)
    handles, artifacts = Handles(shared, settings, seal, gatherer), Artifacts(shared, settings)
    canceller = Canceller(shared, settings, seal, app)
    built_in = BuiltIn(handles, canceller)
    calls = CallServices(
        placement=Placement(config.agents, settings.argument_limits, config.needs_approval),
        terms=CallTerms(settings, base.orchestrator_id, config.agents),
        answers=CallAnswers(built_in, artifacts, settings.argument_limits, config.on_unknown_tool),
        dispatcher=dispatcher,
        gatherer=gatherer,
        vault=Vault(shared, settings, seal),
        tracing=base.tracing,
    )
    offering = Offering(
        base.catalog,
        config.agents,
        max_offered=settings.max_offered_tools,
        provider=config.tool_provider,
        resolve=config.resolve_tool,
        interceptors=config.interceptors,
        search=config.tool_search,
    )
    packing = Packing(shared, settings.keys)
    owing, endpoints, outbox = (
        Owing(settings.keys, seal),
        Endpoints(shared, settings, seal),
        Outbox(shared, settings, seal),
    )
    woken = asyncio.Event()
    store = RunStore(
        shared,
        settings,
        seal,
        recent=RecentWrites(),
        packing=packing,
        owing=owing.for_entry,
        on_owed=woken.set,
    )
    asked = AskedQuestions(shared, settings.keys, seal, store=store, owing=owing, outbox=outbox)
    webhooks = Delivering(
        outbox=outbox,
        endpoints=endpoints,
        owing=owing,
        pushes=Pushes(shared, settings, seal),
        asked=asked,
        settings=settings,
        supervisor=supervisor,
        woken=woken,
    )
    scopes = Scopes(offering, config.interceptors)
    spans = None if base.tracing is None else RunSpans(base.tracing, base.orchestrator_id)
    ending = Ending(scopes, store, canceller, settings.argument_limits, spans)
    images = KeptImages(artifacts, max_inline_bytes=settings.max_inline_media_bytes)
    ledger = Ledger(shared, settings, base.orchestrator_id)
    spending = Spending(ledger, settings.prices, config.agents, TenantBudgets(shared, settings))
    return _Parts(
        calls,
        offering,
        store,
        packing,
        handles,
        built_in,
        canceller,
        artifacts,
        scopes,
        ending,
        images,
        spending,
        webhooks,
        endpoints,
        spans,
        trials,
    )


def _build_loop(stack: AsyncExitStack, base: _Connected, parts: _Parts) -> TurnLoop | None:
    """What takes turns; None without a model."""
    model, agents = base.config.model, base.config.agents
    closes = base.config.closes_models
    for own in agents.models if closes else ():
        if own is not model:
            stack.push_async_callback(own.aclose)
    if model is None:
        return None
    if closes:
        stack.push_async_callback(model.aclose)
    return TurnLoop(
        Asking(model, agents, parts.offering, parts.scopes, parts.calls, parts.images, parts.spending, parts.spans),
        Calling(parts.scopes, parts.calls, parts.handles, parts.spans),
        Resting(parts.scopes, parts.calls, parts.handles, parts.store),
        parts.ending,
    )


def _begin_to_tick(stack: AsyncExitStack, base: _Connected, control: RunControl, supervisor: Supervisor) -> None:
    """Begin what schedules ask for, where this orchestrator is to stay: one that works on others' runs."""
    if base.config.adopts and base.config.model is not None:
        kept = KeptSchedules(base.shared, base.settings, base.seal)
        ticking = Ticking(kept, control, base.settings, supervisor)
        ticking.start()
        # Closed before the runs are: what it begins, others work on.
        stack.push_async_callback(ticking.aclose)


async def _begin_to_work(
    stack: AsyncExitStack, base: _Connected, parts: _Parts, runs: Runs, supervisor: Supervisor
) -> None:
    """Listen for results, then take over runs: from here on, others know of this orchestrator."""
    parts.packing.start(supervisor)
    # Closed last: runs end until then.
    stack.push_async_callback(parts.packing.aclose)
    await parts.webhooks.start()
    # Closed after the runs, whose ends it sends.
    stack.push_async_callback(parts.webhooks.aclose)
    tending = Tending(parts.spending, parts.store, supervisor)
    await tending.start()
    # Closed after the runs, which may leave something to be booked.
    stack.push_async_callback(tending.aclose)
    replies = ReplyReader(
        base.client,
        base.settings,
        base.seal,
        base.orchestrator_id,
        gatherer=parts.calls.gatherer,
        listener=runs,
        on_return=base.catalog.remember,
        supervisor=supervisor,
    )
    replies.start()
    stack.push_async_callback(replies.aclose)
    leases = Leases(
        base.client,
        base.settings,
        base.orchestrator_id,
        model=base.config.model_name if base.config.adopts else None,
        on_adopted=runs.work_on_adopted,
        supervisor=supervisor,
        on_older_store=Healing(parts.store, parts.calls.dispatcher, runs).heal,
    )
    await leases.start()
    # Closed in reverse: the runs at work reach a stored state first, then all of them are given up.
    stack.push_async_callback(leases.aclose)
    resealing = Resealing(parts.store, base.settings, supervisor)
    resealing.start()
    stack.push_async_callback(resealing.aclose)
    stack.push_async_callback(runs.aclose)
