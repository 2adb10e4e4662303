"""What the calls of a run's reply share, for each occasion on which calls are made. Asks the clock, and nobody else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from toolfleet.orchestrator.calls.late_results import late_scope
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.run.events import RunStarted
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.tools.chain import Chain, Interceptors
from toolfleet.orchestrator.tools.offer import Offering
from toolfleet.tool import ToolSpec


@dataclass(frozen=True, slots=True)
class Scopes:
    """Makes scopes for runs. Raises UnknownInterceptor for a run that names one which is not here."""

    offering: Offering
    interceptors: Interceptors

    def chain(self, run: Run) -> Chain:
        """The interceptors of a run."""
        return self.interceptors.chosen(run.terms.interceptors)

    async def for_calls(self, work: RunAtWork) -> CallScope:
        """The scope of the calls that the last reply asks for. Raises UnknownTool."""
        return self._scope(work, await self.offering.for_calls(work.run))

    def for_early_calls(self, work: RunAtWork, offered: Mapping[str, ToolSpec]) -> CallScope:
        """The scope of calls that are sent before their reply is whole."""
        return self._scope(work, _sendable_early(work.run, offered))

    async def for_late_results(self, run: Run) -> CallScope:
        """What interceptors are told of a call that is back after its run has rested."""
        return await late_scope(run, self.offering, self.interceptors)

    def _scope(self, work: RunAtWork, offered: Mapping[str, ToolSpec]) -> CallScope:
        run = work.run
        return CallScope(
            run_id=run.run_id,
            offered=offered,
            emit=work.emit,
            begin=partial(self._begin_below, work),
            interceptors=self.chain(run),
            search=partial(self.offering.search, run),
            slow=run.terms.slow,
            patience_s=run.terms.patience_s,
            context=run.terms.context,
            deadline_unix_s=_turn_ends_unix_s(run),
            values=run.values,
            # Without the reply itself: calls may be sent before the last of it has come.
            history=run.messages[:-1] if run.state is State.CALLING else run.messages,
            tasks=run.tasks,
            run=run,
            tenant=run.terms.tenant,
            subject=run.terms.subject,
            priority=run.terms.priority,
            trace=run.trace,
            gone=self.offering.gone(run) if run.versions else {},
        )

    async def _begin_below(self, work: RunAtWork, started: RunStarted) -> bool:
        """Begin an agent's run, with the versions of tools that the run above it goes on with."""
        return await work.begin(self.offering.pinned(started, work.run.versions))


def _sendable_early(run: Run, offered: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """The tools whose calls may go before the reply is whole: not the caller's own."""
    own = {spec.name for spec in run.terms.client_tools}
    return {name: spec for name, spec in offered.items() if name not in own}


def _turn_ends_unix_s(run: Run) -> float | None:
    """When calls that are sent now expire at the latest."""
    ends = [] if run.deadline_unix_s is None else [run.deadline_unix_s]
    if run.terms.turn_timeout_s is not None:
        ends.append(time.time() + run.terms.turn_timeout_s)
    return min(ends, default=None)
