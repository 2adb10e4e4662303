"""The page's style sheet, script and icon: read once, served under names that change with them."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from toolfleet.orchestrator.doors.http.problems import Problem

router = APIRouter(include_in_schema=False)

TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

FILES: Final = {
    file.name: file.read_bytes()
    for file in files(__package__).joinpath("static").iterdir()
    if file.name.rpartition(".")[2] in TYPES
}

FINGERPRINT: Final = hashlib.sha256(b"".join(FILES[name] for name in sorted(FILES))).hexdigest()[:12]
"""What their addresses hold, so that browsers may keep them for good."""


@router.get("/static/{fingerprint}/{name}")
async def static(fingerprint: str, name: str) -> Response:
    """Return one of the files."""
    if name not in FILES:
        raise Problem(HTTPStatus.NOT_FOUND, "there is no such file")
    kept = "public, max-age=31536000, immutable" if fingerprint == FINGERPRINT else "no-store"
    headers = {
        "cache-control": kept,
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    }
    return Response(FILES[name], headers=headers, media_type=TYPES[name.rpartition(".")[2]])
