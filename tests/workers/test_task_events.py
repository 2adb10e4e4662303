"""Events of calls that have ended, made in one go: those that Celery's dispatcher would send one by one."""

import orjson
import pytest
from celery import Celery

from toolfleet.workers.celery.request import event_of_end, event_of_receipt
from toolfleet.workers.celery.task_events import MAX_BATCH, BatchingDispatcher, EndedCall
from toolfleet.workers.perform.endings import Ending

ADDED_BY_CELERY = {"clock", "timestamp"}


class Producer:
    def __init__(self):
        self.batches = []

    def publish(self, text, **_):
        self.batches.append(orjson.loads(text))


@pytest.fixture
def dispatcher():
    with Celery("test", broker="memory://") as app, app.connection_for_write() as connection:
        made = BatchingDispatcher(connection, hostname="io@here", buffer_group=["task"], app=app)
        made.producer = Producer()
        yield made


def ended(number, ending=Ending.SETTLED):
    return EndedCall(f"call-{number}", "echo", 1000.0 + number, ending, 0.25)


@pytest.mark.parametrize("ending", Ending)
def test_they_say_what_celery_s_own_would(dispatcher, ending):
    events = [
        event_of_receipt("echo", 1001.0),
        *filter(None, [event_of_end(ending, "echo", 1001.0, 0.25)]),
    ]
    for kind, fields in events:
        dispatcher.send(kind, uuid="call-1", **fields)
    dispatcher.flush()
    dispatcher.send_ended([ended(1, ending)])
    celerys, ours = dispatcher.producer.batches
    assert [set(event) for event in ours] == [set(event) for event in celerys]
    assert [without(event) for event in ours] == [without(event) for event in celerys]


def without(event):
    return {name: value for name, value in event.items() if name not in ADDED_BY_CELERY}


def test_a_call_has_come_when_it_came_and_ended_when_it_did(dispatcher):
    dispatcher.send_ended([ended(1)])
    [[received, succeeded]] = dispatcher.producer.batches
    assert (received["timestamp"], succeeded["started"], succeeded["timestamp"]) == (1001.0, 1001.0, 1001.25)
    assert received["clock"] < succeeded["clock"]


def test_many_travel_together_but_not_too_many(dispatcher):
    dispatcher.send_ended(ended(number) for number in range(MAX_BATCH))
    assert [len(batch) for batch in dispatcher.producer.batches] == [MAX_BATCH, MAX_BATCH]
    ids = [event["uuid"] for batch in dispatcher.producer.batches for event in batch]
    assert ids == [f"call-{number}" for number in range(MAX_BATCH) for _ in range(2)]


def test_what_cannot_be_sent_yet_waits(dispatcher):
    producer, dispatcher.producer = dispatcher.producer, BrokenProducer()
    dispatcher.send_ended([ended(1)])
    dispatcher.producer = producer
    dispatcher.flush()
    assert [len(batch) for batch in producer.batches] == [2]


class BrokenProducer:
    def publish(self, *_, **__):
        raise ConnectionError
