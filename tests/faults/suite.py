"""All faults, each on a stand of the kind it asks for, with figures as they come."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults import (
    of_doors,
    of_envelopes,
    of_https,
    of_languages,
    of_limits,
    of_losses,
    of_models,
    of_orchestrators,
    of_questions,
    of_schedules,
    of_steering,
    of_the_server,
    of_tools,
    of_versions,
    of_webhooks,
    of_workers,
    steered,
)
from tests.faults.arena import FAULTS, Arena, Fault, Form, Suffered
from tests.faults.losing import LossArena

KINDS = (
    of_workers,
    of_languages,
    of_https,
    of_orchestrators,
    of_the_server,
    of_limits,
    of_questions,
    of_steering,
    of_versions,
    of_schedules,
    of_webhooks,
    of_doors,
    of_tools,
    of_models,
    of_envelopes,
    of_losses,
)
"""In the order of the report. Importing them has entered their faults."""

FAULTS_OF_THE_MATRIX = sorted(
    (name for name, fault in FAULTS.items() if fault.stand == of_losses.STAND),
    key=lambda name: not of_losses.LOSSES[name.removeprefix("matrix_")].may_repeat,
)
"""Those first that want a second crew, so that each part has about as many of them."""

OF_STEERING = [name for name, fault in FAULTS.items() if fault.stand == steered.STAND]
"""The faults of what people steer: questions, schedules, webhooks, versions, and the doors of others."""

SHORT_OF_STEERING = ("told_server_killed", "versions_worker_killed", "doors_server_killed")
"""Those of them that the tests take. All take minutes: `make faults` has them."""

PARTS = 11
"""The tests take one of so many parts of the matrix, another one each day; no multiple of three, as there are three
stages, which change each day, too."""

SECONDS_OF_A_DAY = 86_400

ARENAS: dict[str, type[Arena]] = {
    of_losses.STAND: LossArena,
    of_languages.STAND: of_languages.MixedArena,
    of_https.STAND: of_https.HttpsArena,
    steered.STAND: steered.SteeredArena,
}
"""Where the faults of a stand happen, if not in an ordinary arena."""

IN_LANES = {"usual", "small disk", steered.STAND}
"""Stands of which several may be there at the same time."""


async def suffer_all(
    faults: Sequence[Fault], form: Form, seed: str, tell: Callable[[Suffered], object], lanes: int, turn: int
) -> list[Suffered]:
    """Let the faults happen, on so many stands of a kind at the same time, and `tell` of each when it is over."""
    with tempfile.TemporaryDirectory(prefix="toolfleet-") as folder:
        async with asyncio.TaskGroup() as group:
            running = []
            for stand in {fault.stand: None for fault in faults}:
                left = [fault for fault in faults if fault.stand == stand]
                # The matrix has many workers and runs beside the rest anyway: one lane of it is enough.
                for lane in range(min(lanes if stand in IN_LANES else 1, len(left))):
                    ledger = Path(folder, f"{stand} {lane}")
                    running.append(group.create_task(take_turns(left, stand, ledger, form, seed, tell, turn)))
        # Judged once more, now that everything has ended: an effect that came late counts too.
        suffered = {each.fault.name: each.at_last() for lane in running for each in lane.result()}
    return [suffered[fault.name] for fault in faults]


async def take_turns(
    left: list[Fault],
    stand: str,
    ledger: Path,
    form: Form,
    seed: str,
    tell: Callable[[Suffered], object],
    turn: int,
) -> list[Suffered]:
    """One lane: the next fault that is left, until none is."""
    suffered: list[Suffered] = []
    while left:
        async with ARENAS.get(stand, Arena).open(stand, ledger, form, seed) as arena:
            arena.turn = turn
            while left:
                suffered.append(await arena.suffer(left.pop(0)))
                tell(suffered[-1])
                if not suffered[-1].tally().is_clean:
                    break  # whatever went wrong is not to be held against the next one
    return suffered


def chosen(only: Sequence[str], form: Form, turn: int = 0) -> list[Fault]:
    """The faults of these names, or all; where each is to happen once, a part of some. Raises KeyError."""
    if only:
        return [FAULTS[name] for name in only]
    everything = [fault for kind in KINDS for fault in FAULTS.values() if fault.inject.__module__ == kind.__name__]
    if form is not Form.ONCE:
        return everything
    left_out = {*FAULTS_OF_THE_MATRIX, *OF_STEERING} - {
        *FAULTS_OF_THE_MATRIX[turn % PARTS :: PARTS],
        *SHORT_OF_STEERING,
    }
    return [fault for fault in everything if fault.name not in left_out]


def of_today() -> int:
    """A number that is another one each day, and the same for everybody."""
    return int(time.time() // SECONDS_OF_A_DAY)


def suffer(
    faults: Sequence[Fault],
    form: Form,
    seed: str,
    tell: Callable[[Suffered], object],
    lanes: int = 1,
    turn: int = 0,
) -> list[Suffered]:
    """The same, for those without an event loop."""
    return asyncio.run(suffer_all(faults, form, seed, tell, lanes, turn))
