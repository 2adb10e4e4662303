"""What this agent says of itself: to everybody what it speaks, and to who has a key its tools, as skills."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Any, Final

import orjson
from a2a.compat.v0_3.conversions import to_compat_agent_card
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, TransportProtocol
from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.a2a.asked import Asked, base_url_of
from toolfleet.orchestrator.doors.a2a.shown import JSON, TEXT
from toolfleet.orchestrator.doors.http.door import Door

RPC: Final = "/a2a"
HTTP: Final = "/a2a/v1"
CARD: Final = "/.well-known/agent-card.json"

BEARER: Final = "bearer"

KEPT_S: Final = 60
"""How long a client need not ask again for the card."""

IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


def card_of(door: Door, base_url: str) -> AgentCard:
    """Return the card that everybody may read: it names no tool."""
    required = SecurityRequirement(schemes={BEARER: StringList()})
    scheme = HTTPAuthSecurityScheme(scheme="bearer", description="A key: `toolfleet keys add` makes one.")
    answers = AgentSkill(
        id="answer",
        name="Answer",
        description="Answers in words, with the tools of its fleet. The extended card, for who has a key, names them.",
        tags=["tools"],
    )
    model = f" Its model is {door.model}." if door.model else ""
    return AgentCard(
        name="Toolfleet",
        description=f"An agent whose tools run on a fleet of workers.{model}",
        version=version("toolfleet"),
        supported_interfaces=[
            _interface(f"{base_url}{RPC}", TransportProtocol.JSONRPC, PROTOCOL_VERSION_1_0),
            _interface(f"{base_url}{HTTP}", TransportProtocol.HTTP_JSON, PROTOCOL_VERSION_1_0),
            _interface(f"{base_url}{RPC}", TransportProtocol.JSONRPC, PROTOCOL_VERSION_0_3),
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        security_schemes={BEARER: SecurityScheme(http_auth_security_scheme=scheme)},
        security_requirements=[required],
        default_input_modes=[TEXT, JSON, *IMAGES],
        default_output_modes=[TEXT, JSON],
        skills=[answers],
    )


def _interface(url: str, binding: str, protocol_version: str) -> AgentInterface:
    return AgentInterface(url=url, protocol_binding=binding, protocol_version=protocol_version)


async def extended_card(asked: Asked) -> AgentCard:
    """Return the card for who has a key: each tool that the key includes is a skill. Raises StoreUnreachable."""
    card = card_of(asked.door, asked.base_url)
    offered = await asked.door.orchestrator.catalog.offered()
    for name, spec in sorted(offered.items()):
        if asked.grant.may_call(name):
            card.skills.append(AgentSkill(id=name, name=name, description=spec.description or name, tags=["tool"]))
    return card


def card_json(card: AgentCard) -> dict[str, Any]:
    """Return a card as clients of 1.0 and of 0.3 read it: each finds its own fields."""
    old = to_compat_agent_card(card).model_dump(mode="json", by_alias=True, exclude_none=True)
    return _merged(MessageToDict(card), old)


def _merged(first: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {
        **more,
        **{
            name: _merged(value, more[name]) if isinstance(value, dict) and isinstance(more.get(name), dict) else value
            for name, value in first.items()
        },
    }


async def show_card(request: Request) -> Response:
    """Answer a request for the card that everybody may read."""
    door: Door = request.app.state.door
    body = orjson.dumps(card_json(card_of(door, base_url_of(door, request))), option=orjson.OPT_SORT_KEYS)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": f"public, max-age={KEPT_S}"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=JSON, headers=headers)
