"""What a client may ask, in the protocol's records and in no binding's words: each verb once, for all of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import validate_history_length
from google.protobuf.message import Message as ProtoMessage

from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.a2a.cards import extended_card
from toolfleet.orchestrator.doors.a2a.listing import listed
from toolfleet.orchestrator.doors.a2a.sending import followed_by_client, taken
from toolfleet.orchestrator.doors.a2a.shown import task_of
from toolfleet.orchestrator.doors.a2a.standing import standing_of
from toolfleet.orchestrator.doors.a2a.updates import Event, TaskUpdates
from toolfleet.orchestrator.doors.http.access import must_have
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.doors.http.runs import hold_listener
from toolfleet.orchestrator.doors.http.waiting import unless_left
from toolfleet.orchestrator.errors import RunNotOpen


def must_be_whole(asked: Asked, params: ProtoMessage) -> None:
    """Raise InvalidParamsError where something required is missing, or another tenant is named than the key's."""
    validate_proto_required_fields(params)
    if (named := getattr(params, "tenant", "")) and named != asked.grant.tenant:
        raise InvalidParamsError("the key says which tenant asks: leave `tenant` out")


async def send(asked: Asked, params: SendMessageRequest) -> Task:
    """Take a message; its task once that has ended or asks a person or, if so wanted, as it stands at once."""
    wanted = params.configuration
    validate_history_length(wanted)
    history = wanted.history_length if wanted.HasField("history_length") else None
    async with taken(asked, params) as followed:
        standing = await standing_of(asked.door, asked.grant, followed.run_id)
        updates = TaskUpdates(asked, followed, standing)
        if not wanted.return_immediately:
            await unless_left(asked.request, _until_over(updates))
        return task_of(updates.standing, asked.base_url, history=history)


async def _until_over(updates: TaskUpdates) -> None:
    async with aclosing(updates.events(ends_when_asked=True)) as events:
        async for _ in events:
            pass


async def send_streaming(asked: Asked, params: SendMessageRequest) -> AsyncGenerator[Event, None]:
    """Take a message, and yield its task and what happens to it, until it has ended or asks a person."""
    wanted = params.configuration
    validate_history_length(wanted)
    hold_listener(asked.door, asked.grant, asked.request)
    history = wanted.history_length if wanted.HasField("history_length") else None
    async with taken(asked, params) as followed:
        standing = await standing_of(asked.door, asked.grant, followed.run_id)
        updates = TaskUpdates(asked, followed, standing, history)
        async with aclosing(updates.events(ends_when_asked=True)) as events:
            async for event in events:
                yield event


async def subscribe(asked: Asked, params: SubscribeToTaskRequest) -> AsyncGenerator[Event, None]:
    """Yield a task as it stands, and what happens to it until it has ended, whoever is asked what on the way."""
    must_have(asked.grant, Scope.PAYLOADS)
    standing = await standing_of(asked.door, asked.grant, params.id)
    if standing.has_ended:
        raise UnsupportedOperationError(f"task {params.id} has ended: ask for it")
    hold_listener(asked.door, asked.grant, asked.request)
    followed = await asked.door.followings.join(params.id)
    async with followed_by_client(asked, followed):
        updates = TaskUpdates(asked, followed, await standing_of(asked.door, asked.grant, params.id))
        async with aclosing(updates.events(ends_when_asked=False)) as events:
            async for event in events:
                yield event


async def get(asked: Asked, params: GetTaskRequest) -> Task:
    """Return a task as it stands."""
    must_have(asked.grant, Scope.PAYLOADS)
    validate_history_length(params)
    history = params.history_length if params.HasField("history_length") else None
    return task_of(await standing_of(asked.door, asked.grant, params.id), asked.base_url, history=history)


async def list_tasks(asked: Asked, params: ListTasksRequest) -> ListTasksResponse:
    """Return a page of the tenant's tasks."""
    must_have(asked.grant, Scope.PAYLOADS)
    return await listed(asked, params)


async def cancel(asked: Asked, params: CancelTaskRequest) -> Task:
    """End a task now, and its calls on the workers."""
    must_have(asked.grant, Scope.RUN)
    await asked.door.must_see(params.id, asked.grant)
    try:
        await asked.door.orchestrator.cancel(params.id, by=asked.grant.who)
    except RunNotOpen as error:
        raise TaskNotCancelableError(str(error)) from None
    return task_of(await standing_of(asked.door, asked.grant, params.id), asked.base_url)


async def show_extended_card(asked: Asked, _params: GetExtendedAgentCardRequest) -> AgentCard:
    """Return the card for who has a key."""
    must_have(asked.grant, Scope.READ)
    return await extended_card(asked)
