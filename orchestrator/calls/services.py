"""What it takes to make calls, as one value: a group, a rollback and an early sending use the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolfleet.calls import Submitted, ToolResult
from toolfleet.orchestrator.calls.answers import CallAnswers
from toolfleet.orchestrator.calls.placement import Placement
from toolfleet.orchestrator.calls.terms import CallTerms
from toolfleet.orchestrator.fleet.dispatch import Dispatcher
from toolfleet.orchestrator.fleet.gather import Gatherer
from toolfleet.orchestrator.store.secret_arguments import Vault


@dataclass(frozen=True, slots=True)
class CallServices:
    """Makes the calls of one orchestrator."""

    placement: Placement
    terms: CallTerms
    answers: CallAnswers
    dispatcher: Dispatcher
    gatherer: Gatherer
    vault: Vault

    def forget(self, results: Mapping[str, ToolResult]) -> None:
        """Let Redis drop results that are written down or handed over. Those of slow calls are still to come."""
        self.gatherer.forget(call_id for call_id, result in results.items() if not isinstance(result, Submitted))
