"""Who gets in, for how long, and what another site can make a browser do: nothing."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.http.fleet_of_doors import Api
from tests.page.visitors import SAME, key_with, visitor
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.doors.page.signing_in import ATTEMPTS

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = ("/", "/runs", "/runs/nobody", "/calls/nobody.1.0", "/tools", "/jobs/nobody", "/find?q=abcd")


@pytest.mark.parametrize("path", PAGES)
async def test_whoever_has_not_signed_in_is_sent_to_do_so_and_back(served: Api, path):
    async with visitor(served) as somebody:
        answer = await somebody.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/sign-in")
    async with visitor(served, served.local_key.made()) as user:
        signed_in = await user.post("/sign-in", data={"key": served.local_key.made(), "next": path}, headers=SAME)
        assert signed_in.headers["location"] == path


async def test_the_cookie_is_for_this_page_alone_and_out_of_every_scripts_reach(served: Api):
    async with visitor(served) as somebody:
        answer = await somebody.post("/sign-in", data={"key": served.local_key.made()}, headers=SAME)
        said = answer.headers["set-cookie"].lower()
        assert "httponly" in said
        assert "samesite=strict" in said
        assert served.local_key.made() not in answer.headers["set-cookie"]
        assert (await somebody.get("/")).status_code == 200
        # It opens the page and not the API, which no form of another site can then reach with it.
        assert (await somebody.get("/v1/runs")).status_code == 401


async def test_a_cookie_that_this_fleet_has_not_sealed_opens_nothing(served: Api):
    async with visitor(served, served.local_key.made()) as user:
        [(name, value)] = user.cookies.items()
    for forged in (value[:-8] + "AAAAAAA=", "", "x", value[10:]):
        async with httpx.AsyncClient(base_url=served.url, cookies={name: forged}) as somebody:
            assert (await somebody.get("/")).status_code == 303


async def test_a_session_ends_with_its_key_and_so_does_what_it_listens_to(served: Api):
    key, key_id = await key_with(served, Scope.READ)
    async with visitor(served, key) as reader:
        assert (await reader.get("/")).status_code == 200
        async with asyncio.timeout(20), reader.stream("GET", "/overview/live") as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            await served.door.keyring.revoke(key_id)
            assert "event: signed-out" in [line async for line in lines]
        assert (await reader.get("/")).status_code == 303


async def test_signing_out_forgets_the_session(served: Api):
    async with visitor(served, served.local_key.made()) as user:
        await user.post("/sign-out", headers=SAME)
        assert (await user.get("/")).status_code == 303


async def test_who_guesses_keys_waits_and_nobody_else_does(served: Api):
    served.app.state.page.attempts.__init__()
    async with visitor(served) as guesser:
        answers = [await guesser.post("/sign-in", data={"key": f"tf_{n}"}, headers=SAME) for n in range(ATTEMPTS + 1)]
        assert [answer.status_code for answer in answers] == [403] * ATTEMPTS + [429]
        assert int(answers[-1].headers["retry-after"]) > 0
        assert (await served.client.get("/v1/runs")).status_code == 200
    served.app.state.page.attempts.__init__()


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "/a\r\nx: y"])
async def test_signing_in_leads_nowhere_else(served: Api, elsewhere):
    async with visitor(served) as somebody:
        form = {"key": served.local_key.made(), "next": elsewhere}
        answer = await somebody.post("/sign-in", data=form, headers=SAME)
        assert answer.headers["location"] == "/"


async def test_who_signs_in_may_send_no_more_than_a_key(served: Api):
    async with visitor(served) as somebody:
        answer = await somebody.post("/sign-in", data={"key": "k" * 5000}, headers=SAME)
        assert answer.status_code == 413


FOREIGN = [
    {},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "same-origin", "origin": "https://evil.example"},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_W13_a_post_that_another_site_has_made_is_refused(served: Api, headers):
    run_id = await served.begin('call pay {"amount": 1}')
    async with visitor(served, served.local_key.made()) as user:
        for path in (f"/runs/{run_id}/cancel", "/tools/give_back/call", "/sign-in", "/sign-out"):
            answer = await user.post(path, data={"reason": "because"}, headers=headers)
            assert answer.status_code == 403, path
        assert (await user.get("/")).status_code == 200
    assert (await served.client.get(f"/v1/runs/{run_id}")).json()["state"] != "cancelled"
    await served.client.post(f"/v1/runs/{run_id}/cancel")


async def test_W13_every_page_comes_under_a_policy_without_inline_code(served: Api):
    async with visitor(served, served.local_key.made()) as user:
        for path in (*PAGES, "/sign-in"):
            answer = await user.get(path)
            policy = answer.headers["content-security-policy"]
            assert "unsafe" not in policy, path
            assert "default-src 'none'" in policy, path
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert " style=" not in answer.text
            assert " onclick=" not in answer.text
            assert "<script>" not in answer.text
