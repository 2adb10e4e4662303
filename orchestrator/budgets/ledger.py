"""The accounts of budgets in Redis: five scripts and what they are asked. Amounts are whole: dollars in billionths.

Every script takes a run's totals, not what was added: to book them again adds nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final, NamedTuple, cast

import redis.asyncio
from pydantic import TypeAdapter, ValidationError
from redis.commands.core import AsyncScript

from toolfleet.orchestrator.run.accounts import Account
from toolfleet.prices import Price
from toolfleet.replies import CLOCK
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.spendings import nano

RESERVE: Final = lua(__package__, "accounts", "reserve", before=CLOCK)
SETTLE: Final = lua(__package__, "accounts", "settle", before=CLOCK)
JUDGE: Final = lua(__package__, "accounts", "judge", before=CLOCK)
TEND: Final = lua(__package__, "accounts", "tend", before=CLOCK)
FORGET: Final = lua(__package__, "accounts", "forget", before=CLOCK)

REMEMBER_S: Final = 30 * 24 * 3600
TENDED_AT_ONCE: Final = 100
UNBOUND: Final = -1


class Totals(NamedTuple):
    """All that a run has used itself so far, without the runs below it."""

    usd: float
    tokens: int
    calls: int

    @property
    def whole(self) -> tuple[int, int, int]:
        """The same in the units of the accounts."""
        return nano(self.usd), self.tokens, self.calls


class Request(NamedTuple):
    """What a model is about to be asked, as far as it says what that will cost."""

    model: str
    size_bytes: int
    most_tokens: int
    """More input tokens than any model makes of it."""
    max_tokens: int | None
    """The bound that the reply has anyway."""
    turn: int = 0
    """The turn of its run that is asked for."""
    may_go_beyond: bool = False
    """Whether accounts that are not strict take it though they are used up: each of them once in a run."""


class Bill(NamedTuple):
    """Which run counts against what."""

    run_id: str
    accounts: tuple[Account, ...]
    price: Price | None
    keep_s: int
    """How long it is kept what of the run is booked."""


class Refused(NamedTuple):
    """Why a reply or its calls do not fit into an account."""

    account: Account
    unit: str
    bound: int
    is_only_held: bool = False
    """Whether it would fit, were it not for replies that others still wait for."""
    left: int = 0
    """How many of the calls would fit, where there are too many."""


class Used(NamedTuple):
    """What of one account's limit is used, once that is four fifths of it."""

    account: Account
    unit: str
    used: int


class Held(NamedTuple):
    """What is held for a reply."""

    max_tokens: int = 0
    """The bound that the reply must have so that no strict account is exceeded; 0 where it needs none."""
    beyond: Refused | None = None
    """The account beyond which it goes all the same."""
    low: tuple[Used, ...] = ()
    """What of its accounts is nearly used up."""


class Heard(NamedTuple):
    """What a reply has come to that is in no history."""

    usd: float = 0.0
    tokens: int = 0


class Outcome(NamedTuple):
    """What a reply has come to, as far as its provider has said so."""

    input_tokens: int = 0
    output_tokens: int = 0
    is_cut: bool = False
    """Whether its bound has cut it off."""
    is_interrupted: bool = False
    """Whether its connection broke: its provider knows what it came to, and nobody here."""

    @property
    def is_reported(self) -> bool:
        """Whether the provider has said anything."""
        return self.input_tokens + self.output_tokens > 0

    @property
    def teaches(self) -> bool:
        """Whether other replies may be expected to come to as much."""
        return self.is_reported and not self.is_interrupted


BILL: Final = TypeAdapter(Bill)

UNITS: Final = ("usd", "tokens", "calls")


class Ledger:
    """Asks Redis about accounts. Every method raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, orchestrator_id: str) -> None:
        self.settings = settings
        self.orchestrator_id = orchestrator_id
        self._client = client
        self._reserve, self._settle, self._judge, self._tend, self._forget = (
            client.register_script(text) for text in (RESERVE, SETTLE, JUDGE, TEND, FORGET)
        )

    async def reserve(self, bill: Bill, totals: Totals, request: Request, token: str) -> Held | Refused:
        """Hold what the reply is expected to come to in all accounts, or in none; the hold is called `token`.

        What is held for the run here by another name is given back first.
        """
        keys = self.settings.keys
        reply = await self._eval(
            self._reserve,
            [
                *(keys.reserved(self.orchestrator_id), keys.reserving(), keys.booked(bill.run_id)),
                *(keys.reply_costs(request.model), *self._keys_of(bill.accounts)),
            ],
            [
                *(
                    self.orchestrator_id,
                    bill.run_id,
                    keys.orchestrator(""),
                    keys.reserved(""),
                    keys.unbooked(),
                    bill.keep_s,
                ),
                *(*totals.whole, request.size_bytes, request.most_tokens),
                *(
                    (0, 0)
                    if bill.price is None
                    else (bill.price.dearest_input * 1000, bill.price.dearest_output * 1000)
                ),
                *(request.max_tokens or 0, token, int(request.may_go_beyond), request.turn),
                *(BILL.dump_json(bill), *_told(bill.accounts)),
            ],
        )
        if int(reply[0]):
            _, bound, beyond, low = reply
            at = Refused(bill.accounts[int(beyond[0]) - 1], text_of(beyond[1]), int(beyond[2])) if beyond else None
            used = (
                Used(bill.accounts[int(place) - 1], text_of(unit), int(amount))
                for place, unit, amount in zip(low[::3], low[1::3], low[2::3], strict=True)
            )
            return Held(int(bound), at, tuple(used))
        _, why, place, unit, bound = reply
        return Refused(bill.accounts[int(place) - 1], text_of(unit), int(bound), is_only_held=text_of(why) == "held")

    async def settle(
        self,
        bill: Bill,
        totals: Totals,
        *,
        token: str,
        request: Request | None = None,
        outcome: Outcome | None = None,
        heard: Heard | None = None,
        is_owed: bool = False,
    ) -> None:
        """Book what the run has used, once however often it is said, and give back what is held under this name.

        Of the `outcome` is learnt what replies of this model come to. `heard` is booked besides, once for each hold; or
        as much as was held, where nobody said what the reply came to.
        """
        keys, came_to, besides = self.settings.keys, outcome or Outcome(), heard or Heard()
        is_unreported = outcome is not None and not outcome.is_reported
        await self._eval(
            self._settle,
            [
                *(keys.reserved(self.orchestrator_id), keys.booked(bill.run_id)),
                *(keys.reply_costs(request.model if request else ""), keys.unbooked(), *self._keys_of(bill.accounts)),
            ],
            [
                *(bill.run_id, bill.keep_s, *totals.whole, request.size_bytes if request else 0),
                *(came_to.input_tokens, came_to.output_tokens if came_to.teaches else -1, REMEMBER_S, int(is_owed)),
                *(token, nano(besides.usd), besides.tokens, int(came_to.is_cut), int(is_unreported)),
                *_told(bill.accounts),
            ],
        )

    async def judge(self, bill: Bill, usd: float, tokens: int, calls: int, *, token: str) -> Refused | None:
        """Hold the calls of a reply in all accounts, once however often it is asked.

        Refused when the reply or its calls go beyond one of them.
        """
        keys = self.settings.keys
        reply = await self._eval(
            self._judge,
            [keys.reserved(self.orchestrator_id), keys.reserving(), *self._keys_of(bill.accounts)],
            [self.orchestrator_id, bill.run_id, bill.keep_s, nano(usd), tokens, calls, token, *_told(bill.accounts)],
        )
        if int(reply[0]):
            return None
        _, place, unit, bound, left = reply
        return Refused(bill.accounts[int(place) - 1], text_of(unit), int(bound), left=int(left))

    async def tend(self) -> tuple[dict[str, str], list[str]]:
        """Give back what lost orchestrators held. The budgets that are set, and some runs that are to be booked."""
        keys = self.settings.keys
        budgets, owed = await self._eval(
            self._tend,
            [keys.budgets(), keys.reserving(), keys.unbooked()],
            [keys.reserved(""), keys.orchestrator(""), TENDED_AT_ONCE],
        )
        texts = [text_of(each) for each in budgets]
        return dict(zip(texts[::2], texts[1::2], strict=True)), [text_of(run_id) for run_id in owed]

    async def bill_of(self, run_id: str) -> Bill | None:
        """What a run counts against, as whoever asked its model last had it; None where nothing is known any more."""
        text = await cast("Awaitable[bytes | None]", self._client.hget(self.settings.keys.booked(run_id), "bill"))
        try:
            return None if text is None else BILL.validate_json(text)
        except ValidationError as error:
            skip("bill", f"{run_id}: {error}")
            return None

    async def forget(self, run_id: str) -> None:
        """Book a run no more, because it cannot be read, and give back what is held for it here."""
        keys = self.settings.keys
        await self._forget(keys=[keys.reserved(self.orchestrator_id), keys.unbooked()], args=[run_id])

    def _keys_of(self, accounts: Sequence[Account]) -> list[str]:
        return [self.settings.keys.budget(account.key) for account in accounts]

    async def _eval(self, script: AsyncScript, keys: list[str], args: list[Any]) -> list[Any]:
        return cast("list[Any]", await script(keys=keys, args=args))


def _told(accounts: Sequence[Account]) -> list[str | int]:
    told: list[str | int] = []
    for account in accounts:
        bounds = account.bounds
        told += [
            account.period,
            UNBOUND if bounds.usd is None else nano(bounds.usd),
            UNBOUND if bounds.tokens is None else bounds.tokens,
            UNBOUND if bounds.calls is None else bounds.calls,
            int(bounds.strict),
        ]
    return told
