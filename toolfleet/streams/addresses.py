"""Where the server is: for the companion process as plain values, and for Sentinel as a connection pool."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import redis
import redis.sentinel

_NOT_FOR_OTHERS: Final = frozenset(
    {"connection_class", "driver_info", "max_connections", "socket_timeout", "retry_on_timeout"}
)


def address_of(channel: Any) -> dict[str, Any]:
    """Return what another process needs to reach the channel's server, as JSON values."""
    parameters = channel._connparams()
    if "credential_provider" in parameters:
        raise NotImplementedError("the stream transport's workers need a password: a credential provider is not enough")
    connection_class = parameters["connection_class"]
    options = {name: value for name, value in parameters.items() if value is not None and name not in _NOT_FOR_OTHERS}
    if sentinels := _sentinels(channel):
        del options["host"], options["port"]
        address = {"kind": "sentinel", "service": channel.master_name, "sentinels": sentinels}
        return address | {"sentinel_kwargs": getattr(channel, "sentinel_kwargs", None), "options": options}
    if issubclass(connection_class, redis.UnixDomainSocketConnection):
        return {"kind": "socket", "options": options}
    return {"kind": "tls" if issubclass(connection_class, redis.SSLConnection) else "tcp", "options": options}


def sentinel_pool(channel: Any, parameters: dict[str, Any]) -> tuple[redis.sentinel.Sentinel, Any]:
    """Return a Sentinel and a pool of connections to the master it names."""
    service = getattr(channel, "master_name", None)
    if not service:
        raise ValueError("the transport option `master_name` must say which service the sentinels watch")
    options = {name: value for name, value in parameters.items() if name not in {"host", "port"}}
    manager = redis.sentinel.Sentinel(
        _sentinels(channel),
        min_other_sentinels=getattr(channel, "min_other_sentinels", 0),
        sentinel_kwargs=getattr(channel, "sentinel_kwargs", None),
        **options,
    )
    return manager, manager.master_for(service, redis.Redis).connection_pool


def _sentinels(channel: Any) -> list[tuple[str, int]]:
    client, default_port = channel.connection.client, channel.connection.default_port
    if not hasattr(channel, "sentinel_fanout_compat"):
        return []
    urls = [urlsplit(url) for url in client.alt if "://" in url]
    return [(url.hostname or "localhost", url.port or default_port) for url in urls] or [
        (client.hostname or "localhost", client.port or default_port)
    ]
