"""Which Redis a library call means when nobody named one: that of the fleet which runs on this machine already.

Joins and asks; starts nothing. The commands, which may start a server, decide in `toolfleet.local.fleet`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from toolfleet.connections import address, connect
from toolfleet.errors import StoreRefuses, StoreUnreachable
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.settings import DEFAULT_REDIS_URL, Settings


@contextmanager
def running_redis(settings: Settings, *, otherwise: str = DEFAULT_REDIS_URL) -> Iterator[Settings]:
    """The same settings with a Redis that was found, or `settings` as they are where they name one.

    First this user's embedded server, which `toolfleet up` runs and which stays until the block ends, then what
    answers at `otherwise`. Raises StoreUnreachable with both names when there is neither, ServerNotStarted
    when the embedded server's own process does not answer.
    """
    if settings.names_redis:
        yield settings
        return
    server = EmbeddedServer()
    if server.join():
        try:
            yield settings.model_copy(update={"redis_url": server.url})
        finally:
            server.stop()
        return
    found = settings.model_copy(update={"redis_url": otherwise})
    _must_answer(found, server)
    yield found


def _must_answer(settings: Settings, server: EmbeddedServer) -> None:
    """Raise StoreUnreachable unless a Redis is there; one that refuses us says why at the first command."""
    try:
        with connect(settings) as client:
            client.ping()
    except StoreRefuses:
        return
    except StoreUnreachable as error:
        raise StoreUnreachable(
            f"no fleet runs here: this user has no embedded server at work (its directory would be "
            f"{server.place}), and no Redis answers at {address(settings.redis_url)} ({error.__cause__}). "
            "Start a fleet with `toolfleet up`, or name its Redis with TOOLFLEET_REDIS_URL or redis_url="
        ) from None
