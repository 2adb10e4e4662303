"""The turn loop, complete and real, with stand-ins for all that would leave the process: Redis, workers, other runs.

`Answers` says what calls come to. Whatever else asked for Redis gets an error: nothing of this can have an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

import redis.asyncio
from celery import Celery

from toolfleet.artifacts import Artifacts
from toolfleet.calls import ToolCall, ToolResult
from toolfleet.errors import ArtifactNotFound, ToolfleetError
from toolfleet.orchestrator.budgets.ledger import Ledger
from toolfleet.orchestrator.budgets.spending import Spending
from toolfleet.orchestrator.budgets.tenants import TenantBudgets
from toolfleet.orchestrator.calls.answers import CallAnswers, OnUnknownTool
from toolfleet.orchestrator.calls.placement import Placement
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.calls.services import CallServices
from toolfleet.orchestrator.calls.terms import CallTerms
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.fleet.cancel import Canceller, CancelRequest
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.dispatch import Dispatcher, Outgoing
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.loop.ask import Asking
from toolfleet.orchestrator.loop.call import Calling
from toolfleet.orchestrator.loop.ending import Ending
from toolfleet.orchestrator.loop.images import KeptImages
from toolfleet.orchestrator.loop.rest import Resting
from toolfleet.orchestrator.loop.scopes import Scopes
from toolfleet.orchestrator.loop.turn import TurnLoop
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.run.accounts import Account
from toolfleet.orchestrator.run.events import CallRecord, RunStarted
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.handles import NO_TASKS, Handles, Status, Tasks
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.secret_arguments import Vault
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.orchestrator.tools.builtin import BuiltIn
from toolfleet.orchestrator.tools.chain import Interceptors
from toolfleet.orchestrator.tools.interceptors import RequestedToolCall
from toolfleet.orchestrator.tools.offer import Offering, ToolProvider
from toolfleet.orchestrator.tools.tool_search import ToolSearch, by_shared_words
from toolfleet.settings import Settings
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

OFFLINE: Final = "offline"
"""Who works on runs that are in no store."""


class WentOnline(ToolfleetError):
    """Something that must have no effect has asked for Redis: a bug of ours."""


class Answers(Protocol):
    """What stands for workers and their results."""

    def of_sent(self, call: ToolCall, spec: ToolSpec | None) -> ToolResult | None:
        """What a call comes to that goes to a worker or an agent; None for one that goes on by itself."""
        ...

    def of_sent_before(self, call_id: str) -> ToolResult | None:
        """The same of a call that was sent in an earlier step."""
        ...

    def here(self, call: CallRecord, scope: CallScope, fetched: dict[str, ToolResult]) -> ToolResult | None:
        """What a call comes to that this process answers; None where the orchestrator's own code is to say."""
        ...

    def back(self, call_ids: Collection[str]) -> dict[str, ToolResult]:
        """What is there by now of calls that go on by themselves."""
        ...

    def handle_of(self, call: CallRecord) -> str:
        """What such a call is called for its model."""
        ...

    def status(self, handle: str, tasks: Tasks) -> Status:
        """How it stands."""
        ...


@dataclass(frozen=True, slots=True)
class Code:
    """What an orchestrator has of its users' own code, as far as it decides what a run does."""

    interceptors: Interceptors
    needs_approval: Callable[[RequestedToolCall], bool] | None = None
    resolve_tool: Callable[[str], str | None] | None = None
    on_unknown_tool: OnUnknownTool = "tell"
    tool_provider: ToolProvider | None = None
    tool_search: ToolSearch = by_shared_words


@dataclass(frozen=True, slots=True)
class OfflineLoop:
    """A turn loop that reaches nothing, and what runs on it are stored in: nowhere."""

    loop: TurnLoop
    store: RunStore


def offline_loop(
    model: ChatModel,
    settings: Settings,
    *,
    tools: Mapping[str, ToolSpec],
    agents: Mapping[str, ToolSpec],
    answers: Answers,
    code: Code,
) -> OfflineLoop:
    """Return a loop that asks this model and no worker. It is wired as that of an orchestrator (`wiring.py`)."""
    client, seal = redis.asyncio.Redis(connection_pool=_NoConnections()), Seal(settings)
    catalog = OfflineCatalog(client, settings, tools)
    gatherer = OfflineGatherer(client, settings, seal, answers)
    its_agents = OfflineAgents(agents, gatherer)
    handles = OfflineHandles(client, settings, seal, gatherer, answers)
    canceller = OfflineCanceller(client, settings, seal, Celery(OFFLINE, set_as_current=False))
    artifacts = NoArtifacts(client, settings)
    limits = settings.argument_limits
    services = CallServices(
        placement=Placement(its_agents, limits, code.needs_approval),
        terms=CallTerms(settings, OFFLINE, its_agents),
        answers=OfflineCallAnswers(BuiltIn(handles, canceller), artifacts, limits, code.on_unknown_tool, answers),
        dispatcher=OfflineDispatcher(gatherer),
        gatherer=gatherer,
        vault=MaskingVault(client, settings, seal),
    )
    offering = Offering(
        catalog,
        its_agents,
        max_offered=settings.max_offered_tools,
        provider=code.tool_provider,
        resolve=code.resolve_tool,
        interceptors=code.interceptors,
        search=code.tool_search,
    )
    store = OfflineStore(client, settings, seal, answers)
    scopes = Scopes(offering, code.interceptors)
    ledger = Ledger(client, settings, OFFLINE)
    spending = OwnLimitsOnly(ledger, settings.prices, its_agents, TenantBudgets(client, settings))
    images = KeptImages(artifacts, max_inline_bytes=settings.max_inline_media_bytes)
    loop = TurnLoop(
        Asking(model, its_agents, offering, scopes, services, images, spending),
        Calling(scopes, services, handles),
        Resting(scopes, services, handles, store),
        Ending(scopes, store, canceller, limits),
    )
    return OfflineLoop(loop, store)


async def begin_nothing(started: RunStarted) -> bool:
    """Begin no run of an agent: what those came to is among the answers."""
    del started
    return True


class _NoConnections(redis.asyncio.ConnectionPool):
    """Gives out no connection."""

    async def get_connection(self, *args: Any, **options: Any) -> NoReturn:
        """Raise WentOnline."""
        del args, options
        raise WentOnline("this needs Redis, which nothing of a replay or an evaluation may use")


class OfflineCatalog(Catalog):
    """The tools that an export has."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, tools: Mapping[str, ToolSpec]) -> None:
        super().__init__(client, settings)
        self._tools = tools

    async def offered(self, *wanted: str) -> Mapping[str, ToolSpec]:
        """Return them."""
        del wanted
        return self._tools


class OfflineGatherer(Gatherer):
    """Hands out the answers as if they had been pushed."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, answers: Answers) -> None:
        super().__init__(client, settings, seal, OFFLINE)
        self._answers = answers

    def send(self, call: ToolCall, spec: ToolSpec | None) -> None:
        """Give a call that is sent its answer, or count it as slow."""
        self._give(call.call_id, self._answers.of_sent(call, spec))

    async def look_up(self, call_ids: Iterable[str]) -> None:
        """Do the same for calls that were sent before."""
        for call_id in call_ids:
            self._give(call_id, self._answers.of_sent_before(call_id))

    def _give(self, call_id: str, result: ToolResult | None) -> None:
        if result is not None:
            self.end(call_id, result)
        elif expected := self._expected.get(call_id):
            expected.barrier.lose_patience([call_id])


class OfflineDispatcher(Dispatcher):
    """Sends nothing: the gatherer knows what comes back."""

    def __init__(self, gatherer: OfflineGatherer) -> None:
        self._offline = gatherer

    def send(self, calls: Sequence[Outgoing]) -> Any:
        """Have the calls answered; the future is done."""
        for each in calls:
            self._offline.send(each.call, each.spec)
        return super().send(())

    def forget(self, call_ids: Iterable[str]) -> None:
        """Nothing is sent, so nothing can be lost."""
        del call_ids


class OfflineAgents(Agents):
    """The agents of a run's orchestrator, as far as they are known: what their runs came to is among the answers."""

    def __init__(self, specs: Mapping[str, ToolSpec], gatherer: OfflineGatherer) -> None:
        super().__init__((), model=OFFLINE, max_turns=1, max_depth=1)
        self.specs = specs
        self._gatherer = gatherer

    def __contains__(self, name: str) -> bool:
        return name in self.specs

    def choose(self, names: Sequence[str] | None, *, depth: int) -> dict[str, ToolSpec]:
        """The agents among these names, as `Agents` has it."""
        if names is None:
            return dict(self.specs) if depth == 0 else {}
        return {name: self.specs[name] for name in names if name in self.specs}

    def model_of(self, run: Run) -> None:
        """None: whichever model a run had of its own, the one at hand is asked."""
        del run

    async def start(self, call: ToolCall, **above: Any) -> None:
        """Have the call answered."""
        del above
        self._gatherer.send(call, self.specs[call.tool])


@dataclass(frozen=True)
class OfflineCallAnswers(CallAnswers):
    """Answers of this process: those that are at hand before what the orchestrator says itself."""

    at_hand: Answers | None = None

    async def answer(self, call: CallRecord, scope: CallScope, fetched: dict[str, ToolResult]) -> Any:
        """Answer one call."""
        if self.at_hand is None or call.refusal is not None:
            return await super().answer(call, scope, fetched)
        known = self.at_hand.here(call, scope, fetched)
        return await super().answer(call, scope, fetched) if known is None else known


class OfflineHandles(Handles):
    """Handles that nobody keeps a record of."""

    def __init__(
        self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, gatherer: Gatherer, answers: Answers
    ) -> None:
        super().__init__(client, settings, seal, gatherer)
        self._answers = answers

    async def submit(self, call: CallRecord, run_id: str, **others: Any) -> Any:
        """A handle for a call that goes on by itself, in the words of `Handles`: one that the call has is kept."""
        named = call.model_copy(update={"handle": call.handle or self._answers.handle_of(call)})
        return await super().submit(named, run_id, **others)

    async def status(self, handle: str, run_id: str, *, wait_s: float = 0.0, tasks: Tasks | None = None) -> Status:
        """How a handle's call stands."""
        del run_id, wait_s
        return self._answers.status(handle, NO_TASKS if tasks is None else tasks)

    async def wait(self, *asked: Any, **options: Any) -> None:
        """Return at once: nothing comes later."""
        del asked, options

    async def has_ended(self, call_id: str) -> bool:
        """True: so each look is a fresh one."""
        del call_id
        return True


class MaskingVault(Vault):
    """Masks secrets as ever, and keeps none."""

    async def _keep(self, arguments: Mapping[str, str]) -> None:
        del arguments

    async def arguments(self, calls: Iterable[CallRecord]) -> dict[str, str]:
        """None: secrets are in no export."""
        del calls
        return {}

    async def forget(self, kept_as: Sequence[str]) -> None:
        """Nothing is kept."""
        del kept_as


class OfflineCanceller(Canceller):
    """Cancels nothing, as nothing runs."""

    async def cancel(self, calls: Sequence[CancelRequest]) -> None:
        """Do nothing."""
        del calls

    async def end_unstarted(self, calls: Iterable[CancelRequest]) -> None:
        """Do nothing."""
        del calls


class OfflineStore(RunStore):
    """Holds no run; results are among the answers."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal, answers: Answers) -> None:
        super().__init__(client, settings, seal)
        self._answers = answers

    async def known_results(self, call_ids: Sequence[str]) -> dict[str, ToolResult]:
        """The results that are there by now."""
        return self._answers.back(call_ids)

    async def load_to_write(self, run_id: str) -> NoReturn:
        """Raise RunNotFound: the runs above this one are not here to be told of anything."""
        raise RunNotFound(f"run {run_id} is not among what is replayed")

    async def keep_results(self, call_ids: Sequence[str], until_unix_s: float) -> None:
        """Nothing ends before it is read."""
        del call_ids, until_unix_s

    async def runs_among(self, ids: Sequence[str]) -> list[str]:
        """No run of an agent."""
        del ids
        return []


class NoArtifacts(Artifacts):
    """What was too large for a result is in no export."""

    async def find(self, artifact: str, asker: Any) -> NoReturn:
        """Raise ArtifactNotFound."""
        del asker
        raise ArtifactNotFound(f"artifact {artifact} is in the fleet that has run this, and in no export")


class OwnLimitsOnly(Spending):
    """Runs keep their own limits; budgets that they share with others are elsewhere."""

    def accounts_of(self, run: Run) -> tuple[Account, ...]:
        """None."""
        del run
        return ()
