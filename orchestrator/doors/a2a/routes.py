"""The addresses of this door. Who may ask was settled before a request comes here, but for the card, which is open."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from toolfleet.orchestrator.doors.a2a import http_json, legacy, rpc
from toolfleet.orchestrator.doors.a2a.cards import CARD, RPC, show_card

OVER_RPC: Final = rpc.Rpc({**rpc.METHODS, **legacy.METHODS})


def routes() -> list[Route]:
    """Return all routes of the protocol."""
    return [
        Route(CARD, show_card, methods=["GET"]),
        Route(RPC, OVER_RPC.answer, methods=["POST"]),
        *http_json.routes(),
    ]
