"""What autoscalers are told of queues."""

import asyncio

from stages import stage_of_its_own

from tests.http.conftest import HERE
from tests.http.fleet_of_doors import api_of
from toolfleet.local.fleet import LocalFleet

SLOTS = 2
NUMBERS = {"waiting", "held_back", "running", "scheduled", "unsettled", "slots", "workers"}


async def told_of(api, queue):
    answer = await api.client.get(f"/v1/queues/{queue}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until(api, **numbers):
    """What is told of the queue once these hold; fails in time."""
    async with asyncio.timeout(20):
        while {name: (told := await told_of(api, "io"))[name] for name in numbers} != numbers:
            await asyncio.sleep(0.05)
    return told


async def test_D3_a_queue_that_never_existed_stands_at_zero(http_fleet):
    async with api_of(http_fleet.settings) as api:
        told = await told_of(api, "nobody-has-ever-used-it")
        assert {told[name] for name in NUMBERS} == {0}
        assert told["oldest_unix_s"] is None
        assert (await api.stranger.get("/v1/queues/io")).status_code == 401


async def test_D3_a_queue_is_told_by_what_waits_runs_and_how_much_there_is_room_for(http_fleet):
    async with api_of(http_fleet.settings) as api, stage_of_its_own() as stage:
        assert (await told_of(api, "io"))["slots"] > 0
        before = (await told_of(api, "io"))["running"]
        accepted = await api.client.post(
            "/v1/tools/play/call", json={"arguments": {"stage": stage.path}, "patience_s": 0}
        )
        assert accepted.status_code == 202
        actor = await stage.enters()
        told = await told_of(api, "io")
        assert told["running"] >= before + 1
        assert set(told["waiting_by_priority"]) == {"interactive", "normal", "batch"}
        actor.returns()


async def test_D4_whatever_ends_in_whatever_order_the_number_is_what_waits_and_runs():
    fleet = LocalFleet(["fleet_tools"], pools={"io": 1}, environment=HERE, worker_options=["--concurrency", str(SLOTS)])
    with fleet as running:
        async with api_of(running.settings) as api, stage_of_its_own() as stage:
            handles = []
            for _ in range(12):
                asked = {"arguments": {"stage": stage.path}, "patience_s": 0}
                accepted = await api.client.post("/v1/tools/play/call", json=asked)
                handles.append(accepted.json()["handle"])
            actors = [await stage.enters() for _ in range(SLOTS)]
            told = await until(api, unsettled=12)
            assert told["running"] + told["waiting"] + told["held_back"] == 12
            assert told["oldest_unix_s"]

            cancelled = await api.client.post(f"/v1/handles/{handles[-2]}/cancel")  # one that waits
            assert cancelled.status_code < 300, cancelled.text
            for ended in range(11):
                actors.pop(1 if len(actors) > 1 else 0).returns()  # not the one that came first
                if ended < 11 - SLOTS:
                    actors.append(await stage.enters())
                told = await told_of(api, "io")
                assert told["unsettled"] == told["waiting"] + told["held_back"] + told["running"] <= 12
            await until(api, unsettled=0, waiting=0, running=0, held_back=0)
            assert len(stage.actors) == 11
