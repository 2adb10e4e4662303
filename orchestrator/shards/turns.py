"""Whose turn it is: shards get new runs by weight, spread out. Pure.

The smooth weighted round robin of nginx (`ngx_http_upstream_round_robin.c`): 2:1 gives a b a, not a a b.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Turns:
    """Remembers how far each shard is behind what its weight promises it."""

    _credit: dict[str, int] = field(default_factory=dict)

    def next_of(self, weights: Mapping[str, int]) -> str:
        """Return whose turn it is of these, of which there is at least one. Those that are missing earn nothing."""
        for name, weight in weights.items():
            self._credit[name] = self._credit.get(name, 0) + weight
        chosen = max(weights, key=lambda name: self._credit[name])
        self._credit[chosen] -= sum(weights.values())
        return chosen
