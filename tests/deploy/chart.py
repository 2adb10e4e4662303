"""The Helm chart, rendered by Helm."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.compose import ROOT

CHART = ROOT / "deploy" / "helm" / "toolfleet"

NEEDED = {"secret": "not-a-secret-only-a-test", "redis": {"url": "redis://:a-password@valkey:6379/0"}}
"""What must be set."""


def helm(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart with these values."""
    binary = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
    assert binary, "no Helm: `.ci/helm .venv` puts one into the environment"
    given = json.dumps(values or {})
    command = (binary, *arguments, str(CHART), "--values", "-")
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


def rendered(**values: Any) -> list[dict[str, Any]]:
    """The objects of a release `fleet` with what must be set and with these values."""
    done = helm("template", "fleet", values=NEEDED | values)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def refusal(values: dict[str, Any]) -> str:
    """What Helm says of values that the chart refuses."""
    done = helm("template", "fleet", values=values)
    assert done.returncode != 0
    return done.stderr


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind, by name."""
    return {found["metadata"]["name"]: found for found in objects if found["kind"] == kind}


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each Deployment's name, its pod and its container."""
    for name, deployment in of_kind(objects, "Deployment").items():
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        yield name, pod, container
