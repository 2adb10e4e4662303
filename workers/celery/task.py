"""One Celery task for each tool, so that Flower and Celery's statistics show tools by name.

On the asyncio pool the task's body is never called; on prefork and threads it performs the call on a loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from billiard import current_process
from celery import Task
from celery.signals import worker_process_init

from toolfleet.calls import Effect, Failed, FailureKind
from toolfleet.connections import connect
from toolfleet.errors import Refused
from toolfleet.logs import FactLog
from toolfleet.metrics.of_calls import CALLS
from toolfleet.tool import Tool, ToolSpec
from toolfleet.tracing import find_tracing
from toolfleet.workers.celery.request import FACTS, KILL_MARGIN_S, ToolRequest
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Settlement, settle_now
from toolfleet.workers.perform.attempts import Killed, record_killed
from toolfleet.workers.perform.performer import Performer
from toolfleet.workers.tool.failures import doubt, in_doubt

log = FactLog("toolfleet.workers")

_local = threading.local()


class ToolTask(Task):  # type: ignore[misc]  # celery ships no types
    """Runs one tool. Celery calls `run` in a child process or thread."""

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
    is_told: bool = False
    """Whether the tool came, or changed, while the worker served: child processes are told of it with each call."""

    def run(self, *args: Any, **_: Any) -> str:
        """Perform the delivered call; the result goes to Redis, the return value only says how it ended.

        In a child process also how long the tool ran and how long settling took: its parent counts.
        """
        request = self.request
        # The signature does not cover what Celery would send when this ends.
        request.callbacks = request.errbacks = request.chain = request.chord = None
        delivery = Delivery.of(_headers(request), request.delivery_info or {}, args, worker=request.hostname or "")
        before_s = None
        if _is_child():
            self.app.toolfleet.living.hear(delivery.task, request.news)
            before_s = CALLS.took_s(delivery.task)
        ending = _runner().run(_performer(self.app).perform(delivery)).value
        if before_s is None:
            return ending
        took_s = (after - before for after, before in zip(CALLS.took_s(delivery.task), before_s, strict=True))
        return " ".join((ending, *(f"{seconds:.6f}" for seconds in took_s)))

    def end_from_outside(self, request: ToolRequest, kind: FailureKind) -> None:
        """Settle a call whose tool cannot: it was revoked, or the process that ran it is gone. Blocks briefly."""
        failure = _failure(request.name, kind, request.delivery.effect(self.effect))
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


def tool_task(tool: Tool[..., Any], *, is_told: bool = False) -> ToolTask:
    """Return the Celery task of a tool. `is_told`: child processes may not know it, and are told of it."""
    attributes = {
        "name": tool.spec.name,
        "spec": tool.spec,
        "is_told": is_told,
        "effect": tool.spec.effect,
        "reconciles": tool.hooks.get("reconcile") is not None,
        "__doc__": tool.spec.description,
        "time_limit": None if tool.spec.timeout_s is None else tool.spec.timeout_s + KILL_MARGIN_S,
    }
    task: ToolTask = type("ToolTaskOf", (ToolTask,), attributes)()
    return task


def _headers(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name, None) for name in FACTS}


def _failure(tool: str, kind: FailureKind, effect: Effect) -> Failed:
    match kind:
        case FailureKind.IN_DOUBT:
            return in_doubt(tool)
        case FailureKind.TIMED_OUT:
            said = f"{tool} took longer than its limit; its process was killed.{doubt(effect)}"
            return Failed(kind=kind, message=said)
        case _:
            return Failed(kind=kind, message=f"{tool} was cancelled.{doubt(effect)}")


def _runner() -> asyncio.Runner:
    """This thread's event loop; it lives as long as the thread, and so does the connection on it."""
    if not hasattr(_local, "runner"):
        _local.runner = asyncio.Runner()
    return _local.runner  # type: ignore[no-any-return]  # attributes of a threading.local are Any


def _is_child() -> bool:
    """Whether this is a process of a pool, whose figures nobody asks for."""
    return bool(current_process().name != "MainProcess")


def _performer(app: Any) -> Performer:
    if not hasattr(_local, "performer"):
        _local.performer = _runner().run(_open_performer(app))
    return _local.performer  # type: ignore[no-any-return]  # as above


async def _open_performer(app: Any) -> Performer:
    fleet = app.toolfleet
    return Performer(fleet.settings, fleet.tools, threads=None, interceptors=fleet.interceptors)


@worker_process_init.connect  # type: ignore[untyped-decorator]  # celery ships no types
def _forget_the_parents_loop(**_: Any) -> None:
    # A forked child must not use the loop and the connection that its parent may have opened.
    _local.__dict__.clear()
