"""The common call in one column: believed, run, signed and settled, without a step that only other calls need.

A call is common if it comes for the first time on our own streams, for a tool that is here in this version and whose
answers nobody shares, claimed by the transport and in time. Whatever is not goes through `performer.py` from its start.
The steps are the same functions there and here; what is spared are a timer for each call, a future for each settlement,
and the ways between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from toolfleet.calls import ToolCall
from toolfleet.logs import FactLog
from toolfleet.points import Point, reached
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery.admit import Admitted, admit
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Settlement
from toolfleet.workers.perform.conclusion import Conclusion, ending_of
from toolfleet.workers.perform.endings import Ending
from toolfleet.workers.perform.tool_run import ToolRuns
from toolfleet.workers.tool.execute import limit_s
from toolfleet.workers.tool.time_limit import TimeLimit

log = FactLog("toolfleet.workers")

QUICK_S: Final = 0.25
"""A tool that runs for longer is given a timer for its limit; one with less time than twice this has it at once."""


class Common(NamedTuple):
    """A call that may start here and now."""

    call: ToolCall
    tool: Tool[..., Any]


class Done(NamedTuple):
    """How a call has ended that was run for another process."""

    ending: Ending
    """If there is a settlement, how it ends when that is stored."""
    settlement: Settlement | None = None


class QuickCall:
    """One common call, from its start to its settlement."""

    __slots__ = ("__weakref__", "_begun_s", "call", "clock", "delivery", "tool")

    def __init__(self, delivery: Delivery, common: Common) -> None:
        self.delivery = delivery
        self.call, self.tool = common
        left_s = limit_s(self.call, self.tool, delivery.came_unix_s)
        self.clock = TimeLimit(left_s, is_set=left_s < 2 * QUICK_S)
        self._begun_s = time.perf_counter()

    @property
    def ran_s(self) -> float:
        """How long ago it began."""
        return time.perf_counter() - self._begun_s


Quick = TypeVar("Quick", bound=QuickCall)


class CommonCalls:
    """Tells common calls from others."""

    def __init__(self, settings: Settings, tools: Mapping[str, Tool[..., Any]], seal: Seal) -> None:
        self._tools = tools
        self._seal = seal
        self._max_deliveries = settings.max_deliveries

    def common(self, delivery: Delivery) -> Common | None:
        """Return the call of a delivery if it can be believed and may start at once; None says nothing against it."""
        tool = self._tools.get(delivery.task)
        if tool is None:
            return None
        spec = tool.spec
        if delivery.contract not in ("", spec.contract) or spec.cache_s is not None:
            return None
        decision = admit(
            delivery,
            delivery.effect(spec.effect),
            self._seal,
            now_unix_s=delivery.came_unix_s,
            max_deliveries=self._max_deliveries,
        )
        if not isinstance(decision, Admitted) or decision.must_claim or decision.call.undoes is not None:
            return None
        if not decision.call.is_for(spec.version):
            return None
        return Common(decision.call, tool)


class QuickCalls(CommonCalls):
    """Performs the common calls of one event loop."""

    def __init__(
        self,
        settings: Settings,
        tools: Mapping[str, Tool[..., Any]],
        seal: Seal,
        runs: ToolRuns,
        conclusion: Conclusion,
    ) -> None:
        super().__init__(settings, tools, seal)
        self._runs = runs
        self._conclusion = conclusion
        self._unclocked: dict[QuickCall, None] = {}
        """The calls whose tools run without a timer, the oldest first."""
        self._looking: asyncio.TimerHandle | None = None

    async def perform(self, quick: Quick, tell: Callable[[Quick, Ending], None]) -> None:
        """Run a call and have it settled. `tell` is called once, then or later, with how it has ended."""
        delivery, call, tool = quick.delivery, quick.call, quick.tool
        reached(Point.RECEIVED, call.call_id)
        try:
            outcome = await self._runs.start(delivery, call, tool, clock=self._clock(quick))
            self._unclocked.pop(quick, None)
            if not isinstance(outcome, Ending):
                if self._conclusion.is_plain(outcome):
                    self._conclusion.conclude_soon(delivery, call, outcome, partial(tell, quick))
                    return
                outcome = await self._conclusion.conclude(delivery, call, outcome)
        except asyncio.CancelledError:
            outcome = Ending.HANDED_BACK  # before the tool began
        except Exception:  # a slot must be given back whatever happens
            outcome = Ending.NOT_PERFORMED
            log.exception("call_not_performed", call_id=call.call_id, tool=call.tool)
        self._unclocked.pop(quick, None)
        tell(quick, outcome)

    async def run(self, delivery: Delivery) -> Done | None:
        """Run a call for another process, which settles what it can; None if it is no common one here."""
        common = self.common(delivery)
        if common is None:
            return None
        call, tool = common
        reached(Point.RECEIVED, call.call_id)
        outcome = await self._runs.start(delivery, call, tool)
        if isinstance(outcome, Ending):
            return Done(outcome)
        if self._conclusion.is_plain(outcome) and not self._conclusion.has_checkpoint(call.call_id):
            return Done(ending_of(outcome), Settlement.of(delivery, call, outcome, self._seal))
        return Done(await self._conclusion.conclude(delivery, call, outcome))

    def _clock(self, quick: QuickCall) -> TimeLimit:
        """Return the clock of a call: set once the tool has run for a while, and at once for one with little time."""
        if not quick.clock.is_set:
            self._unclocked[quick] = None
            if self._looking is None:
                self._looking = asyncio.get_running_loop().call_later(QUICK_S, self._set_clocks)
        return quick.clock

    def _set_clocks(self) -> None:
        """Set the clocks of the tools that have run for a while, and look again if others run."""
        self._looking = None
        for quick in tuple(self._unclocked):
            ran_s = quick.ran_s
            if ran_s < QUICK_S:
                break
            del self._unclocked[quick]
            quick.clock.set(quick.clock.seconds - ran_s)
        if self._unclocked:
            self._looking = asyncio.get_running_loop().call_later(QUICK_S, self._set_clocks)
