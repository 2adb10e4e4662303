"""What a run must ask before it asks its model, and tell afterwards; nothing where no budget is concerned.

A run's own history says what it has used. So what an orchestrator could not book before it was lost is booked by
whoever goes on with the run or, where that has ended, by whoever notices (`tending.py`): each time all of it, which
adds nothing where it was booked before.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, cast

from toolfleet.errors import StoreUnreachable
from toolfleet.messages import Message, Usage
from toolfleet.metrics.of_runs import RUNS
from toolfleet.orchestrator.budgets.ledger import (
    Bill,
    Heard,
    Held,
    Ledger,
    Outcome,
    Refused,
    Request,
    Totals,
    Used,
)
from toolfleet.orchestrator.budgets.periods import resets_text, resets_unix_s
from toolfleet.orchestrator.budgets.price_list import must_be_known, price_of
from toolfleet.orchestrator.budgets.tenants import TenantBudgets, account_of
from toolfleet.orchestrator.errors import BudgetSpent, BudgetSpentForNow
from toolfleet.orchestrator.run.accounts import Account, Bounds, tree_accounts
from toolfleet.orchestrator.run.limits import Reached, own_usage, too_expensive
from toolfleet.orchestrator.run.nearly_spent import LONGEST_REMINDER, OWN, Left, Unit, least, left_of, own_left
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run
from toolfleet.outages import while_it_may_be_away
from toolfleet.prices import Price
from toolfleet.spendings import NANO, nano
from toolfleet.tool import ToolSpec

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 1.0
"""How soon a reply is tried again that would fit, were it not for others that have not ended."""

BUDGET: Final = "budget"

AWAY_MAX_S: Final = 60.0
"""As for a write to a run's history."""

BYTES_OF_A_MESSAGE, BYTES_OF_A_TOOL, BYTES_OF_A_REQUEST, TOKENS_OF_AN_IMAGE = 32, 128, 512, 5000
"""What providers add of their own, in tokens at most: a token is one byte at least."""


class AgentsBelow(Protocol):
    """The agents of an orchestrator, as far as budgets ask for them."""

    def may_be_asked_by(self, run: Run) -> bool:
        """Whether the run may begin runs of agents."""
        ...

    def models_below(self, tools: Sequence[str] | None) -> list[str]:
        """The names of the models of their own that the agents among these tools have."""
        ...


class Reply(Protocol):
    """A reply of a model, as far as budgets ask for it."""

    @property
    def usage(self) -> Usage:
        """What its provider says it has come to."""
        ...

    @property
    def finish_reason(self) -> str:
        """Why it ended."""
        ...


class Fate(StrEnum):
    """What has become of a reply."""

    UNSTORED = "unstored"
    IN_DOUBT = "in doubt"
    """It was being stored when something went wrong."""
    STORED = "stored"


@dataclass(frozen=True, slots=True)
class Reserved:
    """What is held for one reply."""

    bill: Bill
    request: Request
    token: str
    """What the hold is called."""
    max_tokens: int | None
    """The bound that the reply must have, so that no strict account is exceeded; None where it needs none."""
    low: tuple[Left, ...] = ()
    """What is left of accounts that are nearly used up."""

    def bound_of(self, options: Mapping[str, Any]) -> dict[str, int]:
        """The bound, under the name that these options have for it."""
        if self.max_tokens is None:
            return {}
        name = "max_completion_tokens" if "max_completion_tokens" in options else "max_tokens"
        return {name: self.max_tokens}


class Fewer(NamedTuple):
    """Not all calls of a reply may be made, and its run goes on without the others."""

    reason: str
    left: int
    """How many may be made."""


class Owed(NamedTuple):
    """What is still to be done for a run that something is held for here."""

    token: str
    heard: Heard = Heard()
    """What its reply has come to, where that is in no history."""
    turn: int | None = None
    """The turns of the run before that reply, where nobody knows whether it was stored after all."""

    def unstored(self, run: Run) -> Heard:
        """What is to be booked besides the run's history."""
        return self.heard if self.turn is None or run.turn <= self.turn else Heard()


@dataclass(slots=True)
class Spending:
    """The budgets, as the runs of one orchestrator meet them."""

    ledger: Ledger
    prices: Mapping[str, Price]
    agents: AgentsBelow
    budgets: TenantBudgets
    tenants: dict[str, tuple[Account, ...]] = field(default_factory=dict)
    """The accounts of tenants that have a budget; kept up by whoever tends them."""
    owed: dict[str, Owed] = field(default_factory=dict)
    """By run, what may be held for it, or used by it, that nobody here will settle."""

    def accounts_of(self, run: Run) -> tuple[Account, ...]:
        """Everything that the run counts against in Redis; mostly nothing.

        A run that is alone under its own limits is not among them: its history says all about those.
        """
        own = () if not self._shares(run) else tree_accounts(run)
        return own + self.tenants.get(run.terms.tenant, ()) if self.tenants else own

    def _shares(self, run: Run) -> bool:
        terms = run.terms
        if terms.accounts:
            return True
        if terms.limits.tokens is None and terms.limits.cost is None:
            return False
        return terms.limits.strict or self.agents.may_be_asked_by(run)

    def price_for(self, model: str) -> Price | None:
        """What a model costs; None where nobody has said."""
        return price_of(model, self.prices)

    async def price_at_start(self, model: str, terms: RunTerms) -> Price | None:
        """The price to keep with a run whose cost is limited, None for any other.

        Raises UnknownPrice, for its agents' own models too, BudgetSpent where its tenant's budget leaves nothing, and
        StoreUnreachable.
        """
        accounts = self.tenants.get(terms.tenant, ())
        is_limited = terms.limits.cost is not None
        await self.must_be_left(terms.tenant)
        if not is_limited and all(account.bounds.usd is None for account in accounts):
            return None
        whose = "this run's limit on cost" if is_limited else f"the budget of tenant {terms.tenant}"
        for other in self.agents.models_below(terms.tools):
            must_be_known(other, self.price_for(other), whose)
        return must_be_known(model, self.price_for(model), whose)

    async def must_be_left_for(self, run: Run) -> None:
        """Raises BudgetSpent where a run that is to go on has nothing left to do so, and StoreUnreachable."""
        if (spent := too_expensive(run)) is not None:
            raise BudgetSpent(f"run {run.run_id} cannot go on: {spent[1]}")
        await self.must_be_left(run.terms.tenant)

    async def must_be_left(self, tenant: str) -> None:
        """Raises BudgetSpent where a tenant's budget leaves nothing, and StoreUnreachable."""
        if tenant not in self.tenants:
            return
        for standing in await self.budgets.of(tenant):
            for unit, amounts in standing.amounts.items():
                if amounts.used >= amounts.limit:
                    bound = nano(amounts.limit) if unit == "usd" else int(amounts.limit)
                    bounds = Bounds.model_validate({unit: amounts.limit})
                    raise _spent(Refused(account_of(tenant, standing.period, bounds), unit, bound))

    async def reserve(
        self,
        run: Run,
        model: str,
        messages: Sequence[Message],
        offered: Mapping[str, ToolSpec],
        *,
        is_last: bool,
    ) -> tuple[Reserved | None, Reached | None]:
        """Hold what the next reply is expected to cost, nothing where no budget is concerned.

        Waits while it is only for replies that others wait for that it does not fit. Where an account that is not
        strict has nothing left, but the run may wrap up, it is held all the same, and what is used up is returned.
        Raises BudgetSpent, UnknownPrice, StoreUnreachable.
        """
        accounts = self.accounts_of(run)
        if not accounts:
            return None, None
        price = run.terms.price or self.price_for(model)
        if any(account.bounds.usd is not None for account in accounts):
            must_be_known(model, price, f"the budget of {run.terms.tenant or 'this run'}")
        may_go_beyond = is_last or run.terms.limits.at(BUDGET) == "wrap_up"
        asked = (*messages, LONGEST_REMINDER) if run.terms.limits.tell_left else messages
        request = _request(model, asked, offered, run.terms.model_options)
        request = request._replace(turn=run.turn, may_go_beyond=may_go_beyond)
        bill, token = self._bill(run, accounts, price), secrets.token_hex(8)
        await self._settle_owed(run)
        held = await self._hold(bill, _totals(run, price), request, token)
        over = None
        if held.beyond is not None:
            RUNS.budget_refusals += 1
            over = Reached(_said(held.beyond), wraps_up=True)
        low = tuple(left for used in held.low for left in _left(used))
        return Reserved(bill, request, token, held.max_tokens or None, low), over

    async def _hold(self, bill: Bill, totals: Totals, request: Request, token: str) -> Held:
        """What is held once it is not only others' replies that stand against this one. Raises BudgetSpent."""
        pause_s = FIRST_PAUSE_S
        with self.owed_unless_heard(bill.run_id, Owed(token)):
            while True:
                held = await while_it_may_be_away(
                    lambda: self.ledger.reserve(bill, totals, request, token), for_s=AWAY_MAX_S
                )
                if isinstance(held, Held):
                    return held
                if not held.is_only_held:
                    break
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
        raise _spent(held)

    async def _settle_owed(self, run: Run) -> None:
        """Book what an earlier reply of the run has come to that was not stored."""
        owed = self.owed.get(run.run_id)
        if owed is not None and any(owed.heard):
            await while_it_may_be_away(lambda: self.book_owed(run, owed), for_s=AWAY_MAX_S)
        self.owed.pop(run.run_id, None)  # what may be held for it is given back when the next reply is held

    @contextmanager
    def owed_unless_heard(self, run_id: str, owed: Owed) -> Iterator[None]:
        """Have a run looked after by whoever tends the budgets, unless the block ends: who knows what is held then."""
        has_ended = False
        try:
            yield
            has_ended = True
        finally:
            if not has_ended:
                self.owed[run_id] = owed

    async def judge(self, run: Run, reserved: Reserved, usage: Usage, calls: int) -> Reached | Fewer | None:
        """What stands against the calls of a reply, None if they may be sent. Raises StoreUnreachable."""
        bill = reserved.bill
        usd, tokens = _cost(bill.price, usage), usage.total_tokens
        refused = await while_it_may_be_away(
            lambda: self.ledger.judge(bill, usd, tokens, calls, token=reserved.token), for_s=AWAY_MAX_S
        )
        if refused is None:
            return None
        # Of the calls of its tree a run says what is done, as of its own.
        is_of_tree = refused.unit == "calls" and not refused.account.name.startswith("tenant:")
        then = run.terms.limits.at("calls" if is_of_tree else BUDGET)
        return Fewer(_said(refused), refused.left) if then == "tell" else Reached(_said(refused), then == "wrap_up")

    async def settle(self, run: Run, reserved: Reserved, reply: Reply | None, fate: Fate) -> None:
        """Book what the run has used by now, and give back what is held. A Redis that is away is told later.

        A reply that will never be in the run's history is booked all the same; one that may be, by whoever tends.
        """
        price, heard = reserved.bill.price, Heard()
        if reply is not None and fate is not Fate.STORED:
            heard = Heard(_cost(price, reply.usage), reply.usage.total_tokens)
        totals = _totals(run, price)
        if fate is Fate.IN_DOUBT:
            self.owed[run.run_id] = Owed(reserved.token, heard, reserved.request.turn)
            return
        with suppress(StoreUnreachable), self.owed_unless_heard(run.run_id, Owed(reserved.token, heard)):
            await self.ledger.settle(
                reserved.bill,
                totals,
                token=reserved.token,
                request=reserved.request,
                outcome=None if reply is None else _outcome(reply),
                heard=heard,
            )

    def note_end(self, run: Run) -> None:
        """Have what tools have spent since its last reply booked by whoever tends the budgets."""
        if run.spent_by_tools and self.accounts_of(run):
            self.owed.setdefault(run.run_id, Owed(""))

    async def book_lost(self, run: Run) -> None:
        """Book what a run has used whose orchestrator was lost. Raises StoreUnreachable."""
        await self._book(run, Owed(""), is_owed=True)

    async def book_owed(self, run: Run, owed: Owed) -> None:
        """Book what a run has used, and give back what this orchestrator holds for it. Raises StoreUnreachable."""
        await self._book(run, owed, is_owed=False)

    async def _book(self, run: Run, owed: Owed, *, is_owed: bool) -> None:
        # Whoever asked its model knew what it counts against, and what that model costs; here both may be unknown.
        bill = await self.ledger.bill_of(run.run_id)
        if bill is None:
            await self.ledger.forget(run.run_id)
            return
        totals = _totals(run, bill.price)
        await self.ledger.settle(bill, totals, token=owed.token, heard=owed.unstored(run), is_owed=is_owed)

    def _bill(self, run: Run, accounts: tuple[Account, ...], price: Price | None) -> Bill:
        settings = self.ledger.settings
        kept_s = (settings.keep_unfinished_s, settings.keep_done_s, settings.keep_failed_s, settings.keep_cancelled_s)
        # As long as the run can go on: without it all that it has used would be nobody's.
        return Bill(run.run_id, accounts, price, int(max(*kept_s, run.terms.keep_s or 0.0)) + 1)


def _totals(run: Run, price: Price | None) -> Totals:
    usage = own_usage(run)
    return Totals(_cost(price, usage) + sum(run.spent_by_tools.values()), usage.total_tokens, run.tally.made)


def _cost(price: Price | None, usage: Usage) -> float:
    return 0.0 if price is None else price.of(usage)


def _outcome(reply: Reply) -> Outcome:
    usage, end = reply.usage, reply.finish_reason
    return Outcome(usage.input_tokens, usage.output_tokens, end == "length", end == "interrupted")


def _request(
    model: str, messages: Sequence[Message], offered: Mapping[str, ToolSpec], options: Mapping[str, Any]
) -> Request:
    size = sum(len(message.model_dump_json().encode()) for message in messages)
    size += sum(
        len(spec.name.encode()) + len(spec.description.encode()) + len(str(spec.input_schema).encode())
        for spec in offered.values()
    )
    images = sum(len(getattr(each, "images", ())) + len(getattr(each, "media", ())) for each in messages)
    added = BYTES_OF_A_REQUEST + BYTES_OF_A_MESSAGE * len(messages) + BYTES_OF_A_TOOL * len(offered)
    bounds = [options.get(name) for name in ("max_tokens", "max_completion_tokens")]
    known = [bound for bound in bounds if isinstance(bound, int)]
    return Request(model, size, size + added + TOKENS_OF_AN_IMAGE * images, min(known, default=None))


def what_is_left(run: Run, reserved: Reserved | None) -> tuple[Left, ...]:
    """What is left of each budget of the run that is nearly used up: its own, its tree's and its tenant's."""
    return least((*own_left(run), *(reserved.low if reserved else ())))


def _left(used: Used) -> tuple[Left, ...]:
    account, unit = used.account, cast("Unit", used.unit)
    amount = used.used / NANO if unit == "usd" else used.used
    return left_of(_owner(account), unit, amount, getattr(account.bounds, unit))


def _owner(account: Account) -> str:
    """Whose an account is, as people and models are told."""
    is_tenants = account.name.startswith("tenant:")
    return f"tenant {account.name.removeprefix('tenant:')}{resets_text(account.period)}" if is_tenants else OWN


def _spent(refused: Refused) -> BudgetSpent:
    RUNS.budget_refusals += 1
    resets = resets_unix_s(refused.account.period)
    return BudgetSpent(_said(refused)) if resets is None else BudgetSpentForNow(_said(refused), resets)


def _said(refused: Refused) -> str:
    name = refused.account.name
    amount = f"${refused.bound / NANO:g}" if refused.unit == "usd" else f"{refused.bound} {refused.unit}"
    if not name.startswith("tenant:"):
        return f"the limit of {amount} is reached by this run and its agents"
    whose = name.removeprefix("tenant:")
    return f"the budget of {amount}{resets_text(refused.account.period)} of tenant {whose} is used up"
