"""All faults, run one after another: each on the stand it asks for, with figures as they come."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.faults import of_envelopes, of_the_server, of_tools, of_workers
from tests.faults.arena import FAULTS, Arena, Fault, Form, Suffered

KINDS = (of_workers, of_the_server, of_tools, of_envelopes)
"""Importing them enters their faults."""


async def suffer_all(
    faults: Sequence[Fault], form: Form, seed: str, tell: Callable[[Suffered], object]
) -> list[Suffered]:
    """Let the faults happen, those of one stand together, and `tell` of each when it is over."""
    suffered: list[Suffered] = []
    with tempfile.TemporaryDirectory(prefix="toolfleet-") as folder:
        for stand in sorted({fault.stand for fault in faults}, reverse=True):
            async with AsyncExitStack() as stack:
                arena = await stack.enter_async_context(Arena.open(stand, Path(folder, "ledger"), form, seed))
                for fault in faults:
                    if fault.stand == stand:
                        suffered.append(await arena.suffer(fault))
                        tell(suffered[-1])
        # Once more, now that everything has ended: an effect that came late counts too.
        return [each.at_last() for each in suffered]


def chosen(only: Sequence[str]) -> list[Fault]:
    """The faults of these names, or all. Raises KeyError."""
    return [FAULTS[name] for name in only] if only else list(FAULTS.values())


def suffer(faults: Sequence[Fault], form: Form, seed: str, tell: Callable[[Suffered], object]) -> list[Suffered]:
    """The same, for those without an event loop."""
    return asyncio.run(suffer_all(faults, form, seed, tell))
