"""Which Redis a library call means, on real servers: what is named, then what runs here, and never a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ports import free_port
from toolfleet.connections import connect
from toolfleet.errors import StoreUnreachable
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.finding import running_redis
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import read_settings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has set nothing, and has a data directory of their own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("TOOLFLEET_REDIS_URL", raising=False)
    return tmp_path


@pytest.fixture
def nowhere() -> str:
    return f"redis://127.0.0.1:{free_port()}/0"


async def test_an_orchestrator_that_is_told_nothing_joins_the_server_of_this_user() -> None:
    with EmbeddedServer() as server:
        async with Orchestrator() as fleet:
            assert fleet.settings.redis_url == server.url
            assert fleet.address == server.url.partition("?")[0]
            assert await fleet.runs() == []


async def test_the_server_stays_for_as_long_as_an_orchestrator_uses_it() -> None:
    server = EmbeddedServer().start()
    async with Orchestrator() as fleet:
        settings = fleet.settings
        server.stop()
        assert await fleet.runs() == []
    with connect(settings) as client, pytest.raises(StoreUnreachable):
        client.ping()


async def test_an_orchestrator_that_was_closed_looks_again(home: Path) -> None:
    orchestrator = Orchestrator()
    found = []
    for folder in ("first", "second"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_DATA_HOME", str(home / folder))
            with EmbeddedServer() as server:
                async with orchestrator:
                    found.append(orchestrator.settings.redis_url == server.url)
    assert found == [True, True]


def test_what_is_named_goes_before_what_runs(monkeypatch: pytest.MonkeyPatch, nowhere: str) -> None:
    with EmbeddedServer():
        with running_redis(read_settings(redis_url=nowhere)) as found:
            assert found.redis_url == nowhere
        monkeypatch.setenv("TOOLFLEET_REDIS_URL", nowhere)
        with running_redis(read_settings()) as found:
            assert found.redis_url == nowhere


def test_an_empty_variable_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLFLEET_REDIS_URL", "")
    with EmbeddedServer() as server, running_redis(read_settings()) as found:
        assert found.redis_url == server.url


def test_without_a_server_of_this_user_the_one_at_the_default_address_is_taken() -> None:
    with (
        EmbeddedServer(temporary=True, port=0) as other,
        running_redis(read_settings(), otherwise=other.url) as found,
        connect(found) as client,
    ):
        assert found.redis_url == other.url
        assert client.ping()


def test_where_nothing_runs_the_error_says_where_it_looked_and_what_to_do(home: Path, nowhere: str) -> None:
    with pytest.raises(StoreUnreachable) as raised, running_redis(read_settings(), otherwise=nowhere):
        pass
    for said in (str(home / "toolfleet"), nowhere, "`toolfleet up`", "TOOLFLEET_REDIS_URL", "redis_url="):
        assert said in str(raised.value)
    assert list(home.iterdir()) == [], "looking leaves nothing behind"


def test_the_other_settings_are_kept() -> None:
    with EmbeddedServer(), running_redis(read_settings(namespace="mine", patience_s=3)) as found:
        assert (found.namespace, found.patience_s, found.keys.workers()) == (
            "mine",
            3,
            read_settings(namespace="mine").keys.workers(),
        )
