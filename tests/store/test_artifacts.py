"""Artifacts: kept once, read by those they were given to, and by nobody who made something up. On a real server."""

import asyncio
import json
import re

import pytest

from toolfleet.artifacts import Artifacts
from toolfleet.calls import FailureKind
from toolfleet.connections import connect_async
from toolfleet.errors import ArtifactNotFound

TEXT = "\n".join(f"line {n}: {'Needle' if n % 100 == 50 else 'hay'}" for n in range(20_000))


@pytest.fixture
async def client(settings):
    async with connect_async(settings) as client:
        yield client


@pytest.fixture
def artifacts(client, settings):
    return Artifacts(client, settings)


def asking(artifact, **arguments):
    return json.dumps({"artifact": artifact} | arguments)


async def test_R6_the_same_content_is_stored_once_for_all_runs(artifacts, client, settings):
    kept = {await artifacts.keep(TEXT.encode(), run_id=run_id) for run_id in ("a", "b")}
    assert len(kept) == 1
    assert [key async for key in client.scan_iter(settings.keys.artifact("*"))] == [
        settings.keys.artifact(kept.pop()).encode()
    ]


async def test_R6_only_the_run_that_was_given_it_reads_it(artifacts):
    artifact = await artifacts.keep(b"mine", run_id="a", media_type="image/png")
    found = await artifacts.fetch(artifact, run_id="a")
    assert (found.data, found.media_type) == (b"mine", "image/png")
    with pytest.raises(ArtifactNotFound):
        await artifacts.fetch(artifact, run_id="b")
    await artifacts.grant(artifact, run_id="b")
    assert (await artifacts.fetch(artifact, run_id="b")).data == b"mine"


async def test_R6_who_can_only_write_to_redis_gives_nobody_anything(artifacts, client, settings):
    keys = settings.keys
    artifact = await artifacts.keep(b"secret", run_id="a")
    grant = await client.get(keys.artifact_grant("a", artifact))
    await client.set(keys.artifact_grant("b", artifact), grant)
    with pytest.raises(ArtifactNotFound):
        await artifacts.fetch(artifact, run_id="b")
    await client.set(keys.artifact(artifact), b"another")
    with pytest.raises(ArtifactNotFound):
        await artifacts.fetch(artifact, run_id="a")


@pytest.mark.parametrize("made_up", ["", "x", "0" * 64, "../result", "*" * 64])
async def test_R6_an_id_that_was_made_up_is_answered_as_unknown(artifacts, made_up):
    failed = await artifacts.answer(asking(made_up), "a")
    assert failed.kind is FailureKind.ERROR
    assert "kept no longer" in failed.message


async def test_R6_what_is_looked_at_is_kept_for_as_long_again(artifacts, client, settings):
    artifact = await artifacts.keep(b"old", run_id="a")
    keys = [settings.keys.artifact(artifact), settings.keys.artifact_grant("a", artifact)]
    for key in keys:
        await client.expire(key, 10)
    await artifacts.fetch(artifact, run_id="a")
    assert min([await client.ttl(key) for key in keys]) > settings.keep_artifact_s - 60


async def test_R6_what_is_beyond_the_limit_is_not_kept(client, settings):
    artifacts = Artifacts(client, settings.model_copy(update={"max_artifact_bytes": 10}))
    assert await artifacts.keep(b"x" * 11, run_id="a") is None
    assert not [key async for key in client.scan_iter(settings.keys.artifact("*"))]


async def test_R6_a_model_pages_through_it(artifacts):
    artifact = await artifacts.keep(TEXT.encode(), run_id="a")
    first = await artifacts.answer(asking(artifact, limit=12), "a")
    assert first.content == f"line 0: hay\n\n[characters 0 to 12 of {len(TEXT)}; the next begin at offset=12]"


async def test_R6_a_model_searches_it_to_the_end(artifacts):
    artifact = await artifacts.keep(TEXT.encode(), run_id="a")
    places, offset = 0, 0
    while True:
        answer = (await artifacts.answer(asking(artifact, search="needle", offset=offset), "a")).content
        places += len(re.findall(r"^at \d+: ", answer, re.MULTILINE))
        if "no more]" in answer:
            break
        offset = int(answer.rpartition("offset=")[2].rstrip("]"))
    assert places == 200


@pytest.mark.parametrize(
    "wrong", [{"offset": -1}, {"limit": 0}, {"limit": 1_000_000}, {"search": "x" * 2000}, {"x": 1}]
)
async def test_R6_arguments_that_cannot_be_meant_are_refused(artifacts, wrong):
    failed = await artifacts.answer(asking("0" * 64, **wrong), "a")
    assert failed.kind is FailureKind.BAD_ARGUMENTS
    assert "read_result" in failed.message


async def test_R6_bytes_that_are_no_text_are_not_shown(artifacts):
    artifact = await artifacts.keep(b"\x89PNG\xff", run_id="a", media_type="image/png")
    failed = await artifacts.answer(asking(artifact), "a")
    assert failed.message == f"artifact {artifact} is image/png, 5 bytes, and no text to read"


async def test_R6_a_search_through_all_there_may_be_lets_others_have_their_turn(artifacts, settings):
    artifact = await artifacts.keep(b"x" * settings.max_artifact_bytes, run_id="a")
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    assert (await artifacts.answer(asking(artifact, search="needle"), "a")).content == "['needle' was not found]"
    other.cancel()
    assert turns > 50
