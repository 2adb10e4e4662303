"""A kombu transport on Redis Streams: batches in, batches out, leases, priorities, dead letters.

Importing this package makes its URL schemes known to kombu. What other parts of the project need is exported here.

The rules of the transport
--------------------------

A queue has one stream for each priority level, and a sorted set for messages that are not due yet. All streams have one
consumer group, `workers`. A *consumer* is one worker process. Redis keeps for each entry that the group has read (a
*pending* entry) which consumer has it, and how often it was delivered. So a message is always in one of these states:

    state      where it is                       what leads out of it
    scheduled  in the queue's sorted set         its time comes: fetch.lua -> new
    new        in a stream, not read yet         a worker reads it: fetch.lua, or a waiting XREADGROUP -> held
                                                 nobody reads its lane: retire_lane.lua -> new, in the queue
                                                 the queue is purged: purge.lua -> gone
    held       pending, with a worker            its result is stored (workers/delivery/settle.py) -> gone
                                                 it is acknowledged: XACK and XDEL -> gone
                                                 the worker gives it back: park.lua -> returned
                                                 it is for another worker: forward.lua -> new or scheduled, elsewhere
                                                 it cannot be handled: bury.lua -> dead letter
                                                 it is a copy of a claimed call: fetch.lua, or XACK and XDEL -> gone
                                                 the worker stops: leave.lua -> returned
                                                 the process dies: leave.lua or sweep.lua -> returned
    returned   pending, with `@returned`         a worker takes it, before all that is new: fetch.lua -> held
                                                 its last holder settles it after all -> gone
                                                 nobody reads its lane: retire_lane.lua -> new, in the queue
                                                 the queue is purged: purge.lua -> gone

There is no state in between. A read makes an entry pending in the same command, so no message is ever only in the
memory of a worker, and nothing but the scripts above takes it out again.

`@returned` is a consumer that no process is. Redis Streams cannot make a pending entry new again, and an entry that was
deleted and added once more would lose its delivery count. So what is given back goes to this consumer, which keeps
count and order. It has no lease and is never swept.

*Delivery count.* Each read of an entry adds one. A delivery counts if the tool may have begun: `park.lua` takes one off
again for a message that never came to a start, `forward.lua` for one that only passed through. A message that moves to
another stream is a new entry with a new id; it carries the id of its first entry (`first`) and the deliveries that
count (`earlier`), so that its history goes with it.

*Claim.* A call whose effect must happen once is claimed for its entry as it is read (`claim:{call_id}`). A pending
entry tells of a second delivery of one message; the claim tells of a second message for one call. Scripts that move a
message move its claim in the same step. What the entry says is checked against the signed call before that starts.

*Lease.* A worker lives as long as its lease does: `lease:{consumer}`, which a companion process sets to `alive` on
every heartbeat (`lease_keeper.py`). When the worker ends in any way, its companion runs `leave.lua`, which sets the
lease to `gone` and returns all that the worker held. When the companion is lost too (a lost machine), the key expires.
Another worker's companion then finds a consumer without a lease, and after it has been missing at each look for a
while, returns what it held (`sweep.lua`). A lapsed lease alone takes nothing away: whoever still holds the pending
entry may settle.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from kombu.transport import TRANSPORT_ALIASES

from toolfleet.errors import InvalidSettings
from toolfleet.settings import Settings
from toolfleet.signs_of_life import LEASE, SignOfLife
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
    """Return the same URL if kombu knows its scheme. Raises InvalidSettings with the schemes that work."""
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
        "alive_file": SignOfLife(settings.alive_dir, LEASE).path,
        "max_deliveries": settings.max_deliveries,
        "wait_replicas": settings.wait_replicas,
        "wait_replicas_s": settings.wait_replicas_s,
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
