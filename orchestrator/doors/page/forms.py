"""What a form of the page has sent. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from fastapi import Request

MAX_FIELDS: Final = 400


def fields_of(request: Request) -> list[tuple[str, str]]:
    """Return the fields of a form, in order. Raises ValueError for too many."""
    body: bytes = request.state.body
    return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)


def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form, of those with one name the last. Raises ValueError for too many."""
    return dict(fields_of(request))


def own_path(path: str) -> str:
    """Return a path of this page; "/" for anything that could lead elsewhere."""
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_own else "/"
