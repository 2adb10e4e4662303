"""A server compresses what it was asked not to: replies are read, and never unpacked beyond their limit."""

import gzip
import tracemalloc
import zlib
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from toolfleet.messages import UserMessage
from toolfleet.orchestrator.errors import ModelRefused, ModelReplyInvalid, ModelUnreachable
from toolfleet.orchestrator.models import AnthropicMessages, OpenAIChat, reply

HELLO = [UserMessage(content="Who are you?")]
CHAT = b'{"choices": [{"message": {"content": "I am."}, "finish_reason": "stop"}]}'
CHAT_STREAM = b'data: {"choices": [{"delta": {"content": "I am."}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
MESSAGE = b'{"content": [{"type": "text", "text": "I am."}], "stop_reason": "end_turn"}'
GIGABYTES = 4


def deflated(body):
    return zlib.compress(body)


def bare_deflated(body):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def bomb():
    """Some megabytes that stand for gigabytes of zeros."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    mebibyte = bytes(1024 * 1024)
    begun = packer.compress(mebibyte) + packer.flush(zlib.Z_FULL_FLUSH)
    more = packer.compress(mebibyte) + packer.flush(zlib.Z_FULL_FLUSH)  # knows nothing of what came before
    return begun + more * (GIGABYTES * 1024 - 1) + packer.flush()


@pytest.fixture(scope="module")
def packed_gigabytes():
    packed = bomb()
    assert len(packed) < 8 * 1024 * 1024
    return packed


@asynccontextmanager
async def serving(body, encoding, media_type="application/json", status=200):
    async def answer(request):
        assert request.headers["accept-encoding"] == "identity"
        await request.read()
        headers = {"content-encoding": encoding, "content-type": media_type}
        return web.Response(body=body, headers=headers, status=status)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking(url, http, kind=OpenAIChat):
    model = kind("m", base_url=url, api_key="k", http=replace(http, attempts=1))
    try:
        yield model
    finally:
        await model.aclose()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", deflated),
        ("deflate", bare_deflated),
    ],
)
@pytest.mark.parametrize(
    ("kind", "body", "media_type"),
    [
        (OpenAIChat, CHAT, "Application/JSON"),
        (OpenAIChat, CHAT_STREAM, "Text/Event-Stream; charset=ISO-8859-1"),
        (AnthropicMessages, MESSAGE, "application/json;charset=utf-8"),
    ],
)
async def test_a_compressed_reply_is_read_whatever_the_case_of_its_headers(
    quick, kind, body, media_type, encoding, pack
):
    async with serving(pack(body), encoding, media_type) as url, asking(url, quick, kind) as model:
        assert (await reply(model, HELLO)).message.content == "I am."


@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_small_reply_that_stands_for_gigabytes_is_refused_at_the_limit(
    quick, packed_gigabytes, encoding, media_type
):
    body = packed_gigabytes if encoding == "gzip" else packed_gigabytes[10:-8]
    options = replace(quick, max_reply_bytes=1024 * 1024, timeout_s=60.0)
    async with serving(body, encoding, media_type) as url, asking(url, options) as model:
        tracemalloc.start()
        try:
            with pytest.raises(ModelReplyInvalid, match="larger than 1048576 bytes"):
                await reply(model, HELLO)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak_bytes < len(body) + 16 * 1024 * 1024  # the server of this test holds its body in the same process


async def test_a_complaint_that_stands_for_gigabytes_is_read_to_its_limit(quick, packed_gigabytes):
    async with serving(packed_gigabytes, "gzip", status=400) as url, asking(url, quick) as model:
        tracemalloc.start()
        try:
            with pytest.raises(ModelRefused, match="400"):
                await reply(model, HELLO)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak_bytes < len(packed_gigabytes) + 16 * 1024 * 1024


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
async def test_what_cannot_be_unpacked_within_a_limit_is_refused_by_name(quick, encoding):
    async with serving(b"anything", encoding) as url, asking(url, quick) as model:
        with pytest.raises(ModelReplyInvalid, match=f"compressed its answer with {encoding}"):
            await reply(model, HELLO)


async def test_what_is_not_compressed_as_it_says_is_no_reply(quick):
    async with serving(CHAT, "gzip") as url, asking(url, quick) as model:
        with pytest.raises(ModelReplyInvalid, match="is not compressed as it says"):
            await reply(model, HELLO)


async def test_a_compressed_reply_that_is_cut_off_is_asked_for_again(quick):
    packed = gzip.compress(CHAT)[:-12]
    async with serving(packed, "gzip") as url, asking(url, quick) as model:
        with pytest.raises(ModelUnreachable, match="ended in the middle"):
            await reply(model, HELLO)
