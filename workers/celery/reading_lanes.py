"""The step of Celery's consumer blueprint that has a worker read its lanes, beside the queues that it was told.

Only the transport on Redis Streams has lanes; on other brokers all workers share their queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import bootsteps

from toolfleet.broker import tool_queue
from toolfleet.lanes import lane_of
from toolfleet.streams import home_of
from toolfleet.tool import ToolSpec


class ReadLanes(bootsteps.StartStopStep):  # type: ignore[misc]  # celery ships no types
    """A step that adds a worker's lanes to the queues that it consumes."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, consumer: Any) -> None:
        """Add the lanes on each connection, before the first message is read."""
        for lane in lanes_read(consumer).values():
            consumer.app.amqp.queues.add(tool_queue(lane))
            consumer.task_consumer.add_queue(tool_queue(lane))


def follow_lanes(consumer: Any) -> None:
    """Read the lanes of what is served now, and leave those of what was; without a connection, the next one does."""
    reading, queues = consumer.task_consumer, consumer.app.amqp.queues
    if reading is None or not reading.channel:
        return
    wanted = set(lanes_read(consumer).values())
    left = {queue.name for queue in reading.queues if home_of(queue.name)} - wanted
    for lane in wanted:
        if not reading.consuming_from(lane):
            queues.add(tool_queue(lane))
            reading.add_queue(tool_queue(lane))
    reading.consume()
    for lane in left:
        reading.cancel_by_queue(lane)
        reading.channel.leave_lane(lane)
        queues.pop(lane, None)


def queues_consumed(consumer: Any) -> tuple[str, ...]:
    """Return the names of a worker's queues, without lanes."""
    return tuple(sorted(queue.name for queue in consumer.task_consumer.queues if home_of(queue.name) is None))


def specs_served(consumer: Any) -> tuple[ToolSpec, ...]:
    """Return what a worker would be given: a tool of another queue is another worker's to serve."""
    queues = queues_consumed(consumer)
    specs = (tool.spec for _, tool in sorted(consumer.app.toolfleet.tools.items()))
    return tuple(spec for spec in specs if spec.queue in queues)


def lanes_read(consumer: Any) -> Mapping[str, str]:
    """Return a worker's lane on each queue of which it serves a tool."""
    if consumer.app.toolfleet.settings.broker_url:
        return {}
    specs = specs_served(consumer)
    return {
        queue: lane_of(queue, (spec for spec in specs if spec.queue == queue))
        for queue in sorted({spec.queue for spec in specs})
    }
