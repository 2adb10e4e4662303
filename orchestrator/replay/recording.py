"""An export made fit to be taken through the loop: its moments are now, and each tool that was called has a spec.

Pure. What workers have announced is in the export; of what nobody announces (tools of interceptors, agents, names that
stood for others, tools whose workers were gone) the history says what was done with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from toolfleet.calls import Effect, Failed, FailureKind, Record
from toolfleet.catalog import BUILT_IN_NAMES
from toolfleet.orchestrator.replay.export import Export, folded
from toolfleet.orchestrator.run.events import CallRecord, CallsSent, RunEvent, RunResumed, RunStarted, apart
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_reader import OWN_QUEUE
from toolfleet.orchestrator.tools.builtin import SEARCH_TOOLS
from toolfleet.settings import Settings
from toolfleet.tool import ToolSpec

Moved = TypeVar("Moved", bound=Record)

NOBODYS: Final = "exported"
"""The queue of tools that nobody announces."""

ANYTHING: Final = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Recording:
    """What was written down of a run, as if it began now."""

    started: RunStarted
    events: tuple[RunEvent, ...]
    """All others; that calls were sent stands by itself also where it was written down with their results."""
    places: tuple[int, ...]
    """Where in the history each of them stands."""
    run: Run
    """What they amount to."""
    tools: Mapping[str, ToolSpec]
    """What workers and interceptors serve."""
    agents: Mapping[str, ToolSpec]
    """What runs of agents answer."""
    sent: frozenset[str]
    """The calls that went to a worker or to an agent."""
    undecided: frozenset[str]
    """The calls that a person had to decide about."""

    @classmethod
    def of(cls, export: Export, now_unix_s: float, tools: Mapping[str, ToolSpec] | None = None) -> Recording:
        """Make one; `tools` stand in the place of those that were exported under their names.

        Raises IllegalTransition for a history that this version does not understand.
        """
        later_s = now_unix_s - export.started.started_unix_s
        started = _moved(export.started, later_s)
        told = [line.event for line in export.events[1:]]
        stored = [event for event in told if not isinstance(event, RunStarted)]
        placed = [(place, _moved(each, later_s)) for place, event in enumerate(stored, 1) for each in apart(event)]
        events = tuple(event for _, event in placed)
        run = folded([started, *events])
        sendings = [event for event in events if isinstance(event, CallsSent)]
        sent = frozenset(call_id for event in sendings for call_id in event.deadlines_unix_s)
        of_agents = {call_id for event in sendings for call_id in event.agents}
        agents = {call.tool for call in run.calls if call.call_id in of_agents}
        known = {**export.tools, **(tools or {})}
        return cls(
            started=started,
            events=events,
            places=tuple(place for place, _ in placed),
            run=run,
            tools={**_nobodys(run, sent, {*known, *agents}), **{n: s for n, s in known.items() if n not in agents}},
            agents={name: known.get(name, _stand_in(name, OWN_QUEUE)) for name in agents},
            sent=sent,
            undecided=frozenset(call_id for event in sendings for call_id in event.awaiting_approval),
        )

    @property
    def brought(self) -> list[str]:
        """The tools that interceptors have brought along, which are offered whatever a run names."""
        return [name for name, spec in self.tools.items() if spec.queue == OWN_QUEUE]

    def as_offered(self, settings: Settings) -> Settings:
        """Return settings with which tools are searched for where they were: how many were too many, nobody wrote."""
        searched = any(call.tool == SEARCH_TOOLS and not is_of_no_tool(call) for call in self.run.calls)
        return settings.model_copy(update={"max_offered_tools": 1}) if searched else settings


def _moved(event: Moved, later_s: float) -> Moved:
    """Return an event with its deadlines moved: in a replay no time passes, and none of them does."""
    match event:
        case RunStarted():
            ends = event.deadline_unix_s
            moved = {
                "started_unix_s": event.started_unix_s + later_s,
                "deadline_unix_s": None if ends is None else ends + later_s,
                "trace": None,
            }
            return event.model_copy(update=moved)
        case CallsSent():
            ends_of = {call_id: ends + later_s for call_id, ends in event.deadlines_unix_s.items()}
            return event.model_copy(update={"deadlines_unix_s": ends_of})
        case RunResumed():
            return event.model_copy(update={"trace": None})
        case _:
            return event


def _nobodys(run: Run, sent: frozenset[str], known: set[str]) -> dict[str, ToolSpec]:
    """Return what is known of tools that were called, or named for the run, and that nobody has announced."""
    own = {spec.name for spec in run.terms.client_tools} | set(BUILT_IN_NAMES) | known
    found = {name: _stand_in(name, NOBODYS) for name in run.terms.tools or () if name not in own}
    for call in run.calls:
        if call.tool not in own and not is_of_no_tool(call):
            found[call.tool] = _stand_in(call.tool, NOBODYS if call.call_id in sent else OWN_QUEUE, call)
    return found


def is_of_no_tool(call: CallRecord) -> bool:
    """Whether the orchestrator itself has answered a call, as there is no such tool or it must not be called."""
    is_unknown = isinstance(call.result, Failed) and call.result.kind is FailureKind.UNKNOWN_TOOL
    return call.refusal is not None or is_unknown


def _stand_in(name: str, queue: str, call: CallRecord | None = None) -> ToolSpec:
    return ToolSpec(
        name=name,
        description="",
        input_schema=ANYTHING,
        effect=Effect.ONCE,
        queue=queue,
        return_direct=call is not None and call.is_direct,
        background="model" if call is not None and call.is_in_background else None,
    )
