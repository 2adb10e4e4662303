"""What a tool asks while it runs: seen and answered over HTTP, on the page, and on the command line."""

import asyncio
import os

import pytest

from tests.cli.command import TOOLFLEET
from tests.http.fleet_of_doors import WAIT_S
from tests.page.visitors import SAME, key_with, visitor
from toolfleet.orchestrator.doors.http.key_store import Scope

ASK = "call choose_account {}"
TENANT = "acme-asks"


@pytest.fixture
async def ours(api):
    """Headers of a key of a tenant of this test's own, and its name."""
    key, stored = await api.door.keyring.add("ada", tenant=TENANT, scopes=(Scope.RUN, Scope.APPROVE))
    return {"authorization": f"Bearer {key}"}, stored.who


async def begun(api, headers):
    asked = await api.client.post("/v1/runs", json={"question": ASK}, headers=headers)
    return asked.json()["run_id"]


async def listed(api, run_id, headers=None):
    async with asyncio.timeout(WAIT_S):
        while True:
            found = (await api.client.get("/v1/questions", headers=headers)).json()["questions"]
            for each in found:
                if each["run_id"] == run_id:
                    return each
            await asyncio.sleep(0.02)


async def test_U3_a_question_is_told_to_listeners_listed_and_answered_once_by_a_person_who_stands_in_the_history(
    api, ours
):
    headers, name = ours
    run_id = await begun(api, headers)
    question = await listed(api, run_id, headers)
    assert question["answer_schema"]["enum"] == ["savings", "checking"]
    url = f"/v1/questions/{question['question_id']}/answer"
    looker, _ = await api.door.keyring.add(tenant=TENANT, scopes=(Scope.READ,))
    hidden = (await api.client.get("/v1/questions", headers={"authorization": f"Bearer {looker}"})).json()
    assert hidden["questions"][0]["message"].startswith("hidden (")
    assert (await api.client.post(url, json={"answer": "savings"})).status_code == 404  # another tenant's
    wrong = await api.client.post(url, json={"answer": "piggy"}, headers=headers)
    assert wrong.status_code == 422
    assert "$: 'piggy' is not one of" in wrong.json()["detail"]
    assert (await api.client.post(url, json={}, headers=headers)).status_code == 422
    answers = await asyncio.gather(
        *(api.client.post(url, json={"answer": each}, headers=headers) for each in ("savings", "checking"))
    )
    assert sorted(each.status_code for each in answers) == [200, 409]
    events = await api.events(run_id, **headers)
    [given] = [data for _, type_, data in events if type_ == "question_answered"]
    assert given["answered"]["by"] == name
    assert given["answered"]["answer"] in {'"savings"', '"checking"'}
    assert [data["question_id"] for _, type_, data in events if type_ == "call_asks"] in ([], [question["question_id"]])
    [call] = (await api.client.get(f"/v1/runs/{run_id}", headers=headers)).json()["calls"]
    assert given["answered"]["answer"] in call["result"]["content"]


async def test_U3_the_page_shows_a_question_and_takes_its_answer(api):
    key, _ = await key_with(api, Scope.RUN, Scope.APPROVE, tenant=TENANT)
    run_id = await begun(api, {"authorization": f"Bearer {key}"})
    question = await listed(api, run_id, {"authorization": f"Bearer {key}"})
    async with visitor(api, key) as person:
        shown = (await person.get("/approvals")).text
        assert "Which &lt;b&gt;account&lt;/b&gt;?" in shown
        url = f"/questions/{question['question_id']}/answer"
        assert url in shown.replace("%3A", ":")
        sent = await person.post(url, data={"choice": "1", "next": "/approvals"}, headers=SAME)
        assert (sent.status_code, sent.headers["location"]) == (303, "/approvals")
        again = await person.post(url, data={"decline": "yes"}, headers=SAME)
        assert again.status_code == 409
    await api.events(run_id, authorization=f"Bearer {key}")
    answered = await api.client.get(f"/v1/runs/{run_id}", headers={"authorization": f"Bearer {key}"})
    run = answered.json()
    assert "checking" in run["calls"][0]["result"]["content"]


async def test_U3_the_command_line_lists_and_answers(api):
    run_id = await begun(api, None)
    question = await listed(api, run_id)
    out = await said(api, "questions")
    assert f"{question['question_id']}\tchoose_account\t" in out
    assert "\x1b" not in out
    assert "does not fit: $: 'neither' is not one of" in await said(api, "answer", question["question_id"], "neither")
    assert "choose_account was answered" in await said(api, "answer", question["call_id"], "savings")
    run = await api.ended(run_id)
    assert "savings" in run["calls"][0]["result"]["content"]


async def said(api, *words):
    settings = api.door.settings
    secret = {"TOOLFLEET_SECRET": settings.secret.get_secret_value()} if settings.secret.get_secret_value() else {}
    environment = {**os.environ, "TOOLFLEET_REDIS_URL": settings.redis_url, **secret}
    process = await asyncio.create_subprocess_exec(
        TOOLFLEET, *words, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return out.decode()
