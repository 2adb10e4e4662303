"""docs/settings.md, from the code: `python -m tests.docs.settings_page > docs/settings.md`.

Defaults come from the fields, reasons from the docstrings below them. Packs are read as text, because importing one
reads its settings. What is read in other ways is described here; a test looks for names that are missing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from toolfleet import settings as of_a_fleet
from toolfleet.orchestrator.models.anthropic import ANTHROPIC_BASE_URL
from toolfleet.orchestrator.models.environment import DEFAULT_ANTHROPIC_MODEL, DEFAULT_OPENAI_MODEL
from toolfleet.orchestrator.models.openai import OPENAI_BASE_URL

ROOT = Path(__file__).parents[2]
OF_FOLDERS: Final = {"mcp_servers": "mcp"}
"""The pack whose settings stand in a folder beside it."""

PACKS: Final = sorted((ROOT / "workers" / "packs").rglob("*.py"))

INTRODUCTION: Final = """\
# Settings

Every variable that Toolfleet reads. A setting is a variable of the environment, `TOOLFLEET_` and its name; in Python
it is a field, `LocalFleet(["my_tools"], lease_s=3)` or `Orchestrator(settings=Settings(lease_s=3))`. All are read
once, when a command begins or an orchestrator is made, and checked together: a wrong value, or a name that begins
with `TOOLFLEET_` and is nobody's, ends a command with [status 78](cli.md#exit-status) and a line that names it; in
Python it raises. Give all processes of a fleet the same ones.

This page is printed by `python -m tests.docs.settings_page`, and a test holds it to the code.
"""

TOGETHER: Final = """\
Some must fit each other, or nothing starts: `TOOLFLEET_LEASE_S` must exceed three times `TOOLFLEET_HEARTBEAT_S`, or a
live call could be delivered twice; `TOOLFLEET_POLL_LEASE_S` must exceed `TOOLFLEET_POLL_TIMEOUT_S`, or two workers
could ask about one job at the same time; a `TOOLFLEET_SECRET` has at least 16 bytes, and there must be one unless
Redis is on this machine.
"""

OF_MODELS: Final = {
    "TOOLFLEET_MODEL": (
        "none",
        (
            "The model that commands ask when `--model` names none: `gpt-5.2`, `claude-…`, `openai:NAME`, "
            "`anthropic:NAME` or `rehearsal`. Without it the key that is set decides."
        ),
    ),
    "TOOLFLEET_MODEL_SEES": (
        "by its name",
        (
            "Whether the model takes images, `1` or `0`: those of tools, and those that come with a question. Unset, "
            "OpenAI's own models that see and all of Anthropic's do, and no other."
        ),
    ),
    "TOOLFLEET_PROVIDER_TOOLS": (
        "none",
        (
            "Tools that the model's provider runs itself, as a JSON list: see [around-the-model.md]"
            "(around-the-model.md#tools-that-the-provider-runs)."
        ),
    ),
    "OPENAI_API_KEY": ("none", "Chooses Chat Completions, and is sent as the bearer token."),
    "OPENAI_BASE_URL": (
        f"`{OPENAI_BASE_URL}`",
        "Another server that speaks Chat Completions; chooses it even without a key.",
    ),
    "OPENAI_MODEL": (
        f"`{DEFAULT_OPENAI_MODEL}`",
        "The model there. With a base URL of your own there is no default: only you know its names.",
    ),
    "ANTHROPIC_API_KEY": ("none", "Chooses Anthropic Messages, if neither the key nor the URL above is set."),
    "ANTHROPIC_BASE_URL": (f"`{ANTHROPIC_BASE_URL}`", "Another server that speaks Messages."),
    "ANTHROPIC_MODEL": (f"`{DEFAULT_ANTHROPIC_MODEL}`", "The model there; must be set where the base URL is."),
}

OF_COMMANDS: Final = {
    "ANTHROPIC_ENVIRONMENT_ID": ("none", "The environment that `toolfleet environment` serves where it names none."),
    "ANTHROPIC_ENVIRONMENT_KEY": ("none", "The key of that environment."),
    "TOOLFLEET_TOOLS": (
        "none",
        (
            "Comma-separated modules with tools, besides those of `--import`; the only way to name them for "
            "`celery --app toolfleet.workers.app worker`."
        ),
    ),
    "TOOLFLEET_WORKER_KEY": ("none", "The key of `toolfleet worker --over`, of the scope `work`."),
    "TOOLFLEET_FLOWER_AUTH": (
        "made up",
        "The login of Flower, `user:password`, for `toolfleet flower` and `toolfleet up`.",
    ),
    "TOOLFLEET_FLOWER_PORT": ("5555", "Of docker-compose.yml only: where Flower listens."),
    "TOOLFLEET_API_PORT": ("8000", "Of docker-compose.yml only: where the API listens."),
    "TOOLFLEET_REDIS_MAXMEMORY": (
        "2gb",
        "Of docker-compose.yml only: what Redis may hold. Beyond it nothing is written, and nothing lost.",
    ),
    "XDG_DATA_HOME": (
        "`~/.local/share`",
        "Where the embedded server keeps its data (on Linux); set it where the home cannot be written.",
    ),
}

OF_TESTS: Final = {
    "TOOLFLEET_TEST_KILL": (
        "none",
        "`effect_done:3`: a process with `toolfleet.testing.instruments` dies there, the third time.",
    ),
    "TOOLFLEET_TEST_STOP": ("none", "The same, and it is stopped (SIGSTOP) instead."),
    "TOOLFLEET_TEST_CLOCK_OFFSET_S": ("0 s", "By how much its wall clock is ahead."),
}

UNITS: Final = {"_per_s": "per s", "_s": "s", "_bytes": "bytes", "_chars": "characters", "_digits": "digits"}
"""What a name's end says of its unit; the first that fits counts."""


class Field(NamedTuple):
    """One setting as the page shows it."""

    variable: str
    default: str
    reason: str


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            INTRODUCTION,
            "## The fleet\n",
            TOGETHER,
            _table(settings()),
            "## Models\n",
            _table(_described(OF_MODELS)),
            "An empty variable counts as unset.\n",
            "## Commands and containers\n",
            _table(_described(OF_COMMANDS)),
            "## Tool packs\n",
            "Read by workers that serve the pack, when they import it. [packs.md](packs.md) says what each does.\n",
            _table(of_packs()),
            "Every `${NAME}` in the file that `TOOLFLEET_MCP_CONFIG` names is taken from the worker's environment.\n",
            "## Tests\n",
            "Set by [`toolfleet.testing`](testing.md); they do nothing in a process without its instruments.\n",
            _table(_described(OF_TESTS)),
        ]
    ).removesuffix("\n")


def settings() -> list[Field]:
    """Those of a fleet."""
    return list(_fields(ROOT / "toolfleet" / "settings.py", "TOOLFLEET_"))


def of_packs() -> list[Field]:
    """Those of the packs that come along."""
    named = [(path, (path.parent.name if path.parent.name in OF_FOLDERS else path.stem)) for path in PACKS]
    return [
        field for path, name in named for field in _fields(path, f"TOOLFLEET_{OF_FOLDERS.get(name, name).upper()}_")
    ]


def _fields(path: Path, prefix: str) -> Iterator[Field]:
    module = ast.parse(path.read_text())
    for made in module.body:
        if isinstance(made, ast.ClassDef) and made.name.endswith("Settings") and made.name != "PackSettings":
            for field, below in zip(made.body, made.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    name = field.target.id
                    default = _shown(name, _value(field.value, path), ast.unparse(field.annotation))
                    yield Field(f"{prefix}{name.upper()}", default, _docstring(below))


def _value(default: ast.expr | None, path: Path) -> object:
    """What the default comes to, with the constants that the module of a fleet's settings knows."""
    if default is None:
        return Required
    return eval(ast.unparse(default), vars(of_a_fleet) if path.name == "settings.py" else {})


class Required:
    """Stands for the default of what must be set."""


def _shown(name: str, value: object, annotation: str) -> str:
    if value is Required:
        return "required"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
        return f"{value:.10g} {unit}{_rounded(value, unit)}".strip()
    return f"`{value}`" if isinstance(value, str) and value else "none"


def _rounded(value: float, unit: str) -> str:
    """The same in a larger unit."""
    for larger, size in {"s": {"days": 86_400}, "bytes": {"MiB": 1024**2, "KiB": 1024}}.get(unit, {}).items():
        if value >= size and value % size == 0:
            return f" ({value // size:g} {larger if value > size or larger != 'days' else 'day'})"
    return ""


def _docstring(below: ast.stmt) -> str:
    assert isinstance(below, ast.Expr), ast.unparse(below)
    assert isinstance(below.value, ast.Constant)
    return " ".join(str(below.value.value).split()).replace("|", "\\|")


def _described(variables: dict[str, tuple[str, str]]) -> list[Field]:
    return [Field(name, default, reason) for name, (default, reason) in variables.items()]


def _table(fields: list[Field]) -> str:
    rows = [f"| `{field.variable}` | {field.default} | {field.reason} |" for field in fields]
    return "\n".join(["| variable | default | |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    sys.stdout.write(page() + "\n")
