"""What is too large for a result, over HTTP: in parts, for its tenant alone, and never as a page of this origin."""

import hashlib
import random
import re
from contextlib import aclosing

import httpx
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from toolfleet.artifacts import PIECE_BYTES
from toolfleet.connections import connect_async
from toolfleet.orchestrator.doors.http.artifacts import disposition
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.doors.http.ranges import Unsatisfiable, part_of

SIZE_BYTES = 2 * PIECE_BYTES + 4711


async def exported(api, size_bytes=SIZE_BYTES, **given):
    """A document that a tool has returned, and where it is read."""
    answer = await api.client.post("/v1/tools/exported/call", json={"arguments": {"size_bytes": size_bytes, **given}})
    [part] = answer.json()["media"]
    assert part["data"] == ""
    return random.Random(size_bytes).randbytes(size_bytes), f"/v1/artifacts/{part['artifact']}"


@pytest.fixture
async def document(api):
    return (*await exported(api, name="a b.pdf"), api.client)


@pytest.fixture
async def key_of(api):
    """Makes keys of a tenant, as headers."""

    async def make(tenant, *scopes, **allowed):
        key, _ = await api.door.keyring.add(tenant=tenant, scopes=scopes or (Scope.RUN,), **allowed)
        return {"authorization": f"Bearer {key}"}

    return make


async def test_a_document_is_read_whole_and_its_head_alone(document):
    data, url, client = document
    whole = await client.get(url)
    assert (whole.status_code, whole.content) == (200, data)
    head = await client.head(url, headers={"range": "bytes=0-1"})
    assert (head.status_code, head.content) == (200, b"")
    for answer in (whole, head):
        assert answer.headers["content-type"] == "application/pdf"
        assert answer.headers["content-length"] == str(SIZE_BYTES)
        assert answer.headers["accept-ranges"] == "bytes"
        assert answer.headers["etag"] == f'"{hashlib.sha256(data).hexdigest()}"'
        assert answer.headers["content-disposition"] == "attachment; filename=\"a b.pdf\"; filename*=UTF-8''a%20b.pdf"


BYTES = st.integers(0, SIZE_BYTES + 10)


@given(first=st.none() | BYTES, last=st.none() | BYTES)
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_range_is_those_bytes(document, first, last):
    data, url, client = document
    answer = await client.get(url, headers={"range": f"bytes={first if first is not None else ''}-{last or ''}"})
    positions = range(SIZE_BYTES)
    if first is None:
        meant = None if not last else list(positions)[-last:]
    elif last and last < first:
        meant = None
    else:
        meant = [position for position in positions[first:] if not last or position <= last]
    if meant is None:  # a range that says nothing is ignored
        assert (answer.status_code, answer.content) == (200, data)
    elif not meant:
        assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{SIZE_BYTES}")
        assert answer.json()["type"] == "urn:toolfleet:problem:range-not-satisfiable"
    else:
        assert (answer.status_code, answer.content) == (206, data[meant[0] : meant[-1] + 1])
        assert answer.headers["content-range"] == f"bytes {meant[0]}-{meant[-1]}/{SIZE_BYTES}"


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-0", range(1)),
        ("Bytes = 0-0 ", range(1)),
        ("bytes= , 5-, ", range(5, 10)),
        ("bytes=0-99999999999999999999999999", range(10)),
        ("bytes=-99999999999999999999999999", range(10)),
        ("bytes=0003-04", range(3, 5)),
        *((ignored, None) for ignored in ("", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-4", "bytes=1-2,4-5")),
        *((ignored, None) for ignored in ("items=0-1", "bytes=0x0-1", "bytes=+1-2", "bytes=1--2")),
        ("bytes=\u0661-\u0662", None),
    ],
)
def test_a_range_is_read_as_rfc_9110_has_it_or_ignored(header, part):
    assert part_of(header, 10) == part


@pytest.mark.parametrize(("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-5", 0)])
def test_a_range_without_a_byte_is_told_as_such(header, size):
    with pytest.raises(Unsatisfiable):
        part_of(header, size)


async def test_whoever_has_it_already_is_told_so_and_a_part_of_another_one_is_not_given(document):
    data, url, client = document
    etag = (await client.head(url)).headers["etag"]
    for tags in (etag, f'"x", W/{etag}', "*"):
        for method in ("GET", "HEAD"):
            answer = await client.request(method, url, headers={"if-none-match": tags})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    part = {"range": "bytes=1-3"}
    assert (await client.get(url, headers={**part, "if-range": etag})).content == data[1:4]
    for other in ('"another"', f"W/{etag}", "Wed, 21 Oct 2026 07:28:00 GMT"):
        assert (await client.get(url, headers={**part, "if-range": other})).status_code == 200
    assert (await client.get(url, headers={"if-match": '"another"'})).status_code == 412
    assert (await client.get(url, headers={"if-match": etag})).status_code == 200


async def test_a_page_that_a_tool_returned_is_saved_and_runs_nothing_here(api):
    asked = {"arguments": {"text": "<script>alert(1)</script>", "characters": 100_000}}
    [part] = (await api.client.post("/v1/tools/page/call", json=asked)).json()["media"]
    answer = await api.client.get(f"/v1/artifacts/{part['artifact']}")
    assert answer.content.startswith(b"<script>")
    assert answer.headers["content-disposition"].startswith('attachment; filename="evil.html"')
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert {"default-src 'none'", "sandbox"} <= set(answer.headers["content-security-policy"].split("; "))


@pytest.mark.parametrize("media_type", ["text/html; a=b\r\nset-cookie: a=b", "text/html;\x00", 'image/png; q="☃"'])
async def test_a_media_type_that_is_none_is_just_bytes(api, media_type):
    data, url = await exported(api, 70_000, media_type=media_type, name='x"\r\nset-cookie: a=b')
    answer = await api.client.get(url)
    assert (answer.content, answer.headers["content-type"]) == (data, "application/octet-stream")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("name", ["", "..", "/", "\r\n", "a" * 1000, "\ud800", "con\u202etxt.exe", '";x="'])
def test_whatever_a_tool_calls_a_file_it_is_saved_under_a_name(name):
    assert re.fullmatch(
        r"attachment; filename=\"[A-Za-z0-9._ -]{1,200}\"; filename\*=UTF-8''[A-Za-z0-9._~%-]+", disposition(name)
    )


async def test_another_tenant_finds_nothing_and_needs_a_key_for_that(api, key_of):
    asked, acme = {"arguments": {"lines": 60_000}}, await key_of("acme")
    result = (await api.client.post("/v1/tools/logged/call", json=asked, headers=acme)).json()
    url = f"/v1/artifacts/{result['artifact']}"
    whole = await api.client.get(url, headers=await key_of("acme", Scope.PAYLOADS))
    assert (whole.status_code, whole.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert whole.text == "\n".join(f"line {n}" for n in range(60_000))
    for headers in (await key_of("other"), await key_of("acm"), {}):
        for method in ("GET", "HEAD"):
            assert (await api.client.request(method, url, headers=headers)).status_code == 404
    assert (await api.stranger.get(url)).status_code == 401


async def test_read_result_is_called_by_any_key_of_the_tenant(api, key_of):
    narrow = await key_of("acme", tools=("logged",))
    result = (
        await api.client.post("/v1/tools/logged/call", json={"arguments": {"lines": 60_000}}, headers=narrow)
    ).json()
    asked = {"arguments": {"artifact": result["artifact"], "search": "line 59999"}}
    found = await api.client.post("/v1/tools/read_result/call", json=asked, headers=narrow)
    assert "1 place shown, no more" in found.json()["content"]
    failed = await api.client.post("/v1/tools/read_result/call", json=asked, headers=await key_of("other"))
    assert (failed.json()["type"], failed.json()["kind"]) == ("failed", "error")


@pytest.mark.parametrize("made_up", ["x", "0" * 64, "..%2f..%2fresult", "%00", "é" * 64])
async def test_an_id_that_was_made_up_is_not_found(api, made_up):
    answer = await api.client.get(f"/v1/artifacts/{made_up}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_what_was_planted_in_redis_is_not_served(api, document):
    data, url, client = document
    settings, artifact = api.door.settings, url.rpartition("/")[2]
    async with aclosing(connect_async(settings)) as redis:
        key = settings.keys.artifact("", artifact)
        await redis.setrange(key, PIECE_BYTES, b"<script>")
        with pytest.raises(httpx.RemoteProtocolError):  # it breaks off before the piece that is none of ours
            await client.get(url)
        assert (await client.get(url, headers={"range": f"bytes=0-{PIECE_BYTES - 1}"})).content == data[:PIECE_BYTES]
        await redis.set(key, b"<script>")
        assert (await client.get(url)).status_code == 404
        planted = hashlib.sha256(b"<script>").hexdigest()
        await redis.set(settings.keys.artifact("", planted), b"<script>")
        await redis.set(settings.keys.artifact_grant("r", planted), b"0" * 64 + b'{"tenant":""}')
        await redis.zadd(settings.keys.artifact_runs("", planted), {"r": 9e12})
        assert (await client.get(f"/v1/artifacts/{planted}")).status_code == 404
        await redis.unlink(key, settings.keys.artifact_runs("", planted), settings.keys.artifact("", planted))
        await redis.unlink(settings.keys.artifact_grant("r", planted))


async def test_what_a_run_was_given_is_read_outside_it_and_goes_with_it(api):
    run_id = await api.begin('call logged {"lines": 50000}')
    run = await api.ended(run_id)
    url = f"/v1/artifacts/{run['calls'][0]['result']['artifact']}"
    assert (await api.client.get(url)).text.endswith("line 49999")
    assert (await api.client.delete(f"/v1/runs/{run_id}")).status_code == 204
    assert (await api.client.get(url)).status_code == 404
