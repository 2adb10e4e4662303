"""What a worker counts of the calls that it is given: how many, how they ended here, how long each part took.

A call that is lost with its worker is not among them; what calls have come to in the fleet is counted in Redis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from toolfleet.metrics.tallies import ByName, Histogram


class ToolFigures:
    """The figures of one tool."""

    __slots__ = ("endings", "queue", "ran", "received", "started")

    def __init__(self) -> None:
        self.queue = ""
        self.received = 0
        self.started = 0
        self.endings = Counter[str]()
        """How its deliveries ended on this worker, as `toolfleet.workers.perform.endings` names it."""
        self.ran = Histogram()


class CallFigures:
    """The figures of one worker process."""

    def __init__(self) -> None:
        self.by_tool = ByName(ToolFigures)
        self.waited = Histogram()
        """From the call's entry into its queue until a worker had it, of first deliveries: by two machines' clocks."""
        self.settled = Histogram()
        """From the result in hand until Redis had it."""
        self.tools_changed = Counter[str]()
        """How many of its tools came, changed and went while it served."""
        self.worker = ""
        """Its name with Celery; empty while this process is no worker."""
        self.slots = 0
        self.active: Callable[[], int] = int
        self.ailing: Callable[[], Mapping[str, str]] = dict

    def begun(self, tool: str, entry_id: str, came_unix_s: float, *, is_new: bool) -> None:
        """Count a call that starts at once where it came in."""
        self.received(tool, entry_id, came_unix_s, is_new=is_new)
        self.by_tool[tool].started += 1

    def received(self, tool: str, entry_id: str, came_unix_s: float, *, is_new: bool) -> None:
        """Count a call that came in, and is to start when a thread is free."""
        self.by_tool[tool].received += 1
        if is_new:
            # Two machines' clocks may differ.
            self.waited.observe(max(0.0, came_unix_s - int(entry_id.partition("-")[0]) / 1000))

    def started(self, tool: str) -> None:
        """Count a call that was received before and starts now."""
        self.by_tool[tool].started += 1

    def ended(self, tool: str, ending: str) -> None:
        """Count the end of a delivery on this worker."""
        self.by_tool[tool].endings[ending] += 1

    def ran(self, tool: str, seconds: float) -> None:
        """Count how long a tool has run for one call."""
        self.by_tool[tool].ran.observe(seconds)

    def took_s(self, tool: str) -> tuple[float, float]:
        """Return how long its calls have run in all, and how long it took to settle calls: only ever more."""
        return self.by_tool[tool].ran.sum, self.settled.sum

    def add_elsewhere(self, tool: str, ran_s: float, settled_s: float) -> None:
        """Count what a child process has measured of one call; zero for what did not come to pass."""
        if ran_s:
            self.by_tool[tool].ran.observe(ran_s)
        if settled_s:
            self.settled.observe(settled_s)


CALLS: Final = CallFigures()
"""Those of this process."""
