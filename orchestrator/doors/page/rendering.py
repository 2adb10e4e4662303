"""Pages out of templates: escaped, with nothing invisible in them, and under a policy that lets nothing else run.

Templates are rendered on a thread, so that a large page holds up no other request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.page import wording
from toolfleet.orchestrator.doors.page.static_files import FINGERPRINT
from toolfleet.terminal import harmless, harmless_json

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    # Not `no-referrer`: browsers would then name no origin with the page's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def _shown(value: object) -> object:
    """Spell out what is invisible, or turns the order of letters, in whatever a template shows."""
    return harmless(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _ago(unix_s: float) -> str:
    return wording.span(time.time() - unix_s)


def _age(unix_s: float) -> str:
    return f"{max(0.0, time.time() - unix_s):.1f}"


ENVIRONMENT: Final = Environment(
    loader=PackageLoader("toolfleet.orchestrator.doors.page"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters.update(
    age=_age,
    ago=_ago,
    dollars=wording.dollars,
    indented=wording.indented,
    json_text=harmless_json,
    moment=wording.moment,
    segment=wording.segment,
    short=wording.shortened,
    size=wording.size,
    span=wording.span,
)
ENVIRONMENT.globals.update(
    Scope=Scope, fingerprint=FINGERPRINT, plural=wording.plural, product_version=version("toolfleet")
)


def fragment(name: str, **values: Any) -> str:
    """Render a template that is part of a page. Takes a while: call it on a thread."""
    return ENVIRONMENT.get_template(name).render(values)


async def page(
    request: Request,
    name: str,
    *,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Render a page for whoever asks."""
    grant: Grant | None = getattr(request.state, "grant", None)
    text = await asyncio.to_thread(
        fragment,
        name,
        grant=grant,
        is_signed_in=getattr(request.state, "is_signed_in", False),
        path=request.url.path,
        **values,
    )
    return HTMLResponse(text, status_code=status.value, headers={**HEADERS, **(headers or {})})
