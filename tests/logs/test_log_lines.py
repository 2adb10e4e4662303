"""A record as a line: whatever a library or a tool's author logs, and however, one JSON object comes of it."""

import asyncio
import json
import logging

import pytest

from toolfleet import log_secrets, log_subject
from toolfleet.log_lines import FACTS, Lines, Objects, trace_id_of
from toolfleet.log_secrets import hide, hide_passwords, secrets_in
from toolfleet.log_subject import log_about_call, log_about_run, traceparent_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class Unshowable:
    def __repr__(self):
        raise ValueError("no")


def circle():
    itself = []
    itself.append(itself)
    return itself


def record(name="mine", message="said", *args, **extra):
    made = logging.LogRecord(name, logging.WARNING, "", 0, message, args, None)
    made.__dict__.update(extra)
    return made


def fact(event, **fields):
    return record("toolfleet.workers", event, event=event, **{FACTS: fields})


def told(made):
    text = Objects().format(made)
    assert "\n" not in text
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def ids(made):
    line = told(made)
    return line["run_id"], line["call_id"], line["trace_id"]


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("-inf"), 9007199254740993, 10**400, circle(), Unshowable(), {1: {2: b"\xff"}}, "\ud800"],
)
def test_whatever_is_said_is_one_object(value):
    assert told(fact("said", value=value))["event"] == "said"
    assert "message" in told(record("mine", "%d", value))
    for made in (record("mine", "%s and %s", value), record("mine", value), record("mine", "said", value, value)):
        assert told(made)["level"] == "warning"
        assert Lines("%(message)s").format(made)


def test_a_line_has_its_three_ids_or_says_that_there_are_none():
    assert ids(record()) == (None, None, None)
    assert ids(fact("said", call_id="s.1.0")) == ("s", "s.1.0", None)
    assert ids(record(call_id="s.1.0", run_id="s")) == ("s", "s.1.0", None)


async def test_what_a_task_logs_has_the_ids_of_its_call_and_of_no_other():
    async def of_a_call():
        log_about_call("r", "r.1.0", TRACEPARENT)
        assert ids(record()) == ("r", "r.1.0", TRACE)  # a tool's own
        assert ids(fact("said", call_id="r.1.0")) == ("r", "r.1.0", TRACE)
        assert ids(record("celery.app.trace", data={"id": "r.1.0"})) == ("r", "r.1.0", TRACE)
        assert ids(record("mine", data={"id": "x"})) == ("r", "r.1.0", TRACE)
        assert ids(fact("said", call_id="other.1.0")) == ("other", "other.1.0", None)
        assert ids(fact("not about a call")) == (None, None, None)
        assert await asyncio.to_thread(ids, record()) == ("r", "r.1.0", TRACE)

    async def of_a_run():
        log_about_run("r")
        assert ids(record()) == ("r", None, None)

    await asyncio.gather(asyncio.create_task(of_a_call()), asyncio.create_task(of_a_run()))
    assert ids(record()) == (None, None, None)
    assert ids(fact("settled elsewhere", call_id="r.1.0")) == ("r", "r.1.0", TRACE)


async def test_of_few_calls_the_trace_is_kept_in_mind(monkeypatch):
    monkeypatch.setattr(log_subject, "KNOWN_MAX", 6)
    for n in range(20):
        log_about_call("r", f"r.1.{n}", TRACEPARENT)
    log_about_call("r", "untraced", None)
    known = [n for n in range(20) if traceparent_of(f"r.1.{n}", "r") == TRACEPARENT]
    assert 3 <= len(known) <= 6
    assert known[-1] == 19
    assert traceparent_of("untraced", "nowhere") is None


@pytest.mark.parametrize("forged", ["", "x", TRACEPARENT.upper(), f"00-{'g' * 32}-00f067aa0ba902b7-01", "0" * 10_000])
def test_what_is_no_traceparent_names_no_trace(forged):
    assert trace_id_of(forged) is None


def test_no_secret_of_the_settings_stands_in_a_line(monkeypatch):
    monkeypatch.setattr(log_secrets, "_secrets", set())
    variables = {
        "TOOLFLEET_SECRET": 'correct "horse" battery',
        "TOOLFLEET_FLOWER_AUTH": "me:staple-staple",
        "OPENAI_API_KEY": "sk-1234567",
        "WAREHOUSE": "postgres://me:p%40ss-word@db/x",
        "TOOLFLEET_NAMESPACE": "toolfleet",
    }
    hide(secrets_in(variables))
    hide_passwords("redis://:hunter-two@r:6379/0", None, "redis://[")
    hidden = ['correct "horse" battery', "staple-staple", "sk-1234567", "p@ss-word", "hunter-two"]
    for secret in hidden:
        for line in (
            Objects().format(fact("said", error=f"no: {secret}!")),
            Objects().format(record("mine", "%s", secret)),
            Lines("%(message)s").format(record("mine", "%s", secret)),
        ):
            assert secret not in line
            assert json.dumps(secret)[1:-1] not in line
            assert "***" in line
    assert "toolfleet" in Objects().format(record("mine", "toolfleet"))
