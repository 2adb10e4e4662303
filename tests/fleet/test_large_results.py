"""Large results and media outside a run: by handle, in batches, in an agent loop of one's own; on real workers."""

import base64
import hashlib
import re

import pytest
from fleets import HERE, asking
from surrounded_tools import PNG

from toolfleet.artifacts import PIECE_BYTES
from toolfleet.calls import Failed, FailureKind, Submitted
from toolfleet.errors import ArtifactNotFound, CallerError
from toolfleet.local.fleet import LocalFleet

LINES = 40_000
WHOLE = "\n".join(f"line {n}: {'needle' if n == LINES // 2 else 'hay'}" for n in range(LINES))


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["surrounded_tools", "fleet_tools"], pools={"io": 1}, environment=HERE, namespace="large-results"
    ) as running:
        yield running


async def test_the_result_of_a_single_call_is_read_whole_in_part_and_in_pieces(orchestrator):
    result = await orchestrator.call("lines", {"count": LINES}, tenant="acme")
    kept = await orchestrator.artifact(result.artifact, tenant="acme")
    assert (kept.media_type, kept.size_bytes) == ("text/plain; charset=utf-8", len(WHOLE))
    assert (await kept.read()).decode() == WHOLE
    assert (await kept.read(7, 5)).decode() == WHOLE[7:12]
    pieces = [piece async for piece in kept.stream()]
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert b"".join(pieces).decode() == WHOLE
    with pytest.raises(CallerError, match="-1"):
        await kept.read(-1)
    for other in ("", "other"):
        with pytest.raises(ArtifactNotFound):
            await orchestrator.artifact(result.artifact, tenant=other)


async def test_a_loop_of_ones_own_lets_its_model_read_on(orchestrator):
    [shown] = await orchestrator.execute(asking(("lines", {"count": LINES})), tools=["lines"], tenant="acme")
    artifact = re.search(r'artifact="([0-9a-f]{64})"', shown.content)[1]
    reads_on = asking(("read_result", {"artifact": artifact, "search": "NEEDLE"}), ("read_result", {"offset": 0}))
    # Whatever tools were named: what came back may always be too large.
    found, wrong = await orchestrator.execute(reads_on, tools=["lines"], tenant="acme")
    assert f"at {WHOLE.index('needle')}: " in found.content
    assert (wrong.is_error, "artifact" in wrong.content) == (True, True)
    [unknown] = await orchestrator.execute(asking(("read_result", {"artifact": artifact})), tenant="other")
    assert (unknown.is_error, "kept no longer" in unknown.content) == (True, True)


async def test_read_result_is_called_like_a_tool(orchestrator):
    result = await orchestrator.call("lines", {"count": LINES})
    page = await orchestrator.call("read_result", {"artifact": result.artifact, "limit": 11})
    assert page.content.startswith("line 0: hay\n[characters 0 to 11 of ")
    failed = await orchestrator.call("read_result", {"artifact": result.artifact}, tenant="other")
    assert (type(failed), failed.kind) == (Failed, FailureKind.ERROR)


async def test_media_that_are_kept_are_put_back_as_far_as_there_is_room(orchestrator):
    copies = 1000
    [shown] = await orchestrator.execute(asking(("drawn", {"copies": copies, "text": "look"})))
    assert shown.media[0].data == ""
    whole = await orchestrator.with_media(shown)
    assert base64.b64decode(whole.media[0].data) == PNG * copies
    assert whole.content == shown.content
    assert await orchestrator.with_media(shown, max_bytes=copies * len(PNG) - 1) == shown
    assert await orchestrator.with_media(shown, tenant="other") == shown
    small = await orchestrator.call("drawn", {})
    assert await orchestrator.with_media(small, max_bytes=0) == small
    failed = await orchestrator.call("fail", {"kind": "value"})
    assert await orchestrator.with_media(failed) == failed


async def test_a_slow_tools_picture_is_got_by_its_handle(orchestrator):
    submitted = await orchestrator.call("drawn", {"copies": 1000}, patience_s=0, tenant="acme")
    assert isinstance(submitted, Submitted)
    status = await orchestrator.task(submitted.handle, wait_s=20, tenant="acme")
    [part] = status.result.media
    assert part.artifact == hashlib.sha256(PNG * 1000).hexdigest()
    kept = await orchestrator.artifact(part.artifact, tenant="acme")
    assert (kept.media_type, kept.name, await kept.read()) == ("image/png", "chart.png", PNG * 1000)
