"""The budgets of tenants, as people set them and look at them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final, cast, get_args

import redis.asyncio
from pydantic import TypeAdapter, ValidationError

from toolfleet.calls import Record
from toolfleet.orchestrator.budgets.ledger import UNITS
from toolfleet.orchestrator.budgets.periods import resets_unix_s
from toolfleet.orchestrator.run.accounts import Account, Bounds, Period
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.spendings import NANO

PERIODS: Final[tuple[Period, ...]] = tuple(each for each in get_args(Period) if each)
LOOK: Final = lua(__package__, "accounts", "look", before=CLOCK)
FEW: Final = 1000
"""So many budgets are read to show some of them."""

_BOUNDS: Final = TypeAdapter(Bounds)


class Amounts(Record):
    """What one unit of an account stands at. Dollars, tokens or calls."""

    limit: float
    used: float
    reserved: float
    """For replies that are being waited for."""

    @property
    def remaining(self) -> float:
        """What is left once what is held is used; not less than nothing."""
        return max(0.0, self.limit - self.used - self.reserved)


class Standing(Record):
    """How a tenant's budget of one period stands."""

    tenant: str
    period: Period
    strict: bool
    resets_unix_s: float | None
    amounts: dict[str, Amounts]
    """By unit: `usd`, `tokens`, `calls`; only those that are limited."""


def as_json_value(standing: Standing) -> dict[str, Any]:
    """A standing as JSON, with what remains."""
    amounts = {unit: {**each.model_dump(), "remaining": each.remaining} for unit, each in standing.amounts.items()}
    return {**standing.model_dump(), "amounts": amounts}


def account_of(tenant: str, period: Period, bounds: Bounds) -> Account:
    """The account that a tenant's runs count against."""
    return Account(name=f"tenant:{tenant}", bounds=bounds, period=period)


def read_budgets(found: Mapping[str, str]) -> dict[str, tuple[Account, ...]]:
    """The accounts of tenants, of the fields and values that are stored; what cannot be read is left out and logged."""
    read: dict[str, tuple[Account, ...]] = {}
    for name, text in found.items():
        period, _, tenant = name.partition(":")
        try:
            bounds = _BOUNDS.validate_json(text)
            account = account_of(tenant, cast("Period", period), bounds)
        except ValidationError as error:
            skip("budget", f"{name}: {error}")
            continue
        read[tenant] = (*read.get(tenant, ()), account)
    return read


class TenantBudgets:
    """Sets budgets, and tells how they stand. Every method raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = settings.keys
        self._look = client.register_script(LOOK)

    async def set(self, tenant: str, period: Period, bounds: Bounds) -> None:
        """Let a tenant use so much; every orchestrator knows it a second later, for the replies that come then."""
        text = bounds.model_dump_json(exclude_none=True)
        await self._client.hset(self._keys.budgets(), f"{period}:{tenant}", text)

    async def remove(self, tenant: str, period: Period) -> bool:
        """Limit a tenant no more. Whether there was such a budget."""
        return bool(await self._client.hdel(self._keys.budgets(), f"{period}:{tenant}"))

    async def of(self, tenant: str) -> list[Standing]:
        """How a tenant's budgets stand; none where it has none."""
        fields = [f"{period}:{tenant}" for period in PERIODS]
        texts = await cast("Awaitable[list[bytes | None]]", self._client.hmget(self._keys.budgets(), fields))
        found = {name: text.decode() for name, text in zip(fields, texts, strict=True) if text is not None}
        return [await self._standing(tenant, account) for account in read_budgets(found).get(tenant, ())]

    async def some(self, at_most: int) -> tuple[int, list[Standing]]:
        """Return how many budgets there are, and how the first of them by their tenants' names stand.

        Where there are more than FEW, none is read: to find the first of very many, all would have to be.
        """
        stored = await self._client.hlen(self._keys.budgets())
        if not 0 < stored <= FEW:
            return stored, []
        texts = await cast("Awaitable[dict[bytes, bytes]]", self._client.hgetall(self._keys.budgets()))
        found = read_budgets({text_of(name): text_of(text) for name, text in texts.items()})
        accounts = [(tenant, account) for tenant in sorted(found) for account in found[tenant]]
        return stored, await asyncio.gather(*(self._standing(*each) for each in accounts[:at_most]))

    async def _standing(self, tenant: str, account: Account) -> Standing:
        used_and_held = await self._look(keys=[self._keys.budget(account.key)], args=[account.period])
        numbers = [int(each or 0) for each in cast("list[bytes | None]", used_and_held)]
        amounts = {}
        for at, unit in enumerate(UNITS):
            limit = getattr(account.bounds, unit)
            if limit is not None:
                scale = NANO if unit == "usd" else 1
                amounts[unit] = Amounts(limit=limit, used=numbers[at] / scale, reserved=numbers[at + 3] / scale)
        return Standing(
            tenant=tenant,
            period=account.period,
            strict=account.bounds.strict,
            resets_unix_s=resets_unix_s(account.period),
            amounts=amounts,
        )
