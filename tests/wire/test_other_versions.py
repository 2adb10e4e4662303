"""Records of the last version and of the next one are read: in a rolling update both work on one Redis.

A record grows by fields that may be left out. What may not be ignored is another version of the record, and is refused;
so are API keys with more than is known here: what is not known may be what they are not to do.
"""

from __future__ import annotations

import json

import pytest

from toolfleet.calls import Failed, JobRecord, Progress, Returned, Submitted, ToolCall
from toolfleet.catalog import Announcement, Believer
from toolfleet.connections import connect_async
from toolfleet.errors import Refused
from toolfleet.jobs import JobState, state_of
from toolfleet.orchestrator.doors.http.key_store import Keyring, digest_of
from toolfleet.orchestrator.run.events import RUN_EVENT
from toolfleet.orchestrator.status.call_reader import HandleRecord
from toolfleet.settings import Settings
from toolfleet.wire import OtherVersion, Seal

SETTINGS = Settings(redis_url="redis://127.0.0.1")
SEAL = Seal(SETTINGS)
CALL_ID = "r.1.0"
NEWER = {"of_the_next_version": {"x": [1]}}

ATTEMPT = {"worker": "io@host", "number": 1, "began_unix_s": 1.0, "ended_unix_s": 2.0}
CALL = {
    "v": 1,
    "call_id": CALL_ID,
    "run_id": "r",
    "tool": "echo",
    "arguments": "{}",
    "deadline_unix_s": 9e9,
    "reply_to": "o",
}
JOB = {
    "v": 1,
    "call": CALL,
    "external_id": "e",
    "poll_after_s": 1.0,
    "submitted_unix_s": 1.0,
    "polled": True,
    "cancellable": False,
}
SPEC = {
    "name": "echo",
    "description": "Say it.",
    "input_schema": {"type": "object"},
    "effect": "read_only",
    "queue": "io",
}
ANNOUNCEMENT = {
    "v": 1,
    "worker": "io@host",
    "pid": 1,
    "pool": "io",
    "concurrency": 1,
    "queues": ["io"],
    "started_unix_s": 1.0,
    "tools": [SPEC],
}
HANDLE = {"call_id": CALL_ID, "run_id": "r", "tool": "echo", "deadline_unix_s": 9e9, "submitted_unix_s": 1.0}

EVENTS = [
    {
        "type": "run_started",
        "run_id": "r",
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "started_unix_s": 1.0,
    },
    {
        "type": "model_replied",
        "message": {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "name": "echo", "arguments": "{}"}],
        },
    },
    {"type": "calls_sent", "deadlines_unix_s": {CALL_ID: 9e9}},
    {"type": "approval_given", "call_id": CALL_ID, "approval": {"granted": True}},
    {"type": "run_adopted", "orchestrator_id": "o"},
    {"type": "run_resumed"},
    {"type": "run_stopped", "state": "failed", "reason": "late"},
]


def grown(value):
    """The same as a newer version writes it: one field more, wherever a record is."""
    if isinstance(value, list):
        return [grown(each) for each in value]
    if isinstance(value, dict) and value.keys() - {"type"} and not {CALL_ID} & value.keys():
        return {**{name: each if name == "input_schema" else grown(each) for name, each in value.items()}, **NEWER}
    return value


def text(record):
    return json.dumps(record).encode()


def sealed(purpose, record):
    """Sealed as another version would."""
    body = text(record)
    return SEAL._sign(purpose + CALL_ID.encode() + b"\0", body).encode() + body


RESULTS = {
    "returned": ({"type": "returned", "content": "said", "attempt": ATTEMPT}, Returned),
    "failed": ({"type": "failed", "kind": "error", "message": "no", "attempt": ATTEMPT}, Failed),
    "submitted": ({"type": "submitted", "handle": "h", "poll_after_s": 5.0}, Submitted),
}
AS = pytest.mark.parametrize("of", [dict, grown], ids=["last version", "next version"])


@AS
def test_calls(of):
    record = json.dumps(of(CALL))
    mac = SEAL._sign(b"toolfleet.call\0", record.encode())
    assert SEAL.open_call(record, mac) == ToolCall(**CALL)


@AS
@pytest.mark.parametrize("kind", RESULTS)
def test_results(of, kind):
    record, model = RESULTS[kind]
    assert SEAL.open_result(sealed(b"toolfleet.result\0", of(record)), CALL_ID) == model(**record)


@AS
def test_progress_and_jobs(of):
    progress = {"type": "progress", "fraction": 0.5}
    assert SEAL.open_progress(sealed(b"toolfleet.progress\0", of(progress)), CALL_ID) == Progress(fraction=0.5)
    job = SEAL.open_job(sealed(b"toolfleet.job\0", of(JOB)), CALL_ID)
    assert job == JobRecord(**JOB)
    state = {"polls": 3, "wait_s": 2.0}
    assert state_of(job, text(of(state))) == JobState(**state)
    assert state_of(job, b"junk") == JobState(wait_s=1.0)


@AS
def test_announcements(of):
    live = Believer(SEAL).live({b"io@host": SEAL.close_announcement(text(of(ANNOUNCEMENT)), "io@host", 1000)}, 1)
    assert live.ours == [Announcement(**ANNOUNCEMENT)]


@AS
def test_handles(of):
    sealed = SEAL.close_kept(text(of(HANDLE)), "handle:h")
    assert HandleRecord.opened(SEAL, sealed, "handle:h") == HandleRecord(**HANDLE)
    assert HandleRecord.opened(SEAL, sealed, "handle:other") is None
    assert HandleRecord.opened(SEAL, b"junk", "handle:h") is None


@AS
@pytest.mark.parametrize("event", EVENTS, ids=[event["type"] for event in EVENTS])
def test_events_of_runs(of, event):
    assert RUN_EVENT.validate_json(text(of(event)), extra="ignore") == RUN_EVENT.validate_json(text(event))


def test_of_another_version_of_a_call_is_read_what_all_versions_say():
    record = json.dumps({**CALL, "v": 2, "arguments": {"not": "as it was"}})
    with pytest.raises(OtherVersion, match="version 2") as refused:
        SEAL.open_call(record, SEAL._sign(b"toolfleet.call\0", record.encode()))
    assert refused.value.frame.call == ToolCall(**{**CALL, "arguments": ""})


@pytest.mark.parametrize("v", [0, -1, "2", 2.5, None, [2]])
def test_what_is_no_version_is_refused(v):
    record = json.dumps({**CALL, "v": v})
    with pytest.raises(Refused, match="wrong version or shape"):
        SEAL.open_call(record, SEAL._sign(b"toolfleet.call\0", record.encode()))


def test_a_key_that_says_more_than_is_known_here_is_no_key():
    key, keyring = "tf_key", Keyring(connect_async(SETTINGS), SETTINGS, SEAL)
    said = {"v": 1, "key_id": "k", "created_unix_s": 1.0}
    digest = digest_of(key)
    assert keyring._opened(digest, SEAL.close_api_key(text(said), digest)) is not None
    assert keyring._opened(digest, SEAL.close_api_key(text({**said, "only_on_sundays": True}), digest)) is None
