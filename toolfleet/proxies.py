"""Through whom a server is asked, as the environment says (`HTTPS_PROXY`, `NO_PROXY`)."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def proxy_to(url: str) -> str | None:
    """Return the proxy through which a URL is asked; None for nobody. To be looked up once, and not for each request.

    One that the environment names is for the outside world: it could not reach this machine's own servers.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in _LOOPBACK_HOSTS or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)
