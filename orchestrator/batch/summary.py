"""What a batch came to: counted as its lines are written, told at the end. Knows no price that it was not given."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from toolfleet.calls import Failed, Record
from toolfleet.messages import Usage
from toolfleet.orchestrator.batch.records import LineFigures
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run

PER = 1_000_000
"""Prices are per million tokens."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in whatever currency; None where that was not said."""

    input: float | None = None
    output: float | None = None

    def cost(self, usage: Usage) -> float | None:
        """What these tokens cost; None without a price."""
        if self.input is None and self.output is None:
            return None
        return (usage.input_tokens * (self.input or 0.0) + usage.output_tokens * (self.output or 0.0)) / PER


class Summary(Record):
    """The figures of one session. `runs` are those whose lines it wrote, `done_before` lines stood there already."""

    batch_id: str
    lines: int
    done_before: int
    runs: int
    ok: int
    incomplete: int
    """Answers that are cut off, withheld or empty; they are among the ok ones."""
    failed: int
    refused: int
    """Lines that could not be asked at all; they are among the failed."""
    joined: int
    """Runs that had begun before this session, and were gone on with or read from the store."""
    calls: int
    failed_calls: int
    usage: Usage
    cost: float | None
    wall_s: float
    runs_per_s: float
    p50_s: float | None
    """Of the runs that began in this session, from their beginning to their end."""
    p99_s: float | None


@dataclass(slots=True)
class Tally:
    """Counts what is written."""

    done_before: int = 0
    ok: int = 0
    incomplete: int = 0
    failed: int = 0
    refused: int = 0
    joined: int = 0
    calls: int = 0
    failed_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    run_times_s: array[float] = field(default_factory=lambda: array("d"))

    def count_run(self, run: Run, *, run_time_s: float | None) -> None:
        """A run has ended; `run_time_s` is None for one that had begun before."""
        self.ok += run.state is State.DONE
        self.incomplete += run.incomplete is not None
        self.failed += run.state is not State.DONE
        self.calls += len(run.calls)
        self.failed_calls += sum(isinstance(call.late_result or call.result, Failed) for call in run.calls)
        self.usage += run.usage
        if run_time_s is None:
            self.joined += 1
        else:
            self.run_times_s.append(run_time_s)

    def count_failed(self, *, refused: bool = False) -> None:
        """A line has no run: it could not begin, or the line is refused."""
        self.failed += 1
        self.refused += refused

    def count_line(self, *, is_ok: bool, is_refused: bool, figures: LineFigures) -> None:
        """A line of output was there before."""
        self.ok += is_ok
        self.failed += not is_ok
        self.refused += is_refused
        self.calls += figures.calls
        self.failed_calls += figures.failed_calls
        self.usage += figures.usage

    @property
    def written(self) -> int:
        """How many lines this session has written."""
        return self.ok + self.failed

    def summary(self, batch_id: str, *, lines: int, wall_s: float, prices: Prices) -> Summary:
        """The figures so far."""
        times_s = sorted(self.run_times_s)
        return Summary(
            batch_id=batch_id,
            lines=lines,
            done_before=self.done_before,
            runs=self.written - self.refused,
            ok=self.ok,
            incomplete=self.incomplete,
            failed=self.failed,
            refused=self.refused,
            joined=self.joined,
            calls=self.calls,
            failed_calls=self.failed_calls,
            usage=self.usage,
            cost=prices.cost(self.usage),
            wall_s=round(wall_s, 3),
            runs_per_s=round((self.written - self.refused) / wall_s, 2) if wall_s > 0 else 0.0,
            p50_s=_percentile(times_s, 0.5),
            p99_s=_percentile(times_s, 0.99),
        )


def _percentile(ascending: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of them do not exceed."""
    return round(ascending[math.ceil(share * len(ascending)) - 1], 4) if ascending else None
