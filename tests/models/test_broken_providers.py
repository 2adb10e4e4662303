import asyncio
import socket
import time
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from toolfleet.messages import RequestedCall, UserMessage
from toolfleet.orchestrator.errors import ModelRefused, ModelReplyInvalid, ModelUnreachable
from toolfleet.orchestrator.models import (
    REHEARSAL_MODEL,
    CallComplete,
    FallbackModel,
    HttpOptions,
    OpenAIChat,
    RehearsalServer,
    Restarted,
    TextDelta,
    reply,
)
from toolfleet.orchestrator.models.rehearsal import CutStream, Drip, ErrorInStream, ErrorStatus, Garbage, Hang

HELLO = [UserMessage(content="Who are you?")]
TWO_CALLS = [UserMessage(content='call add {"a": 1} and call add {"a": 2}')]
BUSY = ErrorStatus(429, "too many requests", retry_after="0", type="rate_limit_error")


@pytest.fixture
def ask(quick, events_of):
    """One conversation with a rehearsal server that has these faults: its events, and how often it was asked."""

    async def ask(faults, messages=HELLO, *, http=quick, stream=True, api_key="rehearsal", model=REHEARSAL_MODEL):
        async with RehearsalServer(faults=faults) as server:
            client = OpenAIChat(model, base_url=server.base_url, api_key=api_key, stream=stream, http=http)
            try:
                return await events_of(client, messages), server.request_count
            finally:
                await client.aclose()

    return ask


async def test_a_busy_server_is_asked_again(ask):
    events, asked = await ask([BUSY, BUSY])
    assert asked == 3
    assert "rehearsal model" in events[-1].message.content


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 503, 529])
async def test_a_status_that_may_pass_is_asked_again(ask, code):
    _, asked = await ask([ErrorStatus(code)])
    assert asked == 2


async def test_retry_after_in_seconds_is_kept(ask):
    began = time.monotonic()
    await ask([replace(BUSY, retry_after="1")])
    assert 1.0 <= time.monotonic() - began < 3


async def test_retry_after_as_a_date_is_kept(ask):
    began = time.monotonic()
    moment = datetime.now(UTC) + timedelta(seconds=2)
    await ask([replace(BUSY, retry_after=format_datetime(moment, usegmt=True))])
    assert time.monotonic() - began >= 0.9  # the date has no fraction of a second


async def test_a_server_that_asks_for_too_much_patience_is_given_up_at_once(ask):
    with pytest.raises(ModelUnreachable, match="429"):
        await ask([replace(BUSY, retry_after="3600")])


@pytest.mark.parametrize(
    "base_url",
    ["localhost:11434/v1", "ftp://127.0.0.1/v1", "not-a-url", "http://", "http://127.0.0.1:99999/v1", "//x/v1"],
)
async def test_an_address_that_is_none_of_http_is_refused_at_once(events_of, quick, base_url):
    client = OpenAIChat("m", base_url=base_url, api_key="k", http=replace(quick, first_wait_s=60.0, max_wait_s=60.0))
    try:
        with pytest.raises(ModelRefused, match=r"is not an http\(s\) URL: correct base_url"):
            await events_of(client, HELLO)
    finally:
        await client.aclose()


async def test_a_proxy_that_is_none_is_not_blamed_on_the_address(events_of, quick, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    client = OpenAIChat("m", base_url="http://example.invalid/v1", api_key="k", http=replace(quick, attempts=1))
    try:
        with pytest.raises(ModelUnreachable, match="proxy:3128"):
            await events_of(client, HELLO)
    finally:
        await client.aclose()


@pytest.fixture
async def proxy(monkeypatch):
    """A server that answers for any host in plain HTTP, and the environment names it as the proxy; its requests."""
    seen: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "through a proxy"}}
        return web.json_response({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://clerk:of-the-proxy@127.0.0.1:{runner.addresses[0][1]}")
    yield seen
    await runner.cleanup()


async def ask_through_a_proxy(events_of, quick, base_url):
    client = OpenAIChat("m", base_url=base_url, api_key="k", stream=False, http=replace(quick, attempts=1))
    try:
        return (await events_of(client, HELLO))[-1].message.content
    finally:
        await client.aclose()


async def test_a_provider_is_asked_through_the_proxy_of_the_environment_with_its_key_and_the_proxys_password(
    events_of, quick, proxy, monkeypatch, tmp_path
):
    # For other programs: what it has of the provider's host is no key.
    netrc = tmp_path / "netrc"
    netrc.write_text("machine models.example login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert await ask_through_a_proxy(events_of, quick, "http://models.example/v1") == "through a proxy"
    [request] = proxy
    assert request.host == "models.example"
    assert request.headers["authorization"] == "Bearer k"
    assert request.headers["proxy-authorization"] == f"Basic {b64encode(b'clerk:of-the-proxy').decode()}"


async def test_what_the_environment_excepts_is_asked_without_the_proxy(events_of, quick, proxy, monkeypatch):
    monkeypatch.setenv("no_proxy", "models.invalid")
    with pytest.raises(ModelUnreachable, match=r"models\.invalid"):
        await ask_through_a_proxy(events_of, quick, "http://models.invalid/v1")
    assert proxy == []


async def test_a_user_in_the_address_beside_a_key_is_refused_in_words_without_the_password(events_of, quick):
    with pytest.raises(ModelRefused, match="a user in base_url beside the key") as refused:
        await ask_through_a_proxy(events_of, quick, "http://somebody:hidden@models.invalid/v1")
    assert "hidden" not in str(refused.value)


async def test_a_reply_that_is_cut_in_the_middle_is_no_bad_request(ask, quick):
    with pytest.raises(ModelUnreachable, match="payload is not completed"):
        await ask([CutStream(after_chunks=3)], http=replace(quick, attempts=1))


async def test_a_silent_server_is_said_to_be_silent(ask, quick):
    with pytest.raises(ModelUnreachable, match="Timeout on reading"):
        await ask([Hang()], http=replace(quick, attempts=1, silence_s=0.2))


async def test_attempts_run_out(ask, quick):
    with pytest.raises(ModelUnreachable, match=r"503 .*told to fail.*asked 3 times"):
        await ask([ErrorStatus(503)] * 9, http=replace(quick, attempts=3))


async def test_time_for_further_attempts_runs_out(ask, quick):
    with pytest.raises(ModelUnreachable, match="503"):
        await ask([ErrorStatus(503)], http=replace(quick, retry_for_s=0.001))


async def test_an_exhausted_quota_is_not_asked_again(ask):
    with pytest.raises(ModelRefused, match="quota"):
        await ask([ErrorStatus(429, "You exceeded your current quota", type="insufficient_quota")])


async def test_a_wrong_key_is_refused_by_name_and_never_repeated(ask):
    with pytest.raises(ModelRefused, match="OPENAI_API_KEY") as refused:
        await ask([], api_key="sk-very-secret")
    assert "Incorrect API key provided: Bearer ***" in str(refused.value)
    assert "sk-very-secret" not in str(refused.value)


async def test_an_unknown_model_is_refused_with_the_servers_words(ask):
    with pytest.raises(ModelRefused, match=r"'gpt-0' does not exist.*OPENAI_MODEL"):
        await ask([], model="gpt-0")


async def test_a_page_instead_of_a_reply_is_invalid(ask):
    with pytest.raises(ModelReplyInvalid, match="text/html"):
        await ask([Garbage()])


@pytest.mark.parametrize("body", ["", "{}", "[]", "not json", '{"choices": []}', '{"choices": [{"message": 5}]}'])
async def test_json_that_is_no_reply_is_invalid(ask, body):
    with pytest.raises(ModelReplyInvalid):
        await ask([Garbage(body, "application/json")], stream=False)


async def test_a_stream_that_is_garbage_again_and_again_is_given_up(ask, quick):
    garbage = Garbage("data: {broken\n\n", "text/event-stream")
    with pytest.raises(ModelUnreachable, match=r"no usable ChatCompletion.*asked 3 times"):
        await ask([garbage] * 9, http=replace(quick, attempts=3))


async def test_a_connection_that_is_reset_again_and_again_is_given_up(ask, quick):
    with pytest.raises(ModelUnreachable, match="cannot be reached"):
        await ask([CutStream(0)] * 2, http=replace(quick, attempts=2))


async def test_a_stream_cut_in_its_text_begins_anew(ask):
    events, asked = await ask([CutStream(after_chunks=3)])
    restart = events.index(Restarted(attempt=2))
    assert all(isinstance(event, TextDelta) for event in events[:restart])
    assert restart > 0
    shown = "".join(event.text for event in events[restart:] if isinstance(event, TextDelta))
    assert shown == events[-1].message.content
    assert asked == 2


async def test_a_stream_cut_before_anything_was_shown_begins_anew_in_silence(ask):
    events, asked = await ask([CutStream(after_chunks=1)], TWO_CALLS)
    assert not any(isinstance(event, Restarted) for event in events)
    assert [event.index for event in events if isinstance(event, CallComplete)] == [0, 1]
    assert asked == 2


@pytest.mark.parametrize("fault", [CutStream(4), ErrorInStream(4), Hang(4)], ids=repr)
async def test_a_stream_broken_after_a_call_keeps_that_call_and_asks_no_more(ask, quick, fault):
    events, asked = await ask([fault], TWO_CALLS, http=replace(quick, silence_s=0.3))
    completed = [event.call for event in events if isinstance(event, CallComplete)]
    assert len(completed) == 1
    assert events[-1].message.tool_calls == tuple(completed)
    assert events[-1].finish_reason == "interrupted"
    assert asked == 1


async def test_a_connection_lost_after_the_replys_end_is_no_loss(ask):
    events, asked = await ask([CutStream(after_chunks=1_000)], TWO_CALLS)
    assert len(events[-1].message.tool_calls) == 2
    assert events[-1].finish_reason == "tool_calls"
    assert asked == 1


async def test_an_error_that_may_pass_within_a_stream_is_asked_again(ask):
    events, asked = await ask([ErrorInStream(2, type="server_error")])
    assert asked == 2
    assert "rehearsal model" in events[-1].message.content


async def test_a_refusal_within_a_stream_is_not_asked_again(ask):
    with pytest.raises(ModelRefused, match="context too long"):
        await ask([ErrorInStream(1, "context too long", type="invalid_request_error")])


async def test_a_server_that_says_nothing_is_given_up(ask, quick):
    silent = replace(quick, silence_s=0.2, attempts=2)
    with pytest.raises(ModelUnreachable, match="asked 2 times"):
        await ask([Hang(), Hang()], http=silent)


async def test_a_reply_that_takes_too_long_in_all_is_given_up(ask, quick):
    with pytest.raises(ModelUnreachable, match=r"longer than 0\.3 s"):
        await ask([Hang(after_chunks=1)], http=replace(quick, timeout_s=0.3, attempts=1))


async def test_a_reply_that_drips_for_ever_ends_at_its_deadline(ask, quick):
    options = replace(quick, timeout_s=0.5, silence_s=0.3, attempts=1)
    with pytest.raises(ModelUnreachable, match=r"longer than 0\.5 s"):
        await ask([Drip(pause_s=0.05)], http=options)


async def test_a_reply_that_is_too_large_is_refused_before_it_is_read(ask, quick):
    huge = Garbage("x" * 200_000, "text/event-stream")
    with pytest.raises(ModelReplyInvalid, match="max_reply_bytes"):
        await ask([huge], http=replace(quick, max_reply_bytes=100_000))


async def test_a_port_where_nobody_listens_is_unreachable(quick):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        model = OpenAIChat(
            "m", base_url=f"http://127.0.0.1:{unused.getsockname()[1]}/v1", http=replace(quick, attempts=2)
        )
        with pytest.raises(ModelUnreachable, match="asked 2 times"):
            await reply(model, HELLO)
        await model.aclose()


async def test_a_base_url_that_is_none_is_refused():
    model = OpenAIChat("m", base_url="models.example/v1")
    with pytest.raises(ModelRefused, match="base_url"):
        await reply(model, HELLO)
    await model.aclose()


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="first_wait_s"):
        HttpOptions(first_wait_s=5, max_wait_s=1)


# --- below HTTP -----------------------------------------------------------------------------------------------------

STREAM_BEGINS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE_BEGINS = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"
REFUSAL_BEGINS = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 1000\r\n\r\n"


@pytest.fixture
async def broken_server(quick):
    """Opens a server that sends these bytes, then one byte for ever if it is given one; and a model that asks it."""
    closing, answering = [], []

    async def broken_server(said, drip=b"", **options):
        async def answer(reader, writer):
            answering.append(asyncio.current_task())
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(said)
            with suppress(ConnectionError):
                while drip:
                    writer.write(drip)
                    await writer.drain()
                    await asyncio.sleep(0.02)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

        asked = []
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        model = OpenAIChat("m", base_url=base_url, http=replace(quick, attempts=2, **options))
        closing.append((server, model))
        return model, asked

    yield broken_server
    for server, model in closing:
        await model.aclose()
        server.close()
        await server.wait_closed()
    await asyncio.wait(answering)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        STREAM_BEGINS + b"9\r\ndata",
        STREAM_BEGINS + b"zz\r\n",
        PIECE_BEGINS,
        REFUSAL_BEGINS,
    ],
)
async def test_a_connection_that_breaks_anywhere_is_asked_again_and_told_in_one_line(broken_server, said):
    model, asked = await broken_server(said)
    with pytest.raises(ModelUnreachable, match="asked 2 times") as failure:
        await reply(model, HELLO)
    assert len(asked) == 2
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 200 OK\r\nx: ", PIECE_BEGINS, REFUSAL_BEGINS], ids=["head", "body", "refusal"]
)
async def test_whatever_drips_ends_at_the_deadline(broken_server, said):
    model, asked = await broken_server(said, b" ", timeout_s=0.2)
    with pytest.raises(ModelUnreachable, match=r"longer than 0\.2 s \(asked 2 times\)"):
        await reply(model, HELLO)
    assert len(asked) == 2


# --- fallback -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def two_servers(quick):
    opened = []

    async def open_two(first_faults, second_faults=()):
        models = []
        for faults in (first_faults, second_faults):
            server = await RehearsalServer(faults=faults).__aenter__()
            http = replace(quick, attempts=1)
            models.append(OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal", http=http))
            opened.append(server)
        opened.append(FallbackModel(models))
        return opened[-1], opened[-3:-1]

    yield open_two
    await opened[-1].aclose()
    for server in opened[:-1]:
        await server.__aexit__(None, None, None)


async def test_the_next_model_answers_when_the_first_fails(two_servers, events_of):
    model, (_, second) = await two_servers([ErrorStatus(503)])
    events = await events_of(model, HELLO)
    assert "rehearsal model" in events[-1].message.content
    assert second.request_count == 1


async def test_the_next_model_begins_anew_what_the_first_had_begun(two_servers, events_of):
    model, _ = await two_servers([CutStream(3)])
    events = await events_of(model, HELLO)
    assert Restarted(attempt=2) in events


async def test_a_model_that_handed_out_a_call_is_not_replaced(two_servers, events_of):
    model, (_, second) = await two_servers([CutStream(4)])
    events = await events_of(model, TWO_CALLS)
    assert events[-1].finish_reason == "interrupted"
    assert second.request_count == 0


async def test_when_all_models_fail_every_reason_is_told(two_servers):
    model, _ = await two_servers(
        [ErrorStatus(503)], [ErrorStatus(400, "no such parameter", type="invalid_request_error")]
    )
    with pytest.raises(ModelUnreachable, match=r"503.*no such parameter"):
        await reply(model, HELLO)


async def test_when_all_models_refuse_the_request_is_refused(two_servers):
    model, _ = await two_servers([ErrorStatus(400)], [ErrorStatus(422)])
    with pytest.raises(ModelRefused):
        await reply(model, HELLO)


async def test_a_model_of_any_kind_that_handed_out_a_call_is_not_replaced(events_of):
    class Faithless:
        """Breaks off after a call, which the models here never do."""

        name = "faithless"

        async def stream(self, messages, tools, *, extra_body=None):
            yield CallComplete(0, RequestedCall(id="c", name="a", arguments="{}"))
            raise ModelUnreachable("gone")

    async with RehearsalServer() as server:
        rehearsal = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
        with pytest.raises(ModelUnreachable, match="gone"):
            await events_of(FallbackModel([Faithless(), rehearsal]), HELLO)
        await rehearsal.aclose()
        assert server.request_count == 0


async def test_a_conversation_of_megabytes_is_sent_in_pieces_and_answered():
    async with RehearsalServer() as server:
        model = OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")
        try:
            await reply(model, [UserMessage(content="x" * 3_000_000)])
        finally:
            await model.aclose()
        [asked] = server.requests
    assert len(asked["messages"][0]["content"]) == 3_000_000
