"""What a model's tokens cost. Values only: which model has which price is said in `toolfleet.orchestrator.budgets`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from toolfleet.calls import Record
from toolfleet.messages import Usage

PerMillion = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""US dollars per million tokens."""


class Price(Record):
    """US dollars per million tokens; what is left out costs as much as the plain kind."""

    input: PerMillion
    output: PerMillion
    cached_input: PerMillion | None = None
    """Of input tokens that the provider has read from its cache."""
    cache_write: PerMillion | None = None
    """Of input tokens that it has written to its cache."""
    reasoning: PerMillion | None = None
    """Of output tokens that were thoughts."""

    def of(self, usage: Usage) -> float:
        """What so many tokens cost, in US dollars."""
        cached = usage.input_details.get("cached_tokens", 0)
        written = usage.input_details.get("cache_write_tokens", 0)
        thoughts = usage.output_details.get("reasoning_tokens", 0)
        return (
            max(0, usage.input_tokens - cached - written) * self.input
            + cached * _or(self.cached_input, self.input)
            + written * _or(self.cache_write, self.input)
            + max(0, usage.output_tokens - thoughts) * self.output
            + thoughts * _or(self.reasoning, self.output)
        ) / 1e6

    @property
    def dearest_input(self) -> float:
        """The most that a million input tokens may cost."""
        return max(self.input, _or(self.cache_write, 0.0), _or(self.cached_input, 0.0))

    @property
    def dearest_output(self) -> float:
        """The most that a million output tokens may cost."""
        return max(self.output, _or(self.reasoning, 0.0))


def dearest(prices: Sequence[Price]) -> Price:
    """A price that is less than none of these, whatever the tokens are."""
    return Price(
        input=max(price.input for price in prices),
        output=max(price.output for price in prices),
        cached_input=max(_or(price.cached_input, price.input) for price in prices),
        cache_write=max(_or(price.cache_write, price.input) for price in prices),
        reasoning=max(_or(price.reasoning, price.output) for price in prices),
    )


def _or(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price
