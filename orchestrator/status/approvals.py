"""Which calls wait for a person, of all runs of a tenant: by an index, no search.

One run that cannot be read keeps no other from being told.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import redis.asyncio

from toolfleet.calls import Record
from toolfleet.errors import CallerError
from toolfleet.keys import Keys
from toolfleet.orchestrator.errors import NewerVersion
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.run_pages import place_in
from toolfleet.orchestrator.store.run_store import RunStore, title_of
from toolfleet.scripts import lua
from toolfleet.skipped import text_of

APPROVALS: Final = lua("toolfleet.orchestrator.store", "approvals")


class AwaitedApproval(Record):
    """A call that a person has to decide about; or a run that has some and cannot be read."""

    run_id: str
    since_unix_s: float
    """Since when its run has waited; the oldest come first."""
    call_id: str = ""
    tool: str = ""
    arguments: str = ""
    """As the run has them: secrets are masked."""
    digest: str = ""
    """What is approved, for the decision to say so: SHA-256 of id, tool and arguments."""
    title: str = ""
    """What its run was asked, shortened."""
    problem: str = ""
    """Why nothing can be told of the run's calls."""


class ApprovalPage(NamedTuple):
    """Some calls that wait, and what the next page is asked for with; empty when there is none."""

    waiting: list[AwaitedApproval]
    after: str


class Approvals:
    """Reads what waits for a person. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, store: RunStore) -> None:
        self._keys = keys
        self._store = store
        self._read = client.register_script(APPROVALS)

    async def waiting(self, *, tenant: str, limit: int, after: str = "") -> ApprovalPage:
        """Return the calls of so many runs, those first that have waited longest. Raises BadCursor."""
        found, score, last = await self._read(
            keys=[self._keys.approvals(tenant)], args=[limit, self._keys.head(""), *place_in(after)]
        )
        waiting: list[AwaitedApproval] = []
        for run_id, since_ms in zip(found[::2], found[1::2], strict=True):
            waiting += await self._of(text_of(run_id), float(since_ms) / 1000, tenant)
        return ApprovalPage(waiting, f"{text_of(score)}_{text_of(last)}" if last else "")

    async def _of(self, run_id: str, since_unix_s: float, tenant: str) -> list[AwaitedApproval]:
        try:
            run = (await self._store.load(run_id)).run
        except (CallerError, NewerVersion) as error:
            return [AwaitedApproval(run_id=run_id, since_unix_s=since_unix_s, problem=str(error))]
        return _calls(run, since_unix_s) if run.terms.tenant == tenant else []


def _calls(run: Run, since_unix_s: float) -> list[AwaitedApproval]:
    return [
        AwaitedApproval(
            run_id=run.run_id,
            since_unix_s=since_unix_s,
            call_id=call.call_id,
            tool=call.tool,
            arguments=call.arguments,
            digest=call.digest,
            title=title_of(run.messages),
        )
        for call in run.awaiting_approval
    ]
