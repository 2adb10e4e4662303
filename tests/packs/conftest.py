from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleets import asking

from tests.packs.http_server import HttpServer
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

MCP_SERVER = Path(__file__).parent / "mcp_server.py"

# Read when the packs are imported here; the workers are given others.
REQUIRED = {
    "TOOLFLEET_WEATHER_KEY": "k",
    "TOOLFLEET_TRANSLATE_APP_ID": "2015063000000001",
    "TOOLFLEET_TRANSLATE_KEY": "k",
    "TOOLFLEET_FILES_ROOT": str(Path(__file__).parent),
    "TOOLFLEET_SQL_URL": "sqlite:///nothing.db",
    "TOOLFLEET_MCP_CONFIG": str(Path(__file__).parent / "no_servers.json"),
}
os.environ.update(REQUIRED)


@pytest.fixture(scope="session")
def web() -> Iterator[HttpServer]:
    with HttpServer() as running:
        yield running


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE sold (id INTEGER PRIMARY KEY, what TEXT NOT NULL, price REAL, picture BLOB)")
        connection.executemany(
            "INSERT INTO sold VALUES (?, ?, ?, ?)", [(n, f"thing {n}", n / 4, b"\x00\xff") for n in range(500)]
        )
        connection.execute("CREATE VIEW cheap AS SELECT * FROM sold WHERE price < 1")
    connection.close()
    return path


@pytest.fixture(scope="session")
def mcp_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mcp") / "mcp.json"
    server = {"command": sys.executable, "args": [str(MCP_SERVER), "stdio"], "env": {"TOKEN": "${HTTP_TOKEN}"}}
    path.write_text(json.dumps({"mcpServers": {"local": {**server, "exclude": ["die_*"]}}}))
    return path


@pytest.fixture(scope="session")
def fleet(
    web: HttpServer, database: Path, mcp_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalFleet]:
    """One fleet that serves every pack."""
    root = tmp_path_factory.mktemp("files")
    (root / "notes.txt").write_text("first\nsecond\n")
    packs = ["calculator", "clock", "http", "weather", "translate", "files", "sql", "mcp"]
    environment = {
        "TOOLFLEET_HTTP_ALLOW": f"127.0.0.1:{web.port}",
        "TOOLFLEET_WEATHER_BASE_URL": f"{web.url}/v1",
        "TOOLFLEET_WEATHER_KEY": "weather-key",
        "TOOLFLEET_TRANSLATE_URL": f"{web.url}/translate",
        "TOOLFLEET_TRANSLATE_APP_ID": "2015063000000001",
        "TOOLFLEET_TRANSLATE_KEY": "translate-key",
        "TOOLFLEET_FILES_ROOT": str(root),
        "TOOLFLEET_FILES_WRITABLE": "true",
        "TOOLFLEET_SQL_URL": f"sqlite:///{database}",
        "TOOLFLEET_MCP_CONFIG": str(mcp_config),
        "HTTP_TOKEN": "hush",
    }
    with LocalFleet(
        [f"toolfleet.workers.packs.{pack}" for pack in packs],
        pools={"io": 1, "cpu": 1},
        environment=environment,
        log_level="info",
    ) as running:
        yield running


@pytest.fixture
async def ask(fleet: LocalFleet) -> Any:
    """Perform calls on the workers; their contents, in order."""
    async with Orchestrator(settings=fleet.settings) as orchestrator:

        async def performed(*calls: tuple[str, Any]) -> list[str]:
            return [message.content for message in await orchestrator.execute(asking(*calls))]

        yield performed


@pytest.fixture
def logs(fleet: LocalFleet) -> Callable[[], str]:
    """All that the workers have logged so far."""
    return lambda: "".join(worker.log_path.read_text(errors="replace") for worker in fleet.workers)
