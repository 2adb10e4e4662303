"""Which addresses are anybody's on the internet: what a stranger may name, and a process of ours connect to.

Pure: resolves nothing. Whoever connects does so to the address that was asked about here, and not to the name again.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address

PUBLIC_V6: Final = IPv6Network("2000::/3")
"""All that is routed on the internet. What carries an IPv4 address elsewhere (mapped, NAT64, SIIT) is outside of it."""

TUNNELS_V6: Final = (IPv6Network("2001::/32"), IPv6Network("2002::/16"))
"""Teredo and 6to4: the packets end at an IPv4 address of the sender's choice."""

SPECIAL_V4: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
"""For protocols and relays; some Pythons take most of the first for public, and a cloud has its metadata there."""

PLATFORMS: Final = frozenset({ip_address("168.63.129.16")})
"""Public by number, and a cloud's own service to its machines."""


def plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one only writes otherwise, or the address as it is."""
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def is_public(address: Address) -> bool:
    """Whether an address is anybody's on the internet: not private, loopback, link-local, multicast or a platform's."""
    if isinstance(address, IPv6Address):
        return address in PUBLIC_V6 and address.is_global and not any(address in tunnel for tunnel in TUNNELS_V6)
    if address in PLATFORMS or any(address in network for network in SPECIAL_V4):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
