"""What the Helm chart makes, checked by Helm itself and by the schemas of Kubernetes."""

from __future__ import annotations

import shlex
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.chart import CHART, NEEDED, helm, of_kind, pods, refusal, rendered
from tests.deploy.compose import Service
from toolfleet.workers.celery.stopping import GOES_WITHIN_S

OVER_HTTPS = CHART.parent / "workers-over-https.yaml"
KUBERNETES = ("1.29", "1.35")

SCALED = {
    "autoscaling": {"keySecret": "an-api-key"},
    "pools": {"io": {"autoscaling": {"enabled": True, "max": 7}}},
}
EVERYTHING = SCALED | {
    "flower": {"enabled": True, "authSecret": "flower-login"},
    "previousSecret": "not-a-secret-either",
    "modelSecret": "model-keys",
    "model": "openai:a-model",
    "settings": {"TOOLFLEET_LEASE_S": 20},
    "imagePullSecrets": ["registry"],
    "podAnnotations": {"a.example/b": "c"},
}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as little as may be", "everything"])
def test_D1_helm_finds_no_fault_and_every_object_is_as_the_schemas_want_it(values: dict[str, Any]) -> None:
    linted = helm("lint", "--strict", values=NEEDED | values)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    objects = [found for found in rendered(**values) if not found["apiVersion"].startswith("keda.sh/")]
    assert len(objects) > 10
    for version in KUBERNETES:
        for found in objects:
            kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replicas": 3}, "replicas"),
        ({"pools": {"io": {"consurrency": 3}}}, "consurrency"),
        ({"pools": {"serve": {"pool": "io", "replicas": 1, "graceS": 1}}}, "another component's"),
        ({"pools": {"io": {"graceS": -1}}}, "graceS"),
        ({"settings": {"TOOLFLEET_SECRET": "here"}}, "TOOLFLEET_SECRET"),
        ({"settings": {"LEASE": "3"}}, "LEASE"),
        ({"redis": {"url": "http://valkey"}}, "redis"),
        ({"secret": "short"}, "secret"),
        ({"secret": ""}, "openssl rand -hex 32"),
        ({"redis": {"url": ""}}, "set `redis.url`"),
        ({"pools": {"io": {"autoscaling": {"enabled": True}}}}, "autoscaling.keySecret"),
        ({"flower": {"enabled": True}}, "flower.authSecret"),
        ({"over": {"url": "https://there"}}, "over.keySecret"),
        ({"over": {"url": "https://there", "keySecret": "k"}}, "neither Redis nor the fleet's secret"),
        ({"over": {"url": "http://there", "keySecret": "k"}}, "over"),
    ],
    ids=str,
)
def test_D1_a_value_that_is_unknown_or_cannot_be_is_refused_by_name(values: dict[str, Any], says: str) -> None:
    assert says in refusal(NEEDED | values)


def test_D2_two_values_make_the_whole_fleet_without_rights() -> None:
    objects = rendered()
    parts = {"orchestrator", "io", "cpu", "long", "serve"}
    assert set(of_kind(objects, "Deployment")) == {f"fleet-{part}" for part in parts}
    for _, pod, container in pods(objects):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert {spread["topologyKey"] for spread in pod["topologySpreadConstraints"]} == {
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
        }
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
    selectors = [each["spec"]["selector"]["matchLabels"] for each in of_kind(objects, "PodDisruptionBudget").values()]
    assert {labels["app.kubernetes.io/component"] for labels in selectors} == parts
    policies = of_kind(objects, "NetworkPolicy")
    assert policies["fleet-toolfleet"]["spec"]["ingress"] == []
    assert policies["fleet-serve"]["spec"]["ingress"][0]["ports"] == [{"port": 8000, "protocol": "TCP"}]


def test_D2_secrets_stand_in_secrets_only() -> None:
    objects = rendered(previousSecret="not-a-secret-either")
    secrets = [NEEDED["secret"], "a-password", "not-a-secret-either"]
    for found in objects:
        if found["kind"] != "Secret":
            assert not any(secret in str(found) for secret in secrets), found["kind"]
    assert not of_kind(objects, "ConfigMap")
    own = rendered(existingSecret="mine", secret="", redis={"url": ""})
    assert not of_kind(own, "Secret")
    for _, _, container in pods(own):
        named = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each}
        assert {each["name"] for each in named.values()} == {"mine"}


def test_D7_every_stop_leaves_the_worker_its_own_grace_and_a_margin_to_hand_back(services: dict[str, Service]) -> None:
    found = {}
    for name, pod, container in pods(rendered()):
        environment = {each["name"]: each.get("value") for each in container["env"]}
        if "TOOLFLEET_SHUTDOWN_GRACE_S" in environment:
            grace_s = float(environment["TOOLFLEET_SHUTDOWN_GRACE_S"])
            found[f"chart: {name}"] = (grace_s, float(pod["terminationGracePeriodSeconds"]))
    for name, service in services.items():
        if "worker" in service.command:
            grace_s = float(service.environment["TOOLFLEET_SHUTDOWN_GRACE_S"])
            period = service.spec["stop_grace_period"]
            assert period.endswith("s")
            found[f"compose: {name}"] = (grace_s, float(period.removesuffix("s")))
    assert len(found) == 6
    for where, (grace_s, given_s) in found.items():
        assert given_s > grace_s + GOES_WITHIN_S, where


def test_D8_the_chart_asks_what_docker_compose_asks(services: dict[str, Service]) -> None:
    asked = {name: container["livenessProbe"] for name, _, container in pods(rendered())}
    for of in ("orchestrator", "io", "cpu", "long"):
        assert asked[f"fleet-{of}"]["exec"]["command"] == ["sh", "-c", services[of].health[1].replace("$$", "$")]
        assert asked[f"fleet-{of}"]["periodSeconds"] <= 10
    assert asked["fleet-serve"]["httpGet"]["path"] == "/healthz"


def test_the_chart_starts_what_the_command_line_has(services: dict[str, Service]) -> None:
    for name, _, container in pods(rendered(flower={"enabled": True, "authSecret": "login"})):
        theirs = services[name.removeprefix("fleet-")].command
        assert container["command"][:2] == theirs[:2], shlex.join(container["command"])


def test_a_pool_that_is_scaled_has_no_fixed_number_and_is_asked_for_by_what_waits_and_runs() -> None:
    objects = rendered(**SCALED)
    assert "replicas" not in of_kind(objects, "Deployment")["fleet-io"]["spec"]
    scaled = of_kind(objects, "ScaledObject")["fleet-io"]["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (2, 7)
    [trigger] = scaled["triggers"]
    assert trigger["type"] == "metrics-api"
    assert trigger["metadata"]["url"].endswith("-serve.default.svc:8000/v1/queues/io")


def test_workers_over_https_are_a_release_of_their_own_with_a_key_and_nothing_of_the_fleet() -> None:
    done = helm("template", "ours", "--values", str(OVER_HTTPS))
    assert done.returncode == 0, done.stderr
    objects = [found for found in yaml.safe_load_all(done.stdout) if found]
    for found in objects:
        kubernetes_validate.validate(found, KUBERNETES[-1], strict=True)
    assert not of_kind(objects, "Secret")
    [(name, pod, container)] = pods(objects)
    assert (name, pod["terminationGracePeriodSeconds"]) == ("ours-io", 75)
    assert container["command"] == ["toolfleet", "worker", "--over=https://toolfleet.example.com", "--concurrency=20"]
    named = {each["name"]: each.get("valueFrom") for each in container["env"]}
    assert named["TOOLFLEET_WORKER_KEY"] == {"secretKeyRef": {"name": "worker-key", "key": "key"}}
    assert not {"TOOLFLEET_SECRET", "TOOLFLEET_REDIS_URL", "TOOLFLEET_SHARDS"} & set(named)
    assert "6379" not in done.stdout
    assert container["livenessProbe"]
