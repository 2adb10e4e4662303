"""The companion process of a worker: renews its lease, ends it when the worker is gone, and sweeps after other workers.

Run as a program; the worker writes JSON lines to its standard input. Imports nothing of this project, to start fast and
stay small. It does not renew while the worker is stopped, so a worker that cannot work loses its messages to others.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pathlib
import selectors
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil

if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 100)  # what is loaded stays
    # redis-py loads the whole SDK of OpenTelemetry where it finds one: a third of what starting this program takes.
    sys.modules["opentelemetry"] = None  # type: ignore[assignment]  # as Python marks what is not to be found

import redis
import redis.sentinel

WATCH_EVERY_S = 0.2
"""How soon the end of the worker is noticed where its pipe does not tell (a forked child may hold it open)."""

LANE_AT_ONCE = 500
"""Messages that one script call sends home from a lane."""

GONE_TTL_FACTOR = 20
"""How many leases long a dead worker is remembered as dead; its name never comes back."""


class Suspects:
    """Consumers without a lease: only one that was missing at every look of `grace_s` is taken for dead."""

    def __init__(self, *, look_every_s: float, grace_s: float) -> None:
        self._fresh_s = 3 * look_every_s
        self._grace_s = grace_s
        self._seen: dict[str, tuple[float, float]] = {}
        """Since when each is missing, and when it was last seen so."""

    def note(self, name: str, now_s: float) -> None:
        """Note one that is missing now. A pause of Redis, or of this process, starts its clock again."""
        since_s, seen_s = self._seen.get(name, (now_s, now_s))
        self._seen[name] = (since_s if now_s - seen_s <= self._fresh_s else now_s, now_s)

    def clear(self) -> None:
        """Suspect nobody."""
        self._seen.clear()

    def condemned(self, now_s: float) -> list[str]:
        """Return those that were missing for long enough; whoever was not seen lately is a suspect no more."""
        self._seen = {
            name: (since_s, seen_s) for name, (since_s, seen_s) in self._seen.items() if now_s - seen_s <= self._fresh_s
        }
        return [name for name, (since_s, seen_s) in self._seen.items() if seen_s - since_s >= self._grace_s]


class LeaseKeeper:
    """Keeps one worker's lease in Redis, and returns what dead workers hold."""

    def __init__(self, orders: dict[str, Any], worker_pid: int) -> None:
        self._orders = orders
        self._queues: dict[str, list[str]] = orders["queues"]
        self._reading: list[str] = orders["reading"]
        self._worker_pid = worker_pid
        self._client = connect(orders["redis"])
        self._sweep = self._client.register_script(orders["sweep_script"])
        self._leave = self._client.register_script(orders["leave_script"])
        self._keep_lane = self._client.register_script(orders["keep_lane_script"])
        self._retire_lane = self._client.register_script(orders["retire_lane_script"])
        self._suspects = Suspects(look_every_s=orders["sweep_every_s"], grace_s=orders["grace_s"])
        self._retry_at = 0.0
        self._failures = 0

    def run(self, orders: Callable[[float], dict[str, Any] | None]) -> None:
        """Work until the worker ends, then end its lease. `orders` waits for news and raises EOFError at its end."""
        renew_at = sweep_at = time.monotonic()
        with contextlib.suppress(EOFError):
            while self._worker_lives():
                now = time.monotonic()
                if now >= max(renew_at, self._retry_at) and self._attempt(self._renew):
                    renew_at = now + self._orders["renew_every_s"]
                if now >= max(sweep_at, self._retry_at) and self._attempt(self._sweep_queues):
                    sweep_at = now + self._orders["sweep_every_s"]
                if news := orders(WATCH_EVERY_S):
                    self._queues, self._reading = news["queues"], news["reading"]
        self._end_lease()

    def _worker_lives(self) -> bool:
        # When the worker is gone, another process has become the parent of this one.
        return os.getppid() == self._worker_pid

    def _worker_works(self) -> bool:
        try:
            status = psutil.Process(self._worker_pid).status()
        except psutil.Error:
            return False
        except OSError:
            return True  # no file can be opened on this machine: that says nothing of the worker
        return status not in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}

    def _renew(self) -> None:
        if self._worker_works():
            self._client.set(self._orders["lease"], "alive", px=self._orders["lease_ms"])
            for lane in self._reading:
                arguments = [lane, self._orders["consumer"], self._orders["lease_ms"]]
                self._keep_lane(keys=self._keys_of(lane), args=arguments)
            self._show_life()

    def _sweep_queues(self) -> None:
        if not self._worker_works():
            return  # it is one to sweep after: the post is for another's companion
        for queue, streams in self._queues.items():
            self._sweep_queue(queue, streams)
        for lane in self._lanes_of_others():
            self._sweep_queue(lane, self._streams(lane))
            self._retire(lane)

    def _lanes_of_others(self) -> list[str]:
        """Return the lanes of this worker's queues that it does not read: their last reader may be gone."""
        prefix = self._orders["lanes_prefix"]
        known: list[Any] = [name for queue in self._queues for name in self._client.smembers(prefix + queue)]
        return [lane for lane in (name.decode(errors="replace") for name in known) if lane not in self._reading]

    def _retire(self, lane: str, consumer: str = "") -> None:
        """Send home what waits in a lane that nobody reads; `consumer` reads it no more."""
        home = lane.rpartition(".lane-")[0]
        streams = [key for pair in zip(self._streams(lane), self._streams(home), strict=True) for key in pair]
        arguments = [self._orders["group"], self._orders["returned"], lane, consumer, LANE_AT_ONCE]
        arguments.append(self._orders["claim_prefix"])
        while self._retire_lane(keys=[*self._keys_of(lane), *streams], args=arguments) >= LANE_AT_ONCE:
            pass

    def _keys_of(self, lane: str) -> list[str]:
        orders = self._orders
        return [orders["lane_prefix"] + lane, orders["lanes_prefix"] + lane.rpartition(".lane-")[0]]

    def _streams(self, queue: str) -> list[str]:
        return [f"{self._orders['queue_prefix']}{queue}:{level}" for level in self._orders["levels"]]

    def _sweep_queue(self, queue: str, streams: list[str]) -> None:
        orders, now = self._orders, time.monotonic()
        arguments = [orders["group"], orders["returned"], orders["consumer"], orders["lease_prefix"]]
        arguments += [orders["sweeper_prefix"] + queue, orders["term_ms"], *self._suspects.condemned(now)]
        for name in self._sweep(keys=streams, args=arguments):
            self._suspects.note(name.decode(errors="replace"), now)

    def _show_life(self) -> None:
        """Write the file of `toolfleet.signs_of_life`, unless the worker is stopped. A probe finds out if it cannot."""
        file = self._orders["alive_file"]
        if file and self._worker_works():
            with contextlib.suppress(OSError):
                pathlib.Path(file).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(file).touch()

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Try to do it, and return whether it was done. While Redis is away the pauses grow to a second."""
        try:
            action()
        except (redis.RedisError, OSError):
            self._show_life()  # the server is away, or refuses, which is no fault of the worker
            self._failures += 1
            self._retry_at = time.monotonic() + min(1.0, 0.1 * 2 ** min(self._failures, 6))
            return False
        self._failures = 0
        return True

    def _end_lease(self) -> None:
        """Give back what the worker held. Tries for one lease; after that its lease has ended by itself."""
        orders = self._orders
        streams = [stream for streams in self._queues.values() for stream in streams]
        arguments = [orders["group"], orders["returned"], orders["consumer"], GONE_TTL_FACTOR * orders["lease_ms"]]
        deadline = time.monotonic() + orders["lease_ms"] / 1000
        while time.monotonic() < deadline:
            if self._attempt(lambda: self._leave(keys=[orders["lease"], *streams], args=arguments)) and self._attempt(
                self._leave_lanes
            ):
                return
            time.sleep(max(0.0, self._retry_at - time.monotonic()))

    def _leave_lanes(self) -> None:
        for lane in self._reading:
            self._retire(lane, self._orders["consumer"])


def connect(address: dict[str, Any]) -> redis.Redis:
    """Return a client for the address that the worker itself uses."""
    options = dict(address["options"], socket_timeout=2.0)
    if address["kind"] == "sentinel":
        sentinels = [tuple(host) for host in address["sentinels"]]
        manager = redis.sentinel.Sentinel(sentinels, sentinel_kwargs=address["sentinel_kwargs"], **options)
        return manager.master_for(address["service"])  # type: ignore[no-any-return]  # untyped in redis-py
    kinds = {
        "tcp": redis.Connection,
        "tls": redis.SSLConnection,
        "socket": redis.UnixDomainSocketConnection,
    }
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=kinds[address["kind"]], **options))


def orders_from(descriptor: int) -> Callable[[float], dict[str, Any] | None]:
    """Return a function that waits for the next JSON line, and raises EOFError when the writer is gone."""
    selector = selectors.DefaultSelector()
    selector.register(descriptor, selectors.EVENT_READ)
    buffer = bytearray()

    def next_orders(timeout_s: float) -> dict[str, Any] | None:
        if b"\n" not in buffer and selector.select(timeout_s):
            chunk = os.read(descriptor, 65536)
            if not chunk:
                raise EOFError
            buffer.extend(chunk)
        line, newline, rest = bytes(buffer).partition(b"\n")
        if not newline:
            return None
        buffer[:] = rest
        news: dict[str, Any] = json.loads(line)
        return news

    return next_orders


def main() -> int:
    """Serve the parent process until it ends."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # a worker that drains still needs its lease
    worker_pid = os.getppid()
    orders = orders_from(sys.stdin.fileno())
    try:
        while (first := orders(WATCH_EVERY_S)) is None:
            if os.getppid() != worker_pid:
                return 0
    except EOFError:
        return 0
    LeaseKeeper(first, worker_pid).run(orders)
    return 0


if __name__ == "__main__":
    sys.exit(main())
