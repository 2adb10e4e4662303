"""Publishing without kombu makes the entries that kombu would make."""

import orjson
from kombu import Connection

from toolfleet.connections import connect_async
from toolfleet.streams import Priority, transport_options
from toolfleet.streams.direct import DirectPublisher, TaskMessage

BODY = b'[["text","mac"],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'


async def test_an_entry_is_the_same_whoever_published_it(settings):
    headers = {"lang": "py", "task": "add", "id": "r.1.0", "claim": 60}
    message = TaskMessage("io", Priority.NORMAL, headers, BODY)
    client = connect_async(settings)
    await DirectPublisher(client, settings.keys).publish([message])
    with Connection(settings.celery_broker_url, transport_options=transport_options(settings)) as connection:
        connection.Producer(auto_declare=False).publish(
            BODY.decode(),
            routing_key="io",
            exchange="",
            content_type="application/json",
            content_encoding="utf-8",
            headers=headers,
            priority=int(Priority.NORMAL),
            delivery_mode=2,
        )
    (_, direct), (_, kombus) = await client.xrange(settings.keys.queue("io", Priority.NORMAL))
    await client.aclose()
    assert list(direct) == list(kombus)
    assert direct[b"b"] == kombus[b"b"] == BODY
    for field in (b"h", b"p"):
        assert orjson.loads(direct[field]) == orjson.loads(kombus[field])
    assert (direct[b"id"], direct[b"claim"]) == (kombus[b"id"], kombus[b"claim"]) == (b"r.1.0", b"60")


async def test_a_batch_keeps_its_order_and_each_level_its_stream(settings):
    client = connect_async(settings)
    levels = [Priority.BATCH, Priority.NORMAL, Priority.BATCH, Priority.INTERACTIVE]
    messages = [
        TaskMessage("io", level, {"task": "add", "id": str(number)}, BODY) for number, level in enumerate(levels)
    ]
    await DirectPublisher(client, settings.keys).publish(messages)
    found = {
        level: [orjson.loads(fields[b"h"])["id"] for _, fields in await client.xrange(settings.keys.queue("io", level))]
        for level in Priority
    }
    await client.aclose()
    assert found == {Priority.INTERACTIVE: ["3"], Priority.NORMAL: ["1"], Priority.BATCH: ["0", "2"]}
