"""One Celery task for each tool, so that Flower and Celery's statistics show tools by name.

On our own pools the task's body is never called; on Celery's threads it performs the call on a loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from celery import Task

from toolfleet.calls import Effect, Failed, FailureKind
from toolfleet.connections import connect
from toolfleet.errors import Refused
from toolfleet.tool import Tool, ToolSpec
from toolfleet.tracing import find_tracing
from toolfleet.workers.celery.request import FACTS, ToolRequest
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Settlement, settle_now
from toolfleet.workers.perform.attempts import Killed, record_killed
from toolfleet.workers.perform.performer import Performer
from toolfleet.workers.tool.failures import ended_from_outside

_local = threading.local()


class ToolTask(Task):  # type: ignore[misc]  # celery ships no types
    """Runs one tool. Celery calls `run` on a thread."""

    Strategy = "toolfleet.workers.celery.intake:strategy"
    abstract = True
    ignore_result = True
    acks_late = True
    reject_on_worker_lost = True
    max_retries = None
    typing = False

    spec: ToolSpec | None = None
    effect: Effect
    reconciles: bool = False

    def run(self, *args: Any, **_: Any) -> str:
        """Perform the delivered call; the result goes to Redis, the return value only says how it ended."""
        request = self.request
        # The signature does not cover what Celery would send when this ends.
        request.callbacks = request.errbacks = request.chain = request.chord = None
        delivery = Delivery.of(_headers(request), request.delivery_info or {}, args, worker=request.hostname or "")
        return _runner().run(_performer(self.app).perform(delivery)).value

    def end_from_outside(self, request: ToolRequest, kind: FailureKind) -> None:
        """Settle a call whose tool cannot: it was revoked, or left on its thread. Blocks briefly."""
        failure = ended_from_outside(request.name, kind, request.delivery.effect(self.effect))
        self.settle_from_outside(request.delivery, failure)

    def settle_from_outside(self, delivery: Delivery, failure: Failed) -> None:
        """Settle a call with this failure, whatever its tool is at. Blocks briefly."""
        settings, seal = self.app.toolfleet.settings, self.app.toolfleet.seal
        try:
            call = seal.open_call(delivery.text, delivery.mac)
        except Refused:
            return  # nobody waits for it
        with connect(settings) as client:
            if call.traceparent is not None and self.spec is not None and (tracing := find_tracing()) is not None:
                record_killed(tracing, client, settings.keys, seal, Killed(call, self.spec, failure))
            settle_now(client, settings.keys, Settlement.of(delivery, call, failure, seal), seal)


def tool_task(tool: Tool[..., Any]) -> ToolTask:
    """Return the Celery task of a tool."""
    attributes = {
        "name": tool.spec.name,
        "spec": tool.spec,
        "effect": tool.spec.effect,
        "reconciles": tool.hooks.get("reconcile") is not None,
        "__doc__": tool.spec.description,
    }
    task: ToolTask = type("ToolTaskOf", (ToolTask,), attributes)()
    return task


def _headers(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name, None) for name in FACTS}


def _runner() -> asyncio.Runner:
    """This thread's event loop; it lives as long as the thread, and so does the connection on it."""
    if not hasattr(_local, "runner"):
        _local.runner = asyncio.Runner()
    return _local.runner  # type: ignore[no-any-return]  # attributes of a threading.local are Any


def _performer(app: Any) -> Performer:
    if not hasattr(_local, "performer"):
        _local.performer = _runner().run(_open_performer(app))
    return _local.performer  # type: ignore[no-any-return]  # as above


async def _open_performer(app: Any) -> Performer:
    fleet = app.toolfleet
    return Performer(fleet.settings, fleet.tools, threads=None, interceptors=fleet.interceptors)
