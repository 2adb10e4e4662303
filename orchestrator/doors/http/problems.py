"""Errors as problem details (RFC 9457), with OpenAI's `error` member beside them where its clients look for it.

Owns which error means which status. Every message names the thing and the remedy already.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope as AsgiScope

from toolfleet.errors import (
    ArtifactNotFound,
    BadArguments,
    BrokerUnreachable,
    CallerError,
    InvalidSettings,
    Refused,
    StoreUnreachable,
    ToolfleetError,
)
from toolfleet.jobs import StateNotTaken
from toolfleet.logs import FactLog
from toolfleet.misspelt import what_is_wrong
from toolfleet.orchestrator.doors.http.a2a_members import a2a_members
from toolfleet.orchestrator.doors.http.request_ids import HEADER as REQUEST_ID, request_id_of
from toolfleet.orchestrator.errors import (
    AllShardsDrain,
    ApprovalMissing,
    BatchNotFound,
    BatchNotOpen,
    BudgetSpent,
    BudgetSpentForNow,
    HandleNotFound,
    InvalidAnswer,
    InvalidLimit,
    InvalidOption,
    InvalidSchedule,
    InvalidVersion,
    InvalidWebhook,
    ModelError,
    NoSuchShare,
    OrchestratorClosed,
    QuestionNotFound,
    RunExists,
    RunNotFound,
    RunNotOpen,
    ScheduleNotFound,
    UnknownPrice,
    UnknownTool,
    WebhookNotFound,
)

log = FactLog("toolfleet.http")

MEDIA_TYPE: Final = "application/problem+json"
OPENAI_PATHS: Final = ("/v1/chat/", "/v1/responses", "/v1/models")

STATUSES: Final[tuple[tuple[type[Exception], HTTPStatus], ...]] = (
    (RunNotFound, HTTPStatus.NOT_FOUND),
    (HandleNotFound, HTTPStatus.NOT_FOUND),
    (BatchNotFound, HTTPStatus.NOT_FOUND),
    (BatchNotOpen, HTTPStatus.CONFLICT),
    (ScheduleNotFound, HTTPStatus.NOT_FOUND),
    (ArtifactNotFound, HTTPStatus.NOT_FOUND),
    (QuestionNotFound, HTTPStatus.NOT_FOUND),
    (WebhookNotFound, HTTPStatus.NOT_FOUND),
    (RunNotOpen, HTTPStatus.CONFLICT),
    (RunExists, HTTPStatus.CONFLICT),
    (BudgetSpentForNow, HTTPStatus.TOO_MANY_REQUESTS),
    (BudgetSpent, HTTPStatus.PAYMENT_REQUIRED),
    (UnknownPrice, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InvalidLimit, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InvalidVersion, HTTPStatus.UNPROCESSABLE_ENTITY),
    (NoSuchShare, HTTPStatus.NOT_FOUND),
    (InvalidOption, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InvalidSchedule, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InvalidAnswer, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InvalidWebhook, HTTPStatus.UNPROCESSABLE_ENTITY),
    (BadArguments, HTTPStatus.UNPROCESSABLE_ENTITY),
    (UnknownTool, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ApprovalMissing, HTTPStatus.FORBIDDEN),
    (StateNotTaken, HTTPStatus.UNPROCESSABLE_ENTITY),
    (OrchestratorClosed, HTTPStatus.SERVICE_UNAVAILABLE),
    # How this server is set up is no fault of the request, and waiting does not mend it.
    (InvalidSettings, HTTPStatus.INTERNAL_SERVER_ERROR),
    (CallerError, HTTPStatus.BAD_REQUEST),
    (Refused, HTTPStatus.FORBIDDEN),
    (ModelError, HTTPStatus.BAD_GATEWAY),
    (StoreUnreachable, HTTPStatus.SERVICE_UNAVAILABLE),
    (BrokerUnreachable, HTTPStatus.SERVICE_UNAVAILABLE),
    (AllShardsDrain, HTTPStatus.SERVICE_UNAVAILABLE),
    (ToolfleetError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""The first that fits counts. 503 tells a client to come again, so only what may be mended meanwhile has it."""

RENAMED: Final = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Content Too Large",
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: "Range Not Satisfiable",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Unprocessable Content",
}
"""RFC 9110's names, which Python has from 3.13: a client must not see which Python answers."""

METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")

RETRY_AFTER_S: Final = 2
"""When to ask again after what passes by itself."""

NOT_AGAIN: Final = {"x-should-retry": "false"}
"""Told to clients that would else repeat a request by themselves: those of OpenAI and Anthropic obey it."""

AGAIN: Final = {"x-should-retry": "true"}


def title_of(status: HTTPStatus) -> str:
    """Return what RFC 9110 calls a status."""
    return RENAMED.get(status, status.phrase)


class Problem(Exception):
    """An answer that is an error. `code` names its kind for programs, `detail` says the rest to people."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        code: str = "",
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code or title_of(status).lower().replace(" ", "-")
        self.headers = dict(headers or {})
        self.members = members


def extra_missing(what: str, extra: str) -> Problem:
    """Return what is said of something whose packages are not installed where this server runs."""
    remedy = f"{what} needs `pip install 'toolfleet[{extra}]'` where this server runs"
    return Problem(HTTPStatus.NOT_IMPLEMENTED, remedy, code="extra-missing")


@contextmanager
def said_to_be_missing(app: Starlette, what: str, extra: str, *paths: str) -> Iterator[None]:
    """Have the application say so at these paths, until the block ends."""

    async def say(request: Request) -> Response:
        return answer(extra_missing(what, extra), request.url.path)

    routes = [Route(path, say, methods=METHODS) for path in paths]
    app.router.routes.extend(routes)
    try:
        yield
    finally:
        for route in routes:
            app.router.routes.remove(route)


class ProblemDetails(BaseModel):
    """What every error is answered with."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:toolfleet:problem:run-not-found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["no run 3f9c is stored"])
    instance: str = Field(examples=["/v1/runs/3f9c"])


def answer(problem: Problem, path: str) -> Response:
    """Make the response that tells of a problem."""
    status = problem.status
    if path.startswith(OPENAI_PATHS) and status is HTTPStatus.UNPROCESSABLE_ENTITY:
        status = HTTPStatus.BAD_REQUEST  # what OpenAI answers, and its clients look for
    document: dict[str, Any] = {
        "type": f"urn:toolfleet:problem:{problem.code}",
        "title": title_of(status),
        "status": status.value,
        "detail": problem.detail,
        "instance": path,
        **problem.members,
    }
    if path.startswith(OPENAI_PATHS):
        document["error"] = openai_error(problem)
    document |= a2a_members(path, status, problem.code, problem.detail)
    return Response(
        orjson.dumps(document, default=str),
        status_code=status.value,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


def openai_error(problem: Problem) -> dict[str, Any]:
    """Return what OpenAI's clients read of a problem, in an answer or in a stream."""
    return {
        "message": problem.detail,
        "type": _openai_type(problem.status),
        "param": problem.members.get("param"),
        "code": problem.code.replace("-", "_"),
    }


def _openai_type(status: HTTPStatus) -> str:
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return "authentication_error"
        case HTTPStatus.TOO_MANY_REQUESTS:
            return "rate_limit_error"
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status is HTTPStatus.FAILED_DEPENDENCY:
            return "server_error"
        case _:
            return "invalid_request_error"


def problem_of(error: Exception) -> Problem:
    """Return what one of our own errors means to a client."""
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    headers = {"retry-after": str(RETRY_AFTER_S)} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    if isinstance(error, BudgetSpentForNow) and error.resets_unix_s is not None:
        wait_s = max(1, math.ceil(error.resets_unix_s - time.time()))
        # Clients that repeat by themselves would do so for hours.
        headers = {"retry-after": str(wait_s), **NOT_AGAIN}
    return Problem(status, str(error), code=_words(type(error).__name__), headers=headers)


def problem_of_validation(error: RequestValidationError, model: type[BaseModel] | None = None) -> Problem:
    """Return what is wrong with a request's shape, part by part; `model` is what the body should have been."""
    errors = [{"where": "/".join(map(str, item["loc"])), "what": _wrong(item, model)} for item in error.errors()]
    detail = "; ".join(f"{item['where']}: {item['what']}" for item in errors[:5])
    param = _param(error.errors()[0]["loc"])
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, code="invalid-request", errors=errors, param=param)


def _param(where: Sequence[str | int]) -> str | None:
    """Return the field of a body as OpenAI writes it, such as `messages[0].role`; None for the body itself."""
    named = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where[1:])
    return named.removeprefix(".") or None


def _wrong(error: Mapping[str, Any], model: type[BaseModel] | None) -> str:
    if model is None or error["loc"][0] != "body":
        return str(error["msg"])
    return what_is_wrong({**error, "loc": error["loc"][1:]}, model)


def _body_model(request: Request) -> type[BaseModel] | None:
    """Return what the route of a request takes as its body, if that is one model."""
    body = getattr(request.scope.get("route"), "body_field", None)
    annotation = None if body is None else body.field_info.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


async def on_problem(request: Request, error: Exception) -> Response:
    """Answer a problem that a route has raised."""
    assert isinstance(error, Problem)  # noqa: S101  # registered for this type only
    return answer(error, request.url.path)


async def on_our_error(request: Request, error: Exception) -> Response:
    """Answer an error that the orchestrator has raised."""
    return answer(problem_of(error), request.url.path)


async def on_validation_error(request: Request, error: Exception) -> Response:
    """Answer a request of a wrong shape."""
    assert isinstance(error, RequestValidationError)  # noqa: S101  # registered for this type only
    problem = problem_of_validation(error, _body_model(request))
    said = request.headers.get("content-type", "")
    if "json" not in said and error.errors()[0]["loc"] == ("body",):
        # The first thing that happens to whoever uses curl.
        problem.detail = f"send the body with `content-type: application/json`; it came as {said[:100] or 'nothing'}"
    return answer(problem, request.url.path)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer what the framework has raised: no such path, no such method."""
    assert isinstance(error, HTTPException)  # noqa: S101  # registered for this type only
    status = HTTPStatus(error.status_code)
    detail = {
        HTTPStatus.NOT_FOUND: f"there is no {request.url.path} here; /openapi.json lists what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} cannot be used on {request.url.path}",
    }.get(status, str(error.detail))
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["allow"] = ", ".join(method for method in METHODS if _can_be_used(request, method))
    return answer(Problem(status, detail, headers=headers), request.url.path)


def _can_be_used(request: Request, method: str) -> bool:
    """Return whether a path has this method. Each has a route of its own; the framework tells those of one route."""
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)


async def on_bug(request: Request, error: Exception) -> Response:
    """Answer an error that nobody foresaw. The log has it under the request's id, all that the client learns."""
    request_id = request_id_of(request.scope)
    log.error("request_failed", request_id=request_id, path=request.url.path, error=type(error).__name__)
    detail = f"the server made a mistake; its log tells more of request {request_id}"
    # Nobody knows how far it came, so nobody should have it done again unasked.
    headers = {REQUEST_ID: request_id, **NOT_AGAIN}
    return answer(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, headers=headers), request.url.path)


def path_of(scope: AsgiScope) -> str:
    """Return the path of a request that has not reached a route yet."""
    return str(scope.get("path", ""))


def _words(name: str) -> str:
    """Return the name of a class as words: `RunNotFound` as `run-not-found`."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).strip("-")
