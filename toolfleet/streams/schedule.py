"""Messages with an ETA wait in Redis, in a sorted set, never in a worker's memory; the fetch script makes them due.

The `eta` header is taken off here, so that the worker that gets the message starts it at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson


def due_unix_s(headers: Mapping[str, Any]) -> float | None:
    """Return when a message is to be delivered, None for at once.

    Celery's ETA is ISO 8601, UTC where it names no zone.
    """
    eta = headers.get("eta")
    if not eta:
        return None
    try:
        moment = datetime.fromisoformat(eta)
    except (TypeError, ValueError):
        return None  # Celery's own check will say what is wrong with it
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def without_eta(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same headers for a message that waits in Redis."""
    return {**headers, "eta": None}


def scheduled_member(stream: str, fields: Sequence[str | bytes]) -> bytes:
    """Return a waiting message as the fetch script unpacks it: its stream, then the entry's fields."""
    return orjson.dumps([stream, *(field if isinstance(field, str) else field.decode() for field in fields)])
