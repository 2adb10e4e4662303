"""What tools have spent elsewhere (`ctx.spend`), added up by tool for the whole fleet, once for each call."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Iterable
from typing import Final, NamedTuple, cast

import redis
import redis.asyncio

from toolfleet.calls import ResultRecord
from toolfleet.keys import Keys
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED

log = FactLog("toolfleet.spendings")

NANO: Final = 1_000_000_000
"""Dollars are counted in billionths: their sums are exact."""


class Spending(NamedTuple):
    """What a tool has spent on one call, in billionths of a dollar."""

    tool: str
    nano_usd: int


def nano(usd: float) -> int:
    """Dollars in billionths, rounded up: a sum of them is never less than what was spent."""
    return math.ceil(round(usd * NANO, 3))


def spending_of(tool: str, result: object) -> Spending | None:
    """What a tool has spent on the call that ends with this; None for nothing."""
    spent = result.spent if isinstance(result, ResultRecord) else None
    return None if spent is None or not spent.cost else Spending(tool, nano(spent.cost))


async def add_up(client: redis.asyncio.Redis, keys: Keys, spendings: Iterable[Spending]) -> None:
    """Add what was spent on calls that are settled just now. A Redis that goes away at this moment loses them."""
    try:
        for tool, nano_usd in _by_tool(spendings).items():
            await client.hincrby(keys.spent_by_tools(), tool, nano_usd)
    except COMMAND_FAILED as error:
        log.warning("spending_not_added_up", error=str(error))


def add_up_blocking(client: redis.Redis, keys: Keys, spendings: Iterable[Spending]) -> None:
    """As `add_up`, in a process without a loop."""
    try:
        for tool, nano_usd in _by_tool(spendings).items():
            client.hincrby(keys.spent_by_tools(), tool, nano_usd)
    except COMMAND_FAILED as error:
        log.warning("spending_not_added_up", error=str(error))


async def spent_by_tools(client: redis.asyncio.Redis, keys: Keys) -> dict[str, float]:
    """What each tool has spent so far, in US dollars, by name. Raises StoreUnreachable."""
    found = await cast("Awaitable[dict[bytes, bytes]]", client.hgetall(keys.spent_by_tools()))
    return {tool.decode(errors="replace"): int(found[tool]) / NANO for tool in sorted(found)}


def _by_tool(spendings: Iterable[Spending]) -> Counter[str]:
    summed = Counter[str]()
    for spending in spendings:
        summed[spending.tool] += spending.nano_usd
    return summed
