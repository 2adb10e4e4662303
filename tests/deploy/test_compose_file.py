"""What docker-compose.yml promises on paper: secrets, reach, rights, and that workers can be multiplied."""

from __future__ import annotations

import pytest

from tests.deploy.compose import Service, VariableMissing, read_compose
from toolfleet.orchestrator.models.environment import MODEL_VARIABLE, SEES_VARIABLE

PROVIDERS = ("OPENAI", "ANTHROPIC")
PYTHON_SERVICES = {"orchestrator", "io", "cpu", "long", "serve", "flower"}


def test_these_are_the_services(services: dict[str, Service]) -> None:
    assert set(services) == PYTHON_SERVICES | {"valkey"}


@pytest.mark.parametrize("name", ["TOOLFLEET_SECRET", "TOOLFLEET_FLOWER_AUTH"])
def test_without_a_secret_nothing_starts_and_the_message_says_what_to_set(variables: dict[str, str], name: str) -> None:
    with pytest.raises(VariableMissing, match=f"set {name} in .env"):
        read_compose(variables | {name: ""})


def test_only_flower_and_the_api_are_reachable_and_only_from_this_machine(services: dict[str, Service]) -> None:
    published = {name: ports for name, service in services.items() if (ports := service.spec.get("ports"))}

    assert set(published) == {"flower", "serve"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


@pytest.mark.parametrize("name", ["orchestrator", "io", "cpu", "long"])
def test_what_does_the_work_can_be_scaled(services: dict[str, Service], name: str) -> None:
    # A fixed name, host name or host port is what Compose refuses to multiply.
    assert not {"container_name", "hostname", "ports"} & set(services[name].spec)


def test_every_service_runs_without_privileges_and_comes_back(services: dict[str, Service]) -> None:
    for service in services.values():
        assert service.spec["read_only"] is True
        assert service.spec["cap_drop"] == ["ALL"]
        assert service.spec["restart"] == "unless-stopped"
        assert service.spec["stop_grace_period"]


def test_what_chooses_the_model_reaches_who_asks_it_and_nobody_else(variables: dict[str, str]) -> None:
    chooses = {
        MODEL_VARIABLE,
        SEES_VARIABLE,
        *(f"{each}_{what}" for each in PROVIDERS for what in ("API_KEY", "BASE_URL", "MODEL")),
    }
    services = read_compose(variables | {name: f"the {name}" for name in chooses})["services"]

    for asks in ("orchestrator", "serve"):
        assert {name: services[asks]["environment"].get(name) for name in chooses} == {
            name: f"the {name}" for name in chooses
        }
    others = set(services) - {"orchestrator", "serve"}
    assert not any(chooses & set(services[name].get("environment", {})) for name in others)
