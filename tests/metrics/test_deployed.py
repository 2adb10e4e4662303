"""Dashboards and alerts: what they name is told by real processes, and promtool understands the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics.conftest import Scraped
from tests.metrics.scraping import scrape_until
from toolfleet.calls import FailureKind
from toolfleet.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
PROMTOOL = shutil.which("promtool", path=str(Path(sys.executable).parent)) or shutil.which("promtool")

NAME = re.compile(r"\b(?:toolfleet|celery|process)_\w+")
ABOUT_ITSELF = re.compile(r"# TYPE (\w+) (\w+)")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def targets(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def names_told(scraped: Scraped) -> set[str]:
    """All names of the fleet's scrapes, of what has not happened yet too."""
    told: set[str] = set()
    for each in scraped.all():
        told |= each.names
        for name, kind in ABOUT_ITSELF.findall(each.text):
            told |= {name, *(f"{name}_{part}" for part in ("bucket", "sum", "count") if kind == "histogram")}
    return told


def test_T11_every_metric_that_dashboards_and_alerts_name_is_in_a_scrape(scraped: Scraped) -> None:
    scraped.post("/v1/tools/greet/call", arguments={"whom": "you"}).raise_for_status()
    scrape_until(scraped.io, "toolfleet_deliveries_ended_total", 1)
    told = names_told(scraped)
    assert len(DASHBOARDS) == 4
    asked = {str(path): targets(json.loads(path.read_text())) for path in DASHBOARDS}
    asked[str(ALERTS)] = [rule["expr"] for rule in rules()]
    for path, expressions in asked.items():
        named = {name for expression in expressions for name in NAME.findall(expression)}
        assert len(named) > 5
        assert named <= told, f"{path} names what no process tells: {named - told}"


def test_T11_every_outcome_and_event_that_they_choose_is_told_before_it_happens(scraped: Scraped) -> None:
    api = scraped.of_api()
    for rule in rules():
        for outcome in re.findall(r'outcome="(\w+)"', rule["expr"]):
            assert outcome in {*FailureKind, "failed"}, rule["alert"]
        for what in re.findall(r'what="(\w+)"', rule["expr"]):
            assert api.of("toolfleet_events_total", what=what), rule["alert"]


def test_T11_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    found = rules()
    assert len({rule["alert"] for rule in found}) == len(found) > 10
    for rule in found:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "runbook"}
    said = " ".join(rule["annotations"]["runbook"] for rule in found)
    for variable in re.findall(r"TOOLFLEET_(\w+)", said):
        assert variable.lower() in Settings.model_fields
    for page in re.findall(r"docs/[\w-]+\.md", said):
        assert (DEPLOY.parent / page).exists()


def test_T11_no_two_panels_lie_on_each_other_and_all_ask_the_chosen_source() -> None:
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        places = [
            (x, y)
            for at in (panel["gridPos"] for panel in panels)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
        assert len(places) == len(set(places)), path
        assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
        assert all('job="$job"' in expression for panel in panels for expression in (panel["targets"][0]["expr"],))


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: .ci/promtool")
@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", str(ALERTS)),
        ("check", "config", str(ALERTS.with_name("prometheus.yml"))),
        ("test", "rules", str(ALERTS.with_name("alerts.test.yml"))),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_T11_promtool_finds_no_fault(words: tuple[str, ...]) -> None:
    found = subprocess.run([str(PROMTOOL), *words], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: .ci/promtool")
def test_T11_every_question_of_a_dashboard_can_be_read(tmp_path: Path) -> None:
    questions = [
        expression.replace("$__rate_interval", "5m").replace("$job", "toolfleet")
        for path in DASHBOARDS
        for expression in targets(json.loads(path.read_text()))
    ]
    group = {"name": "all", "rules": [{"record": f"q{n}", "expr": each} for n, each in enumerate(questions)]}
    (tmp_path / "all.yml").write_text(yaml.safe_dump({"groups": [group]}))
    found = subprocess.run(
        [str(PROMTOOL), "check", "rules", str(tmp_path / "all.yml")], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
