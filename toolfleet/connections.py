"""Connections to Redis, made one way everywhere.

Holds no key and no command: only how to reach the server. What is raised when it is gone, its clients say.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from toolfleet.driver import driver
from toolfleet.errors import InvalidSettings
from toolfleet.redis_clients import AsyncClient, Client
from toolfleet.settings import Settings

CONNECT_TIMEOUT_S: Final = 5.0
SOCKET_TIMEOUT_S: Final = 30.0
"""Longer than any blocking read asks the server to wait."""

HEALTH_CHECK_S: Final = 10
"""A connection that was idle for so long is tried before it is used."""

MAX_CONNECTIONS: Final = 1000
"""Reads that wait on the server have one each; the default of 100 would fail the next one instead."""


def _options(url: str, *, socket_timeout_s: float | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": socket_timeout_s,
        "health_check_interval": HEALTH_CHECK_S,
        "max_connections": MAX_CONNECTIONS,
        "driver_info": driver(),
    }
    if not url.startswith("unix:"):
        # The kernel notices a peer that vanished without a word.
        options |= {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_keepalive": True}
    return options


def must_be_one_redis(settings: Settings) -> None:
    """Raise InvalidSettings where there are several shards and none of them is meant."""
    if settings.is_for_all_shards:
        names = ", ".join(settings.all_shards.names)
        raise InvalidSettings(f"this is done on one shard: say on which with TOOLFLEET_SHARD, which may be {names}")


def connect(settings: Settings) -> redis.Redis:
    """A blocking client; connects at the first command. Its commands raise StoreUnreachable."""
    must_be_one_redis(settings)
    return Client(_pool(settings.redis_url), address(settings.redis_url))


def connect_async(settings: Settings) -> AsyncClient:
    """An asyncio client for the running loop; connects at the first command. Its commands raise StoreUnreachable.

    Any number of tasks may use it: their commands share one connection, and what waits on the server has one of its
    own. Without a timeout per reply: that is a timer for each, and whoever waits here has a deadline of their own.
    """
    must_be_one_redis(settings)
    return AsyncClient(_async_pool(settings.redis_url), address(settings.redis_url))


def _pool(url: str) -> redis.ConnectionPool:
    options = _options(url, socket_timeout_s=SOCKET_TIMEOUT_S)
    if url.startswith("sentinel://"):
        hosts, service, primary = _sentinel(url)
        sentinel = redis.sentinel.Sentinel(hosts, **options)
        return redis.sentinel.SentinelConnectionPool(service, sentinel, is_master=True, **options, **primary)
    return redis.ConnectionPool.from_url(url, **options)


def _async_pool(url: str) -> redis.asyncio.ConnectionPool:
    options = _options(url, socket_timeout_s=None)
    if url.startswith("sentinel://"):
        hosts, service, primary = _sentinel(url)
        sentinel = redis.asyncio.sentinel.Sentinel(hosts, **options)
        return redis.asyncio.sentinel.SentinelConnectionPool(service, sentinel, is_master=True, **options, **primary)
    return redis.asyncio.ConnectionPool.from_url(url, **options)


def address(url: str) -> str:
    """A URL without its credentials, fit for logs and errors."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _sentinel(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Read sentinel://[user:password@]host:port[,host:port…]/service?db=0."""
    parts = urlsplit(url)
    credentials, _, netloc = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    hosts = [(host, int(port or 26379)) for host, _, port in (part.partition(":") for part in netloc.split(","))]
    database = int(parse_qs(parts.query).get("db", ["0"])[0])
    options = {"db": database, "username": username or None, "password": password or None}
    return hosts, parts.path.strip("/") or "mymaster", options
