"""The two ways into the queues: straight to our own streams, or through kombu to any other Celery broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import redis
import redis.asyncio
from celery import Celery
from kombu.exceptions import KombuError

from toolfleet.broker import tool_queue
from toolfleet.connections import address
from toolfleet.errors import BrokerUnreachable, StoreUnreachable
from toolfleet.replicas import Replicas
from toolfleet.settings import Settings
from toolfleet.streams.direct import DirectPublisher, TaskMessage


class Publisher(Protocol):
    """Puts messages into queues."""

    async def publish(self, messages: Sequence[TaskMessage]) -> None:
        """Publish messages, and return when the broker has them all.

        Raises BrokerUnreachable; some of them may be in their queues then.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the broker."""
        ...


def publisher_for(settings: Settings, client: redis.asyncio.Redis, app: Celery) -> Publisher:
    """Make the quickest publisher for the broker in the settings."""
    return KombuPublisher(app) if settings.broker_url else StreamPublisher(settings, client)


class StreamPublisher:
    """Publishes to our own streams, on the connection that everything else uses."""

    def __init__(self, settings: Settings, client: redis.asyncio.Redis) -> None:
        self._direct = DirectPublisher(client, settings.keys, replicas=Replicas.of(settings))
        self._address = address(settings.redis_url)

    async def publish(self, messages: Sequence[TaskMessage]) -> None:
        """See Publisher."""
        try:
            await self._direct.publish(messages)
        except StoreUnreachable as error:
            raise BrokerUnreachable(f"the calls were not sent: {error}") from error
        except redis.RedisError as error:
            raise BrokerUnreachable(f"Redis at {self._address} took no messages: {error}") from error

    async def aclose(self) -> None:
        """See Publisher: the connection is its owner's."""


class KombuPublisher:
    """Publishes with kombu's producer, on a thread of its own."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="publish")
        self._producer: Any = None
        self._declared: set[str] = set()

    async def publish(self, messages: Sequence[TaskMessage]) -> None:
        """See Publisher."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._publish, messages)

    async def aclose(self) -> None:
        """See Publisher."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    def _publish(self, messages: Sequence[TaskMessage]) -> None:
        connection = self._app.connection_for_write() if self._producer is None else self._producer.connection
        try:
            self._publish_on(connection, messages)
        except (*connection.connection_errors, *connection.channel_errors, KombuError, OSError) as error:
            self._disconnect()
            broker = address(self._app.conf.broker_url)
            raise BrokerUnreachable(f"the broker at {broker} took no messages: {error}") from error

    def _publish_on(self, connection: Any, messages: Sequence[TaskMessage]) -> None:
        if self._producer is None:
            self._producer = self._app.amqp.Producer(connection, auto_declare=False)
        for queue in {message.queue for message in messages} - self._declared:
            tool_queue(queue)(self._producer.channel).declare()
            self._declared.add(queue)
        with self._producer.batch():
            for queue, priority, headers, body, *_ in messages:
                self._producer.publish(
                    body.decode(),
                    routing_key=queue,
                    exchange="",
                    content_type="application/json",
                    content_encoding="utf-8",
                    headers=headers,
                    priority=int(priority),
                    delivery_mode=2,
                )

    def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        self._declared.clear()
        if producer is not None:
            producer.connection.release()
