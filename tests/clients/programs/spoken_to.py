"""How a test speaks to a client's program: a line of JSON says what to do, a line of JSON says what came of it.

Only the standard library: the environments of the clients have nothing of this project.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Outcome = dict[str, Any]
Verb = Callable[..., Awaitable[Outcome]]

LOOKUP = {
    "name": "lookup",
    "description": "Look up a price in the client's own database.",
    "parameters": {
        "type": "object",
        "properties": {"item": {"type": "string"}},
        "required": ["item"],
        "additionalProperties": False,
    },
}

TOTAL = {
    "type": "object",
    "properties": {"total": {"type": "integer"}},
    "required": ["total"],
    "additionalProperties": False,
}

PRICES = {"tea": "4 EUR"}

MOST_TURNS = 5


def speak(*verbs: Verb) -> None:
    """Do what is asked by the names of these functions, one after the other, until nobody asks any more."""
    asyncio.run(_speak({verb.__name__: verb for verb in verbs}))


async def _speak(verbs: Mapping[str, Verb]) -> None:
    said = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no outcome
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        try:
            outcome = await verbs[asked.pop("do")](**asked)
        except Exception as error:  # noqa: BLE001  # whatever the library raises is the outcome
            outcome = {"error": type(error).__name__, "status": status_of(error), "message": str(error)}
        print(json.dumps(outcome), file=said, flush=True)


def status_of(error: BaseException | None) -> int | None:
    """The status that an error of a library tells of, or the one that it was raised for."""
    while error is not None:
        if (status := getattr(error, "status_code", None)) is not None:
            return int(status)
        error = error.__cause__ or error.__context__
    return None
