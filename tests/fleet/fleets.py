"""Fleets of real workers for tests, and the messages that models would send them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, RequestedCall

HERE = {"PYTHONPATH": str(Path(__file__).parent)}


@contextmanager
def fleet_of(*options: str, pools: dict[str, int] | None = None, **settings: Any) -> Iterator[LocalFleet]:
    """Workers that serve fleet_tools, on a server of their own."""
    with LocalFleet(
        ["fleet_tools"], pools=pools or {"io": 1}, environment=HERE, worker_options=options, **settings
    ) as fleet:
        yield fleet


def asking(*calls: tuple[str, Any]) -> AssistantMessage:
    """A model's message that asks for these calls; text goes as it is, anything else as JSON."""
    return AssistantMessage(
        tool_calls=tuple(
            RequestedCall(
                id=f"call-{position}", name=name, arguments=given if isinstance(given, str) else json.dumps(given)
            )
            for position, (name, given) in enumerate(calls)
        )
    )
