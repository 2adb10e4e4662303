from datetime import UTC, datetime

import pytest

from toolfleet.orchestrator.models import HttpOptions
from toolfleet.orchestrator.models.faults import complaint_in, retry_after_s
from toolfleet.orchestrator.models.retries import wait_before_next_s

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
OPTIONS = HttpOptions(attempts=5, first_wait_s=1, max_wait_s=4)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        ("0.5", 0.5),
        ("-1", 0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0),
        ("soon", None),
    ],
)
def test_retry_after_is_read_in_both_of_its_forms(header, seconds):
    assert retry_after_s(header, NOW) == seconds


def test_waits_double_up_to_the_longest():
    waits = [wait_before_next_s(attempt, None, OPTIONS, 1.0) for attempt in range(1, 6)]
    assert waits == [1, 2, 4, 4, None]


def test_chance_spreads_the_waits():
    assert wait_before_next_s(2, None, OPTIONS, 0.0) == 1
    assert wait_before_next_s(1, 2.0, OPTIONS, 0.5) == pytest.approx(2.2)


def test_no_one_comes_back_before_the_server_asked():
    assert wait_before_next_s(1, 3.0, OPTIONS, 0.0) == 3.0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "bad", "type": "t"}}', "bad"),
        ('{"error": "model \'x\' not found"}', "model 'x' not found"),
        ('{"object": "error", "message": "too long", "code": 400}', "too long"),
        ('{"detail": "Not Found"}', "Not Found"),
        ("upstream connect error", "upstream connect error"),
        ("", "no message"),
        (
            "<html><body>Bad gateway</body></html>",
            "an HTML page, which no model API sends (a proxy or a wrong base_url?)",
        ),
        ("[1]", "[1]"),
    ],
)
def test_a_complaint_is_found_in_whichever_shape_it_comes(body, message):
    assert complaint_in(body).message == message


def test_a_long_complaint_is_cut():
    assert len(complaint_in("x" * 10_000).message) == 500
