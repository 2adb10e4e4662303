"""What a fleet remembers of the API keys that it has revoked: the record of one that is put back opens nothing.

Revocations are only ever added, so a true record of any age tells nothing false, and what a process has once read stays
so for it whatever becomes of the record. Knows neither Redis nor HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import Field

from toolfleet.calls import Record
from toolfleet.errors import Refused
from toolfleet.keys import REVOKED
from toolfleet.wire import Seal

FORGOTTEN_AFTER_S: Final = 24 * 3600.0
"""How long after its expiry a key's revocation is kept: clocks may differ."""


class Revocations(Record):
    """The keys that were revoked and might still be good: what is stored, sealed as a whole."""

    v: Literal[1] = 1
    expires_unix_s: Mapping[str, float | None] = Field(default_factory=dict)
    """When each of these keys would have expired by itself, by its id; None: never."""

    def __contains__(self, key_id: str) -> bool:
        """Return whether the key with this id was revoked."""
        return key_id in self.expires_unix_s

    def with_all_of(self, other: Revocations) -> Revocations:
        """Return both together, without those of keys that have expired long ago."""
        since = time.time() - FORGOTTEN_AFTER_S
        both = {**self.expires_unix_s, **other.expires_unix_s}
        return Revocations(expires_unix_s={id_: at for id_, at in both.items() if at is None or at > since})

    def sealed(self, seal: Seal) -> bytes:
        """Return what is stored."""
        return seal.close_api_key(self.model_dump_json().encode(), REVOKED)

    @classmethod
    def opened(cls, seal: Seal, sealed: bytes | None) -> Revocations:
        """Return what is stored; nothing for what the fleet did not write."""
        try:
            return cls.model_validate(seal.open_api_key(sealed or b"", REVOKED), strict=False)
        except (Refused, ValueError):
            return cls()


NONE: Final = Revocations()
