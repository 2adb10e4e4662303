"""What a provider's refusal means: ask again, correct the request, or no API at all.

Pure. It reads a status, a `Retry-After` and the first part of a body; it never sees a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import orjson

from toolfleet.orchestrator.errors import ModelError, ModelRefused, ModelReplyInvalid, ProviderSaid, TryAgain
from toolfleet.strict_json import encodable_value

MAX_QUOTED = 500
# 529 is Anthropic's "overloaded"; like every 5xx it may pass.
_PASSING_4XX = frozenset({408, 409, 425, 429})
_PASSING_TYPES = frozenset(
    {"overloaded_error", "api_error", "rate_limit_error", "timeout_error", "server_error", "internal_server_error"}
)
OUT_OF_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached"})


@dataclass(frozen=True, slots=True)
class ServerReply:
    """The parts of an unwelcome answer that matter."""

    status: int
    retry_after: str | None
    body: str


@dataclass(frozen=True, slots=True)
class Complaint:
    """A server's own words: its message, and its machine-readable type or code (each may be empty)."""

    message: str
    type: str = ""
    code: str = ""
    param: str = ""


def fault_of(answer: ServerReply, address: str, key_variable: str, model_variable: str) -> ModelError:
    """Return the error for an answer other than 200, with the server's own message and what to do about it."""
    complaint = complaint_in(answer.body)
    said = f"{address} answered {_status_text(answer.status)}: {complaint.message}"
    theirs = ProviderSaid(
        status=answer.status,
        message=complaint.message,
        code=complaint.code or complaint.type,
        param=complaint.param,
        retry_after_s=retry_after_s(answer.retry_after, datetime.now(UTC)),
    )
    if {complaint.type, complaint.code} & OUT_OF_QUOTA:
        return ModelRefused(f"{said} (the account has no quota left; asking again would not help)", theirs)
    if answer.status in _PASSING_4XX or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return TryAgain(said, theirs)
    if answer.status < HTTPStatus.BAD_REQUEST:
        return ModelReplyInvalid(f"{said} (expected 200; is base_url the address of the API itself?)", theirs)
    return ModelRefused(f"{said}{_remedy(answer.status, key_variable, model_variable)}", theirs)


def fault_in_stream(error: Any, address: str) -> ModelError:
    """Return the error for a complaint that arrives as an event of a stream that had begun with status 200."""
    complaint = complaint_in(orjson.dumps({"error": encodable_value(error)}).decode())
    said = f"{address} broke off its reply: {complaint.message}"
    status = int(complaint.code) if complaint.code.isascii() and complaint.code.isdigit() else None
    code = complaint.code or complaint.type
    theirs = ProviderSaid(status=status, message=complaint.message, code=code, param=complaint.param)
    if status is not None:
        refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PASSING_4XX
    else:
        refused = complaint.type.endswith("_error") and complaint.type not in _PASSING_TYPES
    return ModelRefused(said, theirs) if refused else TryAgain(said, theirs)


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """Seconds to wait by a `Retry-After` header (RFC 9110: seconds or an HTTP date); None if absent or unreadable."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())


def complaint_in(body: str) -> Complaint:
    """Return what the server says went wrong, in whichever of the usual shapes it says it."""
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Complaint(_as_text(body))
    if not isinstance(payload, dict):
        return Complaint(_quoted(body))
    # OpenAI, Anthropic: {"error": {…}}; Ollama: {"error": "…"}; vLLM: the fields at the top; FastAPI: {"detail": …}
    error = payload.get("error") or payload
    if not isinstance(error, dict):
        return Complaint(_quoted(str(error)))
    message = error.get("message") or error.get("detail") or body
    words = (_word(error.get(name)) for name in ("type", "code", "param"))
    return Complaint(_quoted(str(message)), *words)


def _as_text(body: str) -> str:
    if "<html" in body[:1000].lower() or "<!doctype" in body[:1000].lower():
        return "an HTML page, which no model API sends (a proxy or a wrong base_url?)"
    return _quoted(body) or "no message"


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTED else line[: MAX_QUOTED - 1] + "…"


def _word(value: Any) -> str:
    return "" if value is None else _quoted(str(value))


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _remedy(status: int, key_variable: str, model_variable: str) -> str:
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return f" (check the key: set {key_variable}, or pass api_key)"
        case HTTPStatus.NOT_FOUND:
            return f" (check the model's name: {model_variable}, and base_url)"
        case _:
            return ""
