"""What a conversation remembers: the runs of its earlier messages, each a run of its own that begins with the last.

Owns the number of a conversation's newest run, in Redis, as a hint: the runs are the truth, and whoever begins number
n + 1 is the only one who does. It is sealed, or a conversation could be made to remember another's. Knows no models and
no tools.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import cast

import orjson
import redis.asyncio

from toolfleet.errors import Refused
from toolfleet.messages import Message, SystemMessage, UserMessage
from toolfleet.orchestrator.run.value import Run
from toolfleet.settings import Settings
from toolfleet.skipped import skip
from toolfleet.wire import Seal


@dataclass(frozen=True, slots=True)
class Place:
    """A run's place in its conversation; number 0 is before the first."""

    key: str
    prefix: str
    """Of the ids of its runs: random, so that a conversation whose memory has ended begins with none of it."""
    number: int

    @property
    def run_id(self) -> str:
        """The id of the run at this place."""
        return f"{self.prefix}-{self.number}"

    @property
    def next(self) -> Place:
        """The place behind this one."""
        return replace(self, number=self.number + 1)


class Conversations:
    """Where the conversations of a fleet stand."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal

    async def newest(self, name: str, conversation_id: str, *, tenant: str = "") -> Place:
        """Return the place of a conversation's newest run, as far as it is known. Raises StoreUnreachable.

        Later runs may have begun meanwhile. A conversation is that of one tenant with one assistant, `name`.
        """
        digest = hashlib.sha256(orjson.dumps([tenant, name, conversation_id])).hexdigest()
        key = self._settings.keys.conversation(digest)
        fresh = Place(key, self._settings.new_run_id(), 0)
        await self._client.set(key, self._sealed(fresh), nx=True, px=self._ttl_ms)
        stored = cast("bytes | None", await self._client.get(key))
        try:
            prefix, _, number = self._seal.open_kept(stored or b"", key).decode().partition(":")
        except Refused as refusal:
            skip("conversation", str(refusal))
            await self._client.set(key, self._sealed(fresh), px=self._ttl_ms)
            return fresh
        return Place(key, prefix, int(number))

    def _sealed(self, place: Place) -> bytes:
        return self._seal.close_kept(f"{place.prefix}:{place.number}".encode(), place.key)

    async def note_begun(self, place: Place) -> None:
        """Note that the run at this place has begun. Raises StoreUnreachable."""
        # Only where it is known: one that was forgotten meanwhile stays forgotten.
        await self._client.set(place.key, self._sealed(place), xx=True, px=self._ttl_ms)

    async def forget(self, place: Place) -> None:
        """Forget the conversation: its next message begins with nothing. Raises StoreUnreachable."""
        await self._client.delete(place.key)

    @property
    def _ttl_ms(self) -> int:
        """As long as any run may be kept that nobody goes on with."""
        settings = self._settings
        return int(1000 * max(settings.keep_unfinished_s, settings.keep_done_s, settings.keep_failed_s))


def remembered(earlier: Run, limit: int | None) -> tuple[Message, ...]:
    """Return what was said before, without instructions; of a long conversation about the last `limit` messages.

    It begins with something that the user said: an answer without its question would be refused by providers.
    """
    said = tuple(message for message in earlier.messages if not isinstance(message, SystemMessage))
    if limit is None or len(said) <= limit:
        return said
    begins = [at for at, message in enumerate(said) if isinstance(message, UserMessage)]
    return said[next((at for at in begins if at >= len(said) - limit), len(said)) :]
