"""An approval is good for one call: what a client sends back with it is taken once, whichever server it reaches.

Owns what is stored of that; what is asked, and whether it may be, is `rounds`.
"""

from __future__ import annotations

from typing import Final

import redis.asyncio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolfleet.keys import APPROVED_TTL_S, Keys

USED: Final = (
    "this approval was used already, and is good for one call: look what that call has done, and call anew to be asked "
    "again"
)


class Approvals:
    """The approvals that were used, of all servers of a fleet."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def use(self, round_id: str) -> None:
        """Take the answers to this round, which nobody can then bring again. Raises MCPError, StoreUnreachable."""
        if not await self._client.set(self._keys.approved(round_id), b"", nx=True, ex=APPROVED_TTL_S):
            raise MCPError(INVALID_PARAMS, USED)
