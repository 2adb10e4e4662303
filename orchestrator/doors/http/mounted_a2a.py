"""The A2A agent at /a2a, behind the same keys as everything else here. Where its SDK is missing, there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

from fastapi import FastAPI


def import_a2a() -> None:
    """Import A2A's records, where they are there: that takes a moment, which `serve_a2a` then has no need of."""
    if find_spec("a2a") is not None:
        import_module("toolfleet.orchestrator.doors.a2a.routes")


@contextmanager
def serve_a2a(app: FastAPI) -> Iterator[None]:
    """Serve A2A from here to the end of the block."""
    if find_spec("a2a") is None:
        yield
        return
    from toolfleet.orchestrator.doors.a2a.routes import routes  # noqa: PLC0415  # an extra

    own = routes()
    app.router.routes.extend(own)
    try:
        yield
    finally:
        for route in own:
            app.router.routes.remove(route)
