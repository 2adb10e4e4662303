"""Where a webhook may go: what an endpoint's URL may be, and which addresses of its host are connected to.

A name is looked up once for each attempt, and the connection goes to the addresses that were checked: what a name
server says a moment later (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

import httpx

from toolfleet.orchestrator.errors import InvalidWebhook
from toolfleet.public_addresses import is_public, plain
from toolfleet.settings import Network

MAX_URL_CHARS: Final = 2048

MAX_PORT: Final = 65535

SHOWN_CHARS: Final = 100


def checked_url(text: str) -> httpx.URL:
    """Return an endpoint's URL as it may be stored. Raises InvalidWebhook."""
    if len(text) > MAX_URL_CHARS:
        raise InvalidWebhook(f"the URL has {len(text)} characters: {MAX_URL_CHARS} are allowed")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidWebhook("the URL may have printable ASCII characters only, and no blanks: encode what else it has")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise InvalidWebhook(f"{text[:SHOWN_CHARS]!r} is no URL") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise InvalidWebhook(f"{text[:SHOWN_CHARS]!r} is no URL that begins with https:// and a host")
    if url.port is not None and not 0 < url.port <= MAX_PORT:
        raise InvalidWebhook(f"{text[:SHOWN_CHARS]!r} is no URL: there is no such port")
    if url.userinfo:
        raise InvalidWebhook("the URL must not hold a user name or password: verify the signature instead")
    if url.fragment or "#" in text:
        raise InvalidWebhook("the URL must not have a fragment (#…): it would not be sent")
    return url


async def addresses_of(url: httpx.URL, allowed: Sequence[Network]) -> list[str]:
    """Return the addresses of a URL's host that may be connected to: all that it has, or it is refused.

    Raises InvalidWebhook for one that is not public and not among the networks that are `allowed`, and for http:// to
    any that is not, and for a host that has no address.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.host, port_of(url), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InvalidWebhook(f"the host {url.host[:SHOWN_CHARS]} cannot be found") from None
    # getaddrinfo also reads 0x7f.1, 2130706433 and the like: what is checked is what it made of them.
    addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
    for each in addresses:
        _must_be_allowed(url, each, allowed)
    return addresses


def port_of(url: httpx.URL) -> int:
    """Return the port that a URL means."""
    return url.port or (443 if url.scheme == "https" else 80)


def _must_be_allowed(url: httpx.URL, address: str, allowed: Sequence[Network]) -> None:
    meant = plain(ip_address(address.partition("%")[0]))
    if any(meant in network for network in allowed):
        return
    if not is_public(meant):
        raise InvalidWebhook(
            f"{url.host[:SHOWN_CHARS]} is not on the public internet: webhooks go to private networks only where "
            "TOOLFLEET_WEBHOOK_NETWORKS names them"
        )
    if url.scheme != "https":
        raise InvalidWebhook("the URL must begin with https://: http:// is for TOOLFLEET_WEBHOOK_NETWORKS only")
