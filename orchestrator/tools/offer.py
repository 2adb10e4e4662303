"""What a model is offered in a run, and what a name that it asks for stands for.

Puts together the catalog, agents, the built-in tools, and the tools that the model has searched for. Sends nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolfleet.calls import Effect, Failed, Returned
from toolfleet.catalog import BUILT_IN_NAMES, of_tenant
from toolfleet.messages import Message
from toolfleet.orchestrator.errors import UnknownTool
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.run.events import RunStarted
from toolfleet.orchestrator.run.refusals import bad_arguments
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_reader import OWN_QUEUE
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.orchestrator.tools.builtin import BUILT_IN, SEARCH_TOOLS, built_in_for
from toolfleet.orchestrator.tools.chain import Chain, Interceptors
from toolfleet.orchestrator.tools.meanings import (
    AGENT,
    BUILT_IN_TOOL,
    WORKERS_TOOL,
    of_interceptor,
    one_meaning_each,
)
from toolfleet.orchestrator.tools.tool_search import ToolSearch, by_shared_words
from toolfleet.orchestrator.tools.versions import NOTHING_PINNED, PinnedVersions, VersionGone, root_of
from toolfleet.outages import while_it_may_be_away
from toolfleet.read_result import READ_RESULT
from toolfleet.tool import ToolSpec

TOOLS_BACK_WITHIN_S: Final = 30.0
"""How long a run waits for a worker that serves its tools: workers are restarted one after another."""

FOUND: Final = "found_tools"
"""The attribute of a search's result that names what it found."""

ALWAYS_VISIBLE: Final = "always"
"""Tools with this tag are offered although there are too many to offer all."""

MAX_FOUND: Final = 10

MAX_CHOICES: Final = 1000
"""How many choices of tools are remembered."""


class ToolProvider(Protocol):
    """Decides which tools a run is offered: asked once when it begins, or before each turn if `each_turn`."""

    each_turn: bool

    async def __call__(self, messages: Sequence[Message], context: Mapping[str, Any]) -> Sequence[str]:
        """Names in the catalog. `context` is the caller's own, with its conversation_id if it gave one."""
        ...


class SearchArguments(BaseModel):
    """What the model passes to `search_tools`."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, description="what the tool should do, in a few words")
    limit: int = Field(default=5, ge=1, le=MAX_FOUND, description="how many tools to show at most")


SEARCH_SPEC: Final = ToolSpec(
    name=SEARCH_TOOLS,
    description="Find tools that are not shown yet, by what they do. Tools that are found can be called in your next "
    "reply.",
    input_schema=SearchArguments.model_json_schema(),
    effect=Effect.READ_ONLY,
    queue=OWN_QUEUE,
)


class _Choice(NamedTuple):
    """All that decides which tools of workers and agents a run is offered."""

    names: tuple[str, ...] | None
    depth: int
    interceptors: tuple[str, ...]
    versions: tuple[tuple[str, int], ...]


class Tools(NamedTuple):
    """Tools that are served, and what holds of all of them: that is not asked anew for each turn, or each message."""

    specs: Mapping[str, ToolSpec]
    are_some_tenants: bool
    """Whether any of them is served for one tenant only."""
    run_in_background: bool
    """Whether the model may have calls of any run in the background."""

    @classmethod
    def of(cls, specs: Mapping[str, ToolSpec]) -> Tools:
        """These tools."""
        return cls(specs, any(spec.tenant for spec in specs.values()), any(spec.background for spec in specs.values()))

    def of_tenant(self, tenant: str) -> Tools:
        """Those that are served for a tenant's calls."""
        return Tools.of(of_tenant(self.specs, tenant)) if self.are_some_tenants else self


class Offering:
    """What runs are offered."""

    def __init__(
        self,
        catalog: Catalog,
        agents: Agents,
        *,
        max_offered: int,
        provider: ToolProvider | None = None,
        resolve: Callable[[str], str | None] | None = None,
        interceptors: Interceptors | None = None,
        search: ToolSearch = by_shared_words,
    ) -> None:
        self._catalog = catalog
        self._agents = agents
        self._max_offered = max_offered
        self._provider = provider
        self._resolve = resolve
        self._interceptors = interceptors or Interceptors()
        self._search = search
        self._chosen: dict[_Choice, Tools] = {}
        self._chosen_of: Mapping[str, ToolSpec] = {}
        self._versions = PinnedVersions(catalog)

    async def chosen_at_start(self, messages: Sequence[Message], context: Mapping[str, Any]) -> Sequence[str] | None:
        """The tools of a run that names none: what the provider says once, None for all."""
        if self._provider is None or self._provider.each_turn:
            return None
        return await self._provider(messages, context)

    def pinned(self, started: RunStarted, above: Mapping[str, int] = NOTHING_PINNED) -> RunStarted:
        """The first event of a run with the versions that it is to go on with; `above` are those of the run above it.

        By the last look at the live workers: ask for the offer first.
        """
        root = root_of(started.run_id, started.depth)
        pins = self._versions.at_start(started.terms.tools, started.terms.tenant, above, root)
        return started if not pins else started.model_copy(update={"versions": pins})

    def gone(self, run: Run) -> Mapping[str, str]:
        """What is said of the tools whose version that the run began with no live worker serves."""
        return self._versions.gone(run.versions)

    async def for_model(self, run: Run) -> tuple[Mapping[str, ToolSpec], tuple[str, ...] | None]:
        """What the model is told of now; and the names, if they are another choice in each turn.

        Raises UnknownTool when nobody serves a tool of the run, after waiting for it.
        """
        chosen = None
        if self._provider is not None and self._provider.each_turn:
            chosen = tuple(await self._provider(run.messages, run.terms.context))
        visible = await self._visible(run, run.terms.tools if chosen is None else chosen)
        return _with(visible, {spec.name: spec for spec in run.terms.client_tools}), chosen

    async def for_calls(self, run: Run) -> Mapping[str, ToolSpec]:
        """What the calls of the last reply may be of, under the names that the model uses. Raises UnknownTool."""
        visible = await self._visible(run, run.terms.tools if run.offered is None else run.offered)
        if self._resolve is None:
            return visible
        served = self._versions.of(await self._catalog.offered(), run.versions)
        everything = of_tenant(served, run.terms.tenant)
        meant = {call.tool: self._resolve(call.tool) for call in run.calls_owed if call.tool not in visible}
        return _with(visible, {tool: everything[name] for tool, name in meant.items() if name and name in everything})

    async def must_be_clear(self, names: Sequence[str] | None, interceptors: Sequence[str]) -> None:
        """Raises UnknownTool for a name that nobody serves, DuplicateTool for one that means two things.

        `names` are those of a run that is about to begin, None for all; the catalog may change later.
        """
        await _served(self._catalog, names, self._interceptors.chosen(interceptors), self._agents.specs)

    async def known(self, run: Run) -> dict[str, ToolSpec]:
        """Whatever is served now, under the names of the run too, for whom it matters only what a tool is."""
        offered = await self._catalog.offered()
        served = {**offered, **self._versions.of(offered, run.versions)}
        known = {**served, **self._agents.specs, **self._contributed(run)}
        if self._resolve is not None:
            meant = {call.tool: self._resolve(call.tool) for call in run.calls if call.tool not in known}
            known |= {name: known[tool] for name, tool in meant.items() if tool in known}
        return known

    async def search(self, run: Run, arguments: str) -> Returned | Failed:
        """The answer to a call of `search_tools`."""
        try:
            asked = SearchArguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            return bad_arguments(SEARCH_TOOLS, error)
        ranked = self._search(asked.query, list((await self._tools(run, run.terms.tools)).specs.values()))
        found = (await ranked if isinstance(ranked, Awaitable) else ranked)[: asked.limit]
        shown = [{"name": spec.name, "description": spec.description} for spec in found]
        said = {"tools": shown, "note": "call them in your next reply" if shown else "nothing fits; use other words"}
        return Returned(content=orjson.dumps(said).decode(), attributes={FOUND: [spec.name for spec in found]})

    async def _visible(self, run: Run, names: Sequence[str] | None) -> Mapping[str, ToolSpec]:
        tools = await self._tools(run, names)
        if len(tools.specs) > self._max_offered:
            tools = Tools.of({**_shown_of_many(tools.specs, found_in(run)), SEARCH_TOOLS: SEARCH_SPEC})
        built_in = built_in_for(run, run_in_background=tools.run_in_background)
        return _with(tools.specs, self._contributed(run), built_in)

    def _contributed(self, run: Run) -> Mapping[str, ToolSpec]:
        return self._interceptors.chosen(run.terms.interceptors).specs

    async def _tools(self, run: Run, names: Sequence[str] | None) -> Tools:
        """What workers and agents serve of these, remembered for each choice as long as workers serve the same."""
        choice = _Choice(
            None if names is None else tuple(names),
            run.depth,
            tuple(run.terms.interceptors),
            tuple(run.versions.items()),
        )
        offered = await self._catalog.offered()
        if offered is not self._chosen_of or len(self._chosen) > MAX_CHOICES:
            self._chosen, self._chosen_of = {}, offered
        tools = self._chosen.get(choice)
        if tools is None:
            choose = partial(self._choose, choice)
            try:
                tools = Tools.of(await while_it_may_be_away(choose, for_s=TOOLS_BACK_WITHIN_S, on=UnknownTool))
            except VersionGone as gone:
                self._versions.give_up(gone)
                return await self._tools(run, names)  # without it; another one may be gone as well
            if offered is self._chosen_of:
                self._chosen[choice] = tools
        return tools.of_tenant(run.terms.tenant)

    async def _choose(self, choice: _Choice) -> dict[str, ToolSpec]:
        agents = self._agents.choose(choice.names, depth=choice.depth)
        brought = self._interceptors.chosen(choice.interceptors)
        served = await _served(self._catalog, choice.names, brought, self._agents.specs)
        return {**self._versions.of(served, dict(choice.versions), is_awaited=True), **agents}


def _with(tools: Mapping[str, ToolSpec], *others: Mapping[str, ToolSpec]) -> Mapping[str, ToolSpec]:
    """Return the tools with others, which mostly are none: a thousand tools are not to be copied in each turn."""
    for more in others:
        if more:
            tools = {**tools, **more}
    return tools


async def offered_to_caller(catalog: Catalog, chain: Chain, names: Sequence[str] | None) -> dict[str, ToolSpec]:
    """What a caller with a loop of their own may call: tools of workers and of interceptors, those named or all.

    And `read_result` in any case: whatever comes back may be too large to be shown whole. Raises UnknownTool for a name
    that is none of these, DuplicateTool for one that is two.
    """
    if names is not None:
        names = [name for name in names if name != READ_RESULT.name]
    served = {**await _served(catalog, names, chain, {}), READ_RESULT.name: BUILT_IN[READ_RESULT.name]}
    if not chain.brought:
        return served
    return {**served, **{name: spec for name, spec in chain.specs.items() if names is None or name in names}}


async def _served(
    catalog: Catalog, names: Sequence[str] | None, chain: Chain, agents: Mapping[str, ToolSpec]
) -> dict[str, ToolSpec]:
    """The tools of workers among these names, or all. Raises UnknownTool, and DuplicateTool for what is another too."""
    offered = await catalog.offered()
    for name in (*BUILT_IN_NAMES, *agents, *chain.brought):
        if name in offered and (names is None or name in names):
            one_meaning_each({name: WORKERS_TOOL}, {name: _own_meaning(name, chain, agents)})
    if names is not None and (agents or chain.brought):
        names = [name for name in names if name not in agents and name not in chain.brought]
    return await catalog.choose(names)


def _own_meaning(name: str, chain: Chain, agents: Mapping[str, ToolSpec]) -> str:
    """What a name means that this orchestrator answers itself."""
    if name in BUILT_IN_NAMES:
        return BUILT_IN_TOOL
    return AGENT if name in agents else of_interceptor(chain.brought[name].owner)


def _shown_of_many(tools: Mapping[str, ToolSpec], found: Collection[str]) -> dict[str, ToolSpec]:
    """Those that are shown where there are too many to show all."""
    return {name: spec for name, spec in tools.items() if name in found or ALWAYS_VISIBLE in spec.tags}


def found_in(run: Run) -> set[str]:
    """The tools that the model has found by searching, in any turn that is over."""
    results = (call.result for call in run.calls if call.tool == SEARCH_TOOLS)
    return {name for result in results if isinstance(result, Returned) for name in result.attributes.get(FOUND, ())}
