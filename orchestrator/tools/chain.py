"""The interceptors of a run as one value: the order in which they see a call, and the tools that they bring along.

A chain is made once for each choice of interceptors, and refused where a name in it would mean two things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from toolfleet.arguments.parsing import ArgumentLimits, read_arguments
from toolfleet.arguments.text import object_text
from toolfleet.calls import Failed, FailureKind
from toolfleet.errors import BadArguments, InvalidTool
from toolfleet.extra_arguments import why_not
from toolfleet.orchestrator.errors import UnknownInterceptor
from toolfleet.orchestrator.status.call_reader import OWN_QUEUE
from toolfleet.orchestrator.tools.interceptors import Interceptor, RequestedToolCall, Result
from toolfleet.orchestrator.tools.meanings import of_interceptor, one_meaning_each
from toolfleet.tool import ToolSpec

if TYPE_CHECKING:
    from toolfleet.handwritten import SchemaReader


MAX_CHAINS: Final = 1000
"""How many choices of interceptors are remembered."""


@dataclass(frozen=True, slots=True)
class BroughtTool:
    """A tool that an interceptor brings along."""

    spec: ToolSpec
    owner: Interceptor
    reader: SchemaReader

    @classmethod
    def of(cls, spec: ToolSpec, owner: Interceptor) -> BroughtTool:
        """The tool as it is offered. Raises InvalidTool for a schema that arguments cannot be checked against."""
        from toolfleet.handwritten import SchemaReader  # noqa: PLC0415  # jsonschema is slow to import, and few need it

        return cls(spec.model_copy(update={"queue": OWN_QUEUE}), owner, SchemaReader(spec.name, spec.input_schema))

    async def answer(self, call: RequestedToolCall, limits: ArgumentLimits) -> Result:
        """What its owner answers, which is asked only if the arguments are those of the tool's schema."""
        try:
            read = read_arguments(call.arguments, self.reader, limits)
        except BadArguments as error:
            return Failed(kind=FailureKind.BAD_ARGUMENTS, message=str(error))
        return await self.owner.answer(replace(call, arguments=object_text(read)))


@dataclass(frozen=True, slots=True)
class Chain:
    """Interceptors in the order in which they see a call on its way out. Empty, it counts as false."""

    interceptors: tuple[Interceptor, ...] = ()
    brought: Mapping[str, BroughtTool] = field(default_factory=dict)
    """The tools that they bring, by name."""
    adding: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The arguments that they add to every tool."""
    around_model: tuple[Interceptor, ...] = ()
    """Those that have to do with what the model is asked, or says."""
    hides_results: bool = False
    """Whether any of them does."""
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    """What a model is told of the tools that they bring."""

    @classmethod
    def of(cls, interceptors: Sequence[Interceptor]) -> Chain:
        """The chain.

        Raises DuplicateTool for two tools of one name, InvalidTool for one that cannot be offered, and for two
        interceptors that would write their notes, or ask for an argument, under one name.
        """
        brought: dict[str, BroughtTool] = {}
        for each in {id(each): each for each in interceptors}.values():
            for spec in each.tools:
                one_meaning_each(
                    {name: of_interceptor(tool.owner) for name, tool in brought.items()},
                    {spec.name: of_interceptor(each)},
                )
                brought[spec.name] = BroughtTool.of(spec, each)
        around = tuple(each for each in interceptors if _is_around_model(each))
        _each_once("note something as", [note_name(each) for each in around if overrides(each, "decide", "hear")])
        _each_once("ask for the argument", [name for each in interceptors for name in each.adds])
        return cls(
            tuple(interceptors),
            brought,
            adding={name: schema for each in interceptors for name, schema in each.adds.items()},
            around_model=around,
            hides_results=any(each.hides_results for each in interceptors),
            specs={name: tool.spec for name, tool in brought.items()},
        )

    def __bool__(self) -> bool:
        return bool(self.interceptors)

    def extra_arguments(self, spec: ToolSpec) -> list[str]:
        """The arguments that a model is asked for with this tool, beside its own: those that its schema can have."""
        if spec.queue == OWN_QUEUE:
            return []
        return [name for name in self.adding if why_not(name, spec.input_schema) is None]

    async def before(self, call: RequestedToolCall) -> RequestedToolCall | Result:
        """The call after the whole chain, or the result of the first one that had one."""
        for interceptor in self.interceptors:
            outcome = await interceptor.before(call)
            if not isinstance(outcome, RequestedToolCall):
                return outcome
            # The id joins it with its answer, the tool with its spec; an interceptor changes what the tool is given.
            call = replace(outcome, call_id=call.call_id, run_id=call.run_id, tool=call.tool, spec=call.spec)
        return call

    async def after(self, call: RequestedToolCall, result: Result) -> Result:
        """The result after the whole chain, in reverse."""
        said = result
        for interceptor in reversed(self.interceptors):
            said = await interceptor.after(call, said)
        how = {"attempt": result.attempt, "repaired": result.repaired, "spent": result.spent}
        return said.model_copy(update=how)


NO_CHAIN: Final = Chain()


def note_name(interceptor: Interceptor) -> str:
    """Under which name its notes stand in a run."""
    return interceptor.name or type(interceptor).__name__


def overrides(interceptor: Interceptor, *methods: str) -> bool:
    """Whether it does anything of its own in one of these."""
    return any(
        getattr(type(interceptor), method, None) not in {None, getattr(Interceptor, method)} for method in methods
    )


def _is_around_model(interceptor: Interceptor) -> bool:
    return overrides(interceptor, "decide", "ask", "hear", "text_filter") or bool(interceptor.hides_replies)


def _each_once(what: str, names: Sequence[str]) -> None:
    """Raises InvalidTool for a name that is there twice."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidTool(f"two interceptors of a run {what} {', '.join(twice)}: give one of them another name")


class Interceptors:
    """Those of an orchestrator: some for every call, some for the runs that name them."""

    def __init__(self, always: Sequence[Interceptor] = (), named: Mapping[str, Interceptor] | None = None) -> None:
        """Raises DuplicateTool and InvalidTool for tools that they bring and no run could be offered."""
        self._always = tuple(always)
        self._named = dict(named or {})
        self._chains: dict[tuple[str, ...], Chain] = {}
        for names in ((), *((name,) for name in self._named)):
            self.chosen(names)

    def __bool__(self) -> bool:
        return bool(self._always or self._named)

    @property
    def brought(self) -> dict[str, str]:
        """Every tool that any of them brings, and what its name means."""
        return {
            name: of_interceptor(tool.owner) for chain in self._chains.values() for name, tool in chain.brought.items()
        }

    @property
    def specs(self) -> dict[str, ToolSpec]:
        """What models are told of every tool that any of them brings."""
        return {name: spec for chain in self._chains.values() for name, spec in chain.specs.items()}

    def chosen(self, names: Sequence[str]) -> Chain:
        """The chain for a run. Raises UnknownInterceptor, and DuplicateTool for two that do not go together."""
        if (mostly := self._chains.get(tuple(names))) is not None:
            return mostly
        wanted = tuple(dict.fromkeys(names))  # each once
        known = self._chains.get(wanted)
        if known is None:
            if missing := [name for name in wanted if name not in self._named]:
                here = ", ".join(sorted(self._named)) or "none"
                raise UnknownInterceptor(f"no interceptor {', '.join(missing)}; this orchestrator has {here}")
            known = Chain.of((*self._always, *(self._named[name] for name in wanted)))
            # As many as there are choices; whoever names them at random pays for it with a new one each time.
            if len(self._chains) < MAX_CHAINS:
                self._chains[wanted] = known
        return known
