"""Calls that go on by themselves while their clients wait: each is waited for, and its client asked what it asks.

In revisions where the server asks on the session that happens beside the wait; in the newest one a question ends the
request, and the client comes back to the same call with the answers.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolfleet.calls import Failed, Returned
from toolfleet.errors import ToolfleetError
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.progress_notifications import Observed
from toolfleet.orchestrator.doors.mcp.rounds import MOST_ROUNDS, Asks, Round, asked_meanwhile
from toolfleet.orchestrator.doors.mcp.running_questions import (
    Reader,
    RunningQuestions,
    asked_again,
    requests_for,
    told_elsewhere,
)
from toolfleet.orchestrator.doors.mcp.tickets import Ticket
from toolfleet.orchestrator.doors.mcp.tool_listing import still_running
from toolfleet.orchestrator.run.updates import CallAsks
from toolfleet.orchestrator.status.handles import Status

LOOK_FIRST_S: Final = 0.1
LOOK_EVERY_S: Final = 1.0
"""How soon, and how often, a call that goes on is asked how far it is; its result is pushed."""


def is_asked_in_rounds(reader: Reader) -> bool:
    """Return whether this client can be asked by ending its request."""
    return reader.shows_forms and reader.caller.may_approve and reader.version in MODERN_PROTOCOL_VERSIONS


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call that has a handle, as the client of one request waits for it."""

    orchestrator: Orchestrator
    questions: RunningQuestions
    ticket: Ticket
    tool: str
    observed: Observed
    reader: Reader

    async def take(self, round_: Round) -> Asks | None:
        """Give it the answers that its client comes back with. Returns what has to be asked again."""
        status = await self._stand(0.0)
        asked = await self.questions.of(status.call_id, self.reader.caller)
        faults = await self.questions.take(asked, round_.given, self.reader)
        return Asks(round_, asked_again(requests_for(asked, self.reader), faults)) if faults else None

    async def wait(self, round_: Round, give_up_at: float) -> Returned | Failed | Asks | types.CallToolResult:
        """Wait for the result. Returns what it asks this client, or its id when that can wait no longer."""
        look_after_s = 0.0
        while True:
            left_s = max(0.0, give_up_at - time.monotonic())
            status = await self._stand(min(left_s, look_after_s))
            if status.result is not None:
                return status.result
            asked = await self.questions.of(status.call_id, self.reader.caller)
            if is_asked_in_rounds(self.reader) and (requests := requests_for(asked, self.reader)):
                return Asks(round_.waiting_for(self.ticket.task_id), requests)
            if left_s <= 0:
                return still_running(self.tool, self.ticket.task_id, told_elsewhere(asked))
            look_after_s = min(2 * look_after_s or LOOK_FIRST_S, LOOK_EVERY_S)

    async def _stand(self, wait_s: float) -> Status:
        status = await self.orchestrator.task(self.ticket.handle, wait_s=wait_s, tenant=self.ticket.tenant)
        self.observed.call_id = status.call_id
        if status.progress is not None:
            self.observed.progress(status.progress.fraction, status.progress.message)
        return status


async def ask_meanwhile(questions: RunningQuestions, event: CallAsks, observed: Observed, reader: Reader) -> None:
    """Ask the client's user what a tool asks until it fits. Whoever is first, here or elsewhere, has answered."""
    fault = ""
    with suppress(MCPError, ToolfleetError):
        for _ in range(MOST_ROUNDS):
            open_ = await questions.of(event.call_id, reader.caller)
            asked = {key: each for key, each in open_.items() if each.question_id == event.question_id}
            requests = asked_again(requests_for(asked, reader), dict.fromkeys(asked, fault))
            said = {key: await asked_meanwhile(observed.ctx, request) for key, request in requests.items()}
            fault = "".join((await questions.take(asked, said, reader)).values())
            if not fault:
                return
