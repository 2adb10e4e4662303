"""What A2A's clients read of a problem, beside the problem document itself: the error of either binding. Pure.

Keys, quotas, sizes and outages are told by HTTP before the protocol is looked at, and in the protocol's form all the
same. Needs nothing of its SDK.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

RPC: Final = "/a2a"
"""Where JSON-RPC is spoken; what is below it, is plain HTTP."""

INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603

GRPC: Final = {
    HTTPStatus.UNAUTHORIZED: "UNAUTHENTICATED",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.CONFLICT: "ABORTED",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
}
"""What google.rpc.Code calls a status; of the others, whose fault it is."""


def a2a_members(path: str, status: HTTPStatus, code: str, detail: str) -> dict[str, Any]:
    """Return what an answer at this path has beside the problem document; nothing for a path of another door."""
    if path != RPC and not path.startswith(f"{RPC}/"):
        return {}
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": code.upper().replace("-", "_"),
        "domain": "toolfleet",
        "metadata": {},
    }
    is_theirs = status < HTTPStatus.INTERNAL_SERVER_ERROR
    if path == RPC:
        number = INVALID_REQUEST if is_theirs else INTERNAL_ERROR
        return {"jsonrpc": "2.0", "id": None, "error": {"code": number, "message": detail, "data": [info]}}
    called = GRPC.get(status, "INVALID_ARGUMENT" if is_theirs else "INTERNAL")
    return {"error": {"code": status.value, "status": called, "message": detail, "details": [info]}}
