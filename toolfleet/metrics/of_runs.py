"""What a process that works on runs counts of them: turns, replies of models, calls sent, runs brought to their end."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from toolfleet.metrics.tallies import ByName, Histogram


class ModelFigures:
    """The figures of one model."""

    __slots__ = ("failed", "input_tokens", "output_tokens", "replied", "took")

    def __init__(self) -> None:
        self.replied = 0
        self.failed = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.took = Histogram()

    def add_reply(self, input_tokens: int, output_tokens: int) -> None:
        """Count a whole reply."""
        self.replied += 1
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens

    def timed(self) -> _Timing:
        """Measure how long a reply takes in this block; whatever is raised there, no reply came."""
        return _Timing(self)


class _Timing:
    """One reply, from its beginning to its end."""

    __slots__ = ("_began_s", "_figures")

    def __init__(self, figures: ModelFigures) -> None:
        self._figures = figures

    def __enter__(self) -> None:
        self._began_s = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._figures.took.observe(time.perf_counter() - self._began_s)
        elif issubclass(kind, Exception):
            self._figures.failed += 1


class SentFigures:
    """How many calls of a tool were sent, and to which queue the last one went."""

    __slots__ = ("calls", "queue")

    def __init__(self) -> None:
        self.calls = 0
        self.queue = ""


class TurnClock:
    """Times the turns of one run: from the moment the model is asked until its calls are back, or it has answered."""

    __slots__ = ("_began_s",)

    def __init__(self) -> None:
        self._began_s: float | None = None

    def begin(self) -> None:
        """Note that the model is about to be asked."""
        self._began_s = time.perf_counter()

    def end(self) -> None:
        """Count the turn, if its beginning was seen here."""
        if self._began_s is not None:
            RUNS.turns.observe(time.perf_counter() - self._began_s)
            self._began_s = None


class RunFigures:
    """The figures of one process."""

    def __init__(self) -> None:
        self.turns = Histogram()
        self.ended = Counter[str]()
        self.budget_refusals = 0
        self.versions_taken_back = 0
        self.by_model = ByName(ModelFigures)
        self.sent = ByName(SentFigures)

    def left(self, state: str, *, has_ended: bool) -> None:
        """Count a run that was worked on until now, if it has come to its end."""
        if has_ended:
            self.ended[state] += 1

    def add_sent(self, tool: str, queue: str) -> None:
        """Count a call that was put into its queue."""
        sent = self.sent[tool]
        sent.calls += 1
        sent.queue = queue


RUNS: Final = RunFigures()
"""Those of this process."""
