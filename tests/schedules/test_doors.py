"""Schedules through the command, over HTTP and from Python: whose they are, and what cannot be meant."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic import SecretStr

from tests.cli.command import Terminal
from tests.http.fleet_of_doors import api_of
from toolfleet.errors import CallerError
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat


def new_secret_of(settings):
    return SecretStr(settings.secret.get_secret_value()[::-1])


HUGE = "?" * 100_000


@pytest.fixture
def chat(model):
    return OpenAIChat(REHEARSAL_MODEL, base_url=model.base_url, api_key="rehearsal")


@pytest.fixture
async def api(fleet, chat):
    async with api_of(fleet.settings, chat) as running:
        yield running


async def test_U10_a_schedule_is_made_shown_and_removed_on_the_command_line(fleet, chat, tmp_path):
    terminal = Terminal(tmp_path, fleet.settings.as_environment())

    async def toolfleet(*words):
        return await asyncio.to_thread(terminal.run, "schedule", *words)

    async with Orchestrator(chat, settings=fleet.settings) as orchestrator:
        made = json.loads(
            (await toolfleet("add", "0 8 * * 1-5", "What is new?", "--tz", "Europe/Berlin", "--json")).out
        )
        assert (made["model"], made["tz"], made["missed"]) == (REHEARSAL_MODEL, "Europe/Berlin", "skip")
        run_id = (await toolfleet("run", made["schedule_id"])).out.strip()
        assert (await orchestrator.wait(run_id)).asked_as["schedule"] == made["schedule_id"]
        listed = (await toolfleet("list")).out.split("\t")
        assert listed[0] == made["schedule_id"]
        assert listed[-1] == "What is new?\n"
        shown = await toolfleet("show", made["schedule_id"])
        assert "Europe/Berlin" in shown.out
        assert run_id in shown.out
        unknown = (await toolfleet("add", "0 8 * * *", "?", "--tz", "Europe/Berln")).complaint()
        assert unknown == "toolfleet: 'Europe/Berln' is no time zone; 'Europe/Berlin' is meant?"
        assert made["schedule_id"] in (await toolfleet("remove", made["schedule_id"])).out
        assert "no schedule" in (await toolfleet("show", made["schedule_id"])).complaint()


async def test_U10_a_schedule_over_http_belongs_to_the_tenant_of_its_key_and_so_do_its_runs(api):
    async def key(tenant, *scopes):
        text, _ = await api.door.keyring.add("of a test", scopes=scopes, tenant=tenant, subject="ada")
        return {"authorization": f"Bearer {text}"}

    ours, theirs = await key("acme", Scope.RUN, Scope.READ), await key("other", Scope.RUN, Scope.READ)
    asked = {"cron": "0 8 * * *", "question": "secret?", "tools": [], "missed": "once"}
    answer = await api.client.post("/v1/schedules", json=asked, headers=ours)
    made = answer.json()
    assert (answer.status_code, made["tenant"], made["is_paused"]) == (201, "acme", False)
    path = answer.headers["location"]
    for refused in (
        await api.client.get(path, headers=theirs),
        await api.client.post(f"{path}/pause", headers=theirs),
        await api.client.post(f"{path}/run", headers=theirs),
        await api.client.delete(path, headers=theirs),
        await api.client.get("/v1/schedules/%00", headers=ours),
    ):
        assert (refused.status_code, refused.json()["type"]) == (404, "urn:toolfleet:problem:schedule-not-found")
    assert (await api.client.get("/v1/schedules", headers=theirs)).json() == {"schedules": [], "after": None}
    begun = (await api.client.post(f"{path}/run", headers=ours)).json()["run_id"]
    run = await api.door.orchestrator.wait(begun)
    assert (run.terms.tenant, run.terms.subject) == ("acme", "ada")
    [listed] = (await api.client.get("/v1/schedules", headers=ours)).json()["schedules"]
    assert [tick["run_id"] for tick in listed["ticks"]] == [begun]
    [seen] = (await api.client.get("/v1/schedules", headers=await key("acme", Scope.READ))).json()["schedules"]
    assert seen["messages"] == [{"role": "user", "content": "hidden (7 bytes)"}]
    assert (seen["cron"], seen["ticks"][0]["run_id"]) == ("0 8 * * *", begun)
    paused = (await api.client.post(f"{path}/pause", headers=ours)).json()
    assert (paused["is_paused"], paused["next_unix_s"]) == (True, None)
    assert (await api.client.post(f"{path}/resume", headers=ours)).json()["next_unix_s"] == made["next_unix_s"]
    assert (await api.client.delete(path, headers=ours)).status_code == 204
    assert (await api.client.get(path, headers=ours)).status_code == 404


async def test_U10_what_cannot_be_meant_is_refused_in_one_line_that_says_why(api):
    for wrong, words in (
        ({"cron": "0 0 31 2 *"}, "cannot tick"),
        ({"cron": "* * * * * *", "tz": "Mars/Olympus"}, "is no time zone"),
        ({"question": HUGE}, "a schedule at most 65536"),
        ({"model": "nobody's"}, f"no orchestrator has the model nobody's; there are {REHEARSAL_MODEL}"),
        ({"tools": ["no_such_tool"]}, "no_such_tool"),
        ({"cron": "\x1b[2J * * * *"}, "cannot tick"),
        ({"missed": "sometimes"}, "missed"),
        ({"at_most": 9007199254740993}, "at_most"),
        ({"question": None}, "give a question or messages"),
    ):
        asked = {"cron": "0 8 * * *", "question": "?", **wrong}
        answer = await api.client.post("/v1/schedules", json=asked)
        detail = answer.json()["detail"]
        assert (answer.status_code, words in detail, "\n" in detail) == (422, True, False), detail
    assert (await api.client.get("/v1/schedules")).json()["schedules"] == []


async def test_U10_ticks_of_every_second_are_refused_where_nothing_else_is_set(redis_server, settings, chat):
    async with Orchestrator(chat, settings=settings) as orchestrator:
        with pytest.raises(CallerError, match="ticks every 1 s, and a schedule at most every 60 s"):
            await orchestrator.schedules.add("* * * * * *", "?")
        with pytest.raises(CallerError, match="ticks every 10 s"):
            await orchestrator.schedules.add("0,10 0 8 * * *", "?")
        made = await orchestrator.schedules.add("30 0 8 * * *", "?")
        assert made.next_unix_s() % 60 == 30


async def test_U10_a_schedule_that_somebody_without_the_secret_has_written_begins_nothing(fleet, chat):
    async with Orchestrator(chat, settings=fleet.settings) as orchestrator:
        made = await orchestrator.schedules.add("0 8 * * *", "?")
        client, keys = orchestrator._services.schedules._client, fleet.settings.keys
        sealed = await client.get(keys.schedule(made.schedule_id))
        await client.set(keys.schedule("forged"), sealed.replace(b"0 8 * * *", b"* * * * *"))
        await client.set(keys.schedule("copied"), sealed)
        await client.zadd(keys.schedules_due(), {"forged": 0, "copied": 0, "nothing": 0})

        async def is_looked_at():
            return await client.zscore(keys.schedules_due(), "nothing") is None

        async with asyncio.timeout(30):
            while not await is_looked_at():
                await asyncio.sleep(0.05)
        for name in ("forged", "copied"):
            with pytest.raises(CallerError, match="no schedule"):
                await orchestrator.schedules.get(name)
        assert not [head for head in await orchestrator.runs() if head.run_id.startswith(("forged", "copied"))]
        await client.zrem(keys.schedules_due(), "forged", "copied")
        await client.delete(keys.schedule("forged"), keys.schedule("copied"))
        await orchestrator.schedules.remove(made.schedule_id)


async def test_U10_a_schedule_outlives_a_change_of_the_secret(settings, chat, model):
    old = settings.secret.get_secret_value()
    changed = settings.model_copy(update={"secret": new_secret_of(settings), "previous_secret": settings.secret})
    async with Orchestrator(chat, settings=settings, closes_models=False) as orchestrator:
        made = [await orchestrator.schedules.add("0 8 * * *", "?") for _ in range(2)]
        await orchestrator.schedules.pause(made[1].schedule_id)
    dropped = changed.model_copy(update={"previous_secret": SecretStr("")})
    assert changed.secret.get_secret_value() != old
    async with Orchestrator(chat, settings=changed, closes_models=False), Orchestrator(settings=dropped) as after:
        async with asyncio.timeout(30):
            while len((await after.schedules.list()).schedules) < len(made):
                await asyncio.sleep(0.05)
        states = [(await after.schedules.get(each.schedule_id)).is_paused for each in made]
        assert states == [False, True]
