"""Which run answers a request, and how many clients attend to it, in Redis: so that a repeat finds it at any server.

A run's id begins with a digest of the request and of who asks. So whoever can write to Redis may hide a run or lie
about its clients, and can point nobody to the run of another request.
"""

from __future__ import annotations

import re
import secrets
from base64 import b32encode
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from toolfleet.keys import IDEMPOTENCY_TTL_S
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.idempotency import digest_of
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.scripts import lua
from toolfleet.skipped import text_of

ATTEND: Final = lua(__package__, "attend")

RETRIED_FOR_S: Final = 600
"""How long after its last client a run is still found by a repeat that only says that it is one."""

BEGINNING_CHARS: Final = 16
ID_CHARS: Final = 26
"""With what is written around it, the id of a call has at most the forty characters that OpenAI takes."""

RUN_ID: Final = re.compile(r"[a-z2-7]{17,26}")


class Taken(NamedTuple):
    """The run that a request is to attend to."""

    run_id: str
    is_known_to_be_stored: bool


@dataclass(frozen=True, slots=True)
class Attendance:
    """The runs that requests alike have begun. Raises StoreUnreachable."""

    door: Door
    digest: bytes
    """Of the request, and of who asks."""
    keep_s: int
    answered_for_s: float
    """How long a run can be joined whose answer was sent."""
    has_key: bool
    """Whether the request names itself: then there is one run of it, whoever else asks the same."""

    @classmethod
    def of_key(cls, door: Door, digest: bytes) -> Attendance:
        """Return that of a request with an Idempotency-Key."""
        return cls(door, digest, IDEMPOTENCY_TTL_S, IDEMPOTENCY_TTL_S, has_key=True)

    @classmethod
    def of_like(cls, door: Door, grant: Grant, path: str, body: bytes) -> Attendance:
        """Return that of requests without one, which are alike if the same key sends the same body to the same path."""
        whose = (grant.owner.encode(), grant.tenant.encode(), grant.subject.encode())
        return cls(door, digest_of(*whose, path.encode(), body), RETRIED_FOR_S, door.options.grace_s, has_key=False)

    async def take(self, *, is_repeat: bool) -> Taken:
        """Attend to the run of a first request, or begin to attend to a new one."""
        answered_for_ms = int(self.answered_for_s * 1000)
        return await self._attended("take", self._new_id(), int(is_repeat or self.has_key), answered_for_ms)

    async def take_after(self, failed: str) -> Taken:
        """Attend to the run that takes the place of one that has failed, the same for all who ask."""
        return await self._attended("again", self._id(failed), failed)

    async def begun(self, run_id: str) -> None:
        """Note that a run is stored: from here on one that is not there was deleted, and is not begun again."""
        await self._do("begun", run_id)

    async def leave(self, run_id: str, *, is_answered: bool) -> bytes | None:
        """Attend to a run no more. Returns how it is left, None if others attend to it."""
        return cast("bytes | None", await self._do("leave", run_id, int(is_answered)))

    async def forget(self, run_id: str) -> None:
        """Attend no more to a run that could not be begun."""
        await self._do("forget", run_id)

    async def is_as_left(self, run_id: str, left: bytes) -> bool:
        """Return whether nobody has attended to a run since it was left like this."""
        found = await cast("Awaitable[bytes | None]", self.door.client.hget(self._key, run_id))
        return found == left

    @property
    def _key(self) -> str:
        return self.door.settings.keys.asked(self.digest.hex()[:32])

    def _new_id(self) -> str:
        return self._id() if self.has_key else self._id(secrets.token_hex(8))

    def _id(self, *which: str) -> str:
        rest = digest_of(self.digest, *(part.encode() for part in which))
        return self._beginning + _words(rest)[: ID_CHARS - BEGINNING_CHARS]

    @property
    def _beginning(self) -> str:
        """How the ids of all its runs begin: with their shard's name, in the place of as much of the digest."""
        prefix = self.door.settings.id_prefix
        return prefix + _words(self.digest)[: BEGINNING_CHARS - len(prefix)]

    async def _attended(self, *words: str | int) -> Taken:
        run_id, is_stored = cast("list[bytes]", await self._do(*words))
        found = text_of(run_id)
        unprefixed = found.removeprefix(self.door.settings.id_prefix)
        if not RUN_ID.fullmatch(unprefixed) or not found.startswith(self._beginning):
            return Taken(self._new_id(), is_known_to_be_stored=False)  # somebody else has written this
        return Taken(found, is_known_to_be_stored=is_stored == b"1")

    async def _do(self, what: str | int, run_id: str | int, *more: str | int) -> object:
        attend = self.door.client.register_script(ATTEND)
        return await attend(keys=[self._key], args=[what, run_id, self.keep_s, *more])


def _words(digest: bytes) -> str:
    return b32encode(digest).decode().lower().rstrip("=")
