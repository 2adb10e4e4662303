"""All shards of a fleet while they are open: whose turn a new run is, and which of them an id is on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from toolfleet.errors import StoreUnreachable
from toolfleet.orchestrator.errors import AllShardsDrain, NoSuchShard
from toolfleet.orchestrator.shards.member import Member, S
from toolfleet.orchestrator.shards.turns import Turns
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.shards import SEPARATOR, Shards
from toolfleet.supervision import Kept, Supervisor

T = TypeVar("T")

ANSWER_WITHIN_S: Final = 5.0
"""How long one shard may hold up an answer that is made of all."""


class Members(Generic[S]):
    """The shards that one process is for; `known` are all of the fleet."""

    def __init__(self, members: Sequence[Member[S]], known: Shards) -> None:
        self._members = {member.name: member for member in members}
        self._known = known
        self._turns = Turns()
        self._supervisor = Supervisor()
        self._kept: list[Kept] = []

    async def open(self) -> None:
        """Open those shards that are there, and the others once they are.

        Raises StoreUnreachable if none is there, and at once what no waiting mends, OtherSecret for example.
        """
        looked = await asyncio.gather(*(member.look() for member in self.all), return_exceptions=True)
        failed = [error for error in looked if error is not None]
        for error in failed:
            if not isinstance(error, StoreUnreachable | TimeoutError):
                raise error
        if len(failed) == len(self.all):
            raise StoreUnreachable("; ".join(f"shard {member.name}: {member.why_away}" for member in self.all))
        self._kept = [self._supervisor.keep(f"shard {member.name}", member.keep) for member in self.all]

    async def aclose(self) -> None:
        """Hand over the runs of every shard, and disconnect."""
        await asyncio.gather(*(kept.aclose() for kept in self._kept))
        await asyncio.gather(*(member.aclose() for member in self.all))

    @property
    def all(self) -> list[Member[S]]:
        """Every shard, in the order of the settings."""
        return list(self._members.values())

    @property
    def open_ones(self) -> list[S]:
        """What serves those that were reached."""
        return [member.served for member in self.all if member.served.is_open]

    @property
    def missing(self) -> Mapping[str, str]:
        """The shards that cannot be asked now, and why."""
        return {member.name: member.why_away for member in self.all if member.why_away}

    def of(self, id_: str) -> S:
        """Return what serves the shard that an id is on. Raises NoSuchShard, StoreUnreachable."""
        return self.member_of(id_).opened()

    async def for_new(self, own_id: str | None) -> S:
        """Return what serves the shard that a new run, or a call, is for: with an id of the caller's own, by that.

        Of the shards that answer and are not drained each gets its share. Raises StoreUnreachable where none answers,
        AllShardsDrain, NoSuchShard.
        """
        if own_id:
            return self.of(own_id)
        while candidates := [member for member in self.all if not (member.why_away or member.is_draining)]:
            # One that was started just now has no workers yet, and would refuse tools that others serve.
            ready = [member for member in candidates if member.has_workers] or candidates
            chosen = self._members[self._turns.next_of({member.name: member.weight for member in ready})]
            if await chosen.answers():
                return chosen.opened()
        if any(member.is_draining and not member.why_away for member in self.all):
            raise AllShardsDrain(
                "no shard takes new runs: those that can be asked are drained (`toolfleet shards undrain`)"
            )
        raise StoreUnreachable("; ".join(str(member.away()) for member in self.all))

    async def each(self, ask: Callable[[S], Awaitable[T]]) -> tuple[dict[str, T], dict[str, str]]:
        """Ask all shards at once. Returns the answers by shard, and why the others gave none."""
        asked = await asyncio.gather(*(self._ask(member, ask) for member in self.all))
        pairs = list(zip(self.all, asked, strict=True))
        answers = {member.name: found[0] for member, (found, _) in pairs if found is not None}
        return answers, {member.name: why for member, (found, why) in pairs if found is None}

    async def _ask(self, member: Member[S], ask: Callable[[S], Awaitable[T]]) -> tuple[tuple[T] | None, str]:
        if member.why_away:
            return None, member.why_away
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return (await ask(member.opened()),), ""
        except TimeoutError:
            return None, "it does not answer in time"
        except COMMAND_FAILED as error:
            return None, str(error)

    def member_of(self, id_: str) -> Member[S]:
        """Return the shard that an id is on, whether or not it can be asked. Raises NoSuchShard."""
        name = self._known.named_by(id_)
        if (member := self._members.get(name)) is not None:
            return member
        if self._known.get(name) is not None:
            raise NoSuchShard(f"{id_[:100]} is on the shard {name}, which this process is not for (TOOLFLEET_SHARD)")
        raise NoSuchShard(
            f"{id_[:100]} names a shard that is none of this fleet's ({', '.join(self._known.names)}): an id may have "
            f"{SEPARATOR} only behind the name of its shard"
        )
