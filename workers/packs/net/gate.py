"""Which addresses a model may reach: public ones, and what the operator allows.

A name is resolved once and the connection goes to the address that was checked, so that a second answer of the name
server (DNS rebinding) changes nothing. Fetches nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from toolfleet import ToolError
from toolfleet.public_addresses import Address, is_public, plain


class NotAllowed(ToolError):
    """The address is not one that a model may reach."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """An exception of the operator's: a host, an address or a network, on one port or on all."""

    host: str
    port: int | None

    @classmethod
    def read(cls, text: str) -> Allowed:
        """Read `host`, `host:port`, `[v6]:port` or `network/bits`. Raises ValueError."""
        if "/" in text:
            return cls(str(ip_network(text)), None)
        try:
            return cls(str(ip_address(text)), None)
        except ValueError:
            parts = urlsplit(f"//{text}")
            if not parts.hostname:
                raise ValueError(f"{text!r} is no host, host:port or network") from None
            return cls(parts.hostname, parts.port)

    def covers(self, host: str, address: Address, port: int) -> bool:
        """Whether a connection to this address, as the host of this name, is meant."""
        if self.port not in (None, port):
            return False
        if "/" in self.host:
            return address in ip_network(self.host)
        return self.host in (host.lower(), str(address))


class Gate:
    """Resolves hosts to addresses that may be reached."""

    def __init__(self, allowed: Sequence[Allowed] = ()) -> None:
        self._allowed = tuple(allowed)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Where a host is. Raises NotAllowed if any of its addresses may not be reached, ToolError if there is none."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise ToolError(f"the host {host} cannot be found") from None
        # getaddrinfo also reads 0x7f.1, 2130706433 and the like: what is checked is what it made of them.
        addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
        for each in addresses:
            self._check(host, ip_address(each), port)
        return addresses

    def _check(self, host: str, address: Address, port: int) -> None:
        meant = plain(address)
        if is_public(meant) or any(each.covers(host, meant, port) for each in self._allowed):
            return
        raise NotAllowed(f"{host} is not on the public internet, and only that may be reached")
