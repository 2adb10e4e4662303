"""Artifacts: kept once, read by those they were given to, and by nobody who made something up. On a real server."""

import asyncio
import hashlib
import json
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st
from pydantic import SecretStr

from toolfleet import read_result
from toolfleet.artifacts import PIECE_BYTES, Artifacts, OfRun, OfTenant
from toolfleet.calls import FailureKind
from toolfleet.errors import ArtifactNotFound

TEXT = "\n".join(f"line {n}: {'Needle' if n % 100 == 50 else 'hay'}" for n in range(20_000))


@pytest.fixture
def artifacts(client, settings):
    return Artifacts(client, settings)


@pytest.fixture
async def part_of(artifacts):
    data = random.Random(7).randbytes(2 * PIECE_BYTES + 4711)
    found = await artifacts.find(await artifacts.keep(data, run_id="a"), OfRun("a"))
    return data, found.read


def asking(artifact, **arguments):
    return json.dumps({"artifact": artifact} | arguments)


async def test_R6_the_same_content_is_stored_once_for_all_runs(artifacts, client, settings):
    kept = {await artifacts.keep(TEXT.encode(), run_id=run_id) for run_id in ("a", "b")}
    assert len(kept) == 1
    assert [key async for key in client.scan_iter(settings.keys.artifact("*", "*"))] == [
        settings.keys.artifact("", kept.pop()).encode()
    ]


async def test_R6_only_the_run_that_was_given_it_reads_it(artifacts):
    artifact = await artifacts.keep(b"mine", run_id="a", media_type="image/png", name="a.png")
    found = await artifacts.find(artifact, OfRun("a"))
    assert (await found.read(), found.media_type, found.name, found.size_bytes) == (b"mine", "image/png", "a.png", 4)
    with pytest.raises(ArtifactNotFound):
        await artifacts.find(artifact, OfRun("b"))


async def test_a_tenant_reads_what_any_of_its_runs_was_given_and_nothing_of_others(artifacts):
    artifact = await artifacts.keep(b"ours", run_id="a", tenant="acme")
    assert await (await artifacts.find(artifact, OfTenant("acme"))).read() == b"ours"
    for other in ("", "acme2", "acm", "*", "a:b"):
        with pytest.raises(ArtifactNotFound):
            await artifacts.find(artifact, OfTenant(other))
    # Who makes the same reads their own.
    await artifacts.keep(b"ours", run_id="z", tenant="other")
    assert await (await artifacts.find(artifact, OfTenant("other"))).read() == b"ours"


async def test_what_a_deleted_run_was_given_is_gone_unless_another_run_of_its_tenant_has_it(
    artifacts, client, settings
):
    both, only = [await artifacts.keep(data, run_id="a", tenant="acme") for data in (b"both", b"only")]
    await artifacts.keep(b"both", run_id="b", tenant="acme")
    await artifacts.forget("a")
    assert await (await artifacts.find(both, OfTenant("acme"))).read() == b"both"
    with pytest.raises(ArtifactNotFound):
        await artifacts.find(only, OfTenant("acme"))
    await artifacts.forget("b")
    left = [key async for key in client.scan_iter(f"{settings.keys.namespace}:artifact*")]
    assert left == []


async def test_a_run_that_was_deleted_is_given_nothing_any_more(artifacts, client, settings):
    artifact = await artifacts.keep(b"before", run_id="a")
    await client.set(settings.keys.deleted("a"), "1")
    assert await artifacts.keep(b"after", run_id="a") is None
    with pytest.raises(ArtifactNotFound):
        await artifacts.find(artifact, OfRun("a"))
    await artifacts.forget("a")
    assert [key async for key in client.scan_iter(f"{settings.keys.namespace}:artifact*")] == []


async def test_R6_who_can_only_write_to_redis_gives_nobody_anything(artifacts, client, settings):
    keys = settings.keys
    artifact = await artifacts.keep(b"secret", run_id="a", tenant="acme")
    await client.set(keys.artifact_grant("b", artifact), await client.get(keys.artifact_grant("a", artifact)))
    await client.set(keys.artifact("", artifact), b"secret")
    await client.zadd(keys.artifact_runs("", artifact), {"a": 9e12, "b": 9e12})
    for asker in (OfRun("b"), OfTenant("")):
        with pytest.raises(ArtifactNotFound):
            await artifacts.find(artifact, asker)
    await client.set(keys.artifact("acme", artifact), b"planted")
    with pytest.raises(ArtifactNotFound):
        await (await artifacts.find(artifact, OfRun("a"))).read()


async def test_an_artifact_that_nobody_sealed_is_none(artifacts, client, settings):
    keys, planted = settings.keys, b"<script>"
    artifact = hashlib.sha256(planted).hexdigest()
    forger = Artifacts(client, settings.model_copy(update={"secret": SecretStr("guessed")}))
    assert await forger.keep(planted, run_id="a") == artifact
    for asker in (OfRun("a"), OfTenant("")):
        with pytest.raises(ArtifactNotFound):
            await artifacts.find(artifact, asker)
    assert await client.exists(keys.artifact("", artifact))


async def test_a_piece_that_was_exchanged_is_noticed_when_it_is_read_and_the_others_are_read_all_the_same(
    artifacts, client, settings
):
    data = b"a" * PIECE_BYTES + b"b" * PIECE_BYTES + b"c"
    artifact = await artifacts.keep(data, run_id="a")
    await client.setrange(settings.keys.artifact("", artifact), PIECE_BYTES + 7, b"x")
    found = await artifacts.find(artifact, OfRun("a"))
    assert await found.read(0, PIECE_BYTES) == b"a" * PIECE_BYTES
    assert await found.read(2 * PIECE_BYTES) == b"c"
    with pytest.raises(ArtifactNotFound):
        await found.read(PIECE_BYTES, 1)


@given(offset=st.integers(0, 3 * PIECE_BYTES), size=st.none() | st.integers(0, 3 * PIECE_BYTES))
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_part_of_it_is_that_part(part_of, offset, size):
    data, read = part_of
    end = None if size is None else offset + size
    assert await read(offset, size) == data[offset:end]


@pytest.mark.parametrize("made_up", ["", "x", "0" * 64, "../result", "*" * 64])
async def test_R6_an_id_that_was_made_up_is_answered_as_unknown(artifacts, made_up):
    failed = await read_result.answer(artifacts, asking(made_up), OfRun("a"))
    assert failed.kind is FailureKind.ERROR
    assert "kept no longer" in failed.message


async def test_R6_what_is_looked_at_is_kept_for_as_long_again(artifacts, client, settings):
    artifact = await artifacts.keep(b"old", run_id="a")
    keys = settings.keys
    keys = [
        *(keys.artifact("", artifact), keys.artifact_grant("a", artifact)),
        *(keys.artifact_runs("", artifact), keys.artifacts_of("a")),
    ]
    for key in keys:
        await client.expire(key, 10)
    await artifacts.find(artifact, OfRun("a"))
    assert min([await client.ttl(key) for key in keys]) > settings.keep_artifact_s - 60


async def test_R6_what_is_beyond_the_limit_is_not_kept(client, settings):
    artifacts = Artifacts(client, settings.model_copy(update={"max_artifact_bytes": 10}))
    assert await artifacts.keep(b"x" * 11, run_id="a") is None
    assert not [key async for key in client.scan_iter(settings.keys.artifact("*", "*"))]


async def test_R6_a_model_pages_through_it(artifacts):
    artifact = await artifacts.keep(TEXT.encode(), run_id="a")
    first = await read_result.answer(artifacts, asking(artifact, limit=12), OfRun("a"))
    assert first.content == f"line 0: hay\n\n[characters 0 to 12 of {len(TEXT)}; the next begin at offset=12]"


async def test_R6_a_model_searches_it_to_the_end(artifacts):
    artifact = await artifacts.keep(TEXT.encode(), run_id="a")
    places, offset = 0, 0
    while True:
        answer = (
            await read_result.answer(artifacts, asking(artifact, search="needle", offset=offset), OfRun("a"))
        ).content
        places += len(re.findall(r"^at \d+: ", answer, re.MULTILINE))
        if "no more]" in answer:
            break
        offset = int(answer.rpartition("offset=")[2].rstrip("]"))
    assert places == 200


@pytest.mark.parametrize(
    "wrong", [{"offset": -1}, {"limit": 0}, {"limit": 1_000_000}, {"search": "x" * 2000}, {"x": 1}]
)
async def test_R6_arguments_that_cannot_be_meant_are_refused(artifacts, wrong):
    failed = await read_result.answer(artifacts, asking("0" * 64, **wrong), OfRun("a"))
    assert failed.kind is FailureKind.BAD_ARGUMENTS
    assert "read_result" in failed.message


async def test_R6_bytes_that_are_no_text_are_not_shown(artifacts):
    artifact = await artifacts.keep(b"\x89PNG\xff", run_id="a", media_type="image/png")
    failed = await read_result.answer(artifacts, asking(artifact), OfRun("a"))
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
    assert (
        await read_result.answer(artifacts, asking(artifact, search="needle"), OfRun("a"))
    ).content == "['needle' was not found]"
    other.cancel()
    assert turns > 50
