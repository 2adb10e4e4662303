"""The published vectors, read by our own code: what any reader must answer, ours answers."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from pydantic import SecretStr

from tests.wire.make_vectors import FOLDER, files, text_of
from toolfleet.calls import Effect, Failed
from toolfleet.catalog import Announcement
from toolfleet.connections import connect_async
from toolfleet.errors import Refused
from toolfleet.settings import Settings
from toolfleet.shards import key_of
from toolfleet.streams.entries import DeliveredEntry, StreamMessage
from toolfleet.streams.unbelieved import Malformed
from toolfleet.wire import OtherVersion, Seal
from toolfleet.workers.delivery.admit import Admitted, Ended, Unbelievable, Unread, admit
from toolfleet.workers.delivery.claims import Claimer
from toolfleet.workers.delivery.message import Delivery

REASONS = {"unsigned or altered": "signature", "wrong version or shape": "shape", "too large": "size"}


def of(name):
    """Each vector of a file, with what the file says of all of them."""
    content = json.loads((FOLDER / name).read_text())
    vectors = content.pop("vectors")
    return pytest.mark.parametrize("vector", [{**content, **each} for each in vectors], ids=lambda each: each["name"])


def seal_of(vector: Any) -> Seal:
    settings = {name: vector[name] for name in ("secret", "previous_secret", "max_message_bytes") if name in vector}
    return Seal(Settings(redis_url="redis://127.0.0.1", **settings))


def test_the_vectors_are_as_they_are_made():
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == {
        name: text_of(content) for name, content in files().items()
    }


def test_X1_there_are_more_than_fifty_and_each_has_a_name_of_its_own():
    named = [(name, each["name"]) for name, content in files().items() for each in content["vectors"]]
    assert len(named) == len(set(named)) > 50


@of("signatures.json")
def test_X1_the_bytes_that_are_signed_are_those_of_the_contract(vector):
    signed = hmac.new(vector["secret"].encode(), (vector["purpose"] + vector["text"]).encode(), hashlib.sha256)
    assert signed.hexdigest() == vector["mac"]
    # Past the settings, which refuse some of these secrets.
    settings = Settings(redis_url="redis://127.0.0.1").model_copy(update={"secret": SecretStr(vector["secret"])})
    assert Seal(settings)._sign(vector["purpose"].encode(), vector["text"].encode()) == vector["mac"]
    if "secret_of_the_fleet" in vector:
        assert key_of("east", vector["secret_of_the_fleet"]) == vector["secret"]


@of("calls.json")
def test_X1_a_call_is_believed_or_refused_as_the_contract_says(vector):
    answer = answer_of(lambda: seal_of(vector).open_call(vector["text"], vector["mac"]))
    assert answer == vector["answer"]


@of("records.json")
def test_X1_a_sealed_record_is_believed_or_refused_as_the_contract_says(vector):
    seal, sealed = seal_of(vector), vector["sealed"].encode()
    match vector["kind"]:
        case "announcement":
            answer = answer_of(lambda: announcement_in(seal, sealed, vector["worker"]))
        case kind:
            answer = answer_of(lambda: getattr(seal, f"open_{kind}")(sealed, vector["call_id"]))
    assert answer == vector["answer"]


def announcement_in(seal, sealed, worker):
    try:
        _, text = seal.open_announcement(sealed, worker)
        return Announcement.model_validate_json(text, extra="ignore")
    except ValueError:
        raise Refused("wrong version or shape") from None


def answer_of(read):
    try:
        record = read()
    except OtherVersion:
        return {"accept": False, "reason": "version"}
    except Refused as refusal:
        return {"accept": False, "reason": REASONS[str(refusal)]}
    return {"accept": True, "kind": str(record.kind)} if isinstance(record, Failed) else {"accept": True}


@of("deliveries.json")
async def test_X1_a_delivered_message_meets_the_fate_that_the_contract_says(vector, settings):
    assert await fate_of(vector, settings) == vector["answer"]


async def fate_of(vector, settings):
    names, values = ([word.encode() for word in words] for words in zip(*vector["fields"].items(), strict=True))
    facts = vector["deliveries"], vector["claimed"], names, values, vector["cancelled"]
    entry = DeliveredEntry("s:queue:io:3", "2-1", *facts)
    try:
        if vector["deliveries"] > vector["max_deliveries"] + 1:
            raise Malformed("delivered too often")
        message = StreamMessage.from_delivery(None, entry, "consumer", vector["max_message_bytes"])
    except Malformed:
        return "bury"
    args, *_ = message.payload
    delivery = Delivery.of(message.headers, message.delivery_info, args)._replace(came_unix_s=vector["now_unix_s"])
    seal = seal_of(vector)
    decision = admit(
        delivery,
        delivery.effect(Effect(vector["effect"])),
        seal,
        now_unix_s=vector["now_unix_s"],
        max_deliveries=vector["max_deliveries"],
    )
    return await outcome_of(decision, delivery, vector, settings, seal)


async def outcome_of(decision, delivery, vector, settings, seal):
    match decision:
        case Unbelievable():
            return "bury"
        case Unread():
            return "pass_on"
        case _ if not vector["serves"] or delivery.contract not in ("", vector["digest"]):
            return "pass_on"
        case Ended(result=result):
            return str(result.kind)
        case Admitted() if decision.must_claim:
            return await claimed(decision.call, delivery, vector, settings, seal)
        case Admitted():
            return "cancelled" if delivery.cancelled else "run"


async def claimed(call, delivery, vector, settings, seal):
    """On a real server, where another message may have the claim."""
    async with connect_async(settings) as client:
        claim = settings.keys.claim(call.call_id)
        await client.delete(claim)
        if vector["claim_holder"]:
            await client.set(claim, vector["claim_holder"])
        is_ours = await Claimer(client, settings.keys, seal).claim(delivery, call)
        await client.delete(claim)
    return "claim" if is_ours else "drop"
