"""What Flower and `celery events` see of calls."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager

import pytest
from fleets import asking, fleet_of

from toolfleet.broker import celery_app
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

MANY = 1500
"""More than travel together."""


@pytest.fixture(scope="module", params=["asyncio", "prefork"])
def fleet(request) -> Iterator[LocalFleet]:
    options = ("--events", "--kind", request.param, "--concurrency", "2", "--queues", "io,cpu")
    with fleet_of(*options) as running:
        yield running


class Listener:
    """Celery's own event state, fed by its own receiver on a thread."""

    def __init__(self, fleet: LocalFleet) -> None:
        self._app = celery_app(fleet.settings)
        self.state = self._app.events.State()
        self.types: list[str] = []
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._listening.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.should_stop = True
        self._thread.join(20)

    def _listen(self) -> None:
        with self._app.connection_for_read() as connection:
            self._receiver = self._app.events.Receiver(connection, handlers={"*": self._hear})
            self._receiver.capture(limit=None, timeout=None, wakeup=True)

    def _hear(self, event: dict) -> None:
        # The answer to the wake-up call that the receiver sends once it listens.
        if event["type"].startswith("worker-"):
            self._listening.set()
        self.types.append(event["type"])
        self.state.event(event)

    async def heard(self, task_id: str, *states: str):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            task = self.state.tasks.get(task_id)
            if task is not None and task.state in states:
                return task
            await asyncio.sleep(0.05)
        raise AssertionError(f"{task_id} never was {' or '.join(states)}; heard {self.types}")


async def test_a_quick_call_is_seen_by_name_with_its_times_and_without_its_arguments(fleet):
    with Listener(fleet) as listener:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            ended = asyncio.get_running_loop().create_future()
            await orchestrator.execute(
                asking(("echo", {"value": "a secret"})),
                on_event=lambda event: ended.done() or ended.set_result(event.call_id),
            )
        task = await listener.heard(await ended, "SUCCESS")
    assert task.name == "echo"
    assert task.received <= task.started <= task.succeeded
    assert "secret" not in repr(task.info())


async def test_of_many_quick_calls_each_is_seen_and_counted_once(fleet):
    with Listener(fleet) as listener:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            ids = set()
            await orchestrator.execute(
                asking(*(("echo", {"value": number}) for number in range(MANY))),
                on_event=lambda event: ids.add(event.call_id),
            )
        tasks = [await listener.heard(call_id, "SUCCESS") for call_id in ids]
    assert len(tasks) == MANY
    counts = Counter(listener.types)
    assert (counts["task-received"], counts["task-succeeded"]) == (MANY, MANY)
    for task in tasks:
        assert task.received <= task.started <= task.succeeded
        assert task.runtime >= 0
        assert (task.name, task.args, task.kwargs, task.result) == ("echo", "(hidden)", ["(hidden)"], "(hidden)")
        assert task.worker.hostname


@asynccontextmanager
async def listening_to_a_slow_call(fleet):
    """A listener, the id of a call that takes three seconds, and the task that waits for it."""
    with Listener(fleet) as listener:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            started = asyncio.get_running_loop().create_future()
            running = asyncio.create_task(
                orchestrator.execute(
                    asking(("wait", {"seconds": 3})),
                    on_event=lambda event: started.done() or started.set_result(event.call_id),
                )
            )
            yield listener, await started, running
            await running


async def test_a_call_that_runs_for_more_than_a_moment_is_seen_before_it_ends(fleet):
    async with listening_to_a_slow_call(fleet) as (listener, call_id, running):
        await listener.heard(call_id, "RECEIVED", "STARTED")
        assert not running.done()


async def test_a_call_that_runs_for_long_is_seen_running(fleet):
    async with listening_to_a_slow_call(fleet) as (listener, call_id, _):
        task = await listener.heard(call_id, "STARTED")
        assert task.name == "wait"
