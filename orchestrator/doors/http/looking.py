"""Those who read, for all routes of one API process: made once, since each has its scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import redis.asyncio

from toolfleet.orchestrator.status.approvals import Approvals
from toolfleet.orchestrator.status.call_logs import CallLogReader
from toolfleet.orchestrator.status.finding import Finder
from toolfleet.orchestrator.status.fleet_standing import FleetView
from toolfleet.orchestrator.status.handle_list import HandleList
from toolfleet.orchestrator.status.overview import Overview
from toolfleet.orchestrator.status.questions import Questions
from toolfleet.orchestrator.status.trees import Trees
from toolfleet.orchestrator.store.batches import Batches
from toolfleet.orchestrator.store.run_pages import RunPages
from toolfleet.orchestrator.store.run_states import RunStates
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.seen import SeenRuns
from toolfleet.orchestrator.webhooks.desk import Webhooks
from toolfleet.settings import Settings
from toolfleet.wire import Seal


@dataclass(frozen=True, slots=True)
class Looking:
    """What looks at runs, calls and queues, and changes nothing."""

    store: RunStore
    seen: SeenRuns
    pages: RunPages
    run_states: RunStates
    finder: Finder
    overview: Overview
    trees: Trees
    approvals: Approvals
    questions: Questions
    handles: HandleList
    fleet: FleetView
    logs: CallLogReader
    batches: Batches
    webhooks: Webhooks

    @classmethod
    def through(cls, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> Self:
        """Make them all for one connection."""
        store = RunStore(client, settings, seal)
        seen = SeenRuns(store)
        return cls(
            store=store,
            seen=seen,
            pages=RunPages(client, settings.keys, store),
            run_states=RunStates(client, settings.keys),
            finder=Finder(client, settings, seal, store),
            overview=Overview(client, settings, seal, seen),
            trees=Trees(store),
            approvals=Approvals(client, settings.keys, store),
            questions=Questions(client, settings, seal, store),
            handles=HandleList(client, settings, seal),
            fleet=FleetView(client, settings),
            logs=CallLogReader(client, settings, seal),
            batches=Batches(client, settings, seal),
            webhooks=Webhooks.through(client, settings, seal),
        )
