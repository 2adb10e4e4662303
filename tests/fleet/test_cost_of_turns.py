"""What a turn costs its orchestrator: counted in what is executed, and not by a clock."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fleets import fleet_of

import toolfleet.orchestrator
from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator import Limits, Orchestrator
from toolfleet.orchestrator.models.recorded import FunctionModel
from toolfleet.orchestrator.run.states import State

ROOMS = tuple(
    str(Path(toolfleet.orchestrator.__file__).resolve().parent / room)
    for room in ("calls", "loop", "run", "store", "tools")
)
TURNS = 420
EARLY, LATE = range(10, 30), range(TURNS - 20, TURNS)


class Work:
    """Counts the instructions that the orchestrator's rooms execute in some turns of a run."""

    def __init__(self) -> None:
        self.instructions = Counter[int]()
        self._turn = 0
        self._is_ours: dict[str, bool] = {}
        self._traced_before = sys.gettrace()

    def begin(self, turn: int) -> None:
        """Count for this turn from here on, if it is one of those that are compared."""
        self._turn = turn
        sys.settrace(self._entered if turn in EARLY or turn in LATE else None)

    def end(self) -> None:
        sys.settrace(self._traced_before)

    def _entered(self, frame: FrameType, *_: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._is_ours:
            self._is_ours[name] = str(Path(name).resolve()).startswith(ROOMS)
        if not self._is_ours[name]:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._executed

    def _executed(self, _frame: FrameType, event: str, _: Any) -> Any:
        self.instructions[self._turn] += event == "opcode"
        return self._executed


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


@pytest.mark.parametrize(
    "options",
    [{}, {"slow": "handle", "limits": Limits(calls=1000, calls_per_tool=1000, tokens=10**9)}],
    ids=["plain", "with handles and limits"],
)
async def test_a_late_turn_of_a_long_run_costs_what_an_early_one_does(fleet, options):
    work = Work()

    def says(messages):
        turn = (len(messages) - 1) // 2
        work.begin(turn)
        if turn == TURNS:
            return AssistantMessage(content="done")
        asked = RequestedCall(id=f"c{turn}", name="echo", arguments=json.dumps({"value": turn}))
        return AssistantMessage(tool_calls=(asked,))

    limits = Limits(calls=None, calls_per_tool=None)
    try:
        async with Orchestrator(FunctionModel(says), settings=fleet.settings) as orchestrator:
            run = await orchestrator.run("?", max_turns=TURNS + 1, **{"limits": limits, **options})
    finally:
        work.end()
    assert (run.state, len(run.calls)) == (State.DONE, TURNS)
    early, late = (statistics.median(work.instructions[turn] for turn in turns) for turns in (EARLY, LATE))
    assert early > 1000  # else nothing was counted
    assert late < 1.1 * early
