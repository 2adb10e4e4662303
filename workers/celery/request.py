"""Celery's view of one delivered call: what inspect, revoke, events and Flower see of it."""

from __future__ import annotations

import time
from typing import Any, Final

import orjson
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.request import Request

from toolfleet.calls import Effect, FailureKind
from toolfleet.metrics.of_calls import CALLS
from toolfleet.streams.unbelieved import CONTENT_ENCODING, CONTENT_TYPE
from toolfleet.workers.delivery import cancel_requests
from toolfleet.workers.delivery.admit import can_be_reconciled
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.perform.endings import Ending

logger = get_logger(__name__)

FACTS: Final = (
    *("id", "task", "deliveries", "claimed_s", "cancelled", "expired", "returned"),
    *("claim", "contract", "passed_unix_s"),
)
"""What is used of a message's headers."""

UNKNOWN_TOOL: Final = "toolfleet.unknown_tool"
"""The task in the place of any tool that a process has no task for."""

HIDDEN: Final = "(hidden)"
"""What Celery's events and Flower show instead of arguments: they may hold secrets, and the model's are stored."""

HIDDEN_KEYWORDS: Final = [HIDDEN]
"""The same in the place of keyword arguments: a text there Flower reads as Python, at each event of the call."""

FAILED: Final = "Failed (the run has the reason)"
BURIED: Final = "Refused (see toolfleet dead list)"
"""What they show of a failure: its message may quote arguments."""


class ToolRequest(Request):  # type: ignore[misc]  # celery ships no types
    """A request whose result is stored and acknowledged by settlement, not by Celery."""

    def __init__(self, message: Any, task: Any, consumer: Any) -> None:
        # Celery's own __init__ parses what we never use; these are the fields that the rest of the worker reads.
        headers = message.headers
        delivery_info = message.delivery_info
        self.acknowledged = False
        self.id = headers["id"]
        self.name = headers["task"]
        self._type = task.name
        self.delivery = Delivery.of(headers, delivery_info, _arguments_of(message), worker=consumer.hostname)
        self._message = message
        self._task = task
        self._app = task.app
        self._consumer = consumer
        self._hostname = consumer.hostname
        self._eventer = consumer.event_dispatcher
        self._delivery_info = delivery_info
        self._eta = self._expires = self._root_id = self._parent_id = None
        self._argsrepr = self._kwargsrepr = HIDDEN
        self._args = self._kwargs = ()
        self._utc = self._ignore_result = True
        self._decoded = False
        self._receipt_announced = self._start_announced = False
        self._ended: tuple[Ending, float] | None = None
        self._is_known = self._end_is_known = False

    # What only a pool of Celery's asks for is made when it asks.

    @property
    def _request_dict(self) -> dict[str, Any]:
        """What the task is told of the request. Celery would act on more than we know of a message."""
        headers = self._message.headers
        facts = {name: headers[name] for name in FACTS if name in headers}
        return {**facts, "hostname": self._hostname, "delivery_info": self._delivery_info}

    @property
    def _body(self) -> bytes:
        """The envelope alone, as two texts: Celery decodes it before anything is believed."""
        envelope = (self.delivery.text, self.delivery.mac)
        return orjson.dumps([[part if isinstance(part, str) else None for part in envelope], {}, {}])

    _content_type = CONTENT_TYPE
    _content_encoding = CONTENT_ENCODING

    @property
    def _payload(self) -> tuple[tuple[()], dict[str, Any], dict[str, Any]]:
        return (), {}, {}

    time_limits = (None, None)
    """No pool of Celery's keeps any."""

    def execute_using_pool(self, pool: Any, **options: Any) -> Any:
        """Start the call on a pool of ours, or let Celery trace it on one of its own."""
        if self.revoked():
            return None
        if hasattr(pool, "perform"):
            return pool.perform(self)
        return super().execute_using_pool(pool, **options)

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Revoke while running. A process is killed with it, a thread cannot be stopped: its tool is told."""
        if hasattr(pool, "cancel"):
            pool.cancel(self.id)
            return
        logger.warning("%s %s is cancelled, but its thread goes on until its tool looks", self.name, self.id)
        self._announce_revoked("terminated", terminated=True, signum=signal, expired=False)
        cancel_requests.request_cancel(self.id)

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Note that a thread has begun with the call."""
        CALLS.started(self.task.name)
        super().on_accepted(pid, time_accepted)

    def on_started(self, worker_pid: int) -> None:
        """Note that the call runs, and tell Celery."""
        self.begin(worker_pid)
        self._tell_start()

    def begin(self, worker_pid: int) -> None:
        """Note that the call runs. Celery is told by `tell`."""
        self.has_begun(worker_pid, time.time())
        if self.delivery.stream:
            self._message.channel.qos.started.add(self._message.delivery_tag)

    def has_begun(self, worker_pid: int, unix_s: float) -> None:
        """Note since when the call runs, of which the transport knows."""
        self.worker_pid = worker_pid
        self.time_start = unix_s

    def has_ended(self, ending: Ending, runtime_s: float) -> None:
        """Note how the call has ended, of which the transport knows."""
        self.acknowledged = True
        self._ended = ending, runtime_s

    def end(self, ending: Ending, runtime_s: float) -> bool:
        """Note how the call ended, on the tools' loop. Returns whether Celery has been told that it started.

        If it is just being told, it finds the end as well.
        """
        if self.delivery.stream:
            self._say(ending)
        # In this order, as `tell` has it the other way round: one of the two threads sees what the other has done.
        self._ended = ending, runtime_s
        return self._is_known

    def tell(self) -> None:
        """Bring Celery's records up to date, on its thread: the call has started, and may have ended by now."""
        if not self._is_known:
            self._is_known = True
            self.announce_received()
            count_one(self._task.name) if self._ended else self._tell_start()
        if self._ended is not None and not self._end_is_known:
            self._end_is_known = True
            ending, runtime_s = self._ended
            if not self.delivery.stream:
                self._say(ending)
            self._tell_end(ending, runtime_s)

    def info(self, safe: bool = False) -> dict[str, Any]:  # noqa: FBT001  # Celery's signature
        """Return what `celery inspect active` shows of the call: with the process that it is in, not its worker's."""
        shown, pool = super().info(safe), self._consumer.pool
        return {**shown, "worker_pid": pool.pid_of(self.id)} if hasattr(pool, "pid_of") else shown

    def announce_received(self) -> None:
        """Send `task-received`, once: with the next event if nobody listened when the call came."""
        if not self._receipt_announced and self.tells_events:
            self._receipt_announced = True
            kind, fields = event_of_receipt(self.name, self.delivery.came_unix_s)
            self.send_event(kind, **fields)

    def _tell_start(self) -> None:
        # As state.task_accepted does, without a throw-away dict for the counter.
        self._is_known = True
        state.requests[self.id] = self
        state.active_requests.add(self)
        count_one(self._task.name)  # strangers may name any number of tools
        if self.id in state.revoked and hasattr(self._consumer.pool, "cancel"):
            # Revoked after it was taken in, and before Celery knew of it.
            self._consumer.pool.cancel(self.id)

    def announce_start(self, before_unix_s: float) -> None:
        """Send `task-started`, once, if the call started before then."""
        if not self._start_announced and (self.time_start or 0) <= before_unix_s:
            self._start_announced = True
            self.announce_received()
            self.send_event("task-started", timestamp=self.time_start)

    def on_ended(self, ending: Ending, runtime_s: float) -> None:
        """Tell the transport what the message still needs, and Celery how the call ended."""
        self._say(ending)
        self._tell_end(ending, runtime_s)

    def _say(self, ending: Ending) -> None:
        """Tell the transport what the message of a call that ended so still needs."""
        cancel_requests.forget_request(self.id)
        if ending is Ending.HANDED_BACK:
            self._hand_back()
        elif ending is Ending.LEFT_OPEN:
            self._leave_open(in_order=True)
        elif ending is Ending.NOT_PERFORMED:
            self.reject(requeue=True)
        elif ending is Ending.BURIED:
            self._acknowledge_on_the_broker()
        elif ending is Ending.PASSED_ON:
            self._pass_on()
        else:
            self.acknowledge()

    def _tell_end(self, ending: Ending, runtime_s: float) -> None:
        """Tell Celery that the call has ended."""
        state.task_ready(self)
        event = event_of_end(ending, self.name, self.time_start, runtime_s)
        if event is not None and self._eventer and not self._already_revoked:
            kind, fields = event
            self.announce_received()
            self.send_event(kind, **fields)

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002  # Celery's signature
        """Send a task event if anybody listens: without `--events` Celery's dispatcher is on for heartbeats only."""
        if self.tells_events:
            self._eventer.send(type, uuid=self.id, **fields)

    @property
    def tells_events(self) -> bool:
        """Whether anybody listens to events of calls."""
        return tells_events(self._eventer)

    def acknowledge(self) -> None:
        """Drop the message; on Redis Streams the settlement has acknowledged it already."""
        if self.acknowledged:
            return
        if self.delivery.stream:
            self.acknowledged = True
            self._message.channel.qos.forget(self._message.delivery_tag)
        else:
            self._acknowledge_on_the_broker()

    def reject(self, requeue: bool = False) -> None:  # noqa: FBT001  # Celery's signature
        """Give the message to another worker, or to the dead letters."""
        if not self.acknowledged:
            self.acknowledged = True
            self._consumer.call_soon(self._message.reject_log_error, logger, self._errors, requeue)

    def _hand_back(self) -> None:
        """Give the message to another worker as if it had never been delivered here."""
        if self.delivery.stream and not self.acknowledged:
            self.acknowledged = True
            self._message.channel.qos.hand_back([self._message.delivery_tag])
        else:
            self.reject(requeue=True)

    def _pass_on(self) -> None:
        """Put the message at the end of its queue, where the broker has not let go of it already.

        If this worker is lost between the two there are two messages, of which the claim lets one have an effect.
        """
        if self.delivery.stream:
            self.acknowledge()
            return
        message, delivery = self._message, self.delivery
        headers = {**message.headers, "passed_unix_s": delivery.passed_unix_s or time.time()}
        if delivery.deliveries > 1:
            headers["deliveries"] = delivery.deliveries
        try:
            with self._app.producer_or_acquire() as producer:
                producer.publish(
                    message.body,
                    exchange="",
                    routing_key=self._delivery_info["routing_key"],
                    content_type=message.content_type,
                    content_encoding=message.content_encoding,
                    headers=headers,
                    priority=message.properties.get("priority"),
                    delivery_mode=2,
                )
        except (*self._errors, OSError) as error:
            logger.warning("%s %s is given back: it could not be passed on: %s", self.name, self.id, error)
            self.reject(requeue=True)
        else:
            self._acknowledge_on_the_broker()

    def _leave_open(self, *, in_order: bool) -> None:
        """Give the message to another worker as if this one were lost: a delivery counts, so the call is reconciled.

        Where an earlier one counts already, one that a worker ends in order does not: no number of restarts makes a
        call one that kills its workers.
        """
        if in_order and self.delivery.deliveries > 1:
            self._hand_back()
        elif self.delivery.stream and not self.acknowledged:
            self.acknowledged = True
            self._message.channel.qos.reject(self._message.delivery_tag, requeue=True)
        else:
            self.reject(requeue=True)

    def _acknowledge_on_the_broker(self) -> None:
        if not self.acknowledged:
            self.acknowledged = True
            self._consumer.call_soon(self._message.ack_log_error, logger, self._errors)

    @property
    def _errors(self) -> Any:
        return self._consumer.connection_errors

    def on_success(self, failed__retval__runtime: tuple[bool, Any, float], **_: Any) -> None:
        """Take the outcome from the thread that performed the call, or failed to."""
        failed, ending, runtime_s = failed__retval__runtime
        if failed:
            self.on_failure(ending)
            return
        # Celery's tracer hands over the repr of what the task returned.
        word = ending.strip("'")
        CALLS.ended(self.task.name, word)
        self.on_ended(Ending(word), runtime_s)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:  # noqa: ARG002, FBT001  # Celery's signature
        """Deal with a call that Celery has failed to perform: repeat it if harmless, else end it in doubt."""
        state.task_ready(self)
        if not self.acknowledged:  # else it was revoked, and has its result
            logger.warning("not performed: %s %s: %r", self.name, self.id, exc_info.exception)
            self.give_up(in_order=False)

    def give_up(self, *, in_order: bool) -> None:
        """Deal with a call that this worker cannot end: repeat it if harmless, else reconcile it or end it in doubt.

        `in_order`: because the worker stops, so this delivery does not count.
        """
        effect = self.delivery.effect(self.task.effect)
        if effect is Effect.ONCE and self.task.reconciles and can_be_reconciled(self.delivery):
            self._leave_open(in_order=in_order)
        elif effect is Effect.ONCE:
            self.task.end_from_outside(self, FailureKind.IN_DOUBT)
            CALLS.ended(self.task.name, Ending.FAILED)
            self.acknowledge()
            self.send_event("task-failed", exception=FAILED)
            return
        elif in_order:
            self._hand_back()
        else:
            self.reject(requeue=True)
        CALLS.ended(self.task.name, Ending.HANDED_BACK)
        self.send_event("task-rejected", requeued=True)

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:  # noqa: FBT001  # Celery's signature
        self.task.end_from_outside(self, FailureKind.CANCELLED)
        CALLS.ended(self.task.name, Ending.CANCELLED)
        super()._announce_revoked(reason, terminated, signum, expired)


def count_one(task: str) -> None:
    """Let Celery's statistics have one more call of a task."""
    state.total_count[task] += 1
    state.all_total_count[0] += 1


def event_of_receipt(name: str, came_unix_s: float) -> tuple[str, dict[str, Any]]:
    """Return the event of a call that has come."""
    return "task-received", {"name": name, "args": HIDDEN, "kwargs": HIDDEN_KEYWORDS, "timestamp": came_unix_s}


def event_of_end(
    ending: Ending, name: str, started_unix_s: float | None, runtime_s: float
) -> tuple[str, dict[str, Any]] | None:
    """Return the event of a call that has ended so; None where another worker owns it by now, and tells of it."""
    match ending:
        case Ending.SETTLED:
            return "task-succeeded", {"name": name, "started": started_unix_s, "result": HIDDEN, "runtime": runtime_s}
        case Ending.FAILED:
            return "task-failed", {"exception": FAILED}
        case Ending.BURIED:
            return "task-failed", {"exception": BURIED}
        case Ending.CANCELLED:
            return "task-revoked", {"terminated": True, "signum": None, "expired": False}
        case Ending.HANDED_BACK | Ending.LEFT_OPEN | Ending.NOT_PERFORMED:
            return "task-rejected", {"requeued": True}
    return None


def tells_events(eventer: Any) -> bool:
    """Return whether anybody listens to events of calls that this dispatcher of Celery's sends."""
    return bool(eventer and eventer.enabled and (not eventer.groups or "task" in eventer.groups))


def _arguments_of(message: Any) -> object:
    try:
        return message.payload[0]
    except (ValueError, TypeError, LookupError):
        return None  # admission will refuse it with a reason
