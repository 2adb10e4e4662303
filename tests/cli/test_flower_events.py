"""How Flower takes in events: in their order, none lost, with rests while a burst goes on. On a loop as Flower has."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from celery import Celery
from tornado.ioloop import IOLoop

from toolfleet.local import flower_events
from toolfleet.local.flower_events import PatientEvents
from toolfleet.local.session_niceness import AUTOGROUP

WAIT_S = 30.0
POISON = "poison"


class Seen:
    """A state in the place of Flower's, which knows when each event was taken in."""

    def __init__(self, work_s: float = 0.0) -> None:
        self.numbers: list[int] = []
        self.at_s: list[float] = []
        self._work_s = work_s

    def event(self, event: dict[str, Any]) -> None:
        time.sleep(self._work_s)
        if event["type"] == POISON:
            raise KeyError("uuid")
        self.numbers.append(event["number"])
        self.at_s.append(time.monotonic())


@pytest.fixture
def loop() -> Iterator[IOLoop]:
    ready, loops = threading.Event(), []

    def run() -> None:
        loops.append(IOLoop(make_current=False))
        loops[0].add_callback(ready.set)
        loops[0].start()
        loops[0].close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(WAIT_S)
    yield loops[0]
    loops[0].add_callback(loops[0].stop)
    thread.join(WAIT_S)


def listening(loop: IOLoop, seen: Seen) -> PatientEvents:
    events = PatientEvents(Celery(broker="memory://"), loop, max_tasks_in_memory=10)
    events.state = seen
    return events


def tell(events: PatientEvents, count: int, *, poison: Collection[int] = ()) -> None:
    """Tell it of so many events, some of which Flower cannot take."""
    for number in range(count):
        events.on_event({"type": POISON if number in poison else "task-received", "number": number})


def rests(seen: Seen) -> list[bool]:
    """Whether there was a rest after each event but the last, where one takes a second."""
    return [later - earlier > 0.9 for earlier, later in zip(seen.at_s, seen.at_s[1:], strict=False)]


def until(seen: Seen, count: int) -> None:
    give_up = time.monotonic() + WAIT_S
    while len(seen.numbers) < count:
        assert time.monotonic() < give_up, seen.numbers
        time.sleep(0.005)


def test_every_event_is_taken_in_once_in_its_order(loop: IOLoop) -> None:
    seen = Seen()
    events = listening(loop, seen)
    tell(events, 20_000)
    until(seen, 20_000)
    assert seen.numbers == list(range(20_000))


def test_an_event_that_flower_cannot_take_holds_up_no_other(loop: IOLoop) -> None:
    seen = Seen(work_s=0.001)
    events = listening(loop, seen)
    tell(events, 30, poison=range(0, 30, 3))
    until(seen, 20)
    assert seen.numbers == [number for number in range(30) if number % 3]


def test_the_loop_rests_while_events_come_and_takes_in_the_rest_at_once_when_none_does(
    loop: IOLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that a slow machine cannot pass for a rest, nor a rest for a slow machine.
    monkeypatch.setattr(flower_events, "REST_S", 1.0)
    seen = Seen(work_s=0.01)
    events = listening(loop, seen)
    tell(events, 20)
    until(seen, 20)
    assert seen.numbers == list(range(20))
    # One rest, after the first; by its end none has come for long, and the others follow each other.
    assert rests(seen) == [True, *[False] * 18]


def test_more_than_may_wait_are_taken_in_without_rest(loop: IOLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_events, "REST_S", 1.0)
    monkeypatch.setattr(flower_events, "CALM_S", 60.0)
    monkeypatch.setattr(flower_events, "MOST_WAITING", 10)
    seen = Seen(work_s=0.01)
    events = listening(loop, seen)
    tell(events, 16)
    until(seen, 8)
    assert rests(seen)[:7] == [*[False] * 6, True]


def test_flower_goes_last_until_more_wait_than_it_may_keep(loop: IOLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    refused = iter([True])  # as the kernel does where too many ask

    def say(niceness: int) -> bool:
        if next(refused, False):
            return False
        said.append(niceness)
        return True

    monkeypatch.setattr(flower_events, "set_session_niceness", say)
    monkeypatch.setattr(flower_events, "REST_S", 0.0)
    monkeypatch.setattr(flower_events, "MOST_WAITING", 20)
    seen = Seen(work_s=0.002)
    events = listening(loop, seen)
    loop.add_callback(tell, events, 8)
    until(seen, 8)
    assert said == [19]
    loop.add_callback(tell, events, 60)
    until(seen, 68)
    assert said == [19, 0, 19]


def test_a_session_stands_back_and_comes_forward_again() -> None:
    asked = """
import os, time
from toolfleet.local.session_niceness import AUTOGROUP, set_session_niceness
for niceness in (19, 0):
    while not set_session_niceness(niceness):
        time.sleep(0.05)
    # Where the kernel has no such thing, nothing happens.
    told = AUTOGROUP.read_text().split()[-1] if os.access(AUTOGROUP, os.W_OK) else niceness
    print(told, os.nice(0))
"""
    ours = subprocess.run([sys.executable, "-c", asked], start_new_session=True, check=True, stdout=subprocess.PIPE)
    assert ours.stdout.splitlines() == [b"19 0", b"0 0"]


def test_a_session_that_others_have_begun_is_left_alone() -> None:
    asked = "from toolfleet.local.session_niceness import set_session_niceness; assert set_session_niceness(19)"
    before = AUTOGROUP.read_text() if AUTOGROUP.exists() else ""
    subprocess.run([sys.executable, "-c", asked], check=True)
    assert (AUTOGROUP.read_text() if AUTOGROUP.exists() else "") == before


def test_what_waits_when_flower_stops_is_taken_in_before_it_is_saved(loop: IOLoop) -> None:
    seen = Seen(work_s=0.01)
    events = listening(loop, seen)
    tell(events, 12, poison={3, 4, 5})
    stopped = threading.Event()

    def stop() -> None:
        events.persistent, events.save_state = True, stopped.set
        events.stop()

    loop.add_callback(stop)
    assert stopped.wait(WAIT_S)
    assert seen.numbers == [0, 1, 2, *range(6, 12)]
