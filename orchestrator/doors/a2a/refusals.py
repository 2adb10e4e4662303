"""What is refused, in the protocol's words: our errors as those of A2A, and each as JSON in either binding."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from a2a.utils.error_handlers import build_error_details, build_rest_error_payload
from a2a.utils.errors import (
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import ParseError

from toolfleet.errors import ToolfleetError
from toolfleet.orchestrator.doors.http.problems import Problem, problem_of
from toolfleet.orchestrator.errors import NotForThisModel, RunNotFound, RunNotOpen

OF_THE_REQUEST: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
"""What is wrong with a request by what it says. Anything else (keys, quotas, budgets, outages) HTTP itself tells."""

MOST_CHARS: Final = 1000

REFUSALS: Final = (A2AError, Problem, ToolfleetError, ParseError, RecursionError)
"""What a verb may raise."""


CALLED: Final[tuple[tuple[type[Exception], type[A2AError]], ...]] = (
    (RunNotFound, TaskNotFoundError),
    (NotForThisModel, ContentTypeNotSupportedError),
    (RunNotOpen, UnsupportedOperationError),
    (ParseError, InvalidParamsError),
    (RecursionError, InvalidParamsError),
)
"""The first that fits counts."""


def in_protocol(error: Exception) -> A2AError | None:
    """Return what an error is called in A2A; None for what an HTTP status tells."""
    if isinstance(error, A2AError):
        return error
    for kind, called in CALLED:
        if isinstance(error, kind):
            return called(str(error)[:MOST_CHARS])
    if isinstance(error, Problem | ToolfleetError):
        problem = error if isinstance(error, Problem) else problem_of(error)
        return InvalidParamsError(problem.detail) if problem.status in OF_THE_REQUEST else None
    return None


def broken_off(error: Exception) -> A2AError:
    """Return what ends a stream that has begun: no status is left to tell it by."""
    known = in_protocol(error)
    if known is not None:
        return known
    if isinstance(error, Problem):
        return InternalError(error.detail)
    return InternalError(problem_of(error).detail if isinstance(error, ToolfleetError) else "the server made a mistake")


def rpc_error(error: A2AError) -> dict[str, Any]:
    """Return the `error` of a JSON-RPC response."""
    code = JSON_RPC_ERROR_CODE_MAP.get(type(error), JSON_RPC_ERROR_CODE_MAP[InternalError])
    return {"code": code, "message": error.message, "data": build_error_details(error)}


def http_error(error: A2AError) -> dict[str, Any]:
    """Return the body of a refusal over HTTP+JSON; its `error.code` is the status."""
    payload: dict[str, Any] = build_rest_error_payload(error)
    return payload
