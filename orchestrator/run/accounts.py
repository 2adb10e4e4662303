"""What counts against what: the accounts of a budget, and those that the runs of one tree share. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import quote

from pydantic import BeforeValidator, Field, model_validator

from toolfleet.calls import Record

if TYPE_CHECKING:
    from toolfleet.orchestrator.run.value import Run

MOST_USD: Final = 1_000_000.0
"""More than this is counted in another unit: sums of a billionth of a dollar must stay exact in Redis' scripts."""

MOST: Final = 10**15


def no_truth_value(wanted: str) -> BeforeValidator:
    """A check that refuses true and false where `wanted` is, which Python takes for 1 and 0."""

    def check(value: object) -> object:
        if isinstance(value, bool):
            raise ValueError(f"must be {wanted}, but is {value}")  # noqa: TRY004  # pydantic hears only this one
        return value

    return BeforeValidator(check)


Dollars = Annotated[float, Field(gt=0, le=MOST_USD, allow_inf_nan=False), no_truth_value("a number")]
Amount = Annotated[int, Field(ge=1, le=MOST), no_truth_value("a number")]

Period = Literal["", "total", "day", "month"]
"""After which an account begins anew, in UTC: "total" for a tenant's that never does, "" for that of a run."""


class Bounds(Record):
    """What may be used up; None: without limit. At least one is given."""

    usd: Dollars | None = None
    tokens: Amount | None = None
    """Input and output tokens together, as the provider counts them."""
    calls: Amount | None = None
    strict: bool = False
    """Never go beyond: each reply is bounded by what is left. Otherwise the last reply may."""

    @model_validator(mode="after")
    def _bounds_something(self) -> Bounds:
        if self.usd is None and self.tokens is None and self.calls is None:
            raise ValueError("needs usd, tokens or calls: a budget without any bounds nothing")
        return self


class Account(Record):
    """Something that replies and calls count against, by the name that people know it by."""

    name: str
    bounds: Bounds
    period: Period = ""

    @property
    def key(self) -> str:
        """What it is kept under; the date of a period is added to that, behind a colon."""
        kind, _, name = self.name.partition(":")
        # A tenant may be called what another one's account of a day is.
        return f"{kind}:{quote(name, safe='')}" if kind == "tenant" else self.name


def tree_accounts(run: Run) -> tuple[Account, ...]:
    """What a run shares with the runs of its agents; none of a run that has no limit on tokens or cost.

    A run of an agent has those of the run that began it, and one of its own where its own limits are strict.
    Calls count anew each time the user speaks, as in `Limits`.
    """
    limits, above = run.terms.limits, run.terms.accounts
    if limits.tokens is None and limits.cost is None:
        return above
    bounds = Bounds(usd=limits.cost, tokens=limits.tokens, strict=limits.strict)
    own = Account(name=f"run:{run.run_id}", bounds=bounds)
    if above:
        return (*above, own) if limits.strict else above
    accounts = [own]
    if limits.calls is not None:
        accounts.append(Account(name=f"run:{run.run_id}:answer-{run.turns_before}", bounds=Bounds(calls=limits.calls)))
    return tuple(accounts)
