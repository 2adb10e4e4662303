"""An embedded server's memory allocator: found where it is installed, loaded by the server, and no condition of it."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
import redis

from toolfleet.local import allocator
from toolfleet.local.allocator import LOADED_FIRST, environment_with_allocator
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.server_keeper import LOG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is loaded first")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folders, which are all where a library may be."""
    made = [tmp_path / "system", tmp_path / "wheels"]
    for folder in made:
        folder.mkdir()
    monkeypatch.setattr(allocator, "_folders", lambda: made)
    monkeypatch.delenv(LOADED_FIRST, raising=False)
    return made


def test_the_system_s_comes_before_a_wheel_s(folders: list[Path]) -> None:
    system, wheels = (
        folder / name for folder, name in zip(folders, ("libmimalloc.so.2", "libjemalloc.so.2"), strict=True)
    )
    wheels.touch()
    assert environment_with_allocator() == {LOADED_FIRST: str(wheels)}
    system.touch()
    assert environment_with_allocator() == {LOADED_FIRST: str(system)}


def test_without_one_the_environment_stays_as_it_is(folders: list[Path]) -> None:
    assert environment_with_allocator() == {}


def test_what_somebody_has_loaded_first_stays(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    (folders[0] / "libjemalloc.so.2").touch()
    monkeypatch.setenv(LOADED_FIRST, "/opt/own.so")
    assert environment_with_allocator() == {}


def test_a_path_that_the_list_of_libraries_would_part_is_left_out(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parted = tmp_path / "with blank"
    parted.mkdir()
    (parted / "libjemalloc.so.2").touch()
    monkeypatch.setattr(allocator, "_folders", lambda: [parted])
    assert environment_with_allocator() == {}


def test_the_server_is_started_with_it_and_lives_without(folders: list[Path]) -> None:
    library = folders[0] / "libjemalloc.so.2"
    library.write_text("no library at all")
    with EmbeddedServer(temporary=True) as server, redis.Redis.from_url(server.url) as client:
        assert client.ping()
        said = (server.directory / LOG).read_text()
        assert said.count(f"'{library}' from {LOADED_FIRST} cannot be preloaded") == 1  # its keeper was not asked to


def test_one_that_is_installed_serves_while_the_file_is_written_anew() -> None:
    found = allocator.allocator()
    if not found:
        pytest.skip("this machine has none")
    with EmbeddedServer(temporary=True) as server, redis.Redis.from_url(server.url) as client:
        process = psutil.Process(client.info("server")["process_id"])
        assert any(Path(each.path) == found.resolve() for each in process.memory_maps())
        client.mset({f"key{number}": b"x" * 500 for number in range(10_000)})
        client.bgrewriteaof()
        while client.info("persistence")["aof_rewrite_in_progress"]:
            client.mset({f"key{number}": b"y" * 700 for number in range(10_000)})
        assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"
        assert client.dbsize() == 10_000
