"""Connections to Redis, made one way everywhere, with its errors translated once.

Holds no key and no command: only how to reach the server and what to raise when it is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.exceptions
import redis.sentinel

from toolfleet.errors import StoreUnreachable
from toolfleet.settings import Settings

CONNECT_TIMEOUT_S: Final = 5.0
SOCKET_TIMEOUT_S: Final = 30.0
"""Longer than any blocking read asks the server to wait."""

HEALTH_CHECK_S: Final = 10
"""A connection that was idle for so long is tried before it is used."""

MAX_CONNECTIONS: Final = 1000
"""Commands wait for one another on no connection; the default of 100 would fail the next one instead."""

SHARED_CONNECTIONS: Final = 32
"""More would only wait in the server instead of here."""


def _options(url: str, *, socket_timeout_s: float | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": socket_timeout_s,
        "health_check_interval": HEALTH_CHECK_S,
        "max_connections": MAX_CONNECTIONS,
    }
    if not url.startswith("unix:"):
        # The kernel notices a peer that vanished without a word.
        options |= {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_keepalive": True}
    return options


def connect(settings: Settings) -> redis.Redis:
    """A blocking client; connects at the first command."""
    options = _options(settings.redis_url, socket_timeout_s=SOCKET_TIMEOUT_S)
    if settings.redis_url.startswith("sentinel://"):
        hosts, service, master = _sentinel(settings.redis_url)
        client: redis.Redis = redis.sentinel.Sentinel(hosts, **options).master_for(service, **master)
        return client
    return redis.Redis.from_url(settings.redis_url, **options)


def connect_async(settings: Settings, *, shared_by_many: bool = False) -> redis.asyncio.Redis:
    """An asyncio client for the running loop; connects at the first command.

    Without a timeout per reply: that is a timer for each, a third of a command's cost, and whoever waits here has a
    deadline of their own. With `shared_by_many`, commands wait for one of a few connections: for thousands of tasks
    that each send one now and then. Nothing that blocks on the server may be sent through it.
    """
    options = _options(settings.redis_url, socket_timeout_s=None)
    if settings.redis_url.startswith("sentinel://"):
        hosts, service, master = _sentinel(settings.redis_url)
        client: redis.asyncio.Redis = redis.asyncio.sentinel.Sentinel(hosts, **options).master_for(service, **master)
        return client
    if shared_by_many:
        shared = options | {"max_connections": SHARED_CONNECTIONS, "timeout": None}
        pool = redis.asyncio.BlockingConnectionPool.from_url(settings.redis_url, **shared)
        return redis.asyncio.Redis.from_pool(pool)
    return redis.asyncio.Redis.from_url(settings.redis_url, **options)


@contextmanager
def translating(settings: Settings) -> Iterator[None]:
    """Turn redis-py's connection errors into StoreUnreachable, naming the address but never its password."""
    try:
        yield
    except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
        raise StoreUnreachable(
            f"Redis at {address(settings.redis_url)} refused us: {error}; "
            "check user and password in TOOLFLEET_REDIS_URL"
        ) from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise StoreUnreachable(
            f"Redis at {address(settings.redis_url)} does not answer ({error}); start it, or set TOOLFLEET_REDIS_URL"
        ) from error


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
