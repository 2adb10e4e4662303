"""Limits of a fleet as people see and change them: from Python, on the command line and over HTTP.."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import httpx
import orjson
import pytest
from fleets import HERE
from limited_tools import search
from processes import WAIT_S

from toolfleet.calls import ToolCall
from toolfleet.connections import connect_async
from toolfleet.gates import gates_of
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.key_store import Keyring, Scope
from toolfleet.orchestrator.errors import InvalidLimit, UnknownTool
from toolfleet.orchestrator.fleet.limits import NEVER_MS
from toolfleet.wire import Seal


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(["limited_tools"], pools={"io": 1}, environment=HERE) as running:
        yield running


@pytest.fixture
async def client(fleet):
    async with connect_async(fleet.settings) as connected:
        keys = fleet.settings.keys
        await connected.delete(keys.limits(), keys.tenants(), keys.limits_audit())
        yield connected


@pytest.fixture
async def limits(fleet, client):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        yield orchestrator.limits


async def said_of(client, fleet, field):
    """What stands where the transport reads it."""
    text = await client.hget(fleet.settings.keys.limits(), field)
    return None if text is None else orjson.loads(text)


async def test_what_is_said_of_a_long_key_stands_where_calls_with_it_look(client, fleet, limits):
    tenant = "t" * 120
    await limits.set("search", key=f"tenant={tenant}", burst=2, by="ada")
    [field] = [name.decode() for name in await client.hkeys(fleet.settings.keys.limits())]
    call = ToolCall(
        call_id="r.1.0", run_id="r", tool="search", arguments="{}", deadline_unix_s=2e9, reply_to="o", tenant=tenant
    )
    [_, rate] = gates_of(call, search.spec)
    assert field == f"search|{rate.value}"


async def test_F11_what_is_said_stands_beside_what_is_declared_where_the_transport_reads_it(client, fleet, limits):
    await limits.set("search", rate="120/min", by="ada")
    await limits.set("search", concurrency=1, by="bob")
    await limits.set("search", key="tenant=acme", burst=2, by="ada")
    assert (await said_of(client, fleet, "search")).items() >= {"rate": 2, "concurrency": 1, "by": "bob"}.items()
    assert (await said_of(client, fleet, "search|tenant=acme"))["burst"] == 2
    tools = {each.tool: each for each in (await limits.list()).tools}
    assert sorted(tools) == ["forecast", "ping", "search", "upstream"]
    search = tools["search"]
    assert (search.declared.rate.per_s, search.override.rate, search.override.concurrency) == (10.0, 2.0, 1)
    assert search.keys["tenant=acme"].burst == 2
    assert tools["ping"].override is None


async def test_a_pause_ends_when_it_is_said_to_and_is_taken_back_alone(client, fleet, limits):
    await limits.set("ping", rate="1/s", by="ada")
    now_ms = time.time() * 1000
    paused = await limits.pause("ping", for_s=60, by="ada")
    assert 50_000 < paused.paused_until_ms - now_ms < 70_000
    assert (await limits.pause("ping", by="ada")).paused_until_ms == NEVER_MS
    resumed = await limits.resume("ping", by="ada")
    assert (resumed.paused_until_ms, resumed.rate) == (None, 1.0)
    with pytest.raises(InvalidLimit, match="ping is not paused"):
        await limits.resume("ping")
    await limits.reset("ping", by="ada")
    assert await said_of(client, fleet, "ping") is None
    with pytest.raises(InvalidLimit, match="nothing was said of ping"):
        await limits.reset("ping")


async def test_F11_each_change_is_written_down_with_who_when_and_what(limits):
    began_s = time.time()
    await limits.set("ping", rate="1/s", by="ada")
    await limits.set("ping", rate="2/s", by="bob")
    await limits.set_tenant("acme", weight=3, guaranteed=2, ceiling=10, by="ada")
    await limits.reset("ping", by="cy")
    reset, share, second, first = await limits.audit()
    assert [(each.by, each.action, each.of) for each in (first, second, share, reset)] == [
        ("ada", "set", "ping"),
        ("bob", "set", "ping"),
        ("ada", "set tenant", "acme"),
        ("cy", "reset", "ping"),
    ]
    assert (second.before["rate"], second.after["rate"], reset.after) == (1, 2, {})
    assert abs(first.at_unix_s - began_s) < 30


async def test_a_tenants_share_is_said_as_the_transport_reads_it(client, fleet, limits):
    await limits.set_tenant("acme", weight=0.5, by="ada")
    await limits.set_tenant("acme", guaranteed=2, ceiling=10, by="ada")
    stored = orjson.loads(await client.hget(fleet.settings.keys.tenants(), "acme"))
    assert stored.items() >= {"weight": 0.5, "guaranteed": 2, "ceiling": 10}.items()
    assert (await limits.list()).tenants["acme"].ceiling == 10
    await limits.reset_tenant("acme")
    assert (await limits.list()).tenants == {}


@pytest.mark.parametrize(
    ("say", "error", "said"),
    [
        (lambda it: it.set("nobodys", rate="1/s"), UnknownTool, "no live worker serves nobodys"),
        (lambda it: it.pause("n" * 100_000), InvalidLimit, "is no tool: 1 to 256"),
        (lambda it: it.set("search", key="tenant=" + "k" * 100_000, burst=1), InvalidLimit, "is no key: 1 to 256"),
        (lambda it: it.pause("nobodys"), UnknownTool, "no live worker serves nobodys"),
        (lambda it: it.set("unbounded", rate="1/s"), InvalidLimit, "unbounded declares no limit to change: add rate="),
        (lambda it: it.pause("unbounded"), InvalidLimit, "unbounded declares no limit"),
        (lambda it: it.set("forecast", rate="1/s"), InvalidLimit, "forecast declares no rate to change"),
        (lambda it: it.set("ping", concurrency=1), InvalidLimit, "ping declares no concurrency to change"),
        (lambda it: it.set("ping", key="tenant=a", rate="1/s"), InvalidLimit, "one limit for the whole fleet"),
        (lambda it: it.set("search", key="city=a", rate="1/s"), InvalidLimit, 'its keys are "tenant=…"'),
        (lambda it: it.set("ping"), InvalidLimit, "nothing is said"),
        (lambda it: it.set("ping", rate="ten"), InvalidLimit, "rate='ten' is no rate"),
        (lambda it: it.set("ping", rate="1/s", burst=0), InvalidLimit, "burst=0: a whole number"),
        (lambda it: it.set("search", concurrency=-1), InvalidLimit, "concurrency=-1: a whole number"),
        (lambda it: it.pause("ping", for_s=-1), InvalidLimit, "for_s=-1: more than 0"),
        (lambda it: it.set_tenant("acme", weight=-1), InvalidLimit, "weight=-1: input should be greater than 0"),
        (lambda it: it.set_tenant("acme", weight=float("nan")), InvalidLimit, "weight=nan"),
        (lambda it: it.set_tenant("acme", guaranteed=3, ceiling=2), InvalidLimit, "guaranteed 3 is more than the ceil"),
        (lambda it: it.set_tenant("", weight=1), InvalidLimit, "'' is no tenant"),
        (lambda it: it.set_tenant("t" * 100_000, weight=1), InvalidLimit, "is no tenant: 1 to 200"),
        (lambda it: it.reset_tenant("acme"), InvalidLimit, "nothing was said of tenant 'acme'"),
    ],
)
async def test_what_means_nothing_is_refused_in_one_line_and_leaves_no_trace(client, fleet, limits, say, error, said):
    with pytest.raises(error) as refused:
        await say(limits)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    keys = fleet.settings.keys
    assert await client.exists(keys.limits(), keys.tenants(), keys.limits_audit()) == 0


async def test_what_stands_there_and_cannot_be_read_hides_nothing_else(client, fleet, limits):
    await limits.set("ping", rate="1/s", by="ada")
    await client.hset(fleet.settings.keys.limits(), mapping={"search": "no JSON", "forecast": '{"rate": "ten"}'})
    tools = {each.tool: each.override for each in (await limits.list()).tools}
    assert (tools["ping"].rate, tools["search"], tools["forecast"]) == (1.0, None, None)
    await limits.set("search", rate="1/s", by="ada")
    assert (await limits.list()).tools[2].override.rate == 1.0


def toolfleet(fleet, *words, status=0):
    environment = {**os.environ, "TOOLFLEET_REDIS_URL": fleet.settings.redis_url, **HERE}
    environment |= {
        "TOOLFLEET_NAMESPACE": fleet.settings.namespace,
        "TOOLFLEET_SECRET": fleet.settings.secret.get_secret_value(),
    }
    command = [sys.executable, "-m", "toolfleet.orchestrator.doors.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == status, done.stderr + done.stdout
    return done.stdout if status == 0 else done.stderr


async def test_on_the_command_line_the_same_is_said_and_shown(client, fleet):
    assert "20/s; 5 at once" in toolfleet(fleet, "limits", "set", "search", "--rate", "20/s", "--burst", "5")
    assert "paused" in toolfleet(fleet, "limits", "pause", "search", "--key", "tenant=acme", "--for", "60")
    toolfleet(fleet, "limits", "tenant", "acme", "--weight", "3", "--guaranteed", "2", "--ceiling", "10")
    rows = [line.split("\t") for line in toolfleet(fleet, "limits", "list").splitlines()]
    [search, acme] = [row for row in rows if row[0] == "search"]
    assert search[2:4] == ["10/s, 5 at once for each tenant; concurrency 3", "20/s; 5 at once"]
    assert (acme[1], acme[3].startswith("paused for")) == ("tenant=acme", True)
    assert ["tenant acme", "", "", "weight 3; guaranteed 2; ceiling 10"] in [row[:4] for row in rows]
    shown = json.loads(toolfleet(fleet, "limits", "list", "--json"))
    assert shown["tenants"]["acme"]["ceiling"] == 10
    actions = [line.split("\t")[2] for line in toolfleet(fleet, "limits", "audit").splitlines()]
    assert actions == ["set tenant", "pause", "set"]
    toolfleet(fleet, "limits", "resume", "search", "--key", "tenant=acme")
    toolfleet(fleet, "limits", "reset", "search")
    toolfleet(fleet, "limits", "reset", "--tenant", "acme")
    assert await client.exists(fleet.settings.keys.limits(), fleet.settings.keys.tenants()) == 0
    wrong = toolfleet(fleet, "limits", "set", "nobodys", "--rate", "1/s", status=1)
    assert wrong.startswith("toolfleet: no live worker serves nobodys")


async def test_over_HTTP_keys_with_the_scope_admin_say_it_and_no_others(client, fleet):
    app = create_app(fleet.settings)
    async with app.router.lifespan_context(app):
        keyring = Keyring(client, fleet.settings, Seal(fleet.settings))
        admin, _ = await keyring.add("ops", subject="ops", scopes=(Scope.ADMIN,))
        runner, _ = await keyring.add("app", scopes=(Scope.RUN,))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://fleet.test") as http:

            async def ask(method, path, body=None, *, key=admin):
                headers = {"authorization": f"Bearer {key}"}
                return await http.request(method, f"/v1/limits{path}", json=body, headers=headers)

            assert (await ask("GET", "", key=runner)).status_code == 403
            assert (await ask("PATCH", "/tools/ping", {"rate": "1/s"}, key=runner)).status_code == 403
            said = await ask("PATCH", "/tools/ping", {"rate": "1/s", "burst": 2})
            assert (said.status_code, said.json()["rate"], said.json()["by"]) == (200, 1.0, "key of ops")
            paused = await ask("POST", "/tools/search/pause?key=tenant%3Dacme", {"for_s": 60})
            assert paused.status_code == 200
            assert (await ask("POST", "/tools/search/resume?key=tenant%3Dacme")).json()["paused_until_ms"] is None
            assert (await ask("PATCH", "/tenants/acme", {"weight": 3})).json()["weight"] == 3
            shown = (await ask("GET", "")).json()
            assert [each["tool"] for each in shown["tools"]] == ["forecast", "ping", "search", "upstream"]
            refused = await ask("PATCH", "/tools/nobodys", {"rate": "1/s"})
            assert (refused.status_code, "no live worker serves" in refused.json()["detail"]) == (422, True)
            assert (await ask("PATCH", "/tools/ping", {"rate": "ten"})).status_code == 422
            assert (await ask("DELETE", "/tools/ping")).status_code == 204
            assert (await ask("DELETE", "/tenants/acme")).status_code == 204
            done = [(each["by"], each["action"]) for each in (await ask("GET", "/audit")).json()]
            assert done[0] == ("key of ops", "reset tenant")
