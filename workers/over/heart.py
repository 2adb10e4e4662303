"""Heartbeats on a thread and a connection of their own: a tool that blocks the event loop loses no call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Final

import httpx

from toolfleet.errors import ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.signs_of_life import SignOfLife
from toolfleet.supervision import start_thread
from toolfleet.work import Beaten, Heartbeat
from toolfleet.workers.over.client import CONNECT_WITHIN_S, NotAnnounced, Passing, answered, body_of, headers_of

log = FactLog("toolfleet.workers")

BEAT_WITHIN_S: Final = 5.0
AT_ONCE: Final = 100
"""Attempts that one heartbeat names."""


class Heart:
    """Renews what a worker has, until `stop`."""

    def __init__(
        self,
        address: str,
        key: str,
        worker: str,
        *,
        held: Callable[[], Mapping[str, str]],
        on_beaten: Callable[[Beaten], None],
        on_forgotten: Callable[[], None],
        sign: SignOfLife,
    ) -> None:
        """`held`: the attempts by their calls, asked on the thread. The others are called on this event loop."""
        timeout = httpx.Timeout(BEAT_WITHIN_S, connect=min(CONNECT_WITHIN_S, BEAT_WITHIN_S))
        self._http = httpx.Client(base_url=address, headers=headers_of(key), timeout=timeout)
        self._worker = worker
        self._held = held
        self._on_beaten = on_beaten
        self._on_forgotten = on_forgotten
        self._sign = sign
        self._loop = asyncio.get_running_loop()
        self._ends = threading.Event()
        self.every_s = 2.0
        self._is_away = False

    def start(self) -> None:
        """Begin to beat."""
        self._thread = start_thread("heart", self._beat, again=False)

    async def stop(self) -> None:
        """Return when the last one is over."""
        self._ends.set()
        await asyncio.to_thread(self._thread.join, BEAT_WITHIN_S)
        self._http.close()

    def _beat(self) -> None:
        self._sign.show()
        while not self._ends.wait(self.every_s):
            self._sign.show()
            tokens = list(self._held().values())
            for start in range(0, len(tokens), AT_ONCE):
                self._beat_once(tuple(tokens[start : start + AT_ONCE]))

    def _beat_once(self, attempts: tuple[str, ...]) -> None:
        said = Heartbeat(worker=self._worker, attempts=attempts)
        try:
            response = self._http.post("/v1/work/heartbeat", content=body_of(said))
            beaten = Beaten.model_validate_json(answered(response.status_code, response.headers, response.content))
        except (httpx.HTTPError, Passing) as error:
            if not self._is_away:
                log.warning("heartbeat_not_sent", error=str(error) or type(error).__name__)
            self._is_away = True
            return
        except NotAnnounced:
            self._tell(self._on_forgotten)
            return
        except (ToolfleetError, ValueError) as error:
            log.warning("heartbeat_refused", error=str(error)[:500])
            return
        self._is_away = False
        self._tell(lambda: self._on_beaten(beaten))

    def _tell(self, what: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)
