"""A kombu transport on Redis Streams: batches in, batches out, leases, priorities, dead letters.

Importing this package makes its URL schemes known to kombu. What other parts of the project need is exported here.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from kombu.transport import TRANSPORT_ALIASES

from toolfleet.errors import InvalidSettings
from toolfleet.settings import Settings
from toolfleet.stream_urls import sentinel_service
from toolfleet.streams.names import GROUP, RETURNED, Priority, consumer_name, home_of, lane_name

__all__ = [
    "GROUP",
    "RETURNED",
    "SCHEMES",
    "Priority",
    "check_broker_url",
    "consumer_name",
    "home_of",
    "lane_name",
    "transport_options",
]

_TRANSPORTS: Final = {
    "streams": "toolfleet.streams.transport:Transport",
    "streamss": "toolfleet.streams.transport:SecureTransport",
    "streams-sentinel": "toolfleet.streams.transport:SentinelTransport",
}
TRANSPORT_ALIASES.update(_TRANSPORTS)

SCHEMES: Final = ("streams", "streamss", "streams+socket", "streams-sentinel")
"""URL schemes of this transport: TCP, TLS, Unix socket, Sentinel."""


def check_broker_url(url: str) -> str:
    """The same URL if kombu knows its scheme. Raises InvalidSettings with the schemes that work."""
    scheme = urlsplit(url).scheme
    if scheme in SCHEMES or scheme.partition("+")[0] in TRANSPORT_ALIASES:
        return url
    known = ", ".join(f"{name}://" for name in (*SCHEMES, *sorted(set(TRANSPORT_ALIASES) - set(SCHEMES))))
    raise InvalidSettings(f"broker_url has the unknown scheme {scheme}://; the schemes that work are {known}")


def transport_options(settings: Settings) -> dict[str, Any]:
    """Celery's `broker_transport_options` for this fleet. Other Redis brokers take the socket options from it too."""
    options: dict[str, Any] = {
        "namespace": settings.namespace,
        "lease_s": settings.lease_s,
        "heartbeat_s": settings.heartbeat_s,
        "max_deliveries": settings.max_deliveries,
        "max_message_bytes": settings.max_message_bytes,
        # A server that froze or vanished without closing is noticed in seconds, not when TCP gives up.
        "socket_timeout": 5.0,
        "socket_connect_timeout": 5.0,
        "socket_keepalive": True,
        "health_check_interval": 5,
    }
    if service := sentinel_service(settings.redis_url):
        options["master_name"] = service
    return options
