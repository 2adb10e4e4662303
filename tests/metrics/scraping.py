"""Reading what a process tells Prometheus, with prometheus-client's own parser."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

WITHIN_S = 30


@dataclass(frozen=True)
class Scrape:
    """One scrape of one process."""

    text: str
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float]

    def of(self, name: str, /, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The samples of a name that have these labels, by all their labels."""
        return {
            found: value
            for (sample, found), value in self.values.items()
            if sample == name and labels.items() <= dict(found).items()
        }

    def sum(self, name: str, /, **labels: str) -> float:
        return sum(self.of(name, **labels).values())

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.values}

    @property
    def label_values(self) -> set[str]:
        return {value for _, labels in self.values for _, value in labels}


def parsed(text: str) -> Scrape:
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return Scrape(text, {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples})


def scrape(port: int) -> Scrape:
    """What a process tells at its own port, once it answers there."""
    give_up = time.monotonic() + WITHIN_S
    while True:
        try:
            return parsed(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN_S).raise_for_status().text)
        except httpx.ConnectError:
            assert time.monotonic() < give_up
            time.sleep(0.05)


def scrape_until(port: int, name: str, least: float, **labels: str) -> Scrape:
    """The first scrape in which a metric has come to so much: what a worker counts, it counts after it has answered."""
    give_up = time.monotonic() + WITHIN_S
    while (found := scrape(port)).sum(name, **labels) < least:
        assert time.monotonic() < give_up, found.text
        time.sleep(0.05)
    return found
