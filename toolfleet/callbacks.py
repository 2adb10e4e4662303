"""Addresses at the HTTP API at which another system ends a job: signed, so that they are all that it needs.

Both halves speak this: workers hand them out, the API checks them with the same seal.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, urlencode

from toolfleet.context import without_address
from toolfleet.settings import Settings
from toolfleet.wire import Seal


def callbacks(settings: Settings, seal: Seal) -> Callable[[str, int], str]:
    """Makes the address for a call id and the time at which it expires (Unix seconds)."""
    if not settings.public_url:
        return without_address
    base = settings.public_url.rstrip("/")

    def address_of(call_id: str, expires_unix_s: int) -> str:
        query = urlencode({"expires": expires_unix_s, "signature": seal.sign_callback(call_id, expires_unix_s)})
        return f"{base}/v1/handles/{quote(call_id, safe='')}/complete?{query}"

    return address_of
