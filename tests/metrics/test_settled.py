"""What calls have come to in the fleet: counted where they are settled, so that no process takes it with it."""

from __future__ import annotations

import asyncio
import collections
import json
import secrets
import time
from pathlib import Path

import orjson
from redis.asyncio import Redis

from tests.http.fleet_of_doors import Api, api_of
from tests.metrics.conftest import HERE
from tests.metrics.scraping import parsed, scrape
from tests.ports import free_port
from toolfleet.calls import Failed, FailureKind, Returned, ToolCall
from toolfleet.connections import connect_async
from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings
from toolfleet.streams import GROUP
from toolfleet.testing import MortalFleet
from toolfleet.wire import MAC_HEX_CHARS, Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Outcome, Settlement, Settler

CALLS = 10_000
AT_ONCE = 1000


def asking(tool: str, path: Path, count: int, seconds: float) -> AssistantMessage:
    calls = []
    for number in range(count):
        arguments = {"path": str(path), "word": secrets.token_hex(8), "seconds": seconds}
        calls.append(RequestedCall(id=str(number), name=tool, arguments=json.dumps(arguments)))
    return AssistantMessage(tool_calls=tuple(calls))


def outcome_of(result: object) -> str:
    return "returned" if isinstance(result, Returned) else result.kind.value


async def settled_of(api: Api) -> collections.Counter[str]:
    told = parsed((await api.client.get("/metrics")).raise_for_status().text)
    counts = told.of("toolfleet_calls_settled_total")
    return collections.Counter({dict(labels)["outcome"]: int(count) for labels, count in counts.items()})


async def test_T13_what_is_counted_is_what_was_settled_whoever_is_killed_meanwhile(tmp_path: Path) -> None:
    ledger = collections.Counter[str]()
    path = tmp_path / "ledger"
    port = free_port()
    with MortalFleet(["measured_tools"], pools={"io": 2}, environment=HERE, lease_s=4, heartbeat_s=1) as fleet:
        frozen = fleet.start_worker("io", "--metrics-port", str(port))
        fleet.wait_until_ready()
        async with Orchestrator(settings=fleet.settings) as orchestrator, api_of(fleet.settings) as api:

            async def make(tool: str) -> None:
                message = asking(tool, path, AT_ONCE, seconds=0.3)
                ledger.update(map(outcome_of, await orchestrator.execute_results(message)))

            for number in range(CALLS // AT_ONCE):
                made = asyncio.create_task(make("once" if number % 3 == 0 else "again"))
                await some_have_run(path, number)
                if number == 1:
                    fleet.freeze(frozen)
                elif number % 2 == 0:
                    fleet.kill(next(worker for worker in fleet.alive("io") if worker is not frozen))
                await made
                await asyncio.to_thread(fleet.replenish, io=3)

            assert sum(ledger.values()) == CALLS
            assert ledger["in_doubt"] > 0, "no kill has met a call"
            assert len(set(path.read_text().split())) >= ledger["returned"]
            assert await settled_of(api) == ledger
            fleet.thaw(frozen)  # it settles what others have settled meanwhile
            await until_all_have_ended(port)
            assert await settled_of(api) == ledger


async def test_T13_a_duplicate_that_comes_when_the_result_is_fetched_counts_no_second_time(settings) -> None:
    async with connect_async(settings) as client:
        delivery = await delivered(client, settings)
        settler, seal = Settler(client, settings.keys, Seal(settings)), Seal(settings)
        settlement = Settlement.of(delivery, a_call(), Returned(content="done"), seal)
        assert await settler.settle(settlement) is Outcome.SETTLED
        await client.delete(settings.keys.result("r.1.0"))
        await settler.settle(settlement)
        assert await client.hgetall(settings.keys.calls_settled()) == {b"returned": b"1"}


async def test_T13_each_kind_of_end_is_counted_as_what_it_is_in_whatever_order_a_result_has_its_fields(
    settings,
) -> None:
    seal = Seal(settings)
    results = [Failed(kind=kind, message='"type":"returned"') for kind in FailureKind]
    results.append(Returned(content='{"type":"failed","kind":"error"}', state={"type": "failed", "kind": "crashed"}))
    async with connect_async(settings) as client:
        settler = Settler(client, settings.keys, seal)
        for number, result in enumerate(results):
            call = a_call(f"r.1.{number}")
            settlement = Settlement.of(Delivery(call.call_id, "t", None, None), call, result, seal)
            text = settlement.sealed[MAC_HEX_CHARS:]
            turned = orjson.dumps(dict(reversed(orjson.loads(text).items())))
            await settler.settle(settlement)
            other = f"r.2.{number}"
            await settler.settle(settlement._replace(call_id=other, sealed=settlement.sealed[:MAC_HEX_CHARS] + turned))
        counted = await client.hgetall(settings.keys.calls_settled())
    assert counted == {name.encode(): b"2" for name in ("returned", *FailureKind)}


async def test_T13_what_others_have_written_there_is_not_told_and_stops_no_call(settings) -> None:
    async with connect_async(settings) as client, api_of(settings) as api:
        await client.hset(settings.keys.calls_settled(), mapping={"<b>": 5, "returned": "many", "error": 3})
        told = await settled_of(api)
        assert {outcome: told[outcome] for outcome in ("returned", "error")} == {"returned": 0, "error": 3}
        assert "<b>" not in told
        await client.delete(settings.keys.calls_settled())
        await client.set(settings.keys.calls_settled(), "not a hash")
        delivery = await delivered(client, settings)
        seal = Seal(settings)
        settlement = Settlement.of(delivery, a_call(), Returned(content="done"), seal)
        assert await Settler(client, settings.keys, seal).settle(settlement) is Outcome.SETTLED
        assert await client.xlen(delivery.stream) == 0
        assert (await api.client.get("/metrics")).status_code == 200


def a_call(call_id: str = "r.1.0") -> ToolCall:
    return ToolCall(
        call_id=call_id, run_id="r", tool="t", arguments="{}", deadline_unix_s=time.time() + 60, reply_to="o"
    )


async def delivered(client: Redis, settings: Settings) -> Delivery:
    """A message that worker `w` holds."""
    stream = settings.keys.queue("io", 1)
    await client.xgroup_create(stream, GROUP, mkstream=True)
    entry_id = (await client.xadd(stream, {"b": "a call"})).decode()
    await client.xreadgroup(GROUP, "w", {stream: ">"})
    return Delivery("r.1.0", "t", None, None, stream=stream, entry_id=entry_id, consumer="w")


async def some_have_run(path: Path, burst: int) -> None:
    """Return once some calls of this burst have noted their word: others of it run."""
    wanted = burst * AT_ONCE + AT_ONCE // 10
    async with asyncio.timeout(60):
        while not path.exists() or len(set(path.read_text().split())) < wanted:
            await asyncio.sleep(0.01)


async def until_all_have_ended(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            told = await asyncio.to_thread(scrape, port)
            if told.sum("toolfleet_deliveries_ended_total") == told.sum("toolfleet_calls_received_total"):
                ran = told.sum("toolfleet_call_run_seconds_count", tool="again")
                quickly = told.sum("toolfleet_call_run_seconds_bucket", tool="again", le="2.5")
                assert quickly < ran, "nothing ran there while it was frozen"
                return
            await asyncio.sleep(0.1)
