"""A delivery is read from a message's headers, whatever they hold, on any broker."""

import pytest

from toolfleet.workers.delivery.message import Delivery

HEADERS = {"id": "r.1.0", "task": "add"}
STREAM = {"stream": "toolfleet:queue:io:3", "entry_id": "5-0", "consumer": "host-1-ab", "redelivered": False}


def test_a_stream_delivery_says_where_its_entry_is():
    delivery = Delivery.of(HEADERS | {"deliveries": 3, "claimed_s": 60}, STREAM, ["text", "mac"])
    assert (delivery.task_id, delivery.task, delivery.text, delivery.mac) == ("r.1.0", "add", "text", "mac")
    assert (delivery.stream, delivery.entry_id, delivery.consumer) == ("toolfleet:queue:io:3", "5-0", "host-1-ab")
    assert (delivery.deliveries, delivery.claimed_s) == (3, 60)


@pytest.mark.parametrize(("redelivered", "deliveries"), [(True, 2), (False, 1), (None, 1)])
def test_another_brokers_delivery_says_only_whether_it_is_the_first(redelivered, deliveries):
    delivery = Delivery.of(HEADERS, {"redelivered": redelivered}, ["text", "mac"])
    assert (delivery.deliveries, delivery.stream, delivery.claimed_s) == (deliveries, "", 0)


@pytest.mark.parametrize("arguments", [None, [], ["one"], ["one", "two", "three"], {"a": 1}, "ab", 5])
def test_arguments_that_are_no_envelope_leave_nothing_to_believe(arguments):
    delivery = Delivery.of(HEADERS, {}, arguments)
    assert (delivery.text, delivery.mac) == (None, None)


def test_each_delivery_of_an_entry_claims_for_the_same_entry():
    first, again = (Delivery.of(HEADERS | {"deliveries": n}, STREAM, []) for n in (1, 2))
    assert first.claimant == again.claimant == "5-0"


def test_without_an_entry_no_two_deliveries_claim_alike():
    first, again = (Delivery.of(HEADERS, {}, []) for _ in range(2))
    assert first.claimant != again.claimant
