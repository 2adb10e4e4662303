"""What is read of an entry in one pass is what a message made of it says; of all other entries nothing is read."""

import orjson
import pytest
from hypothesis import example, given, strategies as st

from toolfleet.calls import Returned, ToolCall
from toolfleet.orchestrator.fleet.envelopes import task_message
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.streams.entries import DeliveredEntry, StreamMessage
from toolfleet.streams.plain_entry import plain_entry
from toolfleet.streams.unbelieved import Malformed
from toolfleet.tool import tool
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import attempt_text

MAX_BYTES = 100_000
HEADERS = {"lang": "py", "task": "spend", "id": "r.1.0", "contract": "abc", "claim": 900}
BODY = [["text", "mac"], {}, {"callbacks": None}]
PLACE = {"delivery_mode": 2, "delivery_info": {"exchange": "", "routing_key": "io"}, "priority": 3}


def entry(*, body=BODY, headers=HEADERS, place=PLACE, call_id=b"r.1.0", claim=(b"claim", b"900"), **facts):
    heads = [part if isinstance(part, bytes) else orjson.dumps(part) for part in (body, headers, place)]
    fields = [b"b", heads[0], b"h", heads[1], b"p", heads[2], b"id", call_id, *claim]
    return DeliveredEntry(
        **{
            "stream": "s",
            "entry_id": "5-0",
            "deliveries": 1,
            "claimed": True,
            "names": fields[::2],
            "values": fields[1::2],
        }
        | facts
    )


def delivery_of(read):
    message = StreamMessage.from_delivery(None, read, "consumer", MAX_BYTES)
    return Delivery.of(message.headers, message.delivery_info, message.payload[0])


def agree(plain, delivery):
    """Whether the two say the same, and a message says nothing that the plain entry leaves out."""
    said = (plain.call_id, plain.tool, plain.contract, plain.sent_once, plain.claimed_s, plain.text, plain.mac)
    told = (delivery.task_id, delivery.task, delivery.contract, delivery.sent_once, delivery.claimed_s)
    assert said == (*told, delivery.text, delivery.mac)
    assert plain.gates == delivery.gates
    assert delivery.is_new
    assert (delivery.cancelled, delivery.passed_unix_s) == (False, 0.0)


def test_what_an_orchestrator_sends_is_plain():
    @tool
    async def spend() -> None:
        """Spend."""

    call = ToolCall(call_id="r.1.0", run_id="r", tool="spend", arguments="{}", deadline_unix_s=9e9, reply_to="o")
    sent = task_message(call, spend.spec, Priority.NORMAL, Seal(Settings()))
    claim = str(sent.headers["claim"]).encode()
    read = entry(body=sent.body, headers=sent.headers, claim=(b"claim", claim))
    plain = plain_entry(read, MAX_BYTES)
    assert plain is not None
    assert Seal(Settings()).open_call(plain.text, plain.mac) == call
    agree(plain, delivery_of(read))


GATES = b'[["concurrency","spend","",2.0,0]]'


def of_gates(text):
    return (b"gates", text, b"waits_as", b"7 9 0 r")


@pytest.mark.parametrize("claim", [(), (b"claim", b"900")], ids=["unclaimed", "claimed"])
def test_what_has_passed_limits_is_plain_and_says_which(claim):
    read = entry(claim=(*claim, *of_gates(GATES)), claimed=bool(claim))
    plain = plain_entry(read, MAX_BYTES)
    assert plain is not None
    assert plain.gates == GATES.decode()
    agree(plain, delivery_of(read))


@pytest.mark.parametrize("text", [b"\xff", b"[" * 70_000], ids=["no text", "very long"])
def test_limits_that_no_fleet_writes_are_not_plain(text):
    read = entry(claim=(b"claim", b"900", *of_gates(text)))
    assert plain_entry(read, MAX_BYTES) is None
    assert len(delivery_of(read).gates) < 2


OTHERS = {
    "a later delivery": entry(deliveries=2),
    "one that another worker had": entry(returned=True),
    "a cancelled call": entry(cancelled=True),
    "one that was carried": entry(claim=(b"claim", b"900", b"first", b"4-0", b"earlier", b"1")),
    "a call that nobody wanted any more": entry(claim=(b"over", b"cancelled")),
    "a call that has passed limits": entry(claim=(b"gates", b"[]")),
    "a large body": entry(body=[["x" * 20_000, "mac"], {}, {}]),
    "an unknown header": entry(headers=HEADERS | {"eta": None}),
    "headers of another call": entry(call_id=b"r.1.1"),
    "no contract": entry(headers={name: value for name, value in HEADERS.items() if name != "contract"}),
    "a body that is no envelope": entry(body=[["text"], {}, {}]),
    "an envelope of numbers": entry(body=[[1, 2], {}, {}]),
    "properties that are no object": entry(place=5),
    "a claim that is no number": entry(claim=(b"claim", b"soon")),
    "no JSON": entry(headers=b"{"),
}


@pytest.mark.parametrize(("why", "says"), [(b"cancelled", (True, False)), (b"expired", (False, True))])
def test_what_left_a_room_as_nobody_wanted_it_tells_its_worker_why(why, says):
    delivery = delivery_of(entry(claim=(b"over", why)))
    assert (delivery.cancelled, delivery.expired) == says


@pytest.mark.parametrize("read", OTHERS.values(), ids=OTHERS)
def test_what_is_not_common_is_not_plain(read):
    assert plain_entry(read, MAX_BYTES) is None


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    [*HEADERS, "compression", "deliveries", "cancelled", "claimed_s", "passed_unix_s", "args", "eta"]
)
RAW = st.binary(max_size=8)


@given(
    headers=RAW | st.dictionaries(NAMES, ANY, max_size=3).map(lambda odd: HEADERS | odd),
    body=RAW | ANY | st.tuples(st.lists(ANY, max_size=3), ANY, ANY) | st.just(BODY),
    place=RAW | ANY | st.dictionaries(st.sampled_from([*PLACE, "reply_to"]), ANY).map(lambda odd: PLACE | odd),
    claim=st.just(())
    | st.tuples(st.just(b"claim"), RAW | st.just(b"900"))
    | RAW.map(of_gates)
    | RAW.map(lambda text: (b"claim", b"900", *of_gates(text))),
    claimed=st.booleans(),
)
@example(headers=HEADERS, body=BODY, place=PLACE, claim=(b"claim", b"900"), claimed=True)
@example(headers=HEADERS | {"claim": True}, body=BODY, place=PLACE, claim=(b"claim", b"nan"), claimed=True)
def test_whatever_is_plain_makes_a_message_that_says_the_same(headers, body, place, claim, claimed):
    read = entry(headers=headers, body=body, place=place, claim=claim, claimed=claimed)
    plain = plain_entry(read, MAX_BYTES)
    try:
        delivery = delivery_of(read)
    except Malformed:
        assert plain is None
    else:
        assert plain is None or repr(plain.claimed_s) == repr(delivery.claimed_s)
        if plain is not None and plain.claimed_s == plain.claimed_s:
            agree(plain, delivery)


def test_a_result_says_its_attempt_as_its_record_would():
    delivery = Delivery(
        "r.1.0", "spend", None, None, worker='wörker "1"@host', came_unix_s=1_700_000_000.25, deliveries=3
    )
    seal = Seal(Settings())
    result = seal.open_result(seal.close_result(Returned(content="x"), "r.1.0", attempt_text(delivery)), "r.1.0")
    assert result.attempt is not None
    assert (result.attempt.worker, result.attempt.number) == (delivery.worker, 3)
    assert result.attempt.began_unix_s == delivery.came_unix_s <= result.attempt.ended_unix_s
