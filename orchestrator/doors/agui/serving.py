"""A request of AG-UI on its way to the run that answers it: begun, found again, or resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from typing import Any

from ag_ui.core import RunAgentInput
from fastapi import Request
from starlette.responses import Response

from toolfleet.messages import Message
from toolfleet.orchestrator.doors.agui.asked import conversation_of, fingerprint_of, given_before, options_of, read
from toolfleet.orchestrator.doors.agui.identity import is_of_run, run_id_of, run_of_message
from toolfleet.orchestrator.doors.agui.interrupts import (
    GIVEN,
    THREAD,
    NotResumed,
    must_not_be_interrupted,
    resume,
)
from toolfleet.orchestrator.doors.agui.stream import Following, Leg, error
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.live_replies import LiveReply
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.runs import admit, hold_listener, tools_for
from toolfleet.orchestrator.doors.http.sse import EventStream
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.options import RunOptions
from toolfleet.orchestrator.run.updates import RunUpdate
from toolfleet.orchestrator.run.value import Run

FINGERPRINT = "fingerprint"
"""Under which name the record of a run has the digest of what it was asked with."""


async def followed(
    door: Door, grant: Grant, request: Request, body: dict[str, Any], last_event: int | None
) -> Response:
    """Answer with the events of a run. Raises Problem, and whatever keeps a run from beginning."""
    asked = read(body)
    if not door.model:
        raise Problem(HTTPStatus.BAD_REQUEST, "this server has no model, and AG-UI names none")
    hold_listener(door, grant, request)
    try:
        if asked.resume:
            options_of(asked)  # a request of a wrong shape decides nothing
            resumed = await resume(door, grant, asked)
            run_id, after = resumed.run.run_id, resumed.after
        else:
            run_id, after = await _begun(door, grant, request, asked), 0
    except NotResumed as refused:
        return EventStream(door, _only(error(refused.code, str(refused))))
    leg = Leg(
        run_id=run_id,
        thread_id=asked.thread_id,
        asked_as=asked.run_id,
        parent_run_id=asked.parent_run_id,
        after=after,
        last_event=last_event,
        given=given_before(asked, run_id),
        has=[message for message in asked.messages if is_of_run(run_id, message.id)],
    )
    following = Following(door, leg)
    return EventStream(
        door, following.events(), headers={"location": f"/v1/runs/{run_id}"}, farewell=following.farewell
    )


async def _begun(door: Door, grant: Grant, request: Request, asked: RunAgentInput) -> str:
    """Return the run of a request, which is begun unless it is there."""
    options = options_of(asked)
    run_id = run_id_of(door.settings.id_prefix, grant.tenant, grant.subject, asked.thread_id, asked.run_id)
    fingerprint = fingerprint_of(asked, run_id)
    conversation = conversation_of(asked, run_id)
    if (run := await _stored(door, run_id)) is None:
        await _must_not_wait(door, grant, asked)
        given = [message.id for message in asked.messages if message.role == "user"]
        told = {THREAD: asked.thread_id, "runId": asked.run_id, FINGERPRINT: fingerprint, GIVEN: given}
        await _begin(door, grant, request, conversation, {**options, "run_id": run_id, "asked_as": told})
        # Another server may have begun it a moment ago, and been asked something else.
        run = await _stored(door, run_id)
    if run is not None and run.asked_as.get(FINGERPRINT) != fingerprint:
        said = f"run {asked.run_id:.200} of this thread was begun with another request: use a new runId"
        raise Problem(HTTPStatus.CONFLICT, said, code="run-id-reused")
    return run_id


async def _stored(door: Door, run_id: str) -> Run | None:
    try:
        return (await door.looking.seen.load(run_id)).run
    except RunNotFound:
        return None


async def _must_not_wait(door: Door, grant: Grant, asked: RunAgentInput) -> None:
    """Raise NotResumed where the thread's last run waits for a person."""
    if before := _last_run(asked):
        await must_not_be_interrupted(door, grant, asked, before)


async def _begin(
    door: Door, grant: Grant, request: Request, conversation: Sequence[Message], options: RunOptions
) -> None:
    options["tools"] = await tools_for(grant, options.get("tools"), door)
    options["tenant"], options["subject"], options["by"] = grant.tenant, grant.subject, grant.who
    await admit(door, grant, request, options)
    # One for all who begin this run at once: only one of them does.
    door.live.keep(options["run_id"] or "", ours := LiveReply(_nobody))
    live = door.live.of(options["run_id"] or "") or ours
    await door.orchestrator.start(conversation, on_event=live.hear, **options)


def _last_run(asked: RunAgentInput) -> str:
    """Return the run whose message stands last among those that may be of one; "" where there is none."""
    return next((run_id for each in reversed(asked.messages) if (run_id := run_of_message(each.id))), "")


def _nobody(_update: RunUpdate) -> None:
    """Every listener is told by the run's live reply itself."""


async def _only(event: bytes) -> AsyncGenerator[bytes, None]:
    yield event
