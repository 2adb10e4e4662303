"""The parts of an orchestrator, put together in the order in which they need one another, and taken apart in reverse.

The only file that knows all of them. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from toolfleet.artifacts import Artifacts
from toolfleet.broker import celery_app
from toolfleet.connections import connect_async
from toolfleet.local.finding import running_redis
from toolfleet.orchestrator.calls.direct_batch import Batches
from toolfleet.orchestrator.calls.direct_call import SingleCalls
from toolfleet.orchestrator.calls.group import Calls, OnUnknownTool
from toolfleet.orchestrator.fleet.cancel import Canceller
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.dispatch import Dispatcher
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.fleet.publishers import publisher_for
from toolfleet.orchestrator.loop.driver import Runs
from toolfleet.orchestrator.loop.images import Showing
from toolfleet.orchestrator.loop.turn import TurnLoop
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.status.handles import Handles
from toolfleet.orchestrator.status.overview import Overview
from toolfleet.orchestrator.store.conversations import Conversations
from toolfleet.orchestrator.store.leases import Leases
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.secret_arguments import Vault
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.orchestrator.tools.builtin import BuiltIn
from toolfleet.orchestrator.tools.interceptors import Interceptors, RequestedToolCall
from toolfleet.orchestrator.tools.offer import Offering, ToolProvider
from toolfleet.settings import Settings
from toolfleet.wire import Seal


@dataclass(frozen=True, slots=True)
class Wishes:
    """What whoever makes an orchestrator wants of it; the words are those of `Orchestrator`."""

    model: ChatModel | None
    agents: Agents
    interceptors: Interceptors
    tool_provider: ToolProvider | None
    resolve_tool: Callable[[str], str | None] | None
    on_unknown_tool: OnUnknownTool
    needs_approval: Callable[[RequestedToolCall], bool] | None
    adopts: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """What an open orchestrator works with."""

    catalog: Catalog
    conversations: Conversations
    dispatcher: Dispatcher
    runs: Runs
    store: RunStore
    offering: Offering
    overview: Overview
    canceller: Canceller
    single_calls: SingleCalls
    batches: Batches


async def found_redis(stack: AsyncExitStack, settings: Settings) -> Settings:
    """`settings` with the Redis that they name or that is found, which `stack` lets go. Raises StoreUnreachable."""
    if settings.names_redis:
        return settings
    finding = running_redis(settings)
    found = await asyncio.to_thread(finding.__enter__)  # a server that is just starting takes its time
    # Not in a thread: at the end of the interpreter, when `orchestrator.sync` closes, there are no new ones. Only the
    # server's last user waits here, until it has written its file.
    stack.callback(finding.__exit__, None, None, None)
    return found


async def assemble(
    stack: AsyncExitStack, settings: Settings, seal: Seal, orchestrator_id: str, wishes: Wishes
) -> Parts:
    """Connect, and build every part; `stack` closes them, and the model. Raises StoreUnreachable, OtherSecret."""
    client = connect_async(settings)
    stack.push_async_callback(client.aclose)
    shared = connect_async(settings, shared_by_many=True)
    stack.push_async_callback(shared.aclose)
    catalog = Catalog(client, settings)
    # Before it takes a lease: with another secret it would adopt runs and fail them.
    await catalog.check_secret()
    app = celery_app(settings)
    gatherer = Gatherer(client, settings, seal, orchestrator_id)
    gatherer.start()
    stack.push_async_callback(gatherer.aclose)
    catalog = Catalog(client, settings)
    dispatcher = Dispatcher(publisher_for(settings, client, app), seal, gatherer, catalog)
    stack.push_async_callback(dispatcher.aclose)

    vault, artifacts = Vault(shared, settings), Artifacts(shared, settings)
    store = RunStore(shared, settings, seal, blocking_client=client)
    handles = Handles(shared, settings, seal, gatherer)
    canceller = Canceller(shared, settings, seal, app)
    built_in = BuiltIn(handles, canceller, artifacts)
    calls = Calls(
        settings,
        orchestrator_id,
        dispatcher=dispatcher,
        gatherer=gatherer,
        built_in=built_in,
        agents=wishes.agents,
        vault=vault,
        on_unknown_tool=wishes.on_unknown_tool,
        needs_approval=wishes.needs_approval,
    )
    offering = Offering(
        catalog,
        wishes.agents,
        max_offered=settings.max_offered_tools,
        provider=wishes.tool_provider,
        resolve=wishes.resolve_tool,
        interceptors=wishes.interceptors,
    )
    loop = None
    if wishes.model is not None:
        stack.push_async_callback(wishes.model.aclose)
        loop = TurnLoop(
            wishes.model,
            offering=offering,
            interceptors=wishes.interceptors,
            calls=calls,
            handles=handles,
            store=store,
            gatherer=gatherer,
            vault=vault,
            canceller=canceller,
            seal=seal,
            showing=Showing(artifacts),
        )
    runs = gatherer.listener = Runs(store, gatherer, orchestrator_id, loop)
    wishes.agents.begin = runs.begin
    leases = Leases(
        client,
        settings,
        orchestrator_id,
        model=wishes.model.name if wishes.model is not None and wishes.adopts else None,
        on_adopted=runs.adopted,
    )
    await leases.start()
    # Closed in reverse: the runs at work reach a stored state first, then all of them are given up.
    stack.push_async_callback(leases.aclose)
    stack.push_async_callback(runs.aclose)
    return Parts(
        catalog=catalog,
        conversations=Conversations(shared, settings),
        dispatcher=dispatcher,
        runs=runs,
        store=store,
        offering=offering,
        overview=Overview(shared, settings, seal),
        canceller=canceller,
        single_calls=SingleCalls(catalog, calls, handles, built_in),
        batches=Batches(catalog, calls, wishes.interceptors),
    )
