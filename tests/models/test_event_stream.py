"""Server-sent events, held against httpx-sse and cut at any byte."""

import random
from itertools import pairwise

import pytest
from httpx_sse._decoders import SSEDecoder, SSELineDecoder
from hypothesis import given, strategies as st

from toolfleet.orchestrator.models.event_stream import EventStream

CUTS = 100_000
LINES = [
    "data: {'a': 1}",
    "data:  two blanks",
    "data:no blank",
    "data: größe \N{GRINNING FACE} 漢字",
    "data:",
    "data",
    "data : no field of ours",
    "datax: no field of ours",
    " data: indented",
    ": a comment",
    ":",
    "event: message_start",
    "id: 7",
    "retry: 10",
    "no colon at all",
    "",
    "",
    "",
]
ENDS = ["\n", "\r", "\r\n"]

texts = st.lists(st.tuples(st.sampled_from(LINES) | st.text(max_size=8), st.sampled_from(ENDS)), max_size=20).map(
    lambda lines: "".join(line + end for line, end in lines)
)


def in_pieces(body, cuts):
    """The events of a body that comes cut at these places."""
    stream = EventStream()
    places = [0, *sorted(cuts), len(body)]
    return [data for start, end in pairwise(places) for data in stream.add(body[start:end])]


def of_reference(text):
    """What httpx-sse makes of it, without the events that have no data, which the standard does not know."""
    lines, events, data_lines, found = SSELineDecoder(), SSEDecoder(), 0, []
    for line in [*lines.decode(text), *lines.flush()] if text else []:
        event = events.decode(line)
        if event is not None and data_lines:
            found.append(event.data)
        is_data = line == "data" or line.startswith("data:")
        data_lines = 0 if not line else data_lines + is_data
    return found


@given(texts)
def test_a_body_says_what_the_reference_reads_from_it(text):
    assert [data.decode() for data in in_pieces(text.encode(), [])] == of_reference(text)


@given(texts, st.data())
def test_a_body_says_the_same_wherever_it_is_cut(text, data):
    body = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    assert in_pieces(body, cuts) == in_pieces(body, [])


def test_a_hundred_thousand_cuts_change_nothing():
    chance = random.Random(7)
    done = 0
    while done < CUTS:
        text = "".join(chance.choice(LINES) + chance.choice(ENDS) for _ in range(chance.randrange(1, 30)))
        body, expected = text.encode(), of_reference(text)
        for _ in range(50):
            cuts = chance.choices(range(len(body) + 1), k=chance.randrange(1, 12))
            assert [data.decode() for data in in_pieces(body, cuts)] == expected, (text, cuts)
            done += len(cuts)


@pytest.mark.parametrize("end", ENDS)
def test_each_byte_may_come_alone(end):
    body = end.join(["\ufeffevent: e", "data: größe", "data: 2", "", "data: cut off", ""]).encode()
    assert [data.decode() for data in in_pieces(body, range(len(body)))] == ["größe\n2"]


def test_an_event_is_told_with_the_first_byte_that_ends_it():
    stream = EventStream()
    assert stream.add(b"data: 1\r\n\r") == [b"1"]
    assert stream.add(b"\ndata: 2\r\n\r\n") == [b"2"]


def test_a_byte_order_mark_is_passed_over_at_the_start_alone():
    stream = EventStream()
    assert stream.add(b"\xef\xbb") == []
    assert stream.add(b"\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n") == [b"1"]


def test_a_line_of_megabytes_in_small_pieces_is_joined_once():
    stream = EventStream()
    piece = b"x" * 1000
    assert stream.add(b"data: ") == []
    for _ in range(20_000):
        assert stream.add(piece) == []
    [data] = stream.add(b"\n\n")
    assert len(data) == 20_000_000
