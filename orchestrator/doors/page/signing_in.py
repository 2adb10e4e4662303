"""Signing in and out: a key is given once, and a cookie stands for it."""

from __future__ import annotations

import time
from collections import OrderedDict
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.http.sessions import SESSION_S, cookie_name, cookie_of, session_for
from toolfleet.orchestrator.doors.page.forms import form_of, own_path
from toolfleet.orchestrator.doors.page.rendering import page

router = APIRouter(include_in_schema=False)

ATTEMPTS: Final = 10
"""Wrong keys that one address may give at once."""

AGAIN_AFTER_S: Final = 6.0
"""How long until it may give one more."""

MAX_ADDRESSES: Final = 10_000


class Attempts:
    """Counts wrong keys by the address that they come from: who guesses waits, and nobody else does."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return how long an address has to wait before it may try."""
        left = self._left_of(address)
        return 0.0 if left >= 1 else (1 - left) * AGAIN_AFTER_S

    def failed(self, address: str) -> None:
        """Count a wrong key."""
        self._left[address] = self._left_of(address) - 1, time.monotonic()
        self._left.move_to_end(address)
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)

    def _left_of(self, address: str) -> float:
        left, at_s = self._left.get(address, (float(ATTEMPTS), time.monotonic()))
        return min(ATTEMPTS, left + (time.monotonic() - at_s) / AGAIN_AFTER_S)


@router.get("/sign-in")
async def ask(request: Request, asked: Annotated[str, Query(alias="next", max_length=2000)] = "/") -> Response:
    """Ask for a key."""
    return await page(request, "sign_in.html", next=own_path(asked), wrong="")


@router.post("/sign-in")
async def sign_in(request: Request, door: Through) -> Response:
    """Give whoever has a key a session."""
    form = form_of(request)
    following = own_path(form.get("next", "/"))
    attempts: Attempts = request.app.state.page.attempts
    address = request.client.host if request.client else ""
    wait_s = attempts.wait_s(address)
    if wait_s > 0:
        wrong = f"Too many wrong keys came from this address: try again in {wait_s:.0f} s."
        headers = {"retry-after": str(int(wait_s) + 1)}
        status = HTTPStatus.TOO_MANY_REQUESTS
        return await page(request, "sign_in.html", status=status, headers=headers, next=following, wrong=wrong)
    session = await session_for(form.get("key", "").strip(), door.keyring, door.local_key)
    if session is None:
        attempts.failed(address)
        wrong = "No such key: it was revoked, has expired, or never was one."
        return await page(request, "sign_in.html", status=HTTPStatus.FORBIDDEN, next=following, wrong=wrong)
    response = RedirectResponse(following, status_code=HTTPStatus.SEE_OTHER)
    response.set_cookie(
        cookie_name(request.scope),
        cookie_of(session, door.session_seal),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """Forget the session."""
    response = RedirectResponse("/sign-in", status_code=HTTPStatus.SEE_OTHER)
    response.delete_cookie(cookie_name(request.scope), httponly=True, samesite="strict")
    return response
