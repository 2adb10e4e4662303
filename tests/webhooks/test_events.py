"""What is told, of what, to whom: each event once, of runs and their calls, and to the endpoints of their tenant."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversations import rehearsed

from tests.webhooks.receiver import Receiver, receiving
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator.errors import UnknownWebhook
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.orchestrator.webhooks.records import WebhookEvent
from toolfleet.wire import Seal


@pytest.fixture(scope="module")
def fleet():
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    with LocalFleet(["webhook_tools"], pools={"io": 1, "long": 1}, environment=here) as running:
        yield running


@pytest.fixture
def settings(fleet):
    return fleet.settings.model_copy(update={"webhook_networks": "127.0.0.1"})


@pytest.fixture
async def endpoints(settings):
    async with connect_async(settings) as client:
        yield Endpoints(client, settings, Seal(settings))
        await client.delete(settings.keys.webhooks())


async def test_U11_people_are_told_what_waits_for_them_and_how_the_run_ends(settings, endpoints, receiver):
    _, secret = await endpoints.add(receiver.url)
    async with receiving() as curious:
        await endpoints.add(curious.url, content=True)
        async with rehearsed(settings) as orchestrator:
            run_id = await orchestrator.start('call pay {"amount": 5} then call ask_name {}')
            [asked] = await receiver.wait_for(1, "approval.requested")
            said = asked.verified(secret)["data"]
            assert said["run_id"] == run_id
            assert said["tool"] == "pay"
            assert "arguments" not in said
            await orchestrator.approve(said["call_id"], Approval(granted=True, digest=said["digest"]))
            [question] = await receiver.wait_for(1, "question.asked")
            said = question.verified(secret)["data"]
            assert said["run_id"] == run_id
            assert "message" not in said
            await orchestrator.answer(said["question_id"], "teapot")
            [end] = await receiver.wait_for(1, "run.completed")
            assert end.said["data"] == {"run_id": run_id, "state": "done"}
            [with_answer] = await curious.wait_for(1, "run.completed")
            assert with_answer.id == end.id
            run = await orchestrator.get(run_id)
        by_type = {each.type: each.said["data"] for each in curious.got}
    assert by_type["run.completed"]["answer"] == run.answer
    assert by_type["approval.requested"]["arguments"] == '{"amount": 5}'
    assert by_type["question.asked"]["message"] == "What is it called?"
    assert [each.type for each in receiver.got] == ["approval.requested", "question.asked", "run.completed"]


async def test_a_slow_call_is_told_of_when_it_has_its_result_and_a_quick_one_is_not(settings, endpoints, receiver):
    await endpoints.add(receiver.url)
    async with rehearsed(settings) as orchestrator:
        run = await orchestrator.run('call brew {"seconds": 0.4}', patience_s=0, slow="handle")
        [settled] = await receiver.wait_for(1, "job.settled")
        await receiver.wait_for(1, "run.completed")
        said = settled.said["data"]
        assert (said["run_id"], said["tool"], said["outcome"]) == (run.run_id, "brew", "returned")
        assert said["handle"]
        parked = await orchestrator.run('call brew {"seconds": 0.4}', patience_s=0.1)
        _, again = await receiver.wait_for(2, "job.settled")
        assert again.said["data"]["call_id"] == f"{parked.run_id}.1.0"
        await orchestrator.run('call greet {"name": "you"}')
        await receiver.wait_for(3, "run.completed")
    told = [each.said["data"]["call_id"] for each in receiver.got if each.type == "job.settled"]
    assert told == [f"{run.run_id}.1.0", f"{parked.run_id}.1.0"]


async def test_each_endpoint_hears_what_it_asks_for_of_its_own_tenant_and_of_runs_that_name_it(
    settings, endpoints, receiver
):
    await endpoints.add(receiver.url, tenant="acme", events=[WebhookEvent.RUN_CANCELLED])
    async with receiving() as named, receiving() as others:
        endpoint, _ = await endpoints.add(named.url, tenant="acme", events=())
        await endpoints.add(others.url, tenant="other")
        async with rehearsed(settings) as orchestrator:
            await orchestrator.run("say hello", tenant="acme")
            told_of = await orchestrator.run("say hello", tenant="acme", webhook=named.url)
            run_id = await orchestrator.start('call pay {"amount": 1}', tenant="acme", webhook=endpoint.endpoint_id)
            await named.wait_for(1, "approval.requested")
            await orchestrator.cancel(run_id, "no more")
            await receiver.wait_for(1, "run.cancelled")
            await named.wait_for(1, "run.cancelled")
            for unknown in (others.url, "we_none", "https://1.1.1.1/"):
                with pytest.raises(UnknownWebhook):
                    await orchestrator.run("say hello", tenant="acme", webhook=unknown)
            await orchestrator.run("say hello", tenant="other")
            await others.wait_for(1)
    assert [each.type for each in receiver.got] == ["run.cancelled"]
    assert [each.said["data"]["run_id"] for each in named.got] == [told_of.run_id, run_id, run_id]
    assert len(others.got) == 1


async def test_a_run_that_names_an_endpoint_which_was_added_a_moment_ago_is_told_of(settings, endpoints):
    async with receiving(Receiver()) as receiver, rehearsed(settings) as orchestrator:
        endpoint, secret = await endpoints.add(receiver.url, events=())
        run = await orchestrator.run("say hello", webhook=receiver.url)
        [request] = await receiver.wait_for(1)
    assert run.terms.webhook == endpoint.endpoint_id
    assert request.verified(secret)["data"]["run_id"] == run.run_id
