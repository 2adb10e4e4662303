"""docs/settings.md says what the code does, and leaves no variable out."""

import re
from pathlib import Path

from tests.docs import settings_page
from toolfleet import Settings
from toolfleet.variables import OF_PACKS, PREFIX, READ_ELSEWHERE

ROOT = Path(__file__).parents[2]
OTHERS = {"XDG_DATA_HOME"}
NOT_VARIABLES = {"OPENAI_FIELDS", "OPENAI_PATHS", "TOOLFLEET_REDIS_PORT"}
"""Constants of the code, and what Kubernetes sets for a Service of ours."""


def on_the_page():
    return set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))


def test_the_page_is_what_the_code_prints():
    printed = settings_page.page() + "\n"
    assert (ROOT / "docs" / "settings.md").read_text() == printed, (
        "python -m tests.docs.settings_page > docs/settings.md"
    )


def test_every_setting_is_on_the_page_and_nothing_that_would_be_refused():
    ours = {f"{PREFIX}{name.upper()}" for name in {*Settings.model_fields, *OF_PACKS, *READ_ELSEWHERE}}
    assert {name for name in on_the_page() if name.startswith(PREFIX)} == ours


def test_every_variable_that_the_code_names_is_on_the_page():
    sources = [
        path
        for folder in ("toolfleet", "orchestrator", "workers", "deploy")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in {".py", ".example", ""}
    ]
    named = {
        name
        for path in [*sources, ROOT / "docker-compose.yml"]
        for name in re.findall(r"\b(?:TOOLFLEET|OPENAI|ANTHROPIC)_[A-Z0-9_]*[A-Z0-9]\b(?!_)", path.read_text())
    }
    assert {"OPENAI_API_KEY", "TOOLFLEET_FLOWER_AUTH", "TOOLFLEET_MODEL"} <= named
    assert named - on_the_page() - NOT_VARIABLES == set()


def test_a_rate_is_shown_as_one_and_not_as_a_time():
    shown = {field.variable: field.default for field in settings_page.settings()}
    rates = {name: default for name, default in shown.items() if name.endswith("_PER_S")}
    assert rates["TOOLFLEET_API_REQUESTS_PER_S"] == "500 per s"
    assert all(default.endswith(" per s") for default in rates.values()), rates


def test_defaults_are_those_that_a_process_gets(monkeypatch):
    for name in on_the_page():
        monkeypatch.delenv(name, raising=False)
    shown = {field.variable: field.default for field in settings_page.settings()}
    for name, value in Settings():
        if isinstance(value, int | float):
            assert float(shown[f"{PREFIX}{name.upper()}"].split()[0]) == value
        elif isinstance(value, str) and value:
            assert shown[f"{PREFIX}{name.upper()}"] == f"`{value}`"
        else:
            assert shown[f"{PREFIX}{name.upper()}"] == "none"
