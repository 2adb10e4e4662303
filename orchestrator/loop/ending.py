"""Ends runs that have no answer: takes what is known of their calls, writes the end down, then calls off the rest.

Whoever ends a run, its owner or somebody elsewhere, comes this way, so that its history says the same: the result of
each call that has one, of what may have begun that it may have happened, and "not called" only of what nobody has sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.calls import Failed, Returned, ToolResult
from toolfleet.errors import BrokerUnreachable, StoreUnreachable
from toolfleet.messages import Message
from toolfleet.orchestrator.calls.interception import intercept_each, must_be_of_one_call, withheld
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.fleet.cancel import Canceller, CancelRequest
from toolfleet.orchestrator.loop.rest import late_messages
from toolfleet.orchestrator.loop.scopes import Scopes
from toolfleet.orchestrator.run.events import CallRecord, RunStopped
from toolfleet.orchestrator.run.fault import Fault
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.run.words import Words
from toolfleet.orchestrator.spans.runs import RunSpans
from toolfleet.orchestrator.status.call_reader import handle_of
from toolfleet.orchestrator.status.call_state import result_state
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.store.journal import write_from_outside
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.outages import while_it_may_be_away

AWAY: Final = (StoreUnreachable, BrokerUnreachable)
AWAY_MAX_S: Final = 60.0
"""How long Redis may be away before a run is left as it stands, as for a write."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Ends runs of any orchestrator."""

    scopes: Scopes
    store: RunStore
    canceller: Canceller
    limits: ArgumentLimits
    spans: RunSpans | None = None

    async def cancel(self, run_id: str, reason: str, by: str = "") -> Run:
        """End a run from outside, and the runs below it; `by` whom is written down.

        Raises RunNotOpen, RunNotFound, StoreUnreachable.
        """
        under_way: tuple[CallRecord, ...] = ()
        written: RunStopped | None = None

        async def end(run: Run) -> RunStopped:
            nonlocal under_way, written
            under_way = run.calls_that_may_have_begun
            written = (await self.of(run, "cancelled", reason)).model_copy(update={"by": by})
            return written

        # Written first: a run that heard of a cancelled call before would go on with that as a result.
        run = await write_from_outside(self.store, run_id, end)
        if self.spans is not None and written is not None:
            self.spans.tell(run, written)
        await self.call_off(under_way, reason, by)
        return run

    async def of(
        self, run: Run, state: Literal["failed", "cancelled"], reason: str, fault: Fault | None = None
    ) -> RunStopped:
        """The end of a run as it is to be written, with what its open calls have come to. Raises StoreUnreachable."""
        results = {} if run.state.is_terminal else await self._results(run, run.calls_that_may_have_begun)
        late = _late(run.open_slow_calls, results, run.terms.words)
        return RunStopped(state=state, reason=reason, fault=fault, results=results, messages=late)

    async def call_off(self, calls: Sequence[CallRecord], reason: str, by: str = "") -> None:
        """Cancel what is still under way for a run that has ended. Waits for Redis, then raises StoreUnreachable.

        The run's end is stored, so nobody comes this way again for it.
        """
        now = time.time()
        requests = [CancelRequest(call.call_id, call.tool, call.deadline_unix_s or now) for call in calls]
        await while_it_may_be_away(lambda: self.canceller.cancel(requests), for_s=AWAY_MAX_S, on=AWAY)
        ids = [call.call_id for call in calls]  # an agent's run has its call's id
        for child in await while_it_may_be_away(lambda: self.store.runs_among(ids), for_s=AWAY_MAX_S):
            with suppress(RunNotFound, RunNotOpen):
                await while_it_may_be_away(partial(self.cancel, child, reason, by), for_s=AWAY_MAX_S)

    async def _results(self, run: Run, calls: Sequence[CallRecord]) -> dict[str, ToolResult]:
        ids = [call.call_id for call in calls]
        known = await while_it_may_be_away(lambda: self.store.known_results(ids), for_s=AWAY_MAX_S)
        ended = {call_id: result for call_id, result in known.items() if isinstance(result, Returned | Failed)}
        return await self._intercepted(run, [call for call in calls if call.call_id in ended], ended)

    async def _intercepted(
        self, run: Run, calls: Sequence[CallRecord], results: Mapping[str, Returned | Failed]
    ) -> dict[str, ToolResult]:
        """The results as the run's interceptors want them; where those are not, nobody reads what tools returned."""
        if not results:
            return {}
        try:
            scope = await self.scopes.for_late_results(run)
        except Exception as error:  # noqa: BLE001  # what a caller's own code raises must not keep a run from its end
            must_be_of_one_call(error)
            return {call.call_id: withheld(call, results[call.call_id], error) for call in calls}
        shown, _ = await intercept_each(calls, results, scope, self.limits)
        return shown


def _late(slow: Iterable[CallRecord], results: Mapping[str, ToolResult], words: Words | None) -> tuple[Message, ...]:
    """The results of slow calls, as if the model had fetched them."""
    ended = [(call, result) for call in slow if isinstance(result := results.get(call.call_id), Returned | Failed)]
    return tuple(
        message
        for call, result in ended
        for message in late_messages(
            call,
            Status(
                state=result_state(result), task_id=handle_of(call), call_id=call.call_id, tool=call.tool, result=result
            ),
            words,
        )
    )
