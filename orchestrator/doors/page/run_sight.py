"""One run as the page shows it: read once from the store, for whoever looks on.

Reads with the functions that the API and the command line have; what may be shown to whom is decided here, once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from toolfleet.call_log import CallLog
from toolfleet.calls import run_of
from toolfleet.messages import Message, UserMessage, described
from toolfleet.orchestrator.batch.identity import LINE_CHARS, MODEL_CHARS
from toolfleet.orchestrator.doors.http.door import Door, must_be_theirs
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.page.asked import AskedHere
from toolfleet.orchestrator.doors.page.time_axis import Axis
from toolfleet.orchestrator.doors.page.timeline import WORDS, Row, axis_of, drawn, rows_of
from toolfleet.orchestrator.doors.page.veiling import veiled_call, veiled_log, veiled_overview, veiled_question
from toolfleet.orchestrator.errors import BatchNotFound
from toolfleet.orchestrator.run.events import (
    ApprovalGiven,
    CallCancelRequested,
    MessagesSaid,
    QuestionAnswered,
    RunResumed,
    RunStarted,
    RunStopped,
)
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.overview import RunOverview
from toolfleet.orchestrator.status.questions import AwaitedAnswer
from toolfleet.orchestrator.store.history import Entry

FAILURES: Final = frozenset({CallState.FAILED, CallState.EXPIRED, CallState.IN_DOUBT})

ROWS: Final = 100
"""Rows of a timeline in one piece; the next ones come as they are scrolled to."""

OF_BATCH: Final = re.compile(rf"(.+-[0-9a-f]{{{MODEL_CHARS}}})-[0-9a-f]{{{LINE_CHARS}}}")
"""The id of a batch's run: the batch's own, and the digest of its line (`batch/identity.py`)."""

TITLE_CHARS: Final = 300

MESSAGES: Final = 40
"""Messages in one piece."""


@dataclass(frozen=True)
class CallFilter:
    """Which calls of a run are wanted."""

    tool: str = ""
    state: CallState | None = None
    text: str = ""
    """What their error, or their result, holds."""

    @property
    def is_set(self) -> bool:
        """Whether it leaves any out."""
        return bool(self.tool or self.state or self.text)

    def wants(self, call: CallStanding) -> bool:
        """Return whether a call is wanted."""
        return (
            (not self.tool or call.tool == self.tool)
            and (self.state is None or call.state is self.state)
            and (not self.text or self.text.lower() in told_of(call).lower())
        )


@dataclass(frozen=True)
class RunSight:
    """A run, its calls and its history, as they stood at one moment."""

    seen: RunOverview
    entries: Sequence[Entry]
    at_unix_s: float
    questions: Sequence[AwaitedAnswer] = ()
    """What its tools ask people now."""
    batch_id: str = ""
    """The batch that has begun it, while that is noted."""

    @property
    def run(self) -> Run:
        """The run itself."""
        return self.seen.run

    @cached_property
    def title(self) -> str:
        """What was asked first, on one line."""
        asked = next((described(message) for message in self.run.messages if isinstance(message, UserMessage)), "")
        return " ".join(asked[:TITLE_CHARS].split()) or self.run.run_id

    @property
    def calls(self) -> Sequence[CallStanding]:
        """How its calls stand, in the order of asking."""
        return self.seen.calls

    @cached_property
    def asking(self) -> frozenset[str]:
        """The calls whose tools ask a person now."""
        return frozenset(each.call_id for each in self.questions)

    @property
    def is_live(self) -> bool:
        """Whether there will be news."""
        return not self.run.state.is_terminal or any(call.state.is_under_way for call in self.calls)

    @cached_property
    def ended_unix_s(self) -> float | None:
        """When it ended; None while it goes on."""
        return self.entries[-1].at_unix_s if self.run.state.is_terminal else None

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Its timeline."""
        return rows_of(
            self.entries,
            self.calls,
            now_s=self.at_unix_s,
            is_thinking=self.run.state is State.THINKING,
            asked_s=[(each.call_id, each.asked_unix_s) for each in self.questions],
        )

    @cached_property
    def axis(self) -> Axis:
        """The scale of its timeline."""
        starts_s = self.entries[0].at_unix_s
        ends = [stretch.to_s for row in self.rows for stretch in row.stretches]
        return axis_of(self.rows, starts_s, max([self.entries[-1].at_unix_s, *ends]))

    def drawn(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows with their bars."""
        return [drawn(row, self.axis, WORDS) for row in rows]

    def wanted(self, wanted: CallFilter) -> list[Row]:
        """Return the rows of the calls that are wanted, with those of turns where all are."""
        if not wanted.is_set:
            return list(self.rows)
        return [row for row in self.rows if row.call is not None and wanted.wants(row.call)]

    @cached_property
    def first_failure(self) -> CallStanding | None:
        """The call that failed first, by when it ended."""
        failed = [call for call in self.calls if call.state in FAILURES]
        return min(failed, key=lambda call: call.ended_unix_s or 0.0, default=None)

    @cached_property
    def deeds(self) -> list[tuple[float, str, str]]:
        """What people have done about it: when, who, and what."""
        found = []
        for entry in self.entries:
            match entry.event:
                case ApprovalGiven(call_id=call_id, approval=approval):
                    verb = (
                        "denied"
                        if not approval.granted
                        else "edited and approved"
                        if approval.arguments
                        else "approved"
                    )
                    found.append((entry.at_unix_s, approval.by, f"{verb} {call_id}"))
                case RunStopped(by=by) if by:
                    found.append((entry.at_unix_s, by, "ended the run"))
                case MessagesSaid(by=by, interrupt=interrupt):
                    found.append((entry.at_unix_s, by, "interrupted, and said more" if interrupt else "said more"))
                case RunResumed(by=by):
                    found.append((entry.at_unix_s, by, "let the run go on"))
                case CallCancelRequested(call_id=call_id, by=by):
                    found.append((entry.at_unix_s, by, f"cancelled {call_id}"))
                case QuestionAnswered(call_id=call_id, answered=answered):
                    verb = "answered" if answered.answer is not None else "declined to answer"
                    found.append((entry.at_unix_s, answered.by, f"{verb} {call_id}"))
                case RunStarted(by=by) if by:
                    found.append((entry.at_unix_s, by, "began the run"))
        return found

    @cached_property
    def slowest(self) -> CallStanding | None:
        """The call that took longest, of those that have ended."""
        ended = [call for call in self.calls if call.took_s is not None]
        return max(ended, key=lambda call: call.took_s or 0.0, default=None)

    @cached_property
    def tools(self) -> list[str]:
        """The tools that it has called."""
        return sorted({call.tool for call in self.calls})

    @cached_property
    def requested(self) -> dict[str, str]:
        """The ids of calls by what the model calls them; of those that it calls the same the last."""
        return {call.requested_id: call.call_id for call in self.run.calls}

    def messages(self, since: int) -> Sequence[Message]:
        """Return a piece of its conversation."""
        return self.run.messages[since : since + MESSAGES]


def shows_payloads(grant: Grant) -> bool:
    """Return whether whoever asks may see arguments, results and messages."""
    return grant.may(Scope.PAYLOADS)


class RunSights:
    """Reads runs for the page. Raises StoreUnreachable."""

    def __init__(self, door: Door) -> None:
        self.store = door.looking.store
        self.overview = door.looking.overview
        self.logs = door.looking.logs
        self.questions = door.looking.questions
        self.batches = door.looking.batches

    async def of(self, run_id: str, grant: Grant) -> RunSight:
        """Return a run as it stands, as far as a key shows it. Raises RunNotFound, also for another tenant's."""
        seen = await self.overview.run(run_id)
        must_be_theirs(run_id, seen.run.terms.tenant, grant)
        if not shows_payloads(grant):
            seen = veiled_overview(seen)
        entries = await self.store.entries(run_id)
        asked = [] if seen.run.state.is_terminal else await self.questions.of_run(run_id, tenant=grant.tenant)
        if not shows_payloads(grant):
            asked = [veiled_question(each) for each in asked]
        return RunSight(seen, entries, time.time(), asked, await self._batch_of(run_id, grant.tenant))

    async def _batch_of(self, run_id: str, tenant: str) -> str:
        """Return the batch that a run is of, as its id says; "" where none of that name is noted."""
        if (named := OF_BATCH.fullmatch(run_id)) is None:
            return ""
        try:
            return (await self.batches.load(named[1], tenant=tenant)).batch_id
        except BatchNotFound:
            return ""

    async def call(self, call_id: str, grant: Grant) -> CallStanding:
        """Return a call as it stands, likewise."""
        must_be_theirs(run_of(call_id), await self.store.tenant(run_of(call_id)), grant)
        call = await self.overview.call(call_id)
        return call if shows_payloads(grant) else veiled_call(call)

    async def asked(self, call: CallStanding, grant: Grant) -> list[AskedHere]:
        """Return what the tool of a call has asked people, in order, as far as a key shows it."""
        found = sorted(await self.questions.of_call(call.call_id), key=lambda each: each.question.asked_unix_s)
        return [AskedHere.of(each, is_over=call.is_over, shows=shows_payloads(grant)) for each in found]

    async def log(self, call_id: str, grant: Grant) -> CallLog:
        """Return what the tool of a call has logged, as far as a key shows it. Whose call it is was looked at."""
        log = await self.logs.of(call_id)
        return log if shows_payloads(grant) else veiled_log(log)


def told_of(call: CallStanding) -> str:
    """Return what a call came to, in words."""
    result = call.result
    if result is None:
        return ""
    return result.content if result.type == "returned" else result.message
