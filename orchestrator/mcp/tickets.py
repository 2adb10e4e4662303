"""Task ids: a handle, bound to the tenant it was given to. Nothing is stored: the id carries its own proof.

HMAC-SHA256 (RFC 2104) over a purpose, the tenant and the id's readable part: any server of the fleet can check it.
"""

from __future__ import annotations

import base64
import hmac
import time
from dataclasses import dataclass
from typing import Final

from toolfleet.errors import HandleNotFound
from toolfleet.keys import RESULT_TTL_S
from toolfleet.settings import Settings
from toolfleet.tool import ToolSpec

_PURPOSE: Final = b"toolfleet.mcp.task\0"
_MAC_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a task id says: the fleet's handle, when it was given out, and how long it is good for."""

    task_id: str
    handle: str
    created_unix_s: float
    ttl_s: int
    tenant: str


class Tickets:
    """Gives out task ids and reads them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        secrets = [settings.secret.get_secret_value(), settings.previous_secret.get_secret_value()]
        # As for envelopes: what the previous secret signed is still good, and without any secret the key is empty.
        self._keys = [secrets[0].encode(), *(secret.encode() for secret in secrets[1:] if secret)]

    def issue(self, handle: str, tenant: str, spec: ToolSpec) -> Ticket:
        """A task id for a handle, good for this tenant only."""
        created_unix_s = int(time.time() * 1000) / 1000
        settings = self._settings
        timeout_s = settings.long_call_timeout_s if spec.long_running else settings.call_timeout_s
        ttl_s = int(max(timeout_s, spec.timeout_s or 0)) + RESULT_TTL_S
        said = f"{handle}.{int(created_unix_s * 1000):x}.{ttl_s:x}"
        return Ticket(f"{said}.{_mac(self._keys[0], said, tenant)}", handle, created_unix_s, ttl_s, tenant)

    def read(self, task_id: str, tenant: str) -> Ticket:
        """The ticket, if it was given to this tenant. Raises HandleNotFound for any other text."""
        said, _, mac = task_id.rpartition(".")
        claimed = mac.encode("utf-8", "replace")
        if not any(hmac.compare_digest(_mac(key, said, tenant).encode(), claimed) for key in self._keys):
            raise HandleNotFound("there is no such task: its id is wrong, or it belongs to somebody else")
        handle, created, ttl = said.rsplit(".", 2)
        return Ticket(task_id, handle, int(created, 16) / 1000, int(ttl, 16), tenant)


def _mac(key: bytes, said: str, tenant: str) -> str:
    owner = tenant.encode()
    text = _PURPOSE + len(owner).to_bytes(4, "big") + owner + said.encode("utf-8", "replace")
    return base64.urlsafe_b64encode(hmac.digest(key, text, "sha256")[:_MAC_BYTES]).decode().rstrip("=")
