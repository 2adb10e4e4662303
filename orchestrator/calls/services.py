"""What it takes to make calls, as one value: a group, a rollback and an early sending use the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolfleet.calls import Submitted, ToolResult
from toolfleet.orchestrator.calls.answers import CallAnswers
from toolfleet.orchestrator.calls.placement import Placement
from toolfleet.orchestrator.calls.terms import CallTerms
from toolfleet.orchestrator.fleet.dispatch import Dispatcher
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.spans.direct import DirectSpans
from toolfleet.orchestrator.store.secret_arguments import Vault

if TYPE_CHECKING:  # it imports OpenTelemetry
    from toolfleet.tracing.spans import Tracing


@dataclass(frozen=True, slots=True)
class CallServices:
    """Makes the calls of one orchestrator."""

    placement: Placement
    terms: CallTerms
    answers: CallAnswers
    dispatcher: Dispatcher
    gatherer: Gatherer
    vault: Vault
    tracing: Tracing | None = None

    def direct_spans(self) -> DirectSpans | None:
        """Return what records calls that are made now for a caller without a run; None where nothing is traced."""
        return None if self.tracing is None else DirectSpans(self.tracing)

    def forget(self, results: Mapping[str, ToolResult]) -> None:
        """Let Redis drop results that are written down or handed over. Those of slow calls are still to come."""
        recorded = [call_id for call_id, result in results.items() if not isinstance(result, Submitted)]
        self.gatherer.forget(recorded)
        self.dispatcher.forget(recorded)
