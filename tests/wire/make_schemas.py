"""Makes `wire/v1/schemas/` anew, from the records that our own code reads: `python -m tests.wire.make_schemas`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from toolfleet.artifacts import ArtifactGrant
from toolfleet.calls import TOOL_RESULT, CallFrame, JobRecord, Progress, ToolCall
from toolfleet.catalog import Announcement

FOLDER = Path(__file__).parents[2] / "wire" / "v1" / "schemas"

RECORDS: dict[str, TypeAdapter[Any]] = {
    "call": TypeAdapter(ToolCall),
    "call-of-another-version": TypeAdapter(CallFrame),
    "result": TOOL_RESULT,
    "progress": TypeAdapter(Progress),
    "announcement": TypeAdapter(Announcement),
    "job": TypeAdapter(JobRecord),
    "artifact-grant": TypeAdapter(ArtifactGrant),
}

HEADERS = {
    "title": "headers",
    "description": "Field `h` of a message's entry. `claim`: the call must not happen twice; for how long it is "
    "claimed, in seconds. `contract`: the digest that the tool was offered with; empty if any version of it will do.",
    "type": "object",
    "properties": {
        "lang": {"type": "string"},
        "task": {"type": "string", "minLength": 1},
        "id": {"type": "string", "minLength": 1},
        "contract": {"type": "string"},
        "claim": {"type": "integer", "minimum": 1},
    },
    "required": ["task", "id"],
}


def schemas() -> dict[str, dict[str, Any]]:
    """Each file's name, and what is to be in it."""
    made = {name: {"title": name, **_open(adapter.json_schema())} for name, adapter in RECORDS.items()}
    made["headers"] = HEADERS
    begins = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {f"{name}.json": {**begins, **schema} for name, schema in made.items()}


def _open(schema: Any, *, names_fields: bool = False) -> Any:
    """The same without titles, and open to fields of newer versions; what tells records apart must be said."""
    if isinstance(schema, list):
        return [_open(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if names_fields:
        return {name: _open(each) for name, each in schema.items()}
    kept = {
        name: _open(each, names_fields=name in ("properties", "$defs"))
        for name, each in schema.items()
        if name not in ("title", "discriminator") and not (name == "additionalProperties" and each is False)
    }
    if "const" in kept.get("properties", {}).get("type", {}):
        kept["required"] = ["type", *(name for name in kept.get("required", ()) if name != "type")]
    return kept


def text_of(content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in schemas().items():
        (FOLDER / name).write_text(text_of(content))
