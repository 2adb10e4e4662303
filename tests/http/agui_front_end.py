"""AG-UI's front ends: the official npm client as a program, and plain requests whose events are held to the types."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from ag_ui.core import Event
from pydantic import BaseModel, TypeAdapter

from tests.clients import environments
from tests.clients.started import own_environment

PROGRAM = environments.AGUI_LISTS / "client.mjs"
EVENT: TypeAdapter[Any] = TypeAdapter(Event)
ANSWERS_WITHIN_S = 60


class Sent(NamedTuple):
    """One event as it was sent."""

    id: int | None
    event: dict[str, Any]

    @property
    def type(self) -> str:
        return self.event["type"]


def user(content: Any, id_: str = "q1") -> dict[str, Any]:
    return {"id": id_, "role": "user", "content": content}


def asked(content: Any, *, thread: str, run: str = "r1", **more: Any) -> dict[str, Any]:
    """A whole request."""
    return {"threadId": thread, "runId": run, "messages": [user(content)], **more}


async def sent(
    client: httpx.AsyncClient, body: dict[str, Any], *, last: int | None = None, most: int | None = None, **headers: str
) -> list[Sent]:
    """The events of a request, to the end or so many, each held to its type and to no field beyond it."""
    if last is not None:
        headers["last-event-id"] = str(last)
    found: list[Sent] = []
    async with client.stream("POST", "/agui", json=body, headers=headers, timeout=ANSWERS_WITHIN_S) as response:
        assert response.status_code == 200, await response.aread()
        id_ = None
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                id_ = int(value)
            elif name == "data":
                found.append(Sent(id_, held(json.loads(value))))
                id_ = None
            if most is not None and len(found) >= most:
                break
    return found


def held(event: dict[str, Any]) -> dict[str, Any]:
    """An event, held to the type that the official package has for it."""
    checked = EVENT.validate_python(event)
    assert not _beyond(checked), event
    return event


def _beyond(value: Any) -> list[str]:
    """The fields that the package's types do not have, at any depth."""
    if isinstance(value, list):
        return [name for each in value for name in _beyond(each)]
    if not isinstance(value, BaseModel):
        return []
    own = [name for field in type(value).model_fields for name in _beyond(getattr(value, field))]
    return [*own, *(value.model_extra or {})]


def kinds(events: list[Any]) -> list[str]:
    """The types of events, pieces that follow one another as one."""
    found: list[str] = []
    for each in events:
        kind = each.type if isinstance(each, Sent) else each["type"]
        if not (found and found[-1] == kind and kind.endswith("_CONTENT")):
            found.append(kind)
    return found


def of_kind(events: list[Any], kind: str) -> list[dict[str, Any]]:
    plain = [each.event if isinstance(each, Sent) else each for each in events]
    return [each for each in plain if each["type"] == kind]


def text_of(events: list[Any]) -> str:
    return "".join(each["delta"] for each in of_kind(events, "TEXT_MESSAGE_CONTENT"))


class FrontEnd:
    """The official client while it runs."""

    def __init__(self, process: subprocess.Popen[str], url: str = "", key: str = "") -> None:
        self._process = process
        self._where = {"url": f"{url}/agui", "key": key}

    def at(self, url: str, key: str) -> FrontEnd:
        """The same one, before this server."""
        return FrontEnd(self._process, url, key)

    async def run(self, thread: str, run: str, **more: Any) -> dict[str, Any]:
        """What came of running the agent of a thread."""
        return await asyncio.to_thread(self._run, thread, run, more)

    def _run(self, thread: str, run: str, more: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps({**self._where, "thread": thread, "runId": run, **more}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        outcome: dict[str, Any] = json.loads(line)
        return outcome


@contextmanager
def front_end(folder: Path) -> Iterator[FrontEnd]:
    """The official client, which has ended after the block."""
    (folder / "node_modules").symlink_to(environments.agui_packages())
    (folder / "client.mjs").write_text(PROGRAM.read_text())
    command = [str(environments.NODE), str(folder / "client.mjs")]
    with subprocess.Popen(
        command, env=own_environment(), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield FrontEnd(process)
        finally:
            process.kill()
