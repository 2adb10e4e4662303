"""The rounds of one `tools/call`: what its client is asked before the call can be made or go on, and what it said.

In the newest revision a question ends the request, and the client repeats it with its answers and our sealed state; in
the revisions before, it is a request of ours on the client's session. Decides which of them may be asked at all.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import mcp_types as types
import orjson
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity, compact_json
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolfleet.asking import ASKED, QUESTIONS, Answer, FormAsked, ModelAsked
from toolfleet.calls import Failed, Returned
from toolfleet.masks import mask_arguments
from toolfleet.orchestrator.doors.mcp.callers import CallerOf
from toolfleet.settings import Settings
from toolfleet.strict_json import written
from toolfleet.tool import ToolSpec

Context = ServerRequestContext[Any, Any]

Requests = Mapping[str, types.InputRequest]

APPROVAL: Final = "toolfleet/approval"
"""The key of the question whether a call may run; a tool's own questions are named as it names them."""

SHOWN_CHARS: Final = 2000
"""How much of a call's arguments is shown to whoever is asked to approve it."""

MOST_ROUNDS: Final = 20
"""A tool that asks more often than this asks for ever."""

STATE_TTL_S: Final = 600.0
"""How long a client's user may think. `keys.APPROVED_TTL_S` is longer, or an approval could be brought twice."""

_PURPOSE: Final = b"toolfleet.mcp.request_state\0"


@dataclass(frozen=True, slots=True)
class Round:
    """What is settled by now: whether the call was approved, and what its tool was told."""

    is_approved: bool = False
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Answers to the tool's questions, of all rounds so far."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Answers that came with this very request, to what was asked last."""
    number: int = 0
    id: str = ""
    """Of what the client was asked, and answers with this request; empty where that came with no state of ours."""
    goes_on: str = ""
    """The task id of the call that goes on and has asked; empty where the answers are for another call."""
    next_id: str = ""
    """Of the next round, where it must be the same however often this one is sent."""

    @classmethod
    def of(cls, params: types.CallToolRequestParams) -> Round:
        """Read what a client sent back: the answers to what it was asked.

        Our state was unsealed already, and belongs to this tool, these arguments and this caller. Without it a client
        may answer its tool's questions all the same, they are its own words; but it was asked for no approval.
        """
        given = {key: dumped(value) for key, value in (params.input_responses or {}).items()}
        if params.request_state is None:
            given.pop(APPROVAL, None)
            return cls().answered(given) if given else cls()
        try:
            state = orjson.loads(params.request_state)
            known = cls(
                bool(state["approved"]),
                state["answers"],
                number=int(state["round"]),
                id=str(state["id"]),
                goes_on=str(state.get("goes_on", "")),
            )
            asked = state["asked"]
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):  # of a version with other rounds
            raise MCPError(INVALID_PARAMS, "this requestState is of another version: call anew") from None
        return known.answered({key: value for key, value in given.items() if key in asked})

    def answered(self, given: Mapping[str, Any]) -> Round:
        """Return the next round, with these answers to what was asked."""
        if self.goes_on:
            return replace(self, given=given)
        own = {key: answer_of(value) for key, value in given.items() if key != APPROVAL}
        return replace(self, given=given, answers={**self.answers, **own}, number=self.number + 1)

    def approved(self) -> Round:
        """Return the same, with the call allowed."""
        return replace(self, is_approved=True)

    def waiting_for(self, task_id: str) -> Round:
        """Return the same, of a call that goes on."""
        return replace(self, goes_on=task_id)

    def ended(self) -> Round:
        """Return the same once that call has ended: an approval is good for one more, though this is sent again."""
        return replace(self, goes_on="", next_id=self.goes_on)

    def state(self, asked: Requests) -> str:
        """Return what the client is to give back with its answers to these questions."""
        said = {
            "approved": self.is_approved,
            "answers": dict(self.answers),
            "asked": list(asked),
            "round": self.number,
            "id": self.next_id or secrets.token_hex(16),
            "goes_on": self.goes_on,
        }
        return orjson.dumps(said).decode()

    @property
    def brings_approval(self) -> bool:
        """Whether a client sent it to have a call approved, or made again that was: no request may do that twice."""
        return bool(self.id) and not self.goes_on and (self.is_approved or APPROVAL in self.given)


@dataclass(frozen=True, slots=True)
class Asks:
    """What has to be asked before a call can go on, and what was settled before."""

    round: Round
    requests: Requests


def approval_request(spec: ToolSpec, arguments: Mapping[str, Any]) -> types.InputRequest:
    """Make the question whether a call may run. Who accepts it lets it run; secrets in its arguments are masked."""
    text = mask_arguments(written(arguments), spec.input_schema)
    shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text)} characters)"
    message = f"{spec.name} needs approval. Let it run with these arguments? {shown}"
    form = types.ElicitRequestFormParams(message=message, requested_schema={"type": "object", "properties": {}})
    return types.ElicitRequest(params=form)


def sealed_states(settings: Settings, caller_of: CallerOf) -> RequestStateBoundary:
    """Make what seals the state of each round for its tool, its arguments and its caller, and refuses any other."""

    def principal(ctx: Context) -> str:
        caller = caller_of(ctx.request)
        return compact_json([caller.tenant, caller.subject])

    own = [settings.secret.get_secret_value(), settings.previous_secret.get_secret_value()]
    used = dict.fromkeys([own[0], *filter(None, own[1:])])
    keys = [hmac.digest(secret.encode(), _PURPOSE, hashlib.sha256) for secret in used]
    security = RequestStateSecurity(keys=keys, ttl=STATE_TTL_S, bind_principal=principal)
    return RequestStateBoundary(security, default_audience="toolfleet")


def can_elicit(ctx: Context) -> bool:
    """Return whether this request's client shows forms to its user."""
    return _can_answer(ctx, "elicitation/create")


def askable(ctx: Context, requests: Requests) -> Requests:
    """Return those that the client can answer. Raises MCPError (-32021) when it can answer none of them."""
    can = {key: request for key, request in requests.items() if _can_answer(ctx, request.method)}
    if can:
        return can
    needed = {request.method for request in requests.values()}
    required = types.ClientCapabilities(
        elicitation=types.ElicitationCapability() if "elicitation/create" in needed else None,
        sampling=types.SamplingCapability() if "sampling/createMessage" in needed else None,
    )
    data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=required)
    raise MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        "this tool asks its user or a model, which this client did not say that it can do",
        data.model_dump(by_alias=True, mode="json", exclude_none=True),
    )


async def asked(ctx: Context, asks: Asks) -> types.InputRequiredResult | Round:
    """Ask the client. Returns what ends this request in the newest revision, else the next round. Raises MCPError."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return input_required(asks)
    _must_not_ask_for_ever(asks.round)
    return asks.round.answered({key: await asked_meanwhile(ctx, each) for key, each in asks.requests.items()})


def input_required(asks: Asks) -> types.InputRequiredResult:
    """Make what ends a request with questions to its client. Raises MCPError."""
    _must_not_ask_for_ever(asks.round)
    return types.InputRequiredResult(input_requests=dict(asks.requests), request_state=asks.round.state(asks.requests))


def _must_not_ask_for_ever(round_: Round) -> None:
    if round_.number >= MOST_ROUNDS:
        raise MCPError(INVALID_PARAMS, f"this call has asked {MOST_ROUNDS} times, and asks again: it was given up")


def questions_of(result: Returned | Failed) -> Requests:
    """Return what a tool asks instead of returning, as the protocol has it; nothing for any other result."""
    if not isinstance(result, Returned) or QUESTIONS not in result.attributes:
        return {}
    try:
        questions = ASKED.validate_python(result.attributes[QUESTIONS])
    except ValidationError:  # a tool may call its own attributes what it likes
        return {}
    return {name: _request_of(question) for name, question in questions.items()}


def answer_of(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client said, as its tool reads it."""
    if "action" not in response:
        content = response.get("content")
        return Answer(text=content.get("text", "") if isinstance(content, Mapping) else "").model_dump()
    if response["action"] != "accept":
        return Answer(refused=str(response["action"])).model_dump()
    return Answer(form=response.get("content") or {}).model_dump()


def _request_of(asked: FormAsked | ModelAsked) -> types.InputRequest:
    if isinstance(asked, FormAsked):
        form = types.ElicitRequestFormParams(message=asked.message, requested_schema=asked.schema_)
        return types.ElicitRequest(params=form)
    prompt = types.SamplingMessage(role="user", content=types.TextContent(text=asked.prompt))
    params = types.CreateMessageRequestParams(
        messages=[prompt], system_prompt=asked.system or None, max_tokens=asked.max_tokens
    )
    return types.CreateMessageRequest(params=params)


def _can_answer(ctx: Context, method: str) -> bool:
    capabilities = ctx.session.client_capabilities
    if capabilities is None:
        return False
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS and not ctx.session.can_send_request:
        return False
    if method == "sampling/createMessage":
        return capabilities.sampling is not None
    can = capabilities.elicitation
    # An empty declaration, as revisions before url mode have it, means forms.
    return can is not None and (can.form is not None or can.url is None)


async def asked_meanwhile(ctx: Context, request: types.InputRequest) -> dict[str, Any]:
    """Ask the client while its request goes on, in revisions where the server asks on the session. Raises MCPError."""
    result_type = types.CreateMessageResult if request.method == "sampling/createMessage" else types.ElicitResult
    on_this_stream = ServerMessageMetadata(related_request_id=ctx.request_id)
    return dumped(await ctx.session.send_request(request, result_type, metadata=on_this_stream))


def dumped(response: Any) -> dict[str, Any]:
    """Return what goes over the wire."""
    return cast("dict[str, Any]", response.model_dump(by_alias=True, mode="json", exclude_none=True))
