"""A run as A2A shows it: a task with its status, the messages that were exchanged, and what came of it. Pure.

The answer of a run is an artifact, and so is each piece of media that one of its tools returned. What its model said on
the way, beside calls, is part of the history; results of tools are not.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct

from toolfleet.calls import MediaPart, Returned
from toolfleet.images import Image
from toolfleet.messages import AssistantMessage, UserMessage
from toolfleet.orchestrator.doors.a2a.standing import Standing
from toolfleet.orchestrator.doors.openai.endings import problem_of_run
from toolfleet.orchestrator.run.saying import digest_of
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run

OURS: Final = "a2a"
"""Where a run keeps what this door was asked with (`Run.asked_as`)."""

SAID: Final = "a2a "
"""How the keys begin under which this door says something to a run; the message's id follows."""

ANSWER: Final = "answer"
"""The id of the artifact that is the answer, and its name."""

TEXT: Final = "text/plain"
JSON: Final = "application/json"


def context_of(run: Run) -> str:
    """Return the context of a task; one that began at another door is a context of its own."""
    return str(_asked_as(run).get("context_id") or run.run_id)


def _asked_as(run: Run) -> dict[str, Any]:
    asked = run.asked_as.get(OURS)
    return asked if isinstance(asked, dict) else {}


def task_of(standing: Standing, base_url: str, *, history: int | None = None, artifacts: bool = True) -> Task:
    """Return a task as it stands, with the last so many messages of its history (all, without a number)."""
    run = standing.run
    said = [] if history == 0 else history_of(run)
    return Task(
        id=run.run_id,
        context_id=context_of(run),
        status=status_of(standing),
        history=said if history is None else said[-history:],
        artifacts=artifacts_of(run, base_url) if artifacts else [],
    )


# --- status ---------------------------------------------------------------------------------------------------------


def status_of(standing: Standing, said: Message | None = None) -> TaskStatus:
    """Return the status of a task; `said` is what its model has just said, where it goes on."""
    status = TaskStatus(state=standing.state, message=_told(standing) or said)
    status.timestamp.FromMilliseconds(standing.updated_ms)
    return status


def _told(standing: Standing) -> Message | None:
    """Return what the status is explained with: what a person is asked, or why there is no whole answer."""
    run = standing.run
    match standing.state:
        case TaskState.TASK_STATE_INPUT_REQUIRED:
            return _from_agent(run, f"asks.{standing.asks_digest}", Part(text=_in_words(standing)), _asked(standing))
        case TaskState.TASK_STATE_FAILED:
            return _from_agent(run, "end", Part(text=problem_of_run(run).detail))
        case TaskState.TASK_STATE_CANCELED:
            return _from_agent(run, "end", Part(text=run.reason or "cancelled"))
        case _ if run.state is State.DONE and run.shortcoming:
            return _from_agent(run, "end", Part(text=run.shortcoming))
        case _:
            return None


def _in_words(standing: Standing) -> str:
    approvals = [f"{call.tool} waits for your approval; its arguments: {call.arguments}" for call in standing.approvals]
    questions = [f"{each.tool} asks: {each.message}" for each in standing.questions]
    return "\n".join([*approvals, *questions])


def _asked(standing: Standing) -> Part:
    """The same for programs. Arguments are JSON text: the protocol's numbers are doubles, and theirs need not be."""
    approvals = [
        {"call_id": call.call_id, "tool": call.tool, "arguments": call.arguments, "digest": call.digest}
        for call in standing.approvals
    ]
    questions = [
        {
            "question_id": each.question_id,
            "tool": each.tool,
            "message": each.message,
            "answer_schema": each.answer_schema,
            "expires_unix_s": each.expires_unix_s,
        }
        for each in standing.questions
    ]
    part = Part(media_type=JSON)
    ParseDict({"approvals": approvals, "questions": questions}, part.data.struct_value)
    return part


# --- messages -------------------------------------------------------------------------------------------------------


def history_of(run: Run) -> list[Message]:
    """Return what was exchanged since the task began, in order: not the answer, which is an artifact."""
    ids = {digest: key.removeprefix(SAID) for key, digest in run.said_before.items() if key.startswith(SAID)}
    said: list[Message] = []
    for at, message in enumerate((*run.messages, *run.unheard)):
        if isinstance(message, UserMessage) and at >= run.began_with - 1:
            first = str(_asked_as(run).get("message_id") or f"{run.run_id}.0") if at == run.began_with - 1 else None
            message_id = first or ids.get(digest_of((message,)))
            if message_id is not None:
                said.append(_from_user(run, message_id, message))
        elif isinstance(message, AssistantMessage) and at >= run.began_with:
            said += _on_the_way(run, message, is_last=at == len(run.messages) - 1)
    return said


def _on_the_way(run: Run, reply: AssistantMessage, *, is_last: bool) -> list[Message]:
    if not reply.content or (is_last and run.state is State.DONE):
        return []
    return [reply_message(run, turn) for turn, each in enumerate(run.replies, 1) if each is reply]


def reply_message(run: Run, turn: int) -> Message:
    """Return what the model said with one of its replies, counted from 1."""
    return _from_agent(run, str(turn), Part(text=run.replies[turn - 1].content))


def _from_agent(run: Run, name: str, *parts: Part) -> Message:
    return Message(
        message_id=f"{run.run_id}.{name}",
        context_id=context_of(run),
        task_id=run.run_id,
        role=Role.ROLE_AGENT,
        parts=parts,
    )


def _from_user(run: Run, message_id: str, message: UserMessage) -> Message:
    parts = [Part(text=each) if isinstance(each, str) else _image(each) for each in message.parts]
    return Message(
        message_id=message_id,
        context_id=context_of(run),
        task_id=run.run_id,
        role=Role.ROLE_USER,
        parts=parts or [Part(text=message.content)],
    )


def _image(image: Image) -> Part:
    if image.url:
        return Part(url=image.url, media_type=image.media_type)
    if image.data:
        return Part(raw=base64.b64decode(image.data), media_type=image.media_type)
    return Part(text=image.described)


# --- artifacts ------------------------------------------------------------------------------------------------------


def artifacts_of(run: Run, base_url: str) -> list[Artifact]:
    """Return what came of a task by now: what its tools returned beside text, then its answer."""
    found = []
    for call in run.calls:
        result = call.late_result or call.result
        if isinstance(result, Returned) and result.media:
            parts = [_media(each, base_url) for each in result.media]
            found.append(Artifact(artifact_id=call.call_id, name=call.tool, parts=parts))
    return [*found, answer_of(run)] if has_answer(run) else found


def has_answer(run: Run) -> bool:
    """Whether the run has said something in the end."""
    return run.state is State.DONE and bool(run.answer)


def answer_of(run: Run) -> Artifact:
    """Return the answer of a run that has one."""
    is_json = run.terms.output_schema is not None
    part = Part(text=run.answer or "", media_type=JSON if is_json else TEXT)
    return Artifact(artifact_id=ANSWER, name=ANSWER, parts=[part])


def _media(media: MediaPart, base_url: str) -> Part:
    part = Part(media_type=media.media_type, filename=media.name)
    if media.artifact:
        part.url = f"{base_url}/v1/artifacts/{media.artifact}"
    elif media.data:
        part.raw = base64.b64decode(media.data)
    else:
        part.text = media.described
    return part


# --- events ---------------------------------------------------------------------------------------------------------


def status_event(
    standing: Standing, said: Message | None = None, calls: list[str] | None = None
) -> TaskStatusUpdateEvent:
    """Return the news of a task's status; `calls` are those that its model has asked for."""
    run = standing.run
    metadata = None
    if calls:
        metadata = Struct()
        metadata.update({"calls": calls})
    status = status_of(standing, said)
    return TaskStatusUpdateEvent(task_id=run.run_id, context_id=context_of(run), status=status, metadata=metadata)


def artifact_event(
    run: Run, artifact: Artifact, *, append: bool = False, last_chunk: bool = False
) -> TaskArtifactUpdateEvent:
    """Return the news of an artifact: a piece more of it or, without `append`, all that counts of it from here on."""
    return TaskArtifactUpdateEvent(
        task_id=run.run_id, context_id=context_of(run), artifact=artifact, append=append, last_chunk=last_chunk
    )


def piece_of_answer(text: str) -> Artifact:
    """Return some of the answer as it is being written."""
    return Artifact(artifact_id=ANSWER, name=ANSWER, parts=[Part(text=text)])
