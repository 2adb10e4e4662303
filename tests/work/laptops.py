"""`toolfleet worker --over` as a process of its own, which has neither Redis nor the secret."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx

from tests.cli.command import Terminal, read_until
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope
from toolfleet.settings import Settings
from toolfleet.wire import Seal

HERE = Path(__file__).parent
TOOLS = "echoed,large,paid,counted"
WITHIN_S = 60


async def _added(settings: Settings, scope: Scope, names: str) -> str:
    client = connect_async(settings)
    try:
        tools = tuple(names.split(","))
        key, _ = await Keyring(client, settings, Seal(settings)).add(scopes=(scope,), tools=tools)
    finally:
        await client.aclose()
    return key


def key_of(settings: Settings, scope: Scope, tools: str = TOOLS) -> str:
    """A new key for these tools."""
    return asyncio.run(_added(settings, scope, tools))


@dataclass
class Caller:
    """Somebody who calls tools over HTTP."""

    url: str
    key: str

    def call(self, tool: str, *, patience_s: float = 30, **arguments: Any) -> dict[str, Any]:
        answer = self._http("POST", f"/v1/tools/{tool}/call", json={"arguments": arguments, "patience_s": patience_s})
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()

    def submitted(self, tool: str, **arguments: Any) -> str:
        return str(self.call(tool, patience_s=0, **arguments)["handle"])

    def ended(self, handle: str) -> dict[str, Any]:
        ends_s = time.monotonic() + WITHIN_S
        while time.monotonic() < ends_s:
            if result := self._http("GET", f"/v1/handles/{handle}?wait=20").json().get("result"):
                return result
        raise AssertionError("it has not ended")

    def until_served(self, tool: str) -> None:
        ends_s = time.monotonic() + WITHIN_S
        while tool not in [each["name"] for each in self._http("GET", "/v1/tools").json()["tools"]]:
            assert time.monotonic() < ends_s
            time.sleep(0.05)

    def _http(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.request(method, f"{self.url}{path}", headers=headers, timeout=WITHIN_S, **more)


@contextmanager
def laptop(
    folder: Path, url: str, key: str, name: str = "laptop", *, instrument: str = "", **more: str
) -> Iterator[Popen[str]]:
    """A worker over this address; whoever has not ended it finds it ended by its terminal."""
    (folder / name).mkdir(exist_ok=True)
    variables = {
        "TOOLFLEET_WORKER_KEY": key,
        "LEDGER": str(folder / "ledger"),
        "PYTHONPATH": f"{HERE}:{HERE.parent / 'telemetry'}",
        "TOOLFLEET_SHUTDOWN_GRACE_S": "20",
        **more,
    }
    terminal = Terminal(folder / name, variables)
    words = ("worker", "--over", url, "--import", "laptop_tools", "--name", name, "--concurrency", "4")
    if instrument:
        words += ("--instrument", instrument)
    with terminal.start(*words) as process:
        try:
            read_until(process, "Ready")
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ledger(folder: Path) -> list[str]:
    path = folder / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def until_noted(folder: Path, word: str) -> None:
    ends_s = time.monotonic() + WITHIN_S
    while not any(word in line for line in ledger(folder)):
        assert time.monotonic() < ends_s, ledger(folder)
        time.sleep(0.02)
