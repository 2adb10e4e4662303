"""The overview as it is shown: rendered once for all who see the same of it, whoever looks on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from toolfleet.orchestrator.doors.cli.limit_words import declared, in_words, share_in_words
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.standing import own_budgets
from toolfleet.orchestrator.doors.page import sparkline
from toolfleet.orchestrator.doors.page.live import Pieces
from toolfleet.orchestrator.doors.page.looks import REMEMBERED, Look, Looks
from toolfleet.orchestrator.doors.page.rendering import fragment
from toolfleet.orchestrator.doors.page.run_sight import shows_payloads
from toolfleet.orchestrator.doors.page.veiling import veiled_head
from toolfleet.orchestrator.fleet.limits import LimitsStanding

NEWEST_RUNS: Final = 8


class LimitLine(NamedTuple):
    """A limit, or a tenant's share, as a line of a table."""

    of: str
    key: str
    declared: str
    said: str


PIECES: Final = ("figures", "states", "queues", "workers", "newest-runs", "bounds")


class Overviews:
    """The pieces of the newest look, rendered once for all who see the same of it."""

    def __init__(self, door: Door, looks: Looks) -> None:
        self._door = door
        self._looks = looks
        self._rendered: dict[tuple[str, bool, bool], tuple[Look, asyncio.Task[Pieces]]] = {}

    async def follow(self, grant: Grant) -> AsyncGenerator[Pieces, None]:
        """Yield what changes of the overview, as a key shows it."""
        name = grant.tenant, shows_payloads(grant), grant.may(Scope.ADMIN)
        known: Pieces = {}
        async with aclosing(self._looks.follow()) as looks:
            async for look in looks:
                found = self._rendered.get(name)
                if found is None or found[0] is not look:
                    self._rendered = {key: each for key, each in self._rendered.items() if each[0] is look}
                    rendering = asyncio.create_task(self._render(look, grant))  # watched: awaited by each viewer
                    found = self._rendered[name] = look, rendering
                pieces = await asyncio.shield(found[1])
                fresh = {name: text for name, text in pieces.items() if known.get(name) != text}
                known = pieces
                if fresh:
                    yield fresh

    async def _render(self, look: Look, grant: Grant) -> Pieces:
        values = await values_of(look, grant, self._door)
        return await asyncio.to_thread(_pieces, values)


def _pieces(values: dict[str, Any]) -> Pieces:
    return {name: fragment(f"pieces/{name}.html", **values) for name in PIECES}


async def values_of(look: Look, grant: Grant, door: Door) -> dict[str, Any]:
    """Return what the overview is made of. Raises StoreUnreachable."""
    found = await door.looking.pages.page(limit=NEWEST_RUNS, tenant=grant.tenant)
    heads = found.heads if shows_payloads(grant) else [veiled_head(head) for head in found.heads]
    return {
        "fleet": look.standing,
        "limits": list(_limits(look.standing.limits)) if grant.may(Scope.ADMIN) else [],
        "budgets": look.standing.budgets if grant.may(Scope.ADMIN) else await own_budgets(grant, door),
        "lines": {queue: _lines(look, queue) for queue in look.history},
        "heads": heads,
        "own": await door.looking.run_states.tally(tenant=grant.tenant),
        "asking": await door.looking.questions.count(tenant=grant.tenant),
        "sees_fleet": grant.may(Scope.ADMIN),
    }


def _limits(found: LimitsStanding) -> Iterator[LimitLine]:
    for each in found.tools:
        for key, said in {"": each.override, **each.keys}.items():
            words = in_words(said, found.now_ms) if said else ""
            yield LimitLine(each.tool, key, "" if key else declared(each), words)
    for tenant, share in found.tenants.items():
        yield LimitLine(f"tenant {tenant}", "", "", share_in_words(share))


def _lines(look: Look, queue: str) -> dict[str, Any]:
    samples = look.history[queue]
    most = max((max(sample) for sample in samples), default=0)
    return {
        "waiting": sparkline.points([each.waiting for each in samples], most=most, room=REMEMBERED),
        "running": sparkline.points([each.running for each in samples], most=most, room=REMEMBERED),
        "most": most,
    }
