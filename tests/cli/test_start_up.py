"""What a command loads before it does anything: a list of commands, and a module with tools, cost next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from toolfleet.orchestrator.doors.cli.lazy_group import load
from toolfleet.orchestrator.doors.cli.main import COMMANDS
from toolfleet.settings import Settings
from toolfleet.streams.keeper import PROGRAM

HEAVY = {"asyncio", "celery", "httpx", "kombu", "pydantic", "redis"}


def loaded_by(code: str) -> set[str]:
    """The modules that a new interpreter has loaded once it has run the code."""
    script = f"{code}\nimport sys; print(*sys.modules, sep='\\n')"
    return set(subprocess.check_output([sys.executable, "-c", script], text=True, input="").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_line_in_the_list_is_the_first_of_its_own_help(name: str) -> None:
    command = load(name, COMMANDS[name])
    assert command.help.splitlines()[0] == COMMANDS[name].help


def saying(*words: str) -> str:
    """The code of the command with these words."""
    return (
        "import contextlib, sys\n"
        "from toolfleet.orchestrator.doors.cli import main\n"
        f"sys.argv = {['toolfleet', *words]}\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr): main()"
    )


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_loads_no_part_of_the_fleet(word: str) -> None:
    assert loaded_by(saying(word)) & HEAVY == set()


def test_the_help_of_run_loads_its_options_but_neither_models_nor_redis_nor_celery() -> None:
    assert loaded_by(saying("run", "--help")) & {"aiohttp", "celery", "httpx", "redis", "stamina", "uvloop"} == set()


def test_the_package_itself_loads_nothing() -> None:
    assert loaded_by("import toolfleet") & (HEAVY | {"rich", "typer"}) == set()


def test_a_command_hears_ctrl_c_before_it_loads_anything_of_weight() -> None:
    assert loaded_by("import toolfleet.orchestrator.doors.cli") & (HEAVY | {"rich", "typer"}) == set()


def test_a_module_with_tools_loads_neither_redis_nor_celery_nor_an_event_loop() -> None:
    assert loaded_by("from toolfleet import Context, tool") & (HEAVY - {"pydantic"} | {"rich", "typer"}) == set()


@pytest.mark.parametrize("name", ["runs", "calls", "tools", "keys", "limits", "secret"])
def test_a_command_that_looks_loads_nothing_that_works_on_runs_or_asks_models(name: str) -> None:
    heavy = {"aiohttp", "celery.app", "httpx", "jsonschema", "toolfleet.orchestrator.api"}
    assert loaded_by(f"import toolfleet.orchestrator.doors.cli.{name}") & heavy == set()


def test_up_loads_no_model_as_its_orchestrators_are_processes_of_their_own() -> None:
    assert loaded_by("import toolfleet.orchestrator.doors.cli.up") & {"aiohttp", "celery.app", "httpx"} == set()


def test_a_worker_loads_no_http_client_and_no_schema_checker_before_it_needs_one() -> None:
    assert loaded_by("import toolfleet.workers.command") & {"aiohttp", "httpx", "jsonschema", "rich"} == set()


def test_the_companion_of_a_worker_loads_no_telemetry() -> None:
    runs = f"with contextlib.suppress(SystemExit): runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    loaded = loaded_by(f"import contextlib, runpy\n{runs}")
    assert "redis.client" in loaded
    assert not {name for name in loaded if name.startswith("opentelemetry.")}


def test_a_server_loads_mcps_sdk_no_sooner_than_it_is_asked_for_mcp(settings: Settings) -> None:
    served = (
        "import asyncio\n"
        "from toolfleet.orchestrator.doors.http.app import create_app\n"
        "from toolfleet.settings import Settings\n"
        f"app = create_app(Settings(redis_url={settings.redis_url!r}, namespace={settings.namespace!r}))\n"
        "async def served():\n"
        "    async with app.router.lifespan_context(app):\n"
        "        assert app.url_path_for('_Granted') == '/mcp'\n"
        "asyncio.run(served())"
    )
    assert loaded_by(served) & {"mcp", "mcp_types"} == set()
