"""Celery workers on this transport, in processes of their own, with all that may happen to a process."""

from __future__ import annotations

import queue
import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from tests.streams.harness import LEASE_S, Worker, ack_all, ids_of, publish, until
from toolfleet.keys import Keys
from toolfleet.streams import GROUP

WAIT_S = 30
STREAM = Keys().queue("io", 3)


@pytest.fixture
def app(server, client, monkeypatch):
    monkeypatch.setenv("BROKER_URL", server.url)
    from tests.streams import app as module

    module.app.conf.broker_url = server.url
    yield module.app
    module.app.close()


@pytest.fixture
def workers(server, client):
    """Starts workers, all at once, and waits until they consume."""
    started = []

    def start(count, *arguments, pool="threads", concurrency=1):
        names = [f"w{len(started) + n}@test" for n in range(count)]
        fresh = [
            Worker(server.url, "-P", pool, "-c", str(concurrency), "-n", name, "--without-gossip", *arguments)
            for name in names
        ]
        started.extend(fresh)
        until(lambda: all(_consumer_of(client, worker) for worker in fresh), WAIT_S)
        return fresh

    yield start
    client.rpush("go", *range(20))
    for worker in started:
        worker.kill_with_children()


def _consumer_of(client, worker):
    """The lease of a worker, if it has one."""
    return client.keys(Keys().lease(f"*-{worker.process.pid}-*"))


def _holder(client, workers):
    """The worker that was delivered the only pending message, and the others."""
    (pending,) = client.xpending_range(STREAM, GROUP, "-", "+", 10)
    pid = int(pending["consumer"].decode().split("-")[-2])
    (holder,) = (worker for worker in workers if worker.process.pid == pid)
    return holder, [worker for worker in workers if worker is not holder]


def _send(connection, task, *ids, arguments=(), **headers):
    publisher = connection.Producer()
    for task_id in ids:
        publisher.publish(
            [list(arguments), {}, {}], routing_key="io", priority=3, headers={"task": task, "id": task_id, **headers}
        )


def _next(client, event="started", timeout_s=WAIT_S):
    popped = client.blpop(event, timeout=timeout_s)
    assert popped, f"nothing {event} within {timeout_s} s"
    return popped[1].decode()


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_what_a_killed_worker_held_starts_elsewhere_at_once(pool, workers, connect, client, app):
    fleet = workers(2, pool=pool)
    _send(connect(), "tests.hold", "a")
    assert _next(client) == "a"
    victim, _ = _holder(client, fleet)
    children = psutil.Process(victim.process.pid).children(recursive=True)
    killed = time.monotonic()
    victim.kill()
    assert _next(client) == "a"
    assert time.monotonic() - killed < LEASE_S
    client.rpush("go", 1, 2)
    assert psutil.wait_procs(children, timeout=WAIT_S)[1] == []


def test_a_lost_machine_is_noticed_within_the_lease(workers, connect, client, app):
    """Nobody is left there to say so: worker and companion stop in the same moment."""
    fleet = workers(2)
    _send(connect(), "tests.hold", "a")
    assert _next(client) == "a"
    victim, _ = _holder(client, fleet)
    everything = [psutil.Process(victim.process.pid), *psutil.Process(victim.process.pid).children(recursive=True)]
    lost = time.monotonic()
    for process in everything:
        process.send_signal(signal.SIGSTOP)
    assert _next(client) == "a"
    assert LEASE_S / 3 < time.monotonic() - lost < LEASE_S + 2
    for process in everything:
        process.kill()


def test_a_stopped_worker_loses_its_messages(workers, connect, client, app):
    fleet = workers(2)
    _send(connect(), "tests.hold", "a")
    assert _next(client) == "a"
    victim, _ = _holder(client, fleet)
    victim.process.send_signal(signal.SIGSTOP)
    assert _next(client, timeout_s=LEASE_S + 3) == "a"


def test_a_tool_that_starves_its_process_is_not_started_twice(workers, connect, client, app):
    workers(2)
    for task in ("tests.hold_the_interpreter_lock", "tests.spin"):
        _send(connect(), task, task, arguments=[LEASE_S * 1.5])
        assert _next(client) == task
        assert _next(client, "ended") == task
        _send(connect(), "tests.noop", "next")
        assert _next(client) == "next"
        assert client.llen("started") == 0


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_dropped_connections_start_nothing_twice(pool, workers, connect, client, app):
    workers(2, pool=pool)
    _send(connect(), "tests.hold", "a", "b")
    assert {_next(client), _next(client)} == {"a", "b"}
    for connection in client.client_list():
        if int(connection["id"]) != client.client_id() and connection["cmd"] != "blpop":
            client.client_kill_filter(_id=connection["id"])
    client.rpush("go", 1, 2)
    assert {_next(client, "ended"), _next(client, "ended")} == {"a", "b"}
    until(lambda: client.xlen(STREAM) == 0, WAIT_S)  # both were acknowledged on the next connection
    _send(connect(), "tests.noop", "c")
    assert _next(client) == "c"
    assert client.llen("started") == 0


def test_a_worker_that_ends_hands_back_what_it_had_not_started(workers, connect, inbox, client, app):
    (first,) = workers(1, "--prefetch-multiplier", "4", pool="prefork")
    _send(connect(), "tests.hold", "running", "b", "c", "d")
    assert _next(client) == "running"
    until(lambda: client.xpending(STREAM, GROUP)["pending"] == 4, WAIT_S)
    first.process.terminate()
    reader = inbox(prefetch=10)
    waiting = reader.drain(3)
    assert first.process.poll() is None  # it still lets the first one end
    assert ids_of(waiting) == ["b", "c", "d"]
    assert {message.headers["deliveries"] for message in waiting} == {1}
    ack_all(waiting)
    client.rpush("go", "running")
    assert first.process.wait(timeout=20) == 0
    assert client.xlen(STREAM) == 0
    assert {entry["name"].decode() for entry in client.xinfo_consumers(STREAM, GROUP)} == {
        "@returned",
        reader.channel.holdings.consumer,
    }


def test_a_scheduled_message_outlives_the_worker_that_could_have_had_it(workers, connect, client, app):
    (first,) = workers(1)
    due = datetime.now(UTC) + timedelta(seconds=4)
    _send(connect(), "tests.noop", "later", eta=due.isoformat())
    _send(connect(), "tests.noop", "now")
    assert _next(client) == "now"
    until(lambda: client.xlen(STREAM) == 0, WAIT_S)
    first.kill()
    workers(1)
    assert _next(client) == "later"
    assert datetime.now(UTC) >= due


def test_a_frozen_server_costs_no_live_worker_its_messages(workers, server, connect, client, app):
    workers(2)
    _send(connect(), "tests.hold", "a", "b")
    assert {_next(client), _next(client)} == {"a", "b"}
    server.pause()
    time.sleep(LEASE_S)  # the fault itself
    server.resume()
    _send(connect(), "tests.noop", "c", "d")
    client.rpush("go", 1, 2)
    assert {_next(client), _next(client)} == {"c", "d"}
    assert client.llen("started") == 0


def test_refusals_of_the_server_end_no_worker(workers, connect, add, client, app):
    """Out of memory, permission withdrawn, everything deleted, messages that are none."""
    (worker,) = workers(1, pool="prefork")
    client.config_set("maxmemory", 1)
    time.sleep(1)  # the fault itself: leases and reads are refused
    client.config_set("maxmemory", 0)
    client.execute_command("ACL", "SETUSER", "default", "-xreadgroup", "-xack", "-evalsha")
    time.sleep(1)
    client.execute_command("ACL", "SETUSER", "default", "+@all")
    client.flushall()
    add(b=5, h={"task": "tests.noop", "id": "x"}, p={})
    add(b=[[], {}, {}], h={"task": "tests.noop", "id": {}}, p={})
    add(b={}, h={}, p={})
    add(b=[[], {}, {}], h={"task": "tests.unknown", "id": "y"}, p={})
    _send(connect(), "tests.noop", "good")
    assert _next(client) == "good"
    until(lambda: client.xlen(Keys().dead_letters()) == 4, WAIT_S)
    assert worker.process.poll() is None


def test_celerys_tools_work(workers, connect, client, app):
    workers(1)
    control = app.control
    # Asked again: a worker takes tasks a moment before it listens to remote control.
    until(lambda: control.inspect(timeout=1, limit=1).ping() == {"w0@test": {"ok": "pong"}}, 20)
    with _events(app) as next_event:
        _send(connect(), "tests.hold", "held")
        _send(connect(), "tests.noop", "revoked", "kept")
        assert _next(client) == "held"
        active = control.inspect(timeout=20, limit=1).active()
        assert [task["id"] for task in active["w0@test"]] == ["held"]
        assert control.revoke("revoked", reply=True, timeout=20, limit=1)
        client.rpush("go", 1)
        assert _next(client) == "kept"
        seen = set()
        while not seen >= {"task-succeeded", "task-revoked"}:
            seen.add(next_event())
    assert client.llen("started") == 0
    assert control.cancel_consumer("io", reply=True, timeout=20, limit=1)
    connection = connect()
    _send(connection, "tests.noop", "waits")
    # A read that was on its way when the consumer was cancelled may have it for a moment, and hands it back.
    until(lambda: connection.default_channel.queue_declare("io", passive=True).message_count == 1, WAIT_S)
    assert control.purge() == 1
    assert [key for key in client.scan_iter() if b"reply" in key and client.ttl(key) < 0] == []


def test_the_companion_ends_with_its_worker_and_is_replaced_when_it_is_killed(workers, client, app):
    (worker,) = workers(1, pool="prefork", concurrency=2)
    process = psutil.Process(worker.process.pid)
    until(lambda: _companions(process), WAIT_S)
    (companion,) = _companions(process)
    assert not [each for child in process.children() for each in _companions(child)]
    companion.kill()
    until(lambda: [each for each in _companions(process) if each != companion], WAIT_S)
    (second,) = (each for each in _companions(process) if each != companion)
    assert second.memory_info().rss < 45e6
    worker.kill()
    assert psutil.wait_procs([second], timeout=WAIT_S)[1] == []


def test_purging_from_the_outside_takes_what_waits(connect, client, app):
    publish(connect(), "io", "a", "b")
    assert app.control.purge() == 2


def _companions(process):
    children = [each for each in process.children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in children if "lease_keeper.py" in " ".join(each.cmdline())]


class _events:  # noqa: N801  # reads as a function
    """Celery's events, from when the first one came."""

    def __init__(self, app):
        self._app = app
        self._types = queue.Queue()

    def __enter__(self):
        self._connection = self._app.connection_for_read()
        handlers = {"*": lambda event: self._types.put(event["type"])}
        self._receiver = self._app.events.Receiver(self._connection, handlers=handlers)
        self._thread = threading.Thread(target=self._receiver.capture, kwargs={"wakeup": True})
        self._thread.start()
        self._next()
        return self._next

    def _next(self):
        return self._types.get(timeout=WAIT_S)

    def __exit__(self, *_):
        self._receiver.should_stop = True
        self._thread.join()
        self._connection.release()
