"""The published schemas: what they allow our code reads, and what our code writes they allow."""

from __future__ import annotations

import copy
import json

import pytest
from jsonschema import Draft202012Validator

from tests.wire.make_schemas import FOLDER, RECORDS, schemas, text_of
from tests.wire.make_vectors import files
from toolfleet.calls import (
    Attempt,
    CallFrame,
    Failed,
    FailureKind,
    JobRecord,
    MediaPart,
    Progress,
    Returned,
    Spent,
    Submitted,
    ToolCall,
)
from toolfleet.tool import tool

CALL = ToolCall(
    call_id="r.1.0",
    run_id="r",
    tool="echo",
    arguments='{"n": 9007199254740993}',
    deadline_unix_s=1.5,
    reply_to="o",
    context={"": [None, 2**70, 0.1]},
    undoes=Returned(content="x"),
    traceparent="00-1-2-01",
)
ATTEMPT = Attempt(worker="w", number=1, began_unix_s=1.0, ended_unix_s=2.0)
SPENT = Spent(cost=0.5, calls={"echo": 1})
MEDIA = MediaPart(media_type="image/png", size_bytes=3, data="eHl6")
JOB = JobRecord(
    call=CALL, external_id="e", poll_after_s=1.0, submitted_unix_s=1.0, polled=True, cancellable=False, spent=SPENT
)


@tool(read_only=True, rate="10/s", concurrency=3, cache_s=5, timeout_s=3, tags=("a",))
async def limited(city: str) -> dict[str, int]:
    """Tell the weather."""
    return {city: 1}


ANNOUNCEMENT = {
    "v": 1,
    "worker": "io@host",
    "pid": 1,
    "pool": "io",
    "concurrency": 1,
    "queues": ["io"],
    "started_unix_s": 1.0,
    "tools": [limited.spec.model_dump(mode="json"), {**limited.spec.model_dump(mode="json"), "digest": "0123456789ab"}],
    "sources": {"limited": "m:limited"},
    "lanes": {"io": "io.lane-0123456789ab"},
    "reads": [1, 2],
}
WRITTEN = {
    "call": [CALL],
    "call-of-another-version": [
        CallFrame(v=2, call_id="r.1.0", run_id="r", tool="echo", deadline_unix_s=1.5, reply_to="o")
    ],
    "result": [
        Returned(
            content="", state={"a": 1}, media=(MEDIA,), artifact="f" * 64, attempt=ATTEMPT, repaired=True, spent=SPENT
        ),
        *(Failed(kind=kind, message="no", attempt=ATTEMPT) for kind in FailureKind),
        Submitted(handle="h", external_id="e", message="m", spent=SPENT),
    ],
    "progress": [Progress(fraction=0.5, message="half")],
    "job": [JOB],
    "announcement": [RECORDS["announcement"].validate_python(ANNOUNCEMENT)],
    "artifact-grant": [
        RECORDS["artifact-grant"].validate_python(
            {"tenant": "a", "media_type": "t", "name": "n", "size_bytes": 1, "pieces": ["f"]}
        )
    ],
}
CASES = [
    pytest.param(name, json.loads(RECORDS[name].dump_json(record)), id=f"{name}-{number}")
    for name, records in WRITTEN.items()
    for number, record in enumerate(records)
]


def checker(name):
    schema = json.loads((FOLDER / f"{name}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_schemas_are_as_they_are_made_of_our_records():
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == {
        name: text_of(schema) for name, schema in schemas().items()
    }


@pytest.mark.parametrize(("name", "record"), CASES)
def test_X1_what_our_code_writes_the_schemas_allow(name, record):
    checker(name).validate(record)
    checker(name).validate({**record, "of_a_newer_minor_version": [1]})


@pytest.mark.parametrize(("name", "record"), CASES)
def test_X1_what_our_code_refuses_the_schemas_refuse(name, record):
    """Each field of each record is left out, and replaced with what does not belong there."""
    allowed = checker(name)
    refused = 0
    for damaged in damage(record):
        if not is_read(name, damaged):
            assert not allowed.is_valid(damaged), damaged
            refused += 1
    assert refused > 2


def test_X1_the_schemas_judge_the_vectors_as_the_reader_does():
    allowed = checker("call")
    for vector in files()["calls.json"]["vectors"]:
        match vector["answer"].get("reason"):
            case None:
                allowed.validate(json.loads(vector["text"]))
            case "version":
                assert not allowed.is_valid(json.loads(vector["text"]))
                checker("call-of-another-version").validate(json.loads(vector["text"]))


def is_read(name, record):
    try:
        RECORDS[name].validate_json(json.dumps(record), extra="ignore")
    except ValueError:
        return False
    return True


def damage(value):
    """The same value with one damage each."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield {other: kept for other, kept in value.items() if other != name}
            for instead in (None, "x", -1, 1.5, True, [], {}, ["x"], {"x": 1}):
                yield {**value, name: instead}
            for damaged in damage(each):
                yield {**value, name: copy.deepcopy(damaged)}
    elif isinstance(value, list):
        for position, each in enumerate(value):
            for damaged in damage(each):
                yield [*value[:position], damaged, *value[position + 1 :]]
