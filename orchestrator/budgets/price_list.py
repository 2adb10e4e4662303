"""What models cost unless the settings say otherwise, in US dollars per million tokens. Nothing is fetched at run time.

From the data of genai-prices 0.2.3 (MIT), by the providers' own names; where a provider has steps, its lowest. Those
alone whose cost is the same for all: who serves a model elsewhere, or has a contract, says so in `TOOLFLEET_PRICES`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from toolfleet.orchestrator.errors import UnknownPrice
from toolfleet.prices import Price, dearest


def _openai(price: float, output: float, cached: float) -> Price:
    return Price(input=price, output=output, cached_input=cached)


def _claude(price: float, output: float) -> Price:
    # Anthropic's cache costs a tenth to read, and a quarter more to write, of every model.
    return Price(input=price, output=output, cached_input=price / 10, cache_write=price * 1.25)


PRICES: Final[Mapping[str, Price]] = {
    "gpt-5": _openai(1.25, 10, 0.125),
    "gpt-5-mini": _openai(0.25, 2, 0.025),
    "gpt-5-nano": _openai(0.05, 0.4, 0.005),
    "gpt-5.1": _openai(1.25, 10, 0.125),
    "gpt-4.1": _openai(2, 8, 0.5),
    "gpt-4.1-mini": _openai(0.4, 1.6, 0.1),
    "gpt-4.1-nano": _openai(0.1, 0.4, 0.025),
    "gpt-4o": _openai(2.5, 10, 1.25),
    "gpt-4o-mini": _openai(0.15, 0.6, 0.075),
    "o3": _openai(2, 8, 0.5),
    "o3-mini": _openai(1.1, 4.4, 0.55),
    "o4-mini": _openai(1.1, 4.4, 0.275),
    "claude-opus-4-5": _claude(5, 25),
    "claude-opus-4-1": _claude(15, 75),
    "claude-opus-4-0": _claude(15, 75),
    "claude-sonnet-4-5": _claude(3, 15),
    "claude-sonnet-4-0": _claude(3, 15),
    "claude-3-7-sonnet": _claude(3, 15),
    "claude-haiku-4-5": _claude(1, 5),
    "claude-3-5-haiku": _claude(0.8, 4),
    "gemini-2.5-pro": Price(input=1.25, output=10, cached_input=0.125),
    "gemini-2.5-flash": Price(input=0.3, output=2.5, cached_input=0.03),
    "gemini-2.5-flash-lite": Price(input=0.1, output=0.4, cached_input=0.01),
}


def must_be_known(model: str, price: Price | None, whose: str) -> Price:
    """The price of a model that something needs to be kept: `whose` says what. Raises UnknownPrice."""
    if price is None:
        raise UnknownPrice(
            f"what {model} costs is not known, so {whose} could not be kept: say it in TOOLFLEET_PRICES, such as "
            f'{{"{model}": {{"input": 1.25, "output": 10}}}} in US dollars per million tokens'
        )
    return price


ONE_OR_ANOTHER: Final = " | "
"""Between the names of a `FallbackModel`'s models in its own."""

_DATED: Final = re.compile(r"-(\d{4}-\d\d-\d\d|\d{8}|latest)$")


def price_of(model: str, own: Mapping[str, Price]) -> Price | None:
    """The price of a model by its name with or without a date, of `own` before the list's; or None.

    Of several models of which each is asked when the one before fails, the dearest in every respect.
    """
    undated = _DATED.sub("", model)
    known = own.get(model) or own.get(undated) or PRICES.get(model) or PRICES.get(undated)
    if known is not None or ONE_OR_ANOTHER not in model:
        return known
    parts = [price_of(part, own) for part in model.split(ONE_OR_ANOTHER)]
    priced = [part for part in parts if part is not None]
    return dearest(priced) if len(priced) == len(parts) else None
