"""What was too large for a result, over HTTP: whole or in part, as a file to be saved and never as a page to be shown.

Owns the headers that keep a tool's bytes from being run in this origin.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolfleet.artifacts import Artifact
from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.media import sendable_type
from toolfleet.orchestrator.doors.http.access import PayloadReader
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails
from toolfleet.orchestrator.doors.http.ranges import Unsatisfiable, Wanted, wanted
from toolfleet.orchestrator.doors.http.runs import Through

log = FactLog("toolfleet.http")

router = APIRouter(prefix="/v1/artifacts", tags=["artifacts"])

MAX_NAME_CHARS: Final = 200

HARMLESS: Final = {
    # Whatever a browser makes of it, it runs nothing and is no part of this origin.
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}

_BYTES: Final = {"*/*": {"schema": {"type": "string", "format": "binary"}}}

READ: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "All of it, of the type that the tool gave it", "content": _BYTES},
    206: {"description": "The part that `Range` asks for", "content": _BYTES},
    304: {"description": "You have it: `If-None-Match` names its `ETag`"},
    404: {"model": ProblemDetails, "description": "No such artifact, or none of your tenant's"},
    412: {"model": ProblemDetails, "description": "`If-Match` names another one"},
    416: {"model": ProblemDetails, "description": "The range begins behind the end"},
}
ABOUT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "What a GET would be answered, without the bytes"},
    **{status: READ[status] for status in (304, 404, 412)},
}


@router.get("/{artifact}", response_class=Response, responses=READ)
async def read(artifact: str, grant: PayloadReader, door: Through, request: Request) -> Response:
    """Read what was too large for a result, by the id that `artifact` of the result or of its media names."""
    found = await door.orchestrator.artifact(artifact, tenant=grant.tenant)
    headers = _headers(found)
    part, status = range(found.size_bytes), HTTPStatus.OK
    match _wanted(request, found):
        case Wanted.NOT_MODIFIED:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        case range() as part:
            status = HTTPStatus.PARTIAL_CONTENT
            headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{found.size_bytes}"
    return await Pieces.of(found, part, status, {**headers, "content-length": str(len(part))})


@router.head("/{artifact}", response_class=Response, responses=ABOUT)
async def about(artifact: str, grant: PayloadReader, door: Through, request: Request) -> Response:
    """Tell what an artifact is, and how large."""
    found = await door.orchestrator.artifact(artifact, tenant=grant.tenant)
    if _wanted(request, found) is Wanted.NOT_MODIFIED:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=_headers(found))
    return Response(headers={**_headers(found), "content-length": str(found.size_bytes)})


class Pieces(Response):
    """Sends a part of an artifact, of which no more than a piece is in memory."""

    def __init__(
        self, first: bytes, others: AsyncGenerator[bytes, None], status: HTTPStatus, headers: dict[str, str]
    ) -> None:
        self.status_code = status.value
        self.background = None
        self.body = first
        self._others = others
        self.init_headers(headers)

    @classmethod
    async def of(cls, artifact: Artifact, part: range, status: HTTPStatus, headers: dict[str, str]) -> Pieces:
        """Make the response. Raises ArtifactNotFound if its first piece is not what was kept, StoreUnreachable."""
        pieces = artifact.stream(part.start, len(part))
        return cls(await anext(pieces, b""), pieces, status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; break off if a later piece is gone, or is not what was kept: the client misses what was promised."""
        del receive
        async with aclosing(self._others):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self.body, "more_body": True})
            try:
                async for piece in self._others:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except ToolfleetError as error:
                log.warning("artifact_broken_off", path=scope["path"], reason=f"{type(error).__name__}: {error}")
                return
            await send({"type": "http.response.body", "body": b""})


def _wanted(request: Request, found: Artifact) -> range | Wanted:
    """Return what a request wants of an artifact. Raises Problem for what cannot be had."""
    headers = {name: ", ".join(request.headers.getlist(name)) for name in request.headers}
    try:
        answer = wanted(headers, etag=_etag(found), size=found.size_bytes, is_get=request.method == "GET")
    except Unsatisfiable:
        raise Problem(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            f"the artifact has {found.size_bytes} bytes, none of them in {request.headers['range'][:200]}",
            headers={"content-range": f"bytes */{found.size_bytes}"},
        ) from None
    if answer is Wanted.FAILED:
        detail = f"If-Match names another artifact than {_etag(found)}: an artifact never changes"
        raise Problem(HTTPStatus.PRECONDITION_FAILED, detail)
    return answer


def _headers(found: Artifact) -> dict[str, str]:
    return {
        "accept-ranges": "bytes",
        "etag": _etag(found),
        # Whose it is may change; what it is never does, so to ask again costs a 304.
        "cache-control": "private, no-cache",
        "content-type": sendable_type(found.media_type),
        "content-disposition": disposition(found.name or found.artifact[:12]),
        **HARMLESS,
    }


def _etag(found: Artifact) -> str:
    return f'"{found.artifact}"'


def disposition(name: str) -> str:
    """Return what has a browser save a file under this name, as far as it is one (RFC 6266): never shown as a page."""
    last = re.split(r"[/\\]", name)[-1]
    plain = "".join(letter for letter in last if letter.isprintable()).strip(" .")[:MAX_NAME_CHARS] or "artifact"
    ascii_name = re.sub(r"[^A-Za-z0-9._ -]", "_", plain)
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(plain, safe='', errors='replace')}"
