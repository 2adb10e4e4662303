"""Whoever had a batch's output open before: its runs are taken over at once, without waiting for its lease to lapse.

The lock on the output is the proof. It ends with the process that holds it, so whoever has the same file locked now
knows that the orchestrator which noted itself for that file is gone. Where the file is another one, the lease decides.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from toolfleet.connections import connect_async
from toolfleet.orchestrator.batch.identity import Identity
from toolfleet.orchestrator.batch.output import Output
from toolfleet.orchestrator.store.leases import give_up_runs_of
from toolfleet.settings import Settings
from toolfleet.skipped import text_of


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The one before us at an output that is ours now; `place` is None where nothing can be locked."""

    settings: Settings
    place: str | None

    @classmethod
    def at(cls, settings: Settings, identity: Identity, output: Output) -> Predecessor:
        """Whoever had this very file open for this batch, on this machine."""
        found = output.opened_file
        if found is None:
            return cls(settings, None)
        named = f"{identity.prefix} {os.uname().nodename} {found.st_dev} {found.st_ino}"
        return cls(settings, hashlib.sha256(named.encode()).hexdigest()[:32])

    async def give_up_its_runs(self) -> None:
        """Let its runs be adopted now. Raises StoreUnreachable."""
        if self.place is None:
            return
        async with connect_async(self.settings) as client:
            noted = await client.get(self._key(self.place))
            if isinstance(noted, bytes):
                await give_up_runs_of(client, self.settings, text_of(noted))

    async def make_way_for(self, orchestrator_id: str) -> None:
        """Note who has the output now. Raises StoreUnreachable."""
        if self.place is None:
            return
        async with connect_async(self.settings) as client:
            ttl_ms = int(self.settings.keep_unfinished_s * 1000)
            await client.set(self._key(self.place), orchestrator_id, px=ttl_ms)

    def _key(self, place: str) -> str:
        return self.settings.keys.batch_output(place)
