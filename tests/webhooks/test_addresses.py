"""Where webhooks may not go: refused when an endpoint is added, and again at each attempt, at the address itself."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.webhooks.receiver import Receiver, receiving
from tests.webhooks.test_delivery import answering, until
from toolfleet.orchestrator.errors import InvalidWebhook

LONG = "https://hooks.example.com/" + "x" * 100_000

PRIVATE = [
    "127.0.0.2",
    "localhost",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "2130706434",
    "0x7f.2",
    "255.255.255.255",
    "224.0.0.1",
    "168.63.129.16",
    "[::1]",
    "[::]",
    "[fe80::1]",
    "[fd00::1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
]


@pytest.mark.parametrize("host", PRIVATE)
@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_U11_a_private_address_is_refused_however_it_is_written(endpoints, host, scheme):
    # `localhost` has 127.0.0.1, which is allowed here, and ::1, which is not.
    endpoints._settings = endpoints._settings.model_copy(update={"webhook_networks": ""})
    with pytest.raises(InvalidWebhook, match="is not on the public internet"):
        await endpoints.add(f"{scheme}://{host}/hooks")
    assert await endpoints.all() == {}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://1.1.1.1/", "the URL must begin with https://"),
        ("https://ada:pw@1.1.1.1/", "must not hold a user name or password"),
        ("https://1.1.1.1/#part", "must not have a fragment"),
        ("ftp://1.1.1.1/", "is no URL that begins with https://"),
        ("https://", "is no URL that begins with https://"),
        ("hooks.example.com", "is no URL that begins with https://"),
        ("https://1.1.1.1:99999/", "is no URL"),
        ("https://[::1", "is no URL"),
        ("javascript:alert(1)", "is no URL that begins with https://"),
        ("https://1.1.1.1/\r\nx-evil: 1", "printable ASCII"),
        ("https://1.1.1.1/\x1b[2J", "printable ASCII"),
        ("https://1.1.1.1/ü", "printable ASCII"),
        ("https://no-such-host.invalid/", "the host no-such-host.invalid cannot be found"),
        (LONG, "the URL has 100026 characters: 2048 are allowed"),
        ("", "is no URL"),
    ],
)
async def test_what_is_no_url_for_webhooks_is_refused_in_one_line(endpoints, url, said):
    with pytest.raises(InvalidWebhook) as refused:
        await endpoints.add(url)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


async def test_a_url_is_taken_once_and_a_description_is_short(endpoints):
    endpoint, _ = await endpoints.add("https://1.1.1.1/hooks", description="d" * 200)
    with pytest.raises(InvalidWebhook, match=f"there is an endpoint with this URL already: {endpoint.endpoint_id}"):
        await endpoints.add("https://1.1.1.1/hooks")
    await endpoints.add("https://1.1.1.1/hooks", tenant="acme")
    with pytest.raises(InvalidWebhook, match="the description has 100000 characters"):
        await endpoints.add("https://1.1.1.1/other", description="d" * 100_000)


async def test_U11_a_name_that_leads_elsewhere_between_check_and_connection_changes_nothing(
    settings, endpoints, outbox, monkeypatch
):
    """The name server says 127.0.0.1, which is allowed here, and from the second question on 127.0.0.3."""
    asked = []
    really = socket.getaddrinfo

    def rebound(host, *args, **options):
        if host != "rebound.example":
            return really(host, *args, **options)
        asked.append(host)
        return really("127.0.0.1" if len(asked) <= 2 else "127.0.0.3", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    async with receiving(Receiver(status=503)) as receiver:
        inside = await asyncio.start_server(lambda *_: reached.set(), "127.0.0.3", receiver.port)
        reached = asyncio.Event()
        async with inside, answering(settings) as orchestrator:
            endpoint, _ = await endpoints.add(f"http://rebound.example:{receiver.port}/")  # the first question
            await asyncio.sleep(0.3)  # an orchestrator looks at endpoints now and then
            await orchestrator.run("?")
            second, first = (await until(lambda: two_of(outbox, endpoint.endpoint_id)))[-2:]
    assert (first.status, first.error) == (503, "it answered 503")
    assert second.error.startswith("rebound.example is not on the public internet")
    assert len(receiver.got) == 1
    assert receiver.got[0].headers["host"] == f"rebound.example:{receiver.port}"
    assert not reached.is_set()


async def two_of(outbox, endpoint_id):
    found = await outbox.attempts(endpoint_id, 100)
    return found if len(found) >= 2 else None


async def test_an_allowed_network_that_is_allowed_no_more_gets_nothing(settings, endpoints, receiver, outbox):
    endpoint, _ = await endpoints.add(receiver.url)
    async with answering(settings.model_copy(update={"webhook_networks": "10.0.0.0/8"})) as orchestrator:
        await orchestrator.run("?")
        [attempt, *_] = await until(lambda: outbox.attempts(endpoint.endpoint_id))
    assert "TOOLFLEET_WEBHOOK_NETWORKS" in attempt.error
    assert receiver.got == []
