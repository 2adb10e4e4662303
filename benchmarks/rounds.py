"""The order of things: every round takes each contender once, so that a noisy minute strikes them all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.launch import Outcome, run_trial
from benchmarks.registry import WITH_RUNS
from benchmarks.sizes import OWN_FIGURES, TRIALS, Figure, Scale, TrialKind
from benchmarks.trial import Finding


@dataclass(frozen=True)
class Failure:
    """A trial that ended before all its figures were taken."""

    contender: str
    round: int
    figures: tuple[Figure, ...]
    reason: str


@dataclass
class Record:
    """All that was found: round and contender → figures; what failed; and how many rounds were begun."""

    rounds: int = 0
    findings: dict[tuple[int, str], list[Finding]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def add(self, round_: int, contender: str, figures: tuple[Figure, ...], outcome: Outcome) -> None:
        """Note one trial's outcome."""
        self.findings.setdefault((round_, contender), []).extend(outcome.findings)
        if outcome.failure is not None:
            taken = {finding.figure for finding in outcome.findings}
            missing = tuple(figure for figure in figures if figure not in taken)
            self.failures.append(Failure(contender, round_, missing, outcome.failure))

    def has_failed(self, contender: str, figures: tuple[Figure, ...]) -> bool:
        """Whether these figures were tried in vain before: they are not tried in each round again."""
        return any(failure.contender == contender and set(figures) & set(failure.figures) for failure in self.failures)


def measure(contenders: Mapping[str, str], figures: Sequence[Figure], scale: Scale) -> Record:
    """Run the rounds that fit into the limit, at least one; `contenders` maps a name to the path of its class."""
    record = Record()
    start = time.monotonic()
    for round_ in range(1, scale.rounds + 1):
        record.rounds = round_
        repeatable_s = run_round(record, contenders, figures, scale)
        spent_s = time.monotonic() - start
        if round_ < scale.rounds and spent_s + repeatable_s > scale.run_limit_s:
            print(f"no time for round {round_ + 1}: {spent_s:.0f} s spent of {scale.run_limit_s:.0f} s")
            break
    return record


def run_round(record: Record, contenders: Mapping[str, str], figures: Sequence[Figure], scale: Scale) -> float:
    """Take every contender once, for each kind of trial of this round; returns the seconds of what comes again."""
    repeatable_s = 0.0
    label = f"round {record.rounds}/{scale.rounds}"
    for kind, wanted in trials(record.rounds, figures):
        for name, path in contenders.items():
            if takes(name, wanted) and not record.has_failed(name, wanted):
                start = time.monotonic()
                outcome = run_trial(path, kind, wanted, scale)
                record.add(record.rounds, name, wanted, outcome)
                took_s = time.monotonic() - start
                repeatable_s += took_s if kind.every_round else 0
                tell(label, name, wanted, outcome, took_s)
    return repeatable_s


def trials(round_: int, figures: Sequence[Figure]) -> Iterator[tuple[TrialKind, tuple[Figure, ...]]]:
    """The trials of one round, with those of their figures that are wanted."""
    for kind in TRIALS:
        wanted = tuple(figure for figure in kind.figures if figure in figures)
        if wanted and (kind.every_round or round_ == 1):
            yield kind, wanted


def takes(contender: str, figures: Sequence[Figure]) -> bool:
    """Whether the contender has what these figures are about; those of one trial are about the same."""
    return figures[0] not in OWN_FIGURES or contender in WITH_RUNS


def tell(round_: str, name: str, figures: tuple[Figure, ...], outcome: Outcome, took_s: float) -> None:
    """One line of progress."""
    verdict = f"FAILED: {outcome.failure}" if outcome.failure else "done"
    print(f"{round_}  {name:26} {', '.join(figures):32} {took_s:5.1f} s  {verdict}", flush=True)
