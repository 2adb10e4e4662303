"""What every test may use: one real server for the session, and settings that no other test shares."""

from __future__ import annotations

import gc
import secrets
import signal
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings as settings_of_hypothesis
from post import Post

from tests.cli.loaded import LOADED
from tests.counting import CountedTests
from tests.few_failed import FewFailed
from tests.longest_first import begin_elsewhere, longest_first
from tests.orphans import NoOrphans
from tests.shared_by_directory import NAME, SharedByDirectory
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.fleet import LocalFleet
from toolfleet.settings import Settings, new_secret

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As under nohup and in a script's background: child processes inherit it, and tests send them Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# By the clock on the wall, a busy machine makes any example too slow.
settings_of_hypothesis.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings_of_hypothesis.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SharedByDirectory(), NAME)
    if not hasattr(config, "workerinput"):  # one of xdist's workers, which sees a part
        counted, orphans = CountedTests(), NoOrphans()
        config.pluginmanager.register(counted, "counted-tests")
        config.pluginmanager.register(orphans, "no-orphans")
        config.pluginmanager.register(FewFailed(counted, orphans), "few-failed")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Nothing that is loaded goes away meanwhile: looking for garbage took a sixth of the time, in every process.

    Nor does it later: each look at all of it took a second, so what is there now is looked at no more.
    """
    begin_elsewhere(session.config)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after pytest's own order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = longest_first(items)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedServer]:
    """A real server on a Unix socket in a directory of its own; `redis_server.url` is where."""
    with EmbeddedServer(temporary=True) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def _loaded_command() -> Iterator[None]:
    """The process from which short commands are started ends with the tests."""
    yield
    LOADED.end()


@pytest.fixture
async def post(fleet: LocalFleet) -> AsyncIterator[Post]:
    """Who writes into the queues of a test's own `fleet` by hand, and reads what comes of it from here on."""
    async with Post(fleet.settings) as post:
        yield post


@pytest.fixture
def settings(redis_server: EmbeddedServer) -> Settings:
    """Settings on the session's server, in a namespace of this test alone."""
    return Settings(
        redis_url=redis_server.url,
        namespace=f"test-{secrets.token_hex(4)}",
        secret=new_secret(),
    )
