"""What is stored for a key and for a tenant, counted for the whole fleet in Redis: runs that go on, and bytes.

A run counts while it has not ended, its bytes (those of the requests that made it) for as long as it is stored.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import redis.asyncio

from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.quotas import Account, Limit, Quotas, over
from toolfleet.orchestrator.run.states import State
from toolfleet.scripts import lua
from toolfleet.settings import Settings

ADMIT: Final = lua(__package__, "admit")

REFUSED_FOR_S: Final = 1.0
"""Whoever was refused is not looked at again for so long, unless they ask for less.

Looking costs Redis more than asking costs them.
"""

ENDED: Final = ",".join(state for state in State if state.is_terminal)


class _Refusal(NamedTuple):
    """The last thing that an account was refused."""

    at_s: float
    limit: Limit
    size_bytes: int

    def holds_for(self, size_bytes: int) -> bool:
        """Whether this would be refused too: one run too many is one whatever its size, and a smaller one may fit."""
        is_fresh = time.monotonic() < self.at_s + REFUSED_FOR_S
        return is_fresh and (self.limit is Limit.RUNNING or size_bytes >= self.size_bytes)


class Usage:
    """Admits what is to be stored. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, quotas: Quotas) -> None:
        self._settings = settings
        self._quotas = quotas
        self._admit = client.register_script(ADMIT)
        self._refused: dict[str, _Refusal] = {}

    async def admit_run(self, grant: Grant, run_id: str, size_bytes: int) -> None:
        """Count a run that is about to be begun, or to go on. Raises Problem for one too many, or too large."""
        accounts = self._quotas.accounts(grant)
        for account in accounts:
            last = self._refused.get(account.name)
            if last is not None and last.holds_for(size_bytes):
                raise self._over(last.limit, account)
        refused = await self._ask(accounts, self._settings.keys.head(run_id), size_bytes, is_run=True)
        if refused is not None:
            limit, account = refused
            self._refused[account.name] = _Refusal(time.monotonic(), limit, size_bytes)
            raise self._over(limit, account)

    async def note(self, grant: Grant, key: str, size_bytes: int) -> None:
        """Count what has been stored under a key of Redis. Never refuses: who is over the limit begins nothing more."""
        await self._ask(self._quotas.accounts(grant), key, size_bytes, is_run=False)

    async def _ask(
        self, accounts: Sequence[Account], key: str, size_bytes: int, *, is_run: bool
    ) -> tuple[Limit, Account] | None:
        keys = self._settings.keys
        names = [hashlib.sha256(account.name.encode()).hexdigest()[:32] for account in accounts]
        most = [
            int(self._quotas.most(limit, account)) for account in accounts for limit in (Limit.RUNNING, Limit.STORED)
        ]
        reply = cast(
            "int",
            await self._admit(
                keys=[each for name in names for each in (keys.running(name), keys.stored(name), keys.sizes(name))],
                args=[key, size_bytes, int(is_run), int(self._settings.keep_unfinished_s), ENDED, *most],
            ),
        )
        return None if reply == 0 else ((Limit.RUNNING, Limit.STORED)[(reply - 1) % 2], accounts[(reply - 1) // 2])

    def _over(self, limit: Limit, account: Account) -> Exception:
        return over(limit, account, self._quotas.most(limit, account), 5)
