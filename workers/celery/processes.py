"""A pool of processes for Celery: its loop reads and settles as the asyncio pool's does, and children run the tools."""

from __future__ import annotations

import os
from typing import Any

from toolfleet.metrics.of_calls import CALLS
from toolfleet.streams.qos import StreamQoS
from toolfleet.supervision import run_errand
from toolfleet.workers.celery.pool import AsyncioPool
from toolfleet.workers.children.child import Lifetime
from toolfleet.workers.children.children import Children
from toolfleet.workers.children.performer import ChildPerformer


class ProcessPool(AsyncioPool):
    """Performs each call in a process of its own, which can be killed."""

    _count_arrival = staticmethod(CALLS.received)  # that it starts is counted when a child is asked

    def on_start(self) -> None:
        """Fork the children, and start the loop's thread. Returns when the loop runs."""
        # First: whoever forks has no thread and no connection then that is at work for calls.
        _, hostname, *_ = self.options["initargs"]
        lifetime = Lifetime(self.options.get("maxtasksperchild"), self.options.get("max_memory_per_child"))
        self._children = Children(self.app, hostname, self.limit, lifetime)
        self._children.give_up = self._retire
        super().on_start()

    def read_for(self, consumer: Any) -> None:
        """Read a consumer's queues as the asyncio pool does; quick calls while the children are at others, too."""
        super().read_for(consumer)
        qos = getattr(consumer.task_consumer.channel, "qos", None)  # which not every broker's channel has
        if isinstance(qos, StreamQoS):
            self._children.take_ahead = qos.take_ahead
            qos.take_ahead(-self.limit)
            self._loop.call_soon_threadsafe(self._children.say_ahead)

    def _new_performer(self) -> ChildPerformer:
        run_errand("children_opened", self._children.open())
        return ChildPerformer(self._settings, self.app.toolfleet.tools, self._children)

    @property
    def loop(self) -> None:
        """None: a poll function of an author's that blocks must not hold up those who look after the children."""
        return

    async def _begin_no_more(self) -> None:
        self._children.begin_none()

    @property
    def running(self) -> int:
        """Calls that children are at."""
        return len(self._children.at_work)

    def pid_of(self, call_id: str) -> int:
        """Return the process that a call runs in; this one while it waits for one."""
        return self._children.at_work.get(call_id, os.getpid())

    def _get_info(self) -> dict[str, Any]:
        return {**super()._get_info(), "processes": self._children.pids, "ready": self._children.ready}
