"""How one shard stands: what it has to do and keeps, so that people see whether it can be taken away. Reads only."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

from toolfleet.calls import Record
from toolfleet.connections import address, connect_async
from toolfleet.errors import ToolfleetError
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.queues import Queues
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.settings import Settings
from toolfleet.shard_record import is_draining, must_be_its_shard_async
from toolfleet.wire import Seal

ANSWERS_WITHIN_S: Final = 10.0

UNFINISHED: Final = frozenset(state for state in State if not state.is_terminal)


class ShardStanding(Record):
    """How one shard stands; of one that is away only its name, place and `why_away` are known."""

    shard: str
    address: str
    weight: int
    why_away: str = ""
    is_draining: bool = False
    unfinished_runs: int | None = None
    """Runs that have not ended: none of them may be left when the shard is taken away."""
    stored_runs: int | None = None
    """All whose records are kept, which are gone with the shard."""
    unsettled_calls: int | None = None
    """Calls that wait or run."""
    workers: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is under way there."""
        return self.unfinished_runs == 0 and self.unsettled_calls == 0


async def standing_of(settings: Settings) -> ShardStanding:
    """Return how the one shard of these settings stands, whether or not it answers."""
    shard = settings.all_shards.get(settings.shard)
    here = ShardStanding(
        shard=settings.shard, address=address(settings.redis_url), weight=1 if shard is None else shard.weight
    )
    try:
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            return await _asked(settings, here)
    except TimeoutError:
        return here.model_copy(update={"why_away": f"no answer within {ANSWERS_WITHIN_S:g} s"})
    except (ToolfleetError, *COMMAND_FAILED) as error:
        return here.model_copy(update={"why_away": str(error)})


async def _asked(settings: Settings, here: ShardStanding) -> ShardStanding:
    async with aclosing(connect_async(settings)) as client:
        await must_be_its_shard_async(client, settings)
        store = RunStore(client, settings, Seal(settings))
        workers = await Catalog(client, settings).workers()
        queues = await Queues(client, settings).standing(workers)
        return here.model_copy(
            update={
                "is_draining": await is_draining(client, settings),
                "unfinished_runs": len(await store.heads(limit=None, states=UNFINISHED)),
                "stored_runs": int(await client.zcard(settings.keys.runs())),
                "unsettled_calls": sum(queue.unsettled + queue.scheduled for queue in queues),
                "workers": len(workers),
            }
        )
