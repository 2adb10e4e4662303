"""Ways to a server, of workers in other languages: what works for the rest of the fleet works here, or is refused."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from types import SimpleNamespace

import pytest
import trustme
from processes import until_announced

from toolfleet.connections import connect
from toolfleet.exit_status import ExitStatus
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.testing import FaultyServer

PASSWORD, QUOTED = "open/secret: 100%", "open%2Fsecret%3A%20100%25"
WAIT_S = 20


@pytest.fixture(scope="module")
def server():
    with FaultyServer() as running:
        yield running


@pytest.fixture(scope="module")
def place(server, language):
    """Where processes are started."""
    with LocalFleet(["fleet_tools"], pools={}, redis_url=server.url, namespace=language.POOL) as running:
        yield running


@pytest.fixture
def at(server, place):
    settings = place.settings.model_copy(update={"redis_url": server.url})
    with connect(settings) as admin:
        allowed = {"keys": ["*"], "channels": ["*"], "commands": ["+@all"]}
        admin.acl_setuser("somebody", enabled=True, passwords=[f"+{PASSWORD}"], **allowed)
    return server.port_url.removeprefix("redis://").rpartition("/")[0]


async def served(language, place, url, seen_at):
    """What a worker answers that reaches its server by `url`, and everybody else by `seen_at`."""
    settings = place.settings.model_copy(update={"redis_url": seen_at})
    worker = language.start(place, TOOLFLEET_REDIS_URL=url)
    try:
        await asyncio.to_thread(until_announced, SimpleNamespace(settings=settings), worker)
        async with Orchestrator(settings=settings) as orchestrator:
            return (await orchestrator.call("echo", {"value": "heard"})).content
    finally:
        worker.ask_to_stop()
        assert await asyncio.to_thread(worker.process.wait, WAIT_S) == 0, worker.log_tail()
        place.workers.remove(worker)


async def test_X2_a_user_a_password_and_a_database_are_given_first(language, place, server, at):
    url = f"redis://somebody:{QUOTED}@{at}/3"
    assert await served(language, place, url, server.url.replace("db=0", "db=3")) == "heard"
    by_socket = server.url.replace("unix://", f"unix://somebody:{QUOTED}@").replace("db=0", "db=4")
    assert await served(language, place, by_socket, server.url.replace("db=0", "db=4")) == "heard"


async def test_X2_tls_is_spoken_where_the_url_says_so_to_whom_its_authority_vouches_for(
    language, place, server, at, tmp_path
):
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))

    async def relay(reader, writer):
        inner, outer = await asyncio.open_connection("127.0.0.1", int(at.rpartition(":")[2]))
        await asyncio.gather(pump(reader, outer), pump(inner, writer))

    async def pump(reader, writer):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context) as listening:
        url = f"rediss://127.0.0.1:{listening.sockets[0].getsockname()[1]}/0?ssl_ca_certs={tmp_path}"
        assert await served(language, place, f"{url}/ca.pem", server.url) == "heard"
        mistaken = language.start(place, TOOLFLEET_REDIS_URL=f"{url}/other.pem")
        async with asyncio.timeout(WAIT_S):
            while "certificate" not in mistaken.log_tail():
                await asyncio.sleep(0.05)
        mistaken.kill()
        place.workers.remove(mistaken)


def test_X2_an_address_that_leads_nowhere_is_refused_without_its_password(language, place, at):
    wrong = {
        f"redis://somebody:no-such-word@{at}/0": "WRONGPASS",
        f"redis://{at}/9999": "out of range",
        f"redis://{at}/first": "names no database",
        f"sentinel://no-such-word@{at}/0": "redis://, rediss:// and unix:// are understood",
        f"rediss://{at}/0?ssl_cert_reqs=none": "ssl_cert_reqs",
        f"rediss://{at}/0?ssl_ca_certs=/none.pem": "/none.pem",
    }
    begun = {url: language.start(place, TOOLFLEET_REDIS_URL=url) for url in wrong}
    for url, worker in begun.items():
        assert worker.process.wait(WAIT_S) == ExitStatus.CONFIGURATION, worker.log_tail()
        assert wrong[url] in worker.log_tail()
        assert "no-such-word" not in worker.log_tail()
        place.workers.remove(worker)
