"""What a run waits for a person with, as AG-UI's interrupts, and what a resume says to them.

Nothing is kept here between the two: an interrupt's id says which run it is of and how far its client was told, and
what was decided stands in the run's history. So a resume that is sent again finds its decisions made, and is the same
run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson
from ag_ui.core import Interrupt, ResumeEntry, RunAgentInput

from toolfleet.calls import run_of
from toolfleet.errors import BadArguments
from toolfleet.orchestrator.doors.agui.asked import added_by_user
from toolfleet.orchestrator.doors.agui.events import OWN_SAYINGS
from toolfleet.orchestrator.doors.agui.identity import CALL, InterruptId, is_of_run
from toolfleet.orchestrator.doors.http.access import must_have
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.idempotency import digest_of
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.questions import theirs
from toolfleet.orchestrator.doors.http.runs import must_be_theirs_to_decide
from toolfleet.orchestrator.errors import InvalidAnswer, QuestionNotFound, RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.events import Approval, CallRecord
from toolfleet.orchestrator.run.value import Run
from toolfleet.questions import Question, named
from toolfleet.strict_json import written

THREAD: Final = "threadId"
"""Where the record of a run says which thread it is of."""

GIVEN: Final = "given"
"""Where it says which messages it was given."""

LOOKED_AT: Final = 200
"""Calls at most that are asked after questions at once."""

CANCELLED: Final = "the user did not decide"

DECISION: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "Other arguments, in the place of all that the call has."},
        "reason": {"type": "string", "description": "Why it is denied; the model reads it."},
    },
    "required": ["approved"],
}
"""What an approval is answered with."""


class NotResumed(Exception):
    """A resume that breaks the rules of interrupts, or comes too late: told as RUN_ERROR, as the protocol has it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotAsStored(Exception):
    """What was told of a run is not what is believed of it: somebody has written to Redis who has no secret."""


def must_be_as_stored(told: Run, stored: Run) -> None:
    """Raise NotAsStored unless a run, as it was told, is how the stored one is, or has been before it went on."""
    is_over = told.state.is_terminal and stored.state.is_terminal and len(stored.messages) == len(told.messages)
    if stored.messages[: len(told.messages)] != told.messages or (
        is_over and (told.state, told.answer, told.reason) != (stored.state, stored.answer, stored.reason)
    ):
        raise NotAsStored


class Resumed(NamedTuple):
    """The run that a resume goes on with, and the number of the event that its client was told last."""

    run: Run
    after: int


# --- what waits -------------------------------------------------------------------------------------------------------


def may_wait(told: Run) -> bool:
    """Return whether a run waits for a decision, by what was told of it."""
    return bool(told.awaiting_approval or _waiting_below(told))


def _waiting_below(told: Run) -> set[str]:
    decided = {call_id for call_id, is_decided in told.told_below if is_decided}
    return {call_id for call_id, _ in told.told_below} - decided


async def waiting_in(door: Door, told: Run, number: int, *, asked: bool) -> list[Interrupt]:
    """Return what a run waits for a person with, of what was told of it up to this number.

    `asked`: whether its tools may ask something. Raises NotAsStored, RunNotFound, StoreUnreachable.
    """
    now = await door.orchestrator.get(told.run_id)
    must_be_as_stored(told, now)
    known = {call.call_id for call in told.awaiting_approval} | _waiting_below(told)
    found = [_approval(call, number) for call in now.awaiting_approval if call.call_id in known]
    if asked:
        found += [_question(each, number) for each in await _questions(door, told)]
    return found


async def _questions(door: Door, told: Run) -> list[Question]:
    now_unix_s = time.time()
    return [
        asked.question
        for call in told.calls_under_way[:LOOKED_AT]
        if not call.is_agents
        for asked in await door.looking.questions.of_call(call.call_id)
        if asked.is_open(now_unix_s)
    ]


def _approval(call: CallRecord, number: int) -> Interrupt:
    return Interrupt(
        id=str(InterruptId(number, "approval", call.call_id, call.digest)),
        reason="tool_call",
        message=f"May {call.tool} run?",
        tool_call_id=shown_call(call.call_id),
        response_schema=DECISION,
        metadata={"toolfleet": {"callId": call.call_id, "tool": call.tool, "arguments": call.arguments}},
    )


def _question(question: Question, number: int) -> Interrupt:
    return Interrupt(
        id=str(InterruptId(number, "question", question.question_id)),
        reason="input_required",
        message=question.message,
        tool_call_id=shown_call(question.call_id),
        response_schema=question.schema_,
        expires_at=datetime.fromtimestamp(question.expires_unix_s, UTC).isoformat(timespec="milliseconds"),
        metadata={"toolfleet": {"callId": question.call_id, "tool": question.tool}},
    )


def shown_call(call_id: str) -> str:
    """Return what the client knows the call as or, of one in an agent's run, the call that the agent answers."""
    return CALL + "_".join(call_id.split(".")[:3])


# --- what is said to it -----------------------------------------------------------------------------------------------


async def resume(door: Door, grant: Grant, asked: RunAgentInput) -> Resumed:
    """Decide and answer as a resume says. Raises NotResumed, Problem, StoreUnreachable; all of it may be sent again."""
    entries = _read(asked.resume or ())
    must_have(grant, Scope.APPROVE)
    run = await _interrupted(door, grant, asked, entries)
    _must_be_covered(run, entries)
    decisions = [(named_, entry, _approval_of(named_, entry, grant)) for named_, entry in entries.items()]
    await _say(door, grant, run, asked)
    for named_, entry, approval in decisions:
        if approval is not None:
            await _decide(door, grant, named_.name, approval)
        else:
            await _answer(door, grant, named_.name, entry)
    return Resumed(run, min(each.told for each in entries))


async def must_not_be_interrupted(door: Door, grant: Grant, asked: RunAgentInput, run_id: str) -> None:
    """Raise NotResumed where the thread's last run waits for a person and this request does not say a word to it."""
    try:
        run = await door.orchestrator.get(run_id)
    except RunNotFound:
        return
    if _is_of_thread(run, grant, asked.thread_id) and not run.state.is_terminal and run.awaiting_approval:
        open_ones = ", ".join(call.call_id for call in run.awaiting_approval)
        raise NotResumed("interrupts-open", f"calls of this thread wait for a person ({open_ones}): send a resume")


def _read(resume_: Sequence[ResumeEntry]) -> dict[InterruptId, ResumeEntry]:
    found: dict[InterruptId, ResumeEntry] = {}
    for entry in resume_:
        named_ = InterruptId.read(entry.interrupt_id)
        if named_ is None:
            raise _unknown(entry.interrupt_id)
        if found.setdefault(named_, entry) is not entry:
            raise NotResumed("invalid-resume", f"interrupt {entry.interrupt_id} is answered twice in one resume")
    if len({each.run_id for each in found}) > 1:
        raise NotResumed("invalid-resume", "these are interrupts of several runs: resume one at a time")
    return found


async def _interrupted(door: Door, grant: Grant, asked: RunAgentInput, entries: Iterable[InterruptId]) -> Run:
    first = next(iter(entries))
    try:
        run = await door.orchestrator.get(first.run_id)
    except RunNotFound:
        raise _unknown(str(first)) from None
    if not _is_of_thread(run, grant, asked.thread_id):
        raise _unknown(str(first))
    return run


def _is_of_thread(run: Run, grant: Grant, thread_id: str) -> bool:
    return run.terms.tenant == grant.tenant and run.asked_as.get(THREAD) == thread_id


def _unknown(interrupt_id: str) -> NotResumed:
    return NotResumed("unknown-interrupt", f"no run of this thread was interrupted with {interrupt_id:.200}")


def _must_be_covered(run: Run, entries: Iterable[InterruptId]) -> None:
    answered = {each.name for each in entries}
    if left := [call.call_id for call in run.awaiting_approval if call.call_id not in answered]:
        raise NotResumed("interrupts-left-open", f"a resume answers every open interrupt: not {', '.join(left)}")


def _approval_of(named_: InterruptId, entry: ResumeEntry, grant: Grant) -> Approval | None:
    """Return the decision about a call; None for an answer to a question."""
    if named_.kind != "approval":
        return None
    payload = entry.payload
    if entry.status == "cancelled":
        return Approval(granted=False, reason=CANCELLED, by=grant.who, digest=named_.digest)
    if isinstance(payload, bool):
        payload = {"approved": payload}
    if not isinstance(payload, Mapping) or not isinstance(payload.get("approved"), bool):
        raise _unfit(f"{named_.name}: the payload must be an object with `approved`, true or false")
    edited, reason = payload.get("editedArgs"), payload.get("reason") or ""
    if not (edited is None or isinstance(edited, dict)) or not isinstance(reason, str):
        raise _unfit(f"{named_.name}: `editedArgs` must be an object, and `reason` a text")
    return Approval(
        granted=payload["approved"],
        arguments=None if edited is None or not payload["approved"] else orjson.dumps(edited).decode(),
        reason=reason[:1000],
        by=grant.who,
        digest=named_.digest,
    )


def _unfit(detail: str) -> NotResumed:
    return NotResumed("invalid-payload", detail)


async def _decide(door: Door, grant: Grant, call_id: str, approval: Approval) -> None:
    try:
        await must_be_theirs_to_decide(call_id, grant, door)
        await door.orchestrator.approve(call_id, approval)
    except BadArguments as error:
        raise _unfit(str(error)) from None
    except RunNotFound:
        raise _unknown(call_id) from None
    except RunNotOpen as error:
        run = await door.orchestrator.get(run_of(call_id))
        decided = next((call for call in run.calls if call.call_id == call_id), None)
        if decided is None or not _is_same(decided, approval):
            raise NotResumed("interrupt-closed", f"{call_id}: {error}") from None


def _is_same(decided: CallRecord, asked: Approval) -> bool:
    """Return whether a call was decided about like this already."""
    known = decided.approval
    if known is None or known.granted != asked.granted:
        return False
    # What was masked on its way into the history cannot be compared.
    return known.arguments == asked.arguments or (None not in (known.arguments, asked.arguments) and decided.is_masked)


async def _answer(door: Door, grant: Grant, question_id: str, entry: ResumeEntry) -> None:
    try:
        question = await theirs(question_id, grant, door)
        if entry.status == "cancelled":
            await door.orchestrator.decline(question.question_id, CANCELLED, by=grant.who)
        else:
            await door.orchestrator.answer(question.question_id, entry.payload, by=grant.who)
    except InvalidAnswer as error:
        raise _unfit(str(error)) from None
    except (RunNotOpen, QuestionNotFound) as error:
        # To cancel what is over is the protocol's way past it.
        if entry.status != "cancelled" and not await _was_answered_so(door, question_id, entry.payload):
            raise NotResumed("interrupt-closed", str(error)) from None


async def _was_answered_so(door: Door, question_id: str, payload: Any) -> bool:
    call_id, key = named(question_id)
    try:
        call = (await door.orchestrator.get(run_of(call_id))).asked_for(call_id)
    except RunNotFound:
        return False
    answers = () if call is None else call.answers
    return any(each.key == key and each.answer == written(payload) for each in answers)


async def _say(door: Door, grant: Grant, run: Run, asked: RunAgentInput) -> None:
    """Say to the run what its user has added to the conversation meanwhile, each message once."""
    known = run.asked_as.get(GIVEN)
    ids = set(known) if isinstance(known, list) else set()
    for message_id, message in added_by_user(asked, lambda id_: id_ in ids or is_of_run(run.run_id, id_)):
        try:
            key = OWN_SAYINGS + digest_of(message_id.encode("utf-8", "surrogatepass")).hex()[:32]
            await door.orchestrator.say(run.run_id, [message], idempotency_key=key, by=grant.who)
        except RunNotOpen as error:
            raise NotResumed("interrupt-closed", str(error)) from None
