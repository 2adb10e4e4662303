"""What running calls ask people (`ctx.ask`), as requests to a client's user, and the answers that come back.

A key without the scope `approve`, or without the tool, neither sees them nor answers, as at every other door.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.mcp.callers import Caller
from toolfleet.orchestrator.doors.mcp.forms import answer_in, form_request
from toolfleet.orchestrator.doors.mcp.rounds import Requests, can_elicit
from toolfleet.orchestrator.errors import QuestionClosed, QuestionNotFound
from toolfleet.orchestrator.status.questions import AwaitedAnswer
from toolfleet.questions import MAX_ANSWER_BYTES, faults_of, named
from toolfleet.strict_json import written

Open = Mapping[str, AwaitedAnswer]
"""What a call asks and nobody has answered, under the keys by which clients answer."""

UNKNOWN_PERSON: Final = "mcp client"
"""Who has answered, where no key says it."""

REFUSALS: Final = {"decline": "the user declined", "cancel": "the user put it aside"}

SHOWN_FAULT_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Reader:
    """Who sends a request, and what their client makes of the answer."""

    caller: Caller
    version: str
    shows_forms: bool

    @classmethod
    def of(cls, ctx: ServerRequestContext[Any, Any], caller: Caller) -> Reader:
        """Return that of a request."""
        return cls(caller, ctx.protocol_version, can_elicit(ctx))

    def may_answer(self, asked: AwaitedAnswer) -> bool:
        """Return whether they may answer what their tenant's calls ask."""
        return self.caller.may_approve and self.caller.may_call(asked.tool)


class _Meant(NamedTuple):
    """What a response comes to: an answer, that there will be none, or a fault."""

    value: Any = None
    refused: str = ""
    fault: str = ""


class RunningQuestions:
    """Reads and answers questions of running calls. Raises StoreUnreachable."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    async def of(self, call_id: str, caller: Caller) -> Open:
        """Return what a call of the caller's tenant asks."""
        found = await self._orchestrator.questions(call_id=call_id, tenant=caller.tenant)
        return {_key_of(asked): asked for asked in found.waiting}

    async def take(self, asked: Open, responses: Mapping[str, Any], caller_of_them: Reader) -> Mapping[str, str]:
        """Answer what is asked with those responses that are for it; others are ignored, as is one that is too late.

        Returns what does not fit, and why, by key: then nothing is answered. Raises MCPError for who may not answer.
        """
        given = {key: asked[key] for key in responses if key in asked}
        if not all(map(caller_of_them.may_answer, given.values())):
            raise MCPError(INVALID_REQUEST, "what a tool asks is answered with a key that has the scope approve")
        meant = {key: _meant(responses[key], each) for key, each in given.items()}
        faults = {key: each.fault for key, each in meant.items() if each.fault}
        for key, each in {} if faults else meant.items():
            with suppress(QuestionClosed, QuestionNotFound):  # another one was first, or its time is over
                await self._answer(given[key].question_id, each, caller_of_them.caller.known_as or UNKNOWN_PERSON)
        return faults

    async def _answer(self, question_id: str, meant: _Meant, by: str) -> None:
        if meant.refused:
            await self._orchestrator.decline(question_id, meant.refused, by=by)
        else:
            await self._orchestrator.answer(question_id, meant.value, by=by)


def requests_for(asked: Open, reader: Reader) -> Requests:
    """Return the requests for those questions that this client can show its user, who may answer them."""
    if not reader.shows_forms:
        return {}
    forms = {
        key: form_request(each.message, each.answer_schema) for key, each in asked.items() if reader.may_answer(each)
    }
    return {key: form for key, form in forms.items() if form is not None}


def asked_again(requests: Requests, faults: Mapping[str, str]) -> Requests:
    """Return the same requests, with why the answer before does not do."""
    return {
        key: _saying(request, fault) if (fault := faults.get(key)) else request for key, request in requests.items()
    }


def must_fit(faults: Mapping[str, str]) -> None:
    """Raise MCPError for answers that do not fit, which says why; what is asked goes on waiting."""
    if faults:
        said = "; ".join(f"{key}: {fault}" for key, fault in faults.items())
        raise MCPError(INVALID_PARAMS, f"nothing was answered: {said}", {"faults": dict(faults)})


def told_elsewhere(asked: Open) -> str:
    """Return what is said of questions to a client that cannot answer them; nothing where there are none."""
    said = [f"{each.message:.200} (question {each.question_id})" for each in asked.values()]
    return f"waits for a person's answer at another door: {'; '.join(said)}" if said else ""


def _key_of(asked: AwaitedAnswer) -> str:
    """Return what a client answers under: never the same for other words, as a tool's own key may be."""
    words = written([asked.question_id, asked.message, asked.answer_schema, asked.asked_unix_s])
    return f"{named(asked.question_id)[1]}.{hashlib.sha256(words.encode()).hexdigest()[:16]}"


def _meant(response: Any, asked: AwaitedAnswer) -> _Meant:
    action = response.get("action") if isinstance(response, Mapping) else None
    if action in REFUSALS:
        return _Meant(refused=REFUSALS[action])
    if action != "accept":
        return _Meant(fault="say accept, with the content, decline or cancel")
    value = answer_in(response.get("content"), asked.answer_schema)
    if len(written(value)) > MAX_ANSWER_BYTES:
        return _Meant(fault=f"an answer has at most {MAX_ANSWER_BYTES} characters")
    return _Meant(value=value, fault="; ".join(faults_of(value, asked.answer_schema))[:SHOWN_FAULT_CHARS])


def _saying(request: types.InputRequest, fault: str) -> types.InputRequest:
    assert isinstance(request, types.ElicitRequest)  # noqa: S101  # running tools ask by forms only
    message = f"{request.params.message} (The answer does not fit: {fault})"
    return types.ElicitRequest(params=request.params.model_copy(update={"message": message}))
