"""The services of docker-compose.yml on this machine, with a real server in place of the host `valkey`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.compose import ROOT, Service, read_compose
from tests.ports import free_port
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.settings import new_secret


@pytest.fixture(scope="session")
def fleet_redis() -> Iterator[EmbeddedServer]:
    """A server with a port, as in the file, and not this session's other one: health checks count who answers."""
    with EmbeddedServer(port=0, temporary=True) as server:
        yield server


@pytest.fixture(scope="session")
def flower_port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def variables(flower_port: int) -> dict[str, str]:
    """What a .env file would hold."""
    return {
        "TOOLFLEET_SECRET": new_secret(),
        "TOOLFLEET_FLOWER_AUTH": "somebody:some-password",
        "TOOLFLEET_FLOWER_PORT": str(flower_port),
    }


@pytest.fixture(scope="session")
def services(
    variables: dict[str, str], fleet_redis: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Service]:
    """The services of the file, on this machine: this Redis in place of the host `valkey`."""
    container = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PYTHONPATH": str(ROOT),
        "HOSTNAME": os.uname().nodename,
    }
    return {
        name: Service(
            name=name,
            command=spec["command"],
            environment=container
            | spec.get("environment", {})
            | {
                "TOOLFLEET_REDIS_URL": fleet_redis.url,
                "TOOLFLEET_METRICS_PORT": "0",  # one for all would be taken by the first
                "TOOLFLEET_ALIVE_DIR": str(tmp_path_factory.mktemp(f"alive-{name}")),
            },
            health=spec["healthcheck"]["test"],
            spec=spec,
        )
        for name, spec in read_compose(variables)["services"].items()
        if "metrics" not in spec.get("profiles", [])  # not ours: Prometheus and Grafana
    }


@pytest.fixture
def model_variables(variables: dict[str, str]) -> dict[str, str]:
    """What the file makes of a .env that names a model on a server of one's own; nobody is asked before a run is."""
    named = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_MODEL": "a-model-of-mine"}
    environment: dict[str, str] = read_compose(variables | named)["services"]["orchestrator"]["environment"]
    return {name: value for name, value in environment.items() if "MODEL" in name or name.startswith("OPENAI")}


@pytest.fixture
def unused_port() -> int:
    return free_port()
