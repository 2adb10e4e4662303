"""Whatever is reserved, settled, lost and repeated: no strict account goes beyond, and every reservation ends."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest
from hypothesis import HealthCheck, settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from toolfleet.connections import connect_async
from toolfleet.orchestrator.budgets.ledger import Bill, Ledger, Outcome, Refused, Request, Totals
from toolfleet.orchestrator.run.accounts import Account, Bounds
from toolfleet.prices import Price
from toolfleet.settings import Settings
from toolfleet.spendings import NANO

PRICE = Price(input=1.0, output=10.0)
KEEP_S = 3600
ORCHESTRATORS = ("a", "b", "c")
RUNS = tuple(f"run{n}" for n in range(6))
INPUT_MOST = 50


class LedgerMachine(RuleBasedStateMachine):
    """Three orchestrators with leases of their own, and six runs that any of them may work on."""

    server: Settings

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.settings = self.server.model_copy(update={"namespace": f"test-{secrets.token_hex(6)}"})
        self.client = connect_async(self.settings)
        self.ledgers: dict[str, Ledger] = {}
        self.ids: list[str] = []
        self.accounts = (
            Account(name="tenant:acme", period="total", bounds=Bounds(usd=0.02, tokens=3000, strict=True)),
            Account(name="tenant:acme", period="month", bounds=Bounds(usd=1.0)),
            Account(name="run:x", bounds=Bounds(tokens=10**6, calls=20)),
        )
        self.alive: set[str] = set()
        self.held: dict[str, tuple[str, int]] = {}
        self.totals = dict.fromkeys(RUNS, Totals(0.0, 0, 0))
        self.known: set[str] = set()
        for name in ORCHESTRATORS:
            self.lives(name)

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def bill(self, run: str) -> Bill:
        return Bill(run, self.accounts, PRICE, KEEP_S)

    def token(self, run: str) -> str:
        """Another one for each reply: none comes to nothing."""
        return f"{run}-{self.totals[run]}"

    @rule(name=st.sampled_from(ORCHESTRATORS))
    def lives(self, name: str) -> None:
        if name in self.alive:
            return
        self.ids.append(f"{name}{len(self.ids)}")  # each process has an id of its own
        self.ledgers[name] = Ledger(self.client, self.settings, self.ids[-1])
        self.do(self.client.set(self.settings.keys.orchestrator(self.ids[-1]), "model"))
        self.alive.add(name)

    @rule(name=st.sampled_from(ORCHESTRATORS))
    def is_lost(self, name: str) -> None:
        """Its replies are heard by nobody, and so used by nobody."""
        self.do(self.client.delete(self.settings.keys.orchestrator(self.ledgers[name].orchestrator_id)))
        self.alive.discard(name)
        self.held = {run: held for run, held in self.held.items() if held[0] != name}

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), run=st.sampled_from(RUNS), asked=st.integers(0, 300), again=st.booleans())
    def reserves(self, data: st.DataObject, run: str, asked: int, again: bool) -> None:  # drawn
        if run in self.held:
            return
        name = data.draw(st.sampled_from(sorted(self.alive)))
        request = Request("m", 20, INPUT_MOST, asked or None)
        for _ in range(1 + again):  # an answer that is not heard is asked for again
            held = self.do(self.ledgers[name].reserve(self.bill(run), self.totals[run], request, self.token(run)))
        self.known.add(run)
        if not isinstance(held, Refused):
            assert 0 < held.max_tokens <= (asked or 10**9)
            self.held[run] = name, held.max_tokens

    @precondition(lambda self: self.held)
    @rule(data=st.data(), share=st.floats(0, 1), input_tokens=st.integers(0, INPUT_MOST), again=st.integers(1, 3))
    def settles(self, data: st.DataObject, share: float, input_tokens: int, again: int) -> None:
        run = data.draw(st.sampled_from(sorted(self.held)))
        name, most = self.held.pop(run)
        token = self.token(run)
        output, so_far = int(most * share), self.totals[run]
        calls = 1 if self.do(self.ledgers[name].judge(self.bill(run), 0.0, 0, 1, token=token)) is None else 0
        usd = so_far.usd + (input_tokens * PRICE.input + output * PRICE.output) / 1e6
        self.totals[run] = Totals(usd, so_far.tokens + input_tokens + output, so_far.calls + calls)
        request = Request("m", 20, INPUT_MOST, None)
        for _ in range(again):
            self.do(
                self.ledgers[name].settle(
                    self.bill(run),
                    self.totals[run],
                    token=self.token(run),
                    request=request,
                    outcome=Outcome(input_tokens, output),
                )
            )

    @precondition(lambda self: self.alive)
    @rule()
    def is_tended(self) -> None:
        _, owed = self.do(self.ledgers[min(self.alive)].tend())
        for run in owed:
            self.do(self.ledgers[min(self.alive)].settle(self.bill(run), self.totals[run], token="", is_owed=True))

    @invariant()
    def what_is_used_is_what_runs_have_used_and_within_the_strict_bounds(self) -> None:
        stood = self.do(self.client.hgetall(self.settings.keys.budget("tenant:acme")))
        account = {name.decode(): int(value) for name, value in stood.items()}
        assert account.get("used_tokens", 0) == sum(each.tokens for each in self.totals.values()) <= 3000
        used_usd = sum(round(each.usd * NANO) for each in self.totals.values())
        assert account.get("used_usd", 0) == pytest.approx(used_usd, abs=2 * len(RUNS))
        assert account.get("used_usd", 0) <= 0.02 * NANO
        assert account.get("held_usd", 0) >= 0
        calls = self.do(self.client.hget(self.settings.keys.budget("run:x"), "used_calls"))
        assert int(calls or 0) == sum(each.calls for each in self.totals.values()) <= 20

    def teardown(self) -> None:
        """Every reservation ends: those that are settled, and those whose holder is lost."""
        for name in ORCHESTRATORS:
            self.is_lost(name)
        self.do(self.ledgers["a"].tend())
        for account in ("tenant:acme", "run:x"):
            held = self.do(
                self.client.hmget(self.settings.keys.budget(account), ["held_usd", "held_tokens", "held_calls"])
            )
            assert [int(each or 0) for each in held] == [0, 0, 0]
        assert self.do(self.client.exists(*map(self.settings.keys.reserved, self.ids))) == 0
        keys = self.do(self.client.keys(f"{self.settings.namespace}:*"))
        if keys:
            self.do(self.client.delete(*keys))
        self.do(self.client.aclose())
        self.loop.close()


def test_G1_G6_no_strict_account_goes_beyond_and_every_reservation_ends_whoever_is_lost(settings):
    machine = type("OnThisServer", (LedgerMachine,), {"server": settings})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        machine,
        settings=hypothesis_settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=checks
        ),
    )
