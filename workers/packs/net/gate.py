"""Which addresses a model may reach: public ones, and what the operator allows.

A name is resolved once and the connection goes to the address that was checked, so that a second answer of the name
server (DNS rebinding) changes nothing. Fetches nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from toolfleet import ToolError

Address = IPv4Address | IPv6Address

PUBLIC_V6: Final = IPv6Network("2000::/3")
"""All that is routed on the internet. What carries an IPv4 address elsewhere (mapped, NAT64, SIIT) is outside of it."""

TUNNELS_V6: Final = (IPv6Network("2001::/32"), IPv6Network("2002::/16"))
"""Teredo and 6to4: the packets end at an IPv4 address of the sender's choice."""

SPECIAL_V4: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
"""For protocols and relays; some Pythons take most of the first for public, and a cloud has its metadata there."""

PLATFORMS: Final = frozenset({ip_address("168.63.129.16")})
"""Public by number, and a cloud's own service to its machines."""


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
        plain = address.ipv4_mapped if isinstance(address, IPv6Address) and address.ipv4_mapped else address
        if is_public(plain) or any(each.covers(host, plain, port) for each in self._allowed):
            return
        raise NotAllowed(f"{host} is not on the public internet, and only that may be reached")


def is_public(address: Address) -> bool:
    """Whether an address is anybody's on the internet: not private, loopback, link-local, multicast or a platform's."""
    if isinstance(address, IPv6Address):
        return address in PUBLIC_V6 and address.is_global and not any(address in tunnel for tunnel in TUNNELS_V6)
    if address in PLATFORMS or any(address in network for network in SPECIAL_V4):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
