"""What one key, and one tenant, may use of one API process at a time: kept in memory, decided without waiting.

What is stored for them is counted for the whole fleet, in `usage`. Nobody can use up what belongs to others.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http import HTTPStatus
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from toolfleet.orchestrator.doors.http.key_store import ApiKey, Grant
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.settings import Settings

BURST_S: Final = 2.0
"""So many seconds' worth of requests may come at once."""

READS_AT_ONCE: Final = 16
"""Answers to reads that one key is given at a time; the others wait. Each may be as large as a run."""

CALLBACKS: Final = Grant(subject="callbacks", scopes=())
"""To whom the bodies count that other systems send to signed addresses: an account of its own, and no tenant's."""

SIGN_INS: Final = Grant(subject="sign-ins", scopes=())
"""To whom those count who have yet to say who they are: they keep out each other, and nobody else."""

_NOBODYS: Final = (CALLBACKS, SIGN_INS)


class Limit(StrEnum):
    """What is limited, by the name of its setting."""

    RATE = "api_requests_per_s"
    REQUESTS = "api_requests"
    BODIES = "api_body_bytes"
    LISTENERS = "api_listeners"
    SESSIONS = "api_sessions"
    RUNNING = "api_running_runs"
    STORED = "api_stored_bytes"


WORDS: Final = {
    Limit.RATE: "requests per second",
    Limit.REQUESTS: "requests at once",
    Limit.BODIES: "bytes of requests under way",
    Limit.LISTENERS: "event streams at once",
    Limit.SESSIONS: "MCP sessions at once",
    Limit.RUNNING: "runs that have not ended",
    Limit.STORED: "bytes of stored runs and answers",
}


class Account(NamedTuple):
    """One of those that something counts against."""

    name: str
    who: str
    share: float
    """Its limits, as a multiple of one key's."""


def over(limit: Limit, account: Account, most: float, retry_after_s: float) -> Problem:
    """Make the answer to somebody who has used up a limit: its name, whose it is, and when to ask again."""
    return Problem(
        HTTPStatus.TOO_MANY_REQUESTS,
        f"this {account.who} has used up its {most:g} {WORDS[limit]} (TOOLFLEET_{limit.upper()}); "
        f"ask again in {max(1, math.ceil(retry_after_s))} s",
        code="rate-limited" if limit is Limit.RATE else "quota-exceeded",
        headers={"retry-after": str(max(1, math.ceil(retry_after_s)))},
        limit=limit.value,
        of=account.who,
        most=most,
    )


class Holding:
    """What one request has taken of a limit, until it is given back."""

    def __init__(self, quotas: Quotas, grant: Grant, limit: Limit) -> None:
        self._quotas = quotas
        self._grant = grant
        self._limit = limit
        self._amount = 0

    def take(self, amount: int = 1) -> None:
        """Take more. Raises Problem, and has taken nothing then."""
        self._quotas.take(self._grant, self._limit, amount)
        self._amount += amount

    def give_back(self) -> None:
        """Give back all. Again, it does nothing."""
        self._quotas.give_back(self._grant, self._limit, self._amount)
        self._amount = 0


class Quotas:
    """Counts what is in use in this process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._used: Counter[tuple[str, Limit]] = Counter()
        self._buckets: dict[str, tuple[float, float]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def accounts(self, grant: Grant) -> tuple[Account, ...]:
        """Return against whom a request counts: its key and its tenant. Keys without a tenant share what is nobody's.

        Callbacks count against one account, since no key and no tenant sends them, and so do those who sign in.
        """
        if any(grant is each for each in _NOBODYS):
            return (Account(grant.owner, "server", self._settings.api_tenant_share),)
        return (
            Account(grant.owner, "key", 1.0),
            Account(f"tenant {grant.tenant}", "tenant", self._settings.api_tenant_share),
        )

    def most(self, limit: Limit, account: Account) -> float:
        """Return how much an account may use."""
        per_key: float = getattr(self._settings, limit)
        return per_key * account.share

    def count(self, grant: Grant) -> None:
        """Count a request. Raises Problem for one too many in this second."""
        now_s = time.monotonic()
        accounts = self.accounts(grant)
        # A key with a rate of its own is held to that, by all processes together (`Keyring.wait_s`).
        has_its_own = isinstance(grant, ApiKey) and grant.rate_per_s is not None
        for account in accounts[1:] if has_its_own else accounts:
            rate = self.most(Limit.RATE, account)
            tokens, then_s = self._buckets.get(account.name, (rate * BURST_S, now_s))
            tokens = min(rate * BURST_S, tokens + (now_s - then_s) * rate)
            if tokens < 1:
                raise over(Limit.RATE, account, rate, (1 - tokens) / rate)
            self._buckets[account.name] = tokens - 1, now_s

    def take(self, grant: Grant, limit: Limit, amount: int = 1) -> None:
        """Take some of a limit. Raises Problem where there is not so much left, and has taken nothing then."""
        accounts = self.accounts(grant)
        for account in accounts:
            if self._used[account.name, limit] + amount > (most := self.most(limit, account)):
                raise over(limit, account, most, 1)
        for account in accounts:
            self._used[account.name, limit] += amount

    def give_back(self, grant: Grant, limit: Limit, amount: int = 1) -> None:
        """Give back what was taken."""
        for account in self.accounts(grant):
            self._used[account.name, limit] -= amount
            if self._used[account.name, limit] <= 0:
                del self._used[account.name, limit]

    def holding(self, grant: Grant, limit: Limit, amount: int = 0) -> Holding:
        """Return what a request will take of a limit, with so much of it taken. Raises Problem."""
        held = Holding(self, grant, limit)
        held.take(amount)
        return held

    @contextmanager
    def held(self, grant: Grant, limit: Limit, amount: int = 1) -> Iterator[None]:
        """Hold some of a limit to the end of the block. Raises Problem."""
        held = self.holding(grant, limit, amount)
        try:
            yield
        finally:
            held.give_back()

    def turns(self, grant: Grant) -> asyncio.Semaphore:
        """Return what the reads of a key wait for."""
        found = self._turns.get(grant.owner)
        if found is None:
            found = self._turns[grant.owner] = asyncio.Semaphore(READS_AT_ONCE)
        return found
