"""Where Celery's consumer hands over: a message of ours becomes a request and goes to the pool.

Celery's own handler makes two promises, a parsed request and half a dozen checks for each message; ours were checked
by the transport and are checked by admission, so this one makes the request and nothing else. A call of a tool that is
not here is answered, not only logged; so is one of Celery's own tasks, which nobody signs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, Final

from celery import bootsteps
from celery.exceptions import InvalidTaskError
from celery.worker import state

from toolfleet.calls import Effect
from toolfleet.logs import FactLog
from toolfleet.metrics.of_calls import CALLS
from toolfleet.workers.celery.pool import AsyncioPool
from toolfleet.workers.celery.request import UNKNOWN_TOOL, ToolRequest
from toolfleet.workers.celery.task import ToolTask
from toolfleet.workers.celery.task_events import STARTED_AFTER_S, announce_long_calls

log = FactLog("toolfleet.workers")

MAX_TOOLS: Final = 10_000
"""Of so many tools what receives their calls is kept: tools come and go."""


class UnknownToolTask(ToolTask):
    """A task in the place of any tool that is not served here. Admission ends its calls before anything runs."""

    name = UNKNOWN_TOOL
    effect = Effect.READ_ONLY


class TakeIn(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """The step of Celery's consumer blueprint that installs the handler."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    _timer: Any = None

    def start(self, consumer: Any) -> None:
        """Install the handler before the first message is read; where the pool has a loop, have it read there."""
        consumer.create_task_handler = lambda: handler(consumer)
        if isinstance(consumer.pool, AsyncioPool):
            consumer.app.control.mailbox.before_command = consumer.pool.reports.tell_all
            consumer.pool.read_for(consumer)
        self._stop_timer()
        if consumer.event_dispatcher and consumer.event_dispatcher.enabled and hasattr(consumer.pool, "perform"):
            self._timer = consumer.timer.call_repeatedly(STARTED_AFTER_S, announce_long_calls)

    def stop(self, consumer: Any) -> None:
        """Stop the timer. The next connection starts another one."""
        del consumer
        self._stop_timer()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def handler(consumer: Any) -> Callable[[Any], None]:
    """Return the function that Celery's consumer calls with every message. It takes in tool calls and nothing else."""
    tasks, unknown = consumer.app.toolfleet.living.tasks, consumer.app.tasks[UNKNOWN_TOOL]
    receiver_of = lru_cache(MAX_TOOLS)(partial(receiver, consumer=consumer))

    def on_message(message: Any) -> None:
        name = message.headers.get("task") if message.headers else None
        if name is None:
            # Not a task at all, and not worth a line in the log: strangers could fill the disk.
            message.reject()
            return
        try:
            receiver_of(tasks.get(name, unknown))(message)
        except consumer.connection_errors:
            raise
        except Exception:  # no message may end the worker, whatever was overlooked in reading it
            log.exception("message_not_taken", call_id=message.headers.get("id"), tool=name)
            message.reject()

    return on_message


def receiver(task: ToolTask, consumer: Any) -> Callable[[Any], None]:
    """Return the function that turns a message into a request of this tool and starts it on the pool."""
    pool, revoked = consumer.pool, consumer.controller.state.revoked
    starts_at_once = hasattr(pool, "perform")
    callbacks: Iterable[Callable[[ToolRequest], None]] = consumer.on_task_message

    def receive(message: Any) -> None:
        request = ToolRequest(message, task, consumer)
        if request.id in revoked:
            # On Celery's thread, which may not be this one: it has to be told, and somebody else of the call's end.
            consumer.call_soon(start_unless_revoked, request)
        else:
            start(request)

    def start_unless_revoked(request: ToolRequest) -> None:
        if not request.revoked():
            start(request)

    def start(request: ToolRequest) -> None:
        for callback in callbacks:
            callback(request)
        if starts_at_once:
            pool.perform(request)
        else:
            delivery = request.delivery
            CALLS.received(task.name, delivery.entry_id, delivery.came_unix_s, is_new=delivery.is_new)
            request.announce_received()
            state.task_reserved(request)
            consumer.on_task_request(request)

    return receive


def strategy(task: ToolTask, app: Any, consumer: Any) -> Callable[..., None]:
    """Return the handler that Celery asks for (`Task.Strategy`) where a consumer runs without the step above."""
    del app
    receive = receiver(task, consumer)

    def on_message(message: Any, body: Any, *_: Any, **__: Any) -> None:
        if body is not None:
            raise InvalidTaskError("tool calls use Celery's message protocol 2")
        receive(message)

    return on_message
