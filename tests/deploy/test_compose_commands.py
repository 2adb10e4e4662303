"""Every command of docker-compose.yml, once, without containers: it becomes healthy, and stops when told to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.retry import Retry

from tests.deploy.compose import Service, stopped, wait_until_announced, wait_until_healthy
from toolfleet.local.server_layout import find_binary

DOWN_WITHIN_S = 30
INTERRUPTED = 130
TERMINATED = 143


@pytest.mark.parametrize("pool", ["io", "cpu", "long"])
def test_a_worker_announces_its_tools_is_healthy_and_stops_cleanly(services: dict[str, Service], pool: str) -> None:
    worker = services[pool]

    with worker.running() as process:
        wait_until_announced(pool, worker.environment["TOOLFLEET_REDIS_URL"], process)
        wait_until_healthy(worker, process)
        code, output = stopped(process)

    assert code == 0, output
    assert "Traceback" not in output


def test_a_worker_that_is_not_there_is_not_healthy(services: dict[str, Service]) -> None:
    assert not services["io"].is_healthy()


def test_the_orchestrator_is_healthy_while_it_holds_its_lease_and_stops_cleanly(services: dict[str, Service]) -> None:
    orchestrator = services["orchestrator"]

    assert not orchestrator.is_healthy()
    with orchestrator.running() as process:
        wait_until_healthy(orchestrator, process)
        code, output = stopped(process)

    assert code == 0, output
    assert "Traceback" not in output


def test_the_orchestrator_works_with_the_model_that_is_named_in_the_environment(
    services: dict[str, Service], model_variables: dict[str, str]
) -> None:
    orchestrator = services["orchestrator"]

    with orchestrator.running(**model_variables) as process:
        wait_until_healthy(orchestrator, process)
        check = ["toolfleet", "orchestrator", "--check"]
        asked = subprocess.run(check, env=orchestrator.environment, capture_output=True, text=True, check=False)
        stopped(process)

    assert asked.stdout.rstrip().endswith(": a-model-of-mine")


def test_flower_lets_in_only_who_has_the_password(services: dict[str, Service], flower_port: int) -> None:
    flower = services["flower"]
    address = f"http://127.0.0.1:{flower_port}/api/workers"

    with flower.running() as process:
        wait_until_healthy(flower, process)
        assert httpx.get(address).status_code == 401
        assert httpx.get(address, auth=("somebody", "wrong")).status_code == 401
        assert httpx.get(address, auth=("somebody", "some-password")).status_code == 200
        code, output = stopped(process)

    assert code in {0, INTERRUPTED, TERMINATED}, output
    assert "Traceback" not in output


def test_the_server_keeps_what_it_was_told_over_a_restart(
    services: dict[str, Service], tmp_path: Path, unused_port: int
) -> None:
    valkey = services["valkey"]
    assert valkey.command[0] == "valkey-server"
    command = [str(find_binary()), *valkey.command[1:], "--port", str(unused_port), "--dir", str(tmp_path)]

    for run in (1, 2):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            with redis.Redis(
                port=unused_port, retry=Retry(ConstantBackoff(0.05), 200), retry_on_error=[Disconnected]
            ) as client:
                assert client.incr("starts") == run
                assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
            process.terminate()
            assert process.wait(DOWN_WITHIN_S) == 0
