"""A worker has two ways for a call, one for the common and one for any: whatever is sent, both leave the same behind.

The header that sends a call the long way is one that no orchestrator writes, and that changes nothing else.
"""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from fleets import HERE
from hypothesis import HealthCheck, given, settings, strategies as st
from post import Post

from toolfleet.broker import celery_app
from toolfleet.calls import FailureKind, Submitted
from toolfleet.local.fleet import LocalFleet
from toolfleet.streams import GROUP
from toolfleet.toolbox import load_tools

LONG_WAY = {"group_index": 1}
WAIT_S = 30


@dataclass(frozen=True)
class Kind:
    """A kind of call: what is sent, and whether it is common."""

    tool: str
    arguments: Any = field(default_factory=dict)
    common: bool = True
    call: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, Any] = field(default_factory=dict)
    left_s: float = 60.0


KINDS = {
    "a value": Kind("give", {"value": {"a": [1, None, "☃"]}}),
    "a text": Kind("look", {"value": "plain"}),
    "an effect that may be repeated": Kind("give_again", {"value": 1}),
    "after a moment": Kind("give", {"value": 1, "seconds": 0.4}),
    "on a thread": Kind("think", {"value": 2}),
    "a context": Kind("tell", call={"context": {"k": "v"}, "state": {"s": 1}, "tenant": "acme", "subject": "ann"}),
    "its own clock": Kind("own_clock"),
    "an interceptor and retries": Kind("insist"),
    "progress and checkpoints": Kind("build", {"steps": 3}),
    "a job": Kind("start_job", {"after_s": 0.01}),
    "out of its short time": Kind("hurry"),
    "out of its time": Kind("dawdle", {"how": "goes"}),
    "out of its time, and late": Kind("dawdle", {"how": "takes its time"}),
    "out of its time, with an answer": Kind("dawdle", {"how": "answers all the same"}),
    "out of its time, with an error": Kind("dawdle", {"how": "raises something else"}),
    "out of the call's time": Kind("give", {"value": 1, "seconds": 60}, left_s=1.0),
    "bad arguments": Kind("give", {"seconds": "x"}),
    "arguments that are repaired": Kind("give", '{"value": "open'),
    "no arguments at all": Kind("give", "nonsense"),
    "expired": Kind("give", {"value": 1}, left_s=-5.0, common=False),
    "an unknown tool": Kind("nobody", {}, left_s=1.5, common=False),
    "another contract": Kind("give", {"value": 1}, headers={"contract": "another"}, left_s=1.5, common=False),
    "a large body": Kind("give", {"value": "x" * 20_000}, common=False),
    **{
        f"{how} {kind}": Kind("stumble", {"kind": kind, "seconds": seconds})
        for kind in (
            "object",
            "failed",
            "media",
            "many words",
            "state",
            "tool",
            "value",
            "key",
            "exit",
            "cancel",
            "time",
        )
        for how, seconds in (("at once", 0.0), ("later", 0.3))
    },
}


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    return tmp_path_factory.mktemp("ways") / "taken"


@pytest.fixture(scope="module")
def fleet(ways):
    environment = HERE | {"WAYS_TAKEN": str(ways)}
    with LocalFleet(
        ["way_tools"],
        pools={"io": 1},
        environment=environment,
        worker_options=("--instrument", "ways_taken"),
        public_url="https://fleet.example",
    ) as running:
        ways.touch()
        yield running


@pytest.fixture(scope="module")
def specs():
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(HERE["PYTHONPATH"])
        return {name: tool.spec for name, tool in load_tools(["way_tools"]).items()}


class Sender:
    """Sends calls either way, and says what each has left behind."""

    def __init__(self, post, specs, ways):
        self.post = post
        self.specs = specs
        self.ways = ways

    def call(self, kind):
        call = self.post.call(kind.tool, deadline_unix_s=time.time() + kind.left_s, **kind.call)
        arguments = kind.arguments if isinstance(kind.arguments, str) else json.dumps(kind.arguments)
        return call.model_copy(update={"arguments": arguments})

    def headers(self, kind):
        spec = self.specs.get(kind.tool)
        if spec is None:
            return {"contract": "unknown"}
        claim = {} if spec.effect.repeatable else {"claim": max(1, int(kind.left_s)) + 600}
        return {"contract": spec.contract, **claim, **kind.headers}

    def send(self, kind, **headers):
        call = self.call(kind)
        self.post.send(call, **self.headers(kind) | headers)
        return call

    def both(self, kind):
        """The same by the quick way, if it is common, and by the long one."""
        return self.send(kind), self.send(kind, **LONG_WAY)

    def went_quickly(self, *calls):
        quick = self.ways.read_text().split()
        return [call.call_id in quick for call in calls]

    async def results(self, calls):
        """What was told of each call, in order, until all have ended."""
        owed, results = {call.call_id for call in calls}, {call.call_id: [] for call in calls}
        while owed:
            call_id, result = await self.post.result()
            results[call_id].append(result)
            if not isinstance(result, Submitted):
                owed.discard(call_id)
        return [[seen(result) for result in results[call.call_id]] for call in calls]

    async def left_of(self, call):
        """The keys that Redis holds of a call: of what form each is, and roughly how long it stays."""
        client, left = self.post.client, {}
        async for key in client.scan_iter(match=f"*{call.run_id}*", count=1000):
            minutes = round(await client.ttl(key) / 60)
            left[key.decode().replace(call.run_id, "RUN")] = await client.type(key), minutes
        return left

    async def nothing_is_held(self):
        """The worker has acknowledged all that it was given."""
        client, stream = self.post.client, self.post.keys.queue("io", 3)
        async with asyncio.timeout(WAIT_S):
            while (await client.xpending(stream, GROUP))["pending"] or await client.xlen(
                stream
            ):  # the server tells nobody
                await asyncio.sleep(0.02)


def seen(result):
    """A result without what differs between any two runs of one call: times, and ids of jobs."""
    if isinstance(result, Submitted):
        return "submitted", result.poll_after_s, result.message
    said = json.loads(result.model_dump_json())
    attempt = said.pop("attempt", None)
    if attempt:
        assert attempt["ended_unix_s"] >= attempt["began_unix_s"] > time.time() - 3 * WAIT_S
    text = re.sub(r"within 0\.9\d+ s", "within a second", json.dumps(said))  # what was left of the call's time
    return text, attempt and (attempt["number"], attempt["worker"])


@pytest.fixture
async def sender(fleet, specs, ways):
    async with Post(fleet.settings) as post:
        yield Sender(post, specs, ways)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_a_call_leaves_the_same_behind_whichever_way_it_goes(sender, kind):
    calls = sender.both(kind)
    quickly, slowly = await sender.results(calls)
    assert quickly == slowly
    assert sender.went_quickly(*calls) == [kind.common, False]
    await sender.nothing_is_held()
    left = [await sender.left_of(call) for call in calls]
    give_up_s = time.monotonic() + WAIT_S
    while left[0] != left[1] and time.monotonic() < give_up_s:
        await asyncio.sleep(0.1)  # checkpoints are removed, and progress is written, a moment after the result
        left = [await sender.left_of(call) for call in calls]
    assert left[0] == left[1]


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.booleans()), min_size=2, max_size=40))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_calls_at_once_end_as_each_does_alone(fleet, specs, ways, chosen):
    async def at_once():
        post = Post(fleet.settings)
        sender = Sender(post, specs, ways)
        try:
            calls = [sender.send(KINDS[name], **({} if quick else LONG_WAY)) for name, quick in chosen]
            by_kind = {}
            for (name, _), results in zip(chosen, await sender.results(calls), strict=True):
                assert by_kind.setdefault(name, results) == results
            await sender.nothing_is_held()
            assert await post.running() == 0
        finally:
            await post.aclose()

    asyncio.run(at_once())


VALUE = KINDS["a value"]


async def test_what_nobody_of_the_fleet_has_signed_is_buried_either_way(sender):
    for way in ({}, LONG_WAY):
        call = sender.call(VALUE)
        text, mac = sender.post.seal.close_call(call)
        sender.post.send_text(f"{text} ", mac, call, **sender.headers(VALUE), **way)
        assert (await sender.post.letter())["reason"] == b"unsigned or altered"
        assert sender.went_quickly(call) == [False]
    await sender.nothing_is_held()


async def test_a_signed_call_under_another_name_is_buried_either_way(sender):
    for way in ({}, LONG_WAY):
        call = sender.call(VALUE)
        sender.post.send(call, **sender.headers(VALUE) | {"task": "stumble"}, **way)
        assert b"another call or tool" in (await sender.post.letter())["reason"]
        assert sender.went_quickly(call) == [False]
    await sender.nothing_is_held()


async def test_a_second_message_of_a_call_has_no_effect_either_way(sender):
    for way in ({}, LONG_WAY):
        call = sender.send(VALUE, **way)
        [[first]] = await sender.results([call])
        before = await sender.post.counted("duplicate_messages")
        sender.post.send(call, **sender.headers(VALUE), **way)
        await sender.nothing_is_held()
        async with asyncio.timeout(WAIT_S):
            while await sender.post.counted("duplicate_messages") == before:
                await asyncio.sleep(0.02)
        assert await sender.results([sender.send(VALUE, **way)]) == [[first]]


@pytest.mark.parametrize("after_s", [0.0, 0.6], ids=["at once", "after a moment"])
async def test_a_running_call_is_revoked_either_way(fleet, sender, after_s):
    app = celery_app(fleet.settings)
    calls = sender.both(Kind("give", {"value": 1, "seconds": 60}))
    async with asyncio.timeout(WAIT_S):
        while await sender.post.running() < 2:
            await asyncio.sleep(0.02)
    await asyncio.sleep(after_s)
    await asyncio.to_thread(app.control.revoke, [call.call_id for call in calls], terminate=True)
    quickly, slowly = await sender.results(calls)
    assert quickly == slowly
    assert json.loads(quickly[0][0])["kind"] == FailureKind.CANCELLED
    assert sender.went_quickly(*calls) == [True, False]
    await sender.nothing_is_held()
    app.close()


async def test_a_call_that_was_revoked_before_it_came_does_not_start_either_way(fleet, sender):
    app = celery_app(fleet.settings)
    calls = [sender.call(VALUE), sender.call(VALUE)]
    await asyncio.to_thread(app.control.revoke, [call.call_id for call in calls], reply=True)
    for call, way in zip(calls, ({}, LONG_WAY), strict=True):
        sender.post.send(call, **sender.headers(VALUE), **way)
    quickly, slowly = await sender.results(calls)
    assert quickly == slowly
    assert sender.went_quickly(*calls) == [False, False]
    await sender.nothing_is_held()
    app.close()


async def test_celery_counts_calls_of_both_ways(fleet, sender):
    app = celery_app(fleet.settings)

    async def counted():
        [stats] = (await asyncio.to_thread(app.control.inspect(timeout=2).stats)).values()
        return stats["total"].get("give", 0)

    before = await counted()
    await sender.results([*sender.both(VALUE), *sender.both(KINDS["after a moment"])])
    assert await counted() == before + 4
    app.close()
