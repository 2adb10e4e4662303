"""The kombu transports: streams://, streamss:// (TLS), streams+socket:// and streams-sentinel://."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from kombu.transport.redis import MultiChannelPoller, Transport as RedisTransport

from toolfleet.streams.channel import SentinelStreamChannel, StreamChannel


class StreamPoller(MultiChannelPoller):  # type: ignore[misc]  # kombu ships no types
    """kombu's poller, which also lets each channel settle once per tick."""

    evented = False
    """Whether an event loop calls; without one, acknowledgements do not wait for a tick."""

    wake: Callable[[], object] = staticmethod(lambda: None)
    """Interrupts the event loop's wait. Without a loop there is nothing to interrupt."""

    def on_poll_init(self, poller: Any) -> None:
        """Use the event loop's poller."""
        self.poller = poller

    def on_poll_start(self) -> None:
        """Send reads first, so that Redis works on them while the channels settle."""
        for channel in self._channels:
            channel.expect_credit()
        super().on_poll_start()
        for channel in tuple(self._channels):
            channel.tick()

    def _register_BRPOP(self, channel: StreamChannel) -> None:  # noqa: N802  # kombu's name
        # No connection of its own for one that another loop reads for: idle, it would be cut by whoever cuts idle ones.
        if channel.is_read_elsewhere:
            channel._brpop_start()
        else:
            super()._register_BRPOP(channel)

    def maybe_restore_messages(self) -> None:
        """Do nothing: leases tell which worker is gone."""


class Transport(RedisTransport):  # type: ignore[misc]  # kombu ships no types
    """kombu's Redis transport with queues on Redis Streams."""

    Channel = StreamChannel
    # The driver stays `redis`: Celery chooses fanout for events, mingle and gossip by this name.

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = StreamPoller()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Read and settle from Celery's event loop."""
        super().register_with_event_loop(connection, loop)
        self.cycle.evented = True
        self.cycle.wake = partial(loop.call_soon, _nothing)


class SecureTransport(Transport):
    """The same over TLS; the server's certificate is checked unless the options say otherwise."""

    def __init__(self, client: Any, **kwargs: Any) -> None:
        client.ssl = client.ssl or {"ssl_cert_reqs": ssl.CERT_REQUIRED}
        super().__init__(client, **kwargs)


class SentinelTransport(Transport):
    """The same on the master that Redis Sentinel names."""

    default_port = 26379
    Channel = SentinelStreamChannel


def _nothing() -> None:
    pass
