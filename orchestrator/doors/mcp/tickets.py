"""Task ids: a handle, bound to the tenant it was given to. Nothing is stored: the id carries its own proof.

HMAC-SHA256 (RFC 2104) over a purpose, the tenant and the id's readable part: any server of the fleet can check it.
"""

from __future__ import annotations

import base64
import hmac
import time
from dataclasses import dataclass
from typing import Final

from toolfleet.orchestrator.errors import HandleNotFound
from toolfleet.settings import Settings

_PURPOSE: Final = b"toolfleet.mcp.task\0"
_MAC_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a task id says: the fleet's handle, and when and to whom it was given out."""

    task_id: str
    handle: str
    tenant: str
    created_unix_s: float


class Tickets:
    """Gives out task ids and reads them."""

    def __init__(self, settings: Settings) -> None:
        secrets = [settings.secret.get_secret_value(), settings.previous_secret.get_secret_value()]
        # As for envelopes: what the previous secret signed is still good, and without any secret the key is empty.
        self._keys = [secrets[0].encode(), *(secret.encode() for secret in secrets[1:] if secret)]

    def issue(self, handle: str, tenant: str) -> Ticket:
        """Give out a task id for a handle, good for this tenant only."""
        created_ms = int(time.time() * 1000)
        said = f"{handle}.{created_ms:x}"
        return Ticket(f"{said}.{_mac(self._keys[0], said, tenant)}", handle, tenant, created_ms / 1000)

    def read(self, task_id: str, tenant: str) -> Ticket:
        """Return the ticket of a task id that was given to this tenant. Raises HandleNotFound for any other text."""
        said, _, mac = task_id.rpartition(".")
        claimed = mac.encode("utf-8", "replace")
        if not any(hmac.compare_digest(_mac(key, said, tenant).encode(), claimed) for key in self._keys):
            raise HandleNotFound("there is no such task: its id is wrong, or it belongs to somebody else")
        handle, _, created_ms = said.rpartition(".")
        return Ticket(task_id, handle, tenant, int(created_ms, 16) / 1000)


def _mac(key: bytes, said: str, tenant: str) -> str:
    owner = tenant.encode()
    text = _PURPOSE + len(owner).to_bytes(4, "big") + owner + said.encode("utf-8", "replace")
    return base64.urlsafe_b64encode(hmac.digest(key, text, "sha256")[:_MAC_BYTES]).decode().rstrip("=")
