"""docs/operating.md has a paragraph for each alert, and deploy/prometheus/alerts.yml an alert for each of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text()
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"


def test_every_alert_has_its_paragraph_and_every_paragraph_its_alert():
    alerts = re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)
    assert re.findall(r"^### (Toolfleet\w+)$", PAGE, re.MULTILINE) == alerts
