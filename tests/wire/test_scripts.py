"""The manifest of the scripts: what our own processes send to a server is what it says, name by name."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from pathlib import Path

import pytest
from fleets import asking
from post import Post

from tests.wire.sent_commands import KEYS, Unlike, check, listening, scripts_by_sha
from toolfleet import keys as keys_module
from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.connections import connect
from toolfleet.forged import TrueResult, replace_forged
from toolfleet.jobs import complete, request_cancel
from toolfleet.keys import Keys
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.scripts import CONTRACT, manifest
from toolfleet.streams import GROUP, RETURNED
from toolfleet.streams.holdings import Holdings
from toolfleet.streams.names import OFFERED

HERE = {"PYTHONPATH": str(Path(__file__).parent)}


def test_every_key_has_the_pattern_that_our_own_code_makes():
    keys = Keys("{namespace}")
    for name, said in KEYS.items():
        make = getattr(keys, name)
        assert said["pattern"] == make(*(f"{{{parameter}}}" for parameter in inspect.signature(make).parameters))
        assert set(said) == {"pattern", "type", "has", "ends"}


def test_every_constant_is_what_our_own_code_says():
    beginnings = {said["pattern"].removeprefix("{namespace}").partition("{")[0] for said in KEYS.values()}
    own = {
        "GROUP": GROUP,
        "RETURNED": RETURNED,
        "OFFERED": OFFERED,
        "RESULT_TTL_MS": str(keys_module.RESULT_TTL_S * 1000),
    }
    own |= {name: str(getattr(keys_module, name)) for name in ("REPLIES_MAX", "REPLIES_TTL_S")}
    for name, value in manifest()["constants"].items():
        assert value == own[name] if name in own else value in beginnings, name


def test_every_file_is_part_of_a_script_and_every_script_opens_with_what_it_does():
    folder = Path(str(CONTRACT)) / "scripts"
    named = set(re.findall(r'"([\w/]+\.lua)"', (folder.parent / "scripts.json").read_text()))
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.lua")} == named
    assert all((folder / name).read_text().startswith("-- ") for name in named)
    assert len(scripts_by_sha()) == len(manifest()["scripts"])


def test_a_script_that_is_not_run_as_the_manifest_says_is_found_out():
    sha = next(sha for sha, name in scripts_by_sha().items() if name == "keep_lane").encode()
    keys = [b"2", b"fleet:lane:x", b"fleet:lanes:x"]
    assert check([sha, *keys, b"x", b"consumer", b"1000"]) == "keep_lane"
    for wrong in ([b"x", b"consumer"], [b"x", b"consumer", b"soon"], [b"x", b"consumer", b"1000", b"more"]):
        with pytest.raises(Unlike):
            check([sha, *keys, *wrong])
    with pytest.raises(Unlike):
        check([sha, b"2", keys[2], keys[1], b"x", b"consumer", b"1000"])


async def everything(fleet: LocalFleet) -> None:
    """What brings a fleet to run each script."""
    post = Post(fleet.settings)
    calls = [("bounded", {"value": "x"}), ("asked", {"value": "y"}), ("later", {"value": "z"})]
    calls += [("large", {"characters": 5000}), ("asked", {"value": "y"}), ("start", {"value": "ends"})]
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        answers = [message.content for message in await orchestrator.execute(asking(*calls))]
    assert answers[:3] + answers[4:] == ["x", "y", "z", "y", "ends"]
    await post.write(b="no call")
    nobody = post.call("nobody", deadline_unix_s=time.time() + 1.2)
    started = [post.call("start", {"value": "waits"}) for _ in range(2)]
    for call in (nobody, *started):
        post.send(call)
    assert (await post.letter())["reason"] == b"a field is missing"
    await until_all(post, started)
    await request_cancel(post.client, fleet.settings, post.seal, started[0].call_id)
    await complete(post.client, fleet.settings, post.seal, started[1].call_id, Returned(content="done"))
    await replace(post)
    hand_back(fleet)
    owed = {call.call_id for call in (nobody, *started)}
    while owed:
        owed.discard((await post.result())[0])
    await post.aclose()


async def until_all(post, started):
    while await post.client.exists(*(post.keys.job(call.call_id) for call in started)) < len(started):
        await asyncio.sleep(0.02)  # the server tells nobody


async def replace(post):
    """A result that nobody has sealed gives way to a true one."""
    await post.client.set(post.keys.result("r.1.0"), "forged")
    failed = Failed(kind=FailureKind.ERROR, message="no")
    true = TrueResult("r.1.0", post.seal.close_result(failed, "r.1.0"), post.reply_to)
    assert await replace_forged(post.client, post.keys, post.seal, true) == 1


def hand_back(fleet):
    """A worker's word on what it holds: here nothing."""
    holdings = Holdings(fleet.settings.keys)
    holdings.parked.append((f"{fleet.settings.keys.queue('io', 3)}|1-1", True))
    with connect(fleet.settings) as client:
        holdings.flush(client)


async def test_X1_what_our_processes_send_is_what_the_manifest_says(settings):
    """All that a worker, an orchestrator and a callback do, as the server has heard it."""
    with (
        connect(settings) as client,
        listening(client) as heard,
        LocalFleet(
            ["contract_tools"],
            pools={"io": 1},
            redis_url=settings.redis_url,
            environment=HERE,
            namespace=settings.namespace,
            secret=settings.secret.get_secret_value(),
            lease_s=3,
            heartbeat_s=0.5,
            max_result_bytes=1024,
        ) as fleet,
    ):
        await everything(fleet)
    run = {name for sent in heard if (name := check(sent))}
    assert run == set(manifest()["scripts"])
