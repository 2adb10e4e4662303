"""deploy/redis-acl.example on a real server: enough for each side, and no more."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from tests.deploy.compose import ROOT, Service, read_compose, stopped, wait_until_announced
from tests.http.serving import serving
from tests.work.laptops import Caller, key_of
from toolfleet.keys import Keys
from toolfleet.limits import Gate
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.settings import Settings, new_secret
from toolfleet.streams import GROUP, RETURNED
from toolfleet.streams.direct import limits_as_arguments
from toolfleet.streams.scripts import FETCH, PUBLISH

ORCHESTRATOR = "toolfleet-orchestrator:orchestrator-example-password"
OVER_HTTPS = ROOT / "deploy" / "worker-over-https.yml"
CALCULATOR = "toolfleet.workers.packs.calculator"
FAR_MS = 9_999_999_999_999
WORKER = "toolfleet-worker:worker-example-password"


@pytest.fixture(scope="module")
def guarded_redis() -> Iterator[str]:
    """The host and port of a server that knows the users of the example."""
    with EmbeddedServer(port=0, temporary=True) as server:
        with redis.Redis.from_url(server.url) as client:
            lines = (ROOT / "deploy" / "redis-acl.example").read_text().splitlines()
            for words in (line.split() for line in lines if line.startswith("user ")):
                client.execute_command("ACL", "SETUSER", *words[1:])
            client.execute_command("ACL", "SETUSER", "judge", "on", ">judge", "+acl|dryrun", "+acl|log")
        yield urlsplit(server.url).netloc


def client_as(user: str, server: str) -> redis.Redis:
    return redis.Redis.from_url(f"redis://{user}@{server}/0")


def judging(server: str) -> redis.Redis:
    """Somebody who may ask what others may."""
    return redis.Redis.from_url(f"redis://judge:judge@{server}/0")


def test_nobody_gets_in_without_a_name(guarded_redis: str) -> None:
    with redis.Redis.from_url(f"redis://{guarded_redis}/0") as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


@pytest.mark.parametrize("key", ["toolfleet:run:r1", "toolfleet:handle:h1", "toolfleet:schedule:s1", "somebody-elses"])
def test_a_worker_reads_no_conversation_no_handle_and_nothing_of_others(guarded_redis: str, key: str) -> None:
    with client_as(WORKER, guarded_redis) as worker, pytest.raises(redis.exceptions.NoPermissionError):
        worker.get(key)


@pytest.mark.parametrize("command", ["FLUSHALL", "CONFIG GET *", "KEYS *", "ACL LIST", "SHUTDOWN"])
@pytest.mark.parametrize("user", [ORCHESTRATOR, WORKER])
def test_neither_side_administers_the_server(guarded_redis: str, user: str, command: str) -> None:
    with client_as(user, guarded_redis) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command.split())


def test_a_run_needs_no_more_rights_than_these(services: dict[str, Service], guarded_redis: str) -> None:
    worker = _as_user(services["io"], WORKER, guarded_redis)
    orchestrator = _as_user(services["orchestrator"], ORCHESTRATOR, guarded_redis)

    with worker.running() as process:
        wait_until_announced("io", orchestrator.environment["TOOLFLEET_REDIS_URL"], process)
        # Remote control is what needs the channels.
        assert worker.is_healthy()
        run = subprocess.run(
            ["toolfleet", "run", "What is the square root of 475695037565?", "--json"],
            env=orchestrator.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        code, output = stopped(process)

    assert run.returncode == 0, run.stderr
    assert "689706.48" in json.loads(run.stdout)["answer"]
    assert code == 0, output
    assert "NOPERM" not in output
    assert "NoPermission" not in output


def test_a_worker_over_https_is_nobody_to_redis_and_what_serves_it_needs_no_more_than_an_orchestrator(
    guarded_redis: str, tmp_path: Path
) -> None:
    fleet = Settings(redis_url=f"redis://{ORCHESTRATOR}@{guarded_redis}/0", secret=new_secret())
    with judging(guarded_redis) as judge, serving(fleet, tmp_path) as served:
        judge.acl_log_reset()
        key = key_of(fleet, Scope.WORK, "calculate")
        variables = {"TOOLFLEET_API_URL": served.url, "TOOLFLEET_WORKER_KEY": key}
        spec = read_compose(variables | {"TOOLFLEET_TOOLS": CALCULATOR}, OVER_HTTPS)["services"]["worker"]
        container = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        environment = {**container, **spec["environment"], "TOOLFLEET_ALIVE_DIR": str(tmp_path / "alive")}
        worker = Service("worker", spec["command"], environment, spec["healthcheck"]["test"], spec)
        with worker.running() as process:
            caller = Caller(served.url, served.key)
            caller.until_served("calculate")
            assert worker.is_healthy()
            assert caller.call("calculate", expression="6*7")["content"] == "42"
            code, output = stopped(process)
        assert code == 0, output
        refused = [entry for entry in judge.acl_log() if entry["username"] == ORCHESTRATOR.partition(":")[0]]
    assert float(worker.environment["TOOLFLEET_SHUTDOWN_GRACE_S"]) + 10 < float(spec["stop_grace_period"].rstrip("s"))
    assert refused == []


def test_limits_need_no_more_rights_than_these(guarded_redis: str) -> None:
    keys = Keys()
    stream, gates = keys.queue("limited", 3), (Gate("concurrency", "t", "", 1, 0), Gate("rate", "t", "", 1000, 9))
    with client_as(ORCHESTRATOR, guarded_redis) as orchestrator, client_as(WORKER, guarded_redis) as worker:
        publish, fetch = orchestrator.register_script(PUBLISH), worker.register_script(FETCH)
        orchestrator.incr(keys.limits_said())
        row = ["", "", stream, "{}", "a", "1", 3]
        calls = (["[]", "{}", f"r.1.{n}", "", "r", FAR_MS] for n in range(3))
        marks = [keys.claim(""), keys.cancelled(""), keys.result(""), keys.counters()]
        arguments = [GROUP, "w", RETURNED, 4, *marks, 4, keys.scheduled("limited")]
        fetch(keys=[stream], args=arguments)
        publish(args=[*limits_as_arguments([gates]), *row, *(argument for call in calls for argument in call)])
        delivered = [kind for _ in range(2) for kind in fetch(keys=[stream], args=arguments)[1]]
        [(*_, names, told)] = delivered
        assert len(told) == 1 + len(names)
        # A failure in the room stops nothing else, and is counted.
        assert orchestrator.hget(keys.counters(), "waiting_room_failures") is None
        orchestrator.delete(*orchestrator.scan_iter(keys.queue("limited", 3)))


READ_ONLY = {"limits", "limits_said", "tenants", "deleted", "orchestrator", "head"}
"""Of the keys of the contract, those that a worker only looks at."""

BESIDE_THE_CONTRACT = {
    *("questions", "questions_of"),
    *("attempt", "call_log", "shard", "spent_by_tools", "binding", "permanent_binding", "binding_deadlines"),
    *("orchestrators", "orchestrator_proofs"),
}
"""Keys that only workers in Python use."""


def test_a_worker_may_touch_just_the_keys_of_the_contract_and_those_of_python_workers(guarded_redis: str) -> None:
    contract = json.loads((ROOT / "wire" / "v1" / "keys.json").read_text())
    kinds = {name: make for name, make in inspect.getmembers(Keys(), inspect.ismethod) if not name.startswith("_")}
    assert set(contract) | BESIDE_THE_CONTRACT <= set(kinds)
    with judging(guarded_redis) as judge:
        for name, make in kinds.items():
            key = make(
                *(3 if each.annotation == "int" else "x" for each in inspect.signature(make).parameters.values())
            )
            may = {"read": judge.acl_dryrun("toolfleet-worker", "GET", key) == b"OK"}
            may["write"] = judge.acl_dryrun("toolfleet-worker", "SET", key, "x") == b"OK"
            own = name in contract or name in BESIDE_THE_CONTRACT
            is_fixed = name in READ_ONLY | {"orchestrators", "orchestrator_proofs"}
            assert may == {"read": own, "write": own and not is_fixed}, name


def _as_user(service: Service, user: str, server: str) -> Service:
    return replace(service, environment=service.environment | {"TOOLFLEET_REDIS_URL": f"redis://{user}@{server}/0"})
