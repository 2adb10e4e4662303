"""What a client asks with, `RunAgentInput`, read into a conversation and a run's options. Pure.

Each field is passed on, kept to, or refused by name. Activity and reasoning messages are the client's own display: no
model is told of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import orjson
from ag_ui.core import (
    AssistantMessage as SaidByAgent,
    DeveloperMessage,
    Message as Said,
    RunAgentInput,
    SystemMessage as Instruction,
    ToolMessage as ResultTold,
    UserMessage as SaidByUser,
)
from ag_ui.core.types import ContentPart, DataSource, ImagePart, TextPart, UrlSource
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import to_json

from toolfleet.messages import AssistantMessage, Message, RequestedCall, SystemMessage, ToolMessage, UserMessage
from toolfleet.orchestrator.doors.agui.identity import MAX_NAME_CHARS, is_of_run
from toolfleet.orchestrator.doors.http.problems import Problem, problem_of_validation
from toolfleet.orchestrator.doors.openai.openai_records import Function, parts_of, spec_of
from toolfleet.orchestrator.options import RunOptions, options_given
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.tool import ToolSpec

OURS: Final = "toolfleet"
"""The member of `forwardedProps` with options of ours; the rest is handed to the tools."""

FORWARDED: Final = "forwardedProps"
"""Under which name tools find that rest in their context."""

MAJOR_VERSION: Final = "1"

CONTEXT: Final = "What the application says of itself:"


def read(body: Mapping[str, Any]) -> RunAgentInput:
    """Return what a body asks for. Raises Problem for what is no AG-UI, or of another major version."""
    try:
        asked = RunAgentInput.model_validate(body)
    except ValidationError as error:
        raise _invalid(error) from error
    for name, value in (("threadId", asked.thread_id), ("runId", asked.run_id)):
        if not value or len(value) > MAX_NAME_CHARS:
            raise wrong(f"{name}: must have 1 to {MAX_NAME_CHARS} characters")
    for at, message in enumerate(asked.messages):
        if len(message.id) > MAX_NAME_CHARS:
            raise wrong(f"messages[{at}].id: must have {MAX_NAME_CHARS} characters at most")
    version = MAJOR_VERSION if asked.protocol_version is None else asked.protocol_version
    if version.partition(".")[0] != MAJOR_VERSION:
        raise wrong(f"protocolVersion: {version:.40} is not served here, only {MAJOR_VERSION}.x")
    return asked


def fingerprint_of(asked: RunAgentInput, run_id: str) -> str:
    """Return a digest of what a run is asked for.

    A client that was cut off asks again with what it had got of the run: those messages, and its state by then, are no
    part of it.
    """
    besides = [value or None for value in (asked.tools, asked.context, asked.forwarded_props, asked.parent_run_id)]
    whole = to_json([given_before(asked, run_id), besides], by_alias=True)
    return hashlib.sha256(orjson.dumps(orjson.loads(whole), option=orjson.OPT_SORT_KEYS)).hexdigest()


def given_before(asked: RunAgentInput, run_id: str) -> list[Said]:
    """Return the conversation as it was before this run said anything."""
    return [message for message in asked.messages if not is_of_run(run_id, message.id)]


def conversation_of(asked: RunAgentInput, run_id: str) -> list[Message]:
    """Return the messages for the model. Raises Problem for what it could not be told, and where there is none."""
    given = given_before(asked, run_id)
    names = {
        call.id: call.function.name for each in given if isinstance(each, SaidByAgent) for call in each.tool_calls or ()
    }
    try:
        read_ones = [_message(each, names, f"messages[{at}]") for at, each in enumerate(given)]
    except ValidationError as error:
        raise _invalid(error) from error
    messages = [each for each in read_ones if each is not None]
    if not messages:
        raise wrong("messages: say something, in one message at least")
    return _with_context(messages, asked)


def added_by_user(asked: RunAgentInput, is_known: Callable[[str], bool]) -> list[tuple[str, UserMessage]]:
    """Return what users say in a conversation beyond the messages that are known by their ids. Raises Problem."""
    found = []
    for at, said in enumerate(asked.messages):
        if isinstance(said, SaidByUser) and not is_known(said.id):
            message = _message(said, {}, f"messages[{at}]")
            if isinstance(message, UserMessage):
                found.append((said.id, message))
    return found


def options_of(asked: RunAgentInput) -> RunOptions:
    """Return the run's options. AG-UI's own fields count before ours. Raises Problem."""
    terms, forwarded = _forwarded(asked.forwarded_props)
    options = options_given(terms)
    state = asked.state
    if state is not None and not isinstance(state, dict):
        raise wrong("state: tools here share an object: send one, or null")
    if state:
        options["state"] = state
    if forwarded:
        options["context"] = {**terms.context, FORWARDED: forwarded}
    own = client_tools_of(asked)
    names = {spec.name for spec in own}
    options["client_tools"] = (*own, *(spec for spec in terms.client_tools if spec.name not in names))
    return options


def client_tools_of(asked: RunAgentInput) -> tuple[ToolSpec, ...]:
    """Return the front end's tools as the model is to see them. Raises Problem."""
    found = []
    for at, tool in enumerate(asked.tools or ()):
        if tool.parameters is not None and not isinstance(tool.parameters, dict):
            raise wrong(f"tools[{at}].parameters: must be a JSON Schema of an object")
        try:
            declared = Function(name=tool.name, description=tool.description, parameters=tool.parameters)
            found.append(spec_of(declared))
        except ValidationError as error:
            raise _invalid(error) from error
    return tuple(found)


def _forwarded(props: Any) -> tuple[AskedTerms, Any]:
    """Return the options of ours among what is forwarded, and the rest."""
    if not isinstance(props, dict) or OURS not in props:
        return AskedTerms(), props
    try:
        terms = AskedTerms.model_validate(props[OURS])
    except ValidationError as error:
        raise _invalid(error) from error
    return terms, {name: value for name, value in props.items() if name != OURS}


def _with_context(messages: Sequence[Message], asked: RunAgentInput) -> list[Message]:
    """Put what the application says of itself behind the instructions that the conversation begins with."""
    if not asked.context:
        return list(messages)
    lines = [CONTEXT, *(f"- {each.description}: {each.value}" for each in asked.context)]
    at = next((at for at, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
    return [*messages[:at], SystemMessage(content="\n".join(lines)), *messages[at:]]


def _message(said: Said, names: Mapping[str, str], where: str) -> Message | None:
    """Return a message for the model; None for one that is only shown."""
    match said:
        case DeveloperMessage() | Instruction():
            return SystemMessage(content=said.content, name=said.name or "")
        case SaidByUser():
            content = parts_of(_parts(said.content, where), "user", f"{where}.content")
            return UserMessage(content=content.text, name=said.name or "", images=tuple(content.images))
        case SaidByAgent():
            calls = [
                RequestedCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                for call in said.tool_calls or ()
            ]
            return AssistantMessage(content=said.content or "", name=said.name or "", tool_calls=tuple(calls))
        case ResultTold():
            text = parts_of(_parts(said.content, where), "tool", f"{where}.content").text
            name = names.get(said.tool_call_id, "")
            return ToolMessage(
                tool_call_id=said.tool_call_id,
                name=name,
                content=text or said.error or "",
                is_error=said.error is not None,
            )
        case _:
            return None


def _parts(content: str | Sequence[ContentPart], where: str) -> str | list[dict[str, Any]]:
    """Return content as OpenAI's clients write it, which is read in one place. Raises Problem for sound and such."""
    if isinstance(content, str):
        return content
    return [_part(part, f"{where}.content[{at}]") for at, part in enumerate(content)]


def _part(part: ContentPart, where: str) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart(source=DataSource() as source):
            return {"type": "image_url", "image_url": {"url": f"data:{source.mime_type};base64,{source.value}"}}
        case ImagePart(source=UrlSource() as source):
            return {"type": "image_url", "image_url": {"url": source.value}}
        case _:
            said = f"{where}: {part.type} is not taken here, only text, and images by their bytes or a URL"
            raise Problem(HTTPStatus.BAD_REQUEST, said, code="unsupported-content")


def wrong(detail: str) -> Problem:
    """Return the answer to a request of a wrong shape."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, code="invalid-request")


def _invalid(error: ValidationError) -> Problem:
    return problem_of_validation(RequestValidationError(error.errors(include_url=False, include_input=False)))
