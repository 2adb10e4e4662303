"""Nothing stays in Redis for ever: every key that real traffic leaves has a row in toolfleet/keys.py, and an end."""

import asyncio
import fnmatch
import inspect
import json

import pytest
from conversations import WrittenModel, requesting
from fleets import asking, fleet_of

from toolfleet.broker import celery_app
from toolfleet.connections import connect_async
from toolfleet.keys import DEAD_LETTERS_MAX, Keys
from toolfleet.orchestrator import Orchestrator

TTL = {
    "result": 24 * 3600,
    "claim": 8 * 24 * 3600,
    "replies": 24 * 3600,
    "workers": 30,
    "worker": 30,
    "node": 15,
    "spec": 30,
    "progress": 24 * 3600,
    "checkpoint": 8 * 24 * 3600,
    "questions": 8 * 24 * 3600,
    "questions_of": 8 * 24 * 3600,
    "attempt": 8 * 24 * 3600,
    "call_log": 8 * 24 * 3600,
    "work_queues": 7 * 24 * 3600,
    "work_result": 8 * 24 * 3600,
    "handle": 9 * 24 * 3600,
    "arguments": 7 * 24 * 3600,
    "cancelled": 9 * 24 * 3600,
    "cached": 24 * 3600,
    "finder": 7 * 24 * 3600 + 3600,
    "waiting_for_answer": 7 * 24 * 3600 + 3600,
    "artifact": 7 * 24 * 3600,
    "artifact_grant": 7 * 24 * 3600,
    "artifact_runs": 7 * 24 * 3600,
    "artifacts_of": 7 * 24 * 3600,
    "job": 8 * 24 * 3600,
    "job_ended": 8 * 24 * 3600,
    "jobs": 8 * 24 * 3600,
    "run": 30 * 24 * 3600,
    "packing": 30 * 24 * 3600,
    "head": 30 * 24 * 3600,
    "handling_dead": 120,
    "webhook": 9 * 24 * 3600,
    "webhooks_dead": 7 * 24 * 3600,
    "webhook_attempts": 7 * 24 * 3600,
    "webhooks_asked": 8 * 24 * 3600,
    "pushes": 30 * 24 * 3600,
    "pushing": 30 * 24 * 3600,
    "push_tenants": 30 * 24 * 3600,
    "approvals": 30 * 24 * 3600,
    "handles_of": 9 * 24 * 3600,
    "requested": 7 * 24 * 3600,
    "runs_of": 30 * 24 * 3600,
    "conversation": 30 * 24 * 3600,
    "a2a_context": 30 * 24 * 3600,
    "rate": 3600,
    "running": 30 * 24 * 3600,
    "stored": 30 * 24 * 3600,
    "sizes": 30 * 24 * 3600,
    "idempotent": 24 * 3600,
    "asked": 24 * 3600,
    "approved": 1200,
    "batch": 30 * 24 * 3600,
    "batches_of": 30 * 24 * 3600,
    "batch_cancel": 30 * 24 * 3600,
    "batch_output": 30 * 24 * 3600,
    "aside": 30 * 24 * 3600,
    "deleted": 3600,
    "beat": 24 * 3600,
    "owned": 30 * 24 * 3600,
    "budget": 3650 * 24 * 3600,
    "reserved": 30 * 24 * 3600 + 1,
    "reserving": 30 * 24 * 3600 + 1,
    "unbooked": 30 * 24 * 3600,
    "booked": 30 * 24 * 3600 + 1,
    "reply_costs": 30 * 24 * 3600,
    "unowned": 30 * 24 * 3600,
    "orchestrator": 30,
    "orchestrator_proofs": 30,
    "lease": 120,
    "lane": 60,
    "sweeper": 120,
    "room_workers": 20,
    "room_told": 32,
    "gate": 8 * 24 * 3600,
    "version_counts": 30 * 24 * 3600,
}
"""The longest that each kind of key may live after it was last touched, in seconds."""

EMPTIED = {
    *("queue", "scheduled", "holders"),
    *(
        "room_calls",
        "room_plain",
        "room_plain_line",
        "room_plain_runs",
        "room_turns",
        "room_shares",
        "room_flows",
        "room_line",
        "room_runs",
        "room_aside",
        "room_openings",
    ),
    *("room_ends", "webhooks_due", "pushes_due"),
}
"""Hold what is not done yet: entries go as calls are acknowledged."""

TRIMMED = {"dead_letters", "limits_audit", "runs", "runs_ending", "run_names", "run_states", "lanes"}

BOUNDED = {
    *("orchestrators", "counters", "api_keys", "shard", "binding", "permanent_binding", "binding_deadlines"),
    *("room", "limits", "limits_said", "tenants", "budgets", "spent_by_tools", "calls_settled", "version_shares"),
    "webhooks",
    *("schedule", "schedules_of", "schedules_due"),
}
"""Do not grow with traffic."""


@pytest.fixture(scope="module")
def fleet():
    with fleet_of("--events", pools={"io": 1, "cpu": 1, "long": 1}, namespace="keys-test") as running:
        yield running


def methods_of(keys):
    return {name: method for name, method in inspect.getmembers(keys, inspect.ismethod) if not name.startswith("_")}


def kinds_of(key, keys):
    """The methods of Keys that could have made a key."""
    methods = methods_of(keys)
    patterns = {name: method(*["*"] * len(inspect.signature(method).parameters)) for name, method in methods.items()}
    return {name for name, pattern in patterns.items() if fnmatch.fnmatchcase(key, pattern)}


async def traffic(settings, post):
    """One of everything that leaves something behind."""
    slow = requesting(("1", "long_job", '{"steps": 3}'), ("2", "long_job", '{"steps": 400}'))

    def cancels_the_second(messages):
        task_id = json.loads(messages[-1].content)["task_id"]
        return requesting(("3", "task_cancel", json.dumps({"task_id": task_id})))

    model = WrittenModel((slow, "tool_calls"), (cancels_the_second, "tool_calls"))
    async with Orchestrator(model=model, settings=settings) as orchestrator:
        many = [("add", {"a": n, "b": n}) for n in range(300)]
        await orchestrator.execute(
            asking(*many, ("blocking_echo", {"value": 1}), ("fail", {"kind": "value"}), ("x", {}))
        )
        await orchestrator.run("?", slow="handle")
    call = post.call("add", {"a": 1, "b": 1})
    for _ in range(3):
        post.send(call)
    await post.result()
    post.send_text("forged", "", post.call("add"))
    await post.letter()
    await post.write(b="malformed")
    await post.serves()
    app = celery_app(settings)
    await asyncio.to_thread(app.control.revoke, "nobody.1.0", terminate=True)
    await asyncio.to_thread(app.control.ping, timeout=0.5)
    app.close()


async def test_every_key_has_a_row_and_an_end(fleet, post):
    keys = fleet.settings.keys
    await traffic(fleet.settings, post)
    async with connect_async(fleet.settings) as client:
        found = {key.decode() async for key in client.scan_iter(count=1000)}
        seen = set()
        for key in sorted(found):
            kinds = kinds_of(key, keys)
            assert kinds, f"{key} is made by no method of Keys"
            seen |= kinds
            if kinds & TTL.keys():
                left_s = await client.ttl(key)
                longest_s = max(TTL[kind] for kind in kinds & TTL.keys())
                # -2: it has ended since it was found.
                assert left_s == -2 or 0 < left_s <= longest_s, f"{key} lives for {left_s} s"
            else:
                assert kinds <= EMPTIED | TRIMMED | BOUNDED, f"nothing ends {key}"
        # The test is worth something only while traffic leaves all this behind.
        assert {"result", "claim", "replies", "spec", "handle", "progress", "cancelled", "run", "lease"} <= seen
        assert {"queue", "dead_letters", "counters", "binding"} <= seen


async def test_queues_are_empty_once_their_calls_are_done(fleet, post):
    await traffic(fleet.settings, post)
    keys = fleet.settings.keys
    async with connect_async(fleet.settings) as client:
        for stream in [key async for key in client.scan_iter(keys.queue("*", 3).replace(":3", ":*"))]:
            assert await client.xlen(stream) == 0, stream
            assert (await client.xpending(stream, "workers"))["pending"] == 0, stream


async def test_counters_do_not_grow_with_what_strangers_send(post):
    before = await post.client.hlen(post.keys.counters())
    for n in range(20):
        post.send_text(f"forged {n}", "", post.call(f"tool-{n}"))
    for _ in range(20):
        await post.letter()
    assert await post.client.hlen(post.keys.counters()) <= before + 2


async def test_dead_letters_are_trimmed(post):
    stream = post.keys.dead_letters()
    pipeline = post.client.pipeline()
    for _ in range(DEAD_LETTERS_MAX + 500):
        pipeline.xadd(stream, {"reason": "filled by a test"})
    await pipeline.execute()
    await post.forget_the_past()
    post.send_text("forged", "", post.call("add"))
    await post.letter()
    assert await post.client.xlen(stream) <= DEAD_LETTERS_MAX + 200  # approximate trimming goes by whole nodes


def test_every_kind_of_key_is_known_to_these_tests():
    assert methods_of(Keys()).keys() == TTL.keys() | EMPTIED | TRIMMED | BOUNDED
