"""A worker's name is its own while it lives: two of one name would answer each other's control commands.

Held in Redis with a TTL, which a thread renews. The worker that was killed lets go of its name by that.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from kombu.exceptions import OperationalError

from toolfleet.connections import connect
from toolfleet.errors import NameTaken, StoreUnreachable
from toolfleet.keys import NODE_TTL_S
from toolfleet.logs import FactLog
from toolfleet.redis_clients import COMMAND_FAILED
from toolfleet.scripts import wire_script
from toolfleet.settings import Settings
from toolfleet.supervision import start_thread
from toolfleet.workers.celery.joining import once_it_answers

log = FactLog("toolfleet.workers")

PING_S: Final = 1.0
TRY_AGAIN_S: Final = 0.5

MARGIN_S: Final = 2.0
"""Beyond its TTL, the name of a worker that is gone is free for certain."""

HOLD: Final = wire_script("hold_name")
LET_GO: Final = wire_script("let_go_of_name")


def generated_name(pool: str) -> str:
    """Return a name that no other worker has, in containers with the same hostname and process number neither."""
    return f"{pool}-{os.getpid()}-{secrets.token_hex(2)}"


@contextmanager
def hold_name(celery: Any, settings: Settings, node: str) -> Iterator[None]:
    """Hold the name `worker@host` to the end of the block. Raises NameTaken, StoreRefuses.

    That of a worker which was killed is waited for, NODE_TTL_S at most; a server that is away, however long.
    """
    with connect(settings) as client:
        key, holder, stop = settings.keys.node(node), secrets.token_hex(8), threading.Event()
        hold = client.register_script(HOLD)
        once_it_answers(lambda: _take(celery, node, lambda: bool(hold(keys=[key], args=[holder, NODE_TTL_S * 1000]))))
        start_thread("node-name", _keep, hold, key, holder, stop)
        try:
            yield
        finally:
            stop.set()
            with suppress(*COMMAND_FAILED):  # then it ends by itself
                client.register_script(LET_GO)(keys=[key], args=[holder])


def _take(celery: Any, node: str, try_to_take: Any) -> None:
    give_up_at = time.monotonic() + NODE_TTL_S + MARGIN_S
    while not try_to_take():
        try:
            answered = celery.control.ping(destination=[node], timeout=PING_S)
        except OperationalError as error:
            raise StoreUnreachable(f"nobody can be asked whether {node} lives: {error}") from error
        if answered or time.monotonic() > give_up_at:
            raise NameTaken(
                f"another worker is called {node}: choose another --name, or leave it out and one is made up"
            )
        log.warning("name_waited_for", node=node)
        time.sleep(TRY_AGAIN_S)


def _keep(hold: Any, key: str, holder: str, stop: threading.Event) -> None:
    while not stop.wait(NODE_TTL_S / 3):
        with suppress(*COMMAND_FAILED):  # tried again; what was lost meanwhile is taken again
            if not hold(keys=[key], args=[holder, NODE_TTL_S * 1000]):
                log.error("name_lost", key=key)
                return
