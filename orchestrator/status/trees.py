"""A run and the runs of its agents as one tree, with what each branch has come to. Every sum is that of its leaves.

What a branch says of itself is counted from its own history, and never from what it was told of those below it: so it
is the same whether these have ended or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from toolfleet.calls import Failed, Record
from toolfleet.errors import CallerError
from toolfleet.orchestrator.errors import NewerVersion
from toolfleet.orchestrator.run.limits import own_usage
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_reader import recorded_result
from toolfleet.orchestrator.store.run_store import RunStore

RUNS_MAX: Final = 500
"""So many runs of a tree are read."""


class Sums(Record):
    """What runs have used up: their models' tokens, their calls, what these and their tools have cost (US dollars)."""

    runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    failed: int = 0
    """Calls that have failed."""

    def __add__(self, other: Sums) -> Sums:
        """Return what both come to."""
        return Sums(**{name: getattr(self, name) + getattr(other, name) for name in Sums.model_fields})

    @classmethod
    def of(cls, run: Run) -> Self:
        """What a run alone has used up, without those of its agents."""
        usage = own_usage(run)
        failed = sum(isinstance(recorded_result(call), Failed) for call in run.calls)
        return cls(
            runs=1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=(0.0 if run.terms.price is None else run.terms.price.of(usage)) + sum(run.spent_by_tools.values()),
            calls=len(run.calls),
            failed=failed,
        )


class Branch(Record):
    """A run and what is below it."""

    run_id: str
    agent: str = ""
    """The tool that its parent has called it by; empty at the top."""
    state: State | None
    """None for one that cannot be read, or is beyond the first 500."""
    own: Sums
    total: Sums
    """Its own and those of all below it."""
    children: tuple[Branch, ...] = ()


class Trees:
    """Reads trees of runs. Raises StoreUnreachable."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def of(self, run_id: str) -> Branch:
        """Return the tree below a run. Raises RunNotFound, NewerVersion."""
        return await self._branch((await self._store.load(run_id)).run, "", [RUNS_MAX])

    async def _branch(self, run: Run, agent: str, left: list[int]) -> Branch:
        children = [await self._child(call.call_id, call.tool, left) for call in run.calls if call.is_agents]
        own = Sums.of(run)
        return Branch(
            run_id=run.run_id,
            agent=agent,
            state=run.state,
            own=own,
            total=_sum(own, children),
            children=tuple(children),
        )

    async def _child(self, run_id: str, agent: str, left: list[int]) -> Branch:
        left[0] -= 1
        if left[0] > 0:
            try:
                return await self._branch((await self._store.load(run_id)).run, agent, left)
            except (CallerError, NewerVersion):
                pass  # it has not begun, is kept no longer, or was written by a newer version: the others are told
        return Branch(run_id=run_id, agent=agent, state=None, own=Sums(), total=Sums())


def _sum(own: Sums, children: Sequence[Branch]) -> Sums:
    for child in children:
        own += child.total
    return own
