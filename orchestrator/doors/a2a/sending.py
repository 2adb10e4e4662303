"""`SendMessage`: a message begins a task, or goes to one. Sent again with its messageId, it does nothing more.

The id of a task follows from that of the message that begins it and from who sends it, so it is begun once whichever
server is asked. Whoever sends it may leave: the task goes on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from a2a.types import SendMessageRequest
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    UnsupportedOperationError,
)
from pydantic import ValidationError

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.doors.a2a.answers import fingerprint_of, must_be_the_same, take
from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.a2a.contexts import Context
from toolfleet.orchestrator.doors.a2a.parts import must_be_well_formed, user_message
from toolfleet.orchestrator.doors.a2a.pushing import keep, wanted_config
from toolfleet.orchestrator.doors.a2a.shown import JSON, OURS, TEXT, context_of
from toolfleet.orchestrator.doors.a2a.standing import standing_of
from toolfleet.orchestrator.doors.http.access import must_have
from toolfleet.orchestrator.doors.http.door import must_be_theirs
from toolfleet.orchestrator.doors.http.following import Followed, Hear
from toolfleet.orchestrator.doors.http.idempotency import digest_of
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.doors.http.live_replies import LiveReply
from toolfleet.orchestrator.doors.http.runs import admit, tools_for
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.options import RunOptions, options_given
from toolfleet.orchestrator.run.terms import AskedTerms, complaint
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.webhooks.push_records import PushConfig

TERMS = "toolfleet"
"""The member of a request's metadata with options of the run."""


@asynccontextmanager
async def taken(asked: Asked, params: SendMessageRequest) -> AsyncGenerator[Followed, None]:
    """Take a message, and follow its task to the end of the block.

    Raises A2AError, and whatever keeps a run from beginning.
    """
    must_have(asked.grant, Scope.RUN)
    must_be_well_formed(params.message)
    asked = replace(asked, message_id=params.message.message_id)
    _must_be_served(params)
    said = user_message(params.message, asked.message)
    # Before a task begins: it would go on, and who has sent the message be told that it was refused.
    pushed_to = await wanted_config(asked, params.message.task_id or _task_id(asked), params.configuration)
    if params.message.task_id:
        followed = await _to_task(asked, params, said, pushed_to)
    else:
        followed = await _begun(asked, params, said)
        await keep(asked, pushed_to)
    async with followed_by_client(asked, followed):
        yield followed


@asynccontextmanager
async def followed_by_client(asked: Asked, followed: Followed) -> AsyncGenerator[None, None]:
    """Count a client of a task to the end of the block."""
    followed.clients += 1
    try:
        yield
    finally:
        asked.door.followings.leave(followed, for_good=False)


def _must_be_served(params: SendMessageRequest) -> None:
    """Raise A2AError for what is asked for and would not be done."""
    wanted = params.configuration
    modes = wanted.accepted_output_modes
    if modes and not any(mode in {TEXT, JSON, "text", "text/*", "*/*", "*"} for mode in modes):
        raise ContentTypeNotSupportedError(f"answers are {TEXT} here, or {JSON} where a schema asks for it")


async def _to_task(
    asked: Asked, params: SendMessageRequest, said: UserMessage, pushed_to: PushConfig | None
) -> Followed:
    message = params.message
    standing = await standing_of(asked.door, asked.grant, message.task_id)
    if message.context_id and message.context_id != context_of(standing.run):
        raise InvalidParamsError(f"task {message.task_id} is of another context than {message.context_id!r}")
    await keep(asked, pushed_to)
    await take(asked, standing, said)
    return await asked.door.followings.join(message.task_id)


# --- a task of its own ------------------------------------------------------------------------------------------------


async def _begun(asked: Asked, params: SendMessageRequest, said: UserMessage) -> Followed:
    """Begin a task, or follow the one that this message has begun before."""
    door, message = asked.door, params.message
    if not door.model:
        raise UnsupportedOperationError("this server has no model, so it begins no tasks; it shows those of others")
    task_id = _task_id(asked)
    followed = door.followings.find(task_id)
    if followed is None:
        before = await _stored(asked, task_id)
        if before is not None:
            _must_be_of(before, asked)
            return await door.followings.join(task_id, before)
    context = Context(door, asked.grant, message.context_id or task_id)
    options = await _options(asked, task_id, context)

    async def start(hear: Hear) -> None:
        await admit(door, asked.grant, asked.request, options)
        await context.note(task_id)  # first: a task that no list has would be forgotten
        live = LiveReply(hear)
        earlier = await context.said_before(task_id)
        await door.orchestrator.start((*earlier, said), on_event=live.hear, **options)
        door.live.keep(task_id, live)

    followed = await door.followings.begin(task_id, start)
    _must_be_of((await door.looking.seen.load(task_id)).run, asked)  # of two at once, one has begun it
    return followed


def _task_id(asked: Asked) -> str:
    grant = asked.grant
    whose = (b"a2a task", grant.tenant.encode(), grant.subject.encode(), asked.message_id.encode())
    return asked.door.settings.id_prefix + digest_of(*whose).hex()[:32]


async def _stored(asked: Asked, task_id: str) -> Run | None:
    try:
        return (await asked.door.looking.seen.load(task_id)).run
    except RunNotFound:
        return None


def _must_be_of(run: Run, asked: Asked) -> None:
    """Raise InvalidParamsError where a run was begun by another message."""
    must_be_theirs(run.run_id, run.terms.tenant, asked.grant)
    ours: Any = run.asked_as.get(OURS)
    must_be_the_same(str(ours["fingerprint"]) if isinstance(ours, dict) else "", asked)


async def _options(asked: Asked, task_id: str, context: Context) -> RunOptions:
    """Return the options of a task's run: those in the request's metadata, in the name of whoever asks."""
    terms = _terms(asked)
    options = options_given(terms)
    options["tools"] = await tools_for(asked.grant, terms.tools, asked.door)
    options["tenant"], options["subject"], options["by"] = asked.grant.tenant, asked.grant.subject, asked.grant.who
    options["run_id"] = task_id
    options["asked_as"] = {
        OURS: {
            "message_id": asked.message_id,
            "context_id": context.context_id,
            "fingerprint": fingerprint_of(asked.message),
        }
    }
    return options


def _terms(asked: Asked) -> AskedTerms:
    metadata = asked.params.get("metadata") or {}
    try:
        terms = AskedTerms.model_validate(metadata.get(TERMS) or {})
    except ValidationError as error:
        raise InvalidParamsError(f"metadata.{TERMS}: {complaint(error)}") from None
    if terms.client_tools:
        raise InvalidParamsError(f"metadata.{TERMS}.client_tools: a task has nobody to hand calls to; leave it out")
    return terms
