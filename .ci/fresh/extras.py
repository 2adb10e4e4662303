"""What each extra is for: alone beside the wheel, these modules must load.

`bench` is left out: it has other task queues for `make bench`, and no module of the package needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from account import Account
from install import Wheel, done
from pythons import Python

EXTRAS = {
    "fast": ["uvloop"],
    "packs": [
        *("workers.packs.calculator", "workers.packs.clock", "workers.packs.files", "workers.packs.http"),
        *("workers.packs.mcp", "workers.packs.sql", "workers.packs.translate", "workers.packs.weather"),
        *("psycopg", "tzdata"),
    ],
    "clock": ["workers.packs.clock", "tzdata"],
    "serve": ["orchestrator.http.app", "orchestrator.http.server"],
    "http": ["workers.packs.http"],
    "mcp": ["orchestrator.mcp", "workers.packs.mcp", "uvicorn"],
    "postgres": ["workers.packs.sql", "psycopg"],
    "langchain": ["orchestrator.adapters.langchain"],
    "openai-agents": ["orchestrator.adapters.openai_agents"],
    "pydantic-ai": ["orchestrator.adapters.pydantic_ai"],
}


def check_extra(extra: str, modules: Sequence[str], wheel: Wheel, folder: Path, at: tuple[Python, Account]) -> None:
    """An environment with this extra alone loads each of the modules, in a process of its own."""
    python, account = at
    binaries = wheel.installed(folder, python, account, extra)
    (folder / "no_servers.json").write_text('{"mcpServers": {}}')
    environment = {
        **account.environment,
        "TOOLFLEET_FILES_ROOT": str(folder),
        "TOOLFLEET_MCP_CONFIG": str(folder / "no_servers.json"),
        "TOOLFLEET_SQL_URL": "postgresql://nobody@127.0.0.1:1/nothing",  # which is not connected to on import
    }
    for module in modules:
        done([binaries / "python", "-c", f"import {module}"], environment=environment)
