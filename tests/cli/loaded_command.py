"""The `toolfleet` command with its modules loaded: a program that becomes one command after the other, a fork for each.

To load them costs a command more than all that it does afterwards. Each is still a process of its own that runs the
command's `main` from its first line to the interpreter's end: with its words, variables, folder, session and streams.
A script that imports `toolfleet` is run likewise, as `python script.py` runs it, where its name is the first word. Told
on the socket that is standard input; `loaded.py` has the other side.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TextIO

TOOLFLEET: Final = str(Path(sys.executable).with_name("toolfleet"))
DESCRIPTORS: Final = 4
"""Three streams, and the socket on which the rest is asked and the end is told."""

ALSO_USED: Final = (
    "aiohttp",
    "httpx",
    "redis.asyncio",
    "rich.live",
    "toolfleet.local.fleet",
    "toolfleet.orchestrator.api",
    "toolfleet.orchestrator.doors.http.app",
    "toolfleet.orchestrator.models",
    "typer.rich_utils",
    "uvicorn",
    "uvloop",
)
"""What commands import in the midst of their work."""


def load() -> None:
    from toolfleet.orchestrator.doors.cli.lazy_group import PACKAGE  # part of what is loaded
    from toolfleet.orchestrator.doors.cli.main import COMMANDS

    for name in (*(f"{PACKAGE}.{name}" for name in COMMANDS), *ALSO_USED):
        import_module(name)
    assert threading.active_count() == 1  # a fork has none of the others, but their locks
    gc.collect()
    gc.freeze()


def until_it_is_a_command(requests: socket.socket) -> None:
    """Serve requests to their end; returns in a fork, which is the command that was asked for."""
    with selectors.DefaultSelector() as events:
        events.register(requests, selectors.EVENT_READ)
        while not (descriptors := forked(requests, events)):
            pass
    requests.detach()  # closed with all the others
    become(*descriptors)


def forked(requests: socket.socket, events: selectors.BaseSelector) -> list[int]:
    """What happens next; in a fork, the descriptors that it was given."""
    for key, _ in events.select():
        if key.fileobj is not requests:
            events.unregister(key.fileobj)
            tell_the_end(key.fd, *key.data)
            continue
        _, descriptors, *_ = socket.recv_fds(requests, 1, DESCRIPTORS)
        if not descriptors:  # whoever asks has ended
            sys.exit()
        if not (pid := os.fork()):
            return descriptors
        *streams, asker = descriptors
        for each in streams:
            os.close(each)
        events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, asker))
    return []


def tell_the_end(pidfd: int, pid: int, asker: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(pidfd)
    with socket.socket(fileno=asker) as told, suppress(OSError):  # of those who wait no more
        told.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def become(*descriptors: int) -> None:
    """Take on all that a new process would have been given."""
    *streams, asker = descriptors
    os.setsid()
    with socket.socket(fileno=asker) as told, told.makefile("rb") as file:
        asked = json.loads(file.readline())
        told.sendall(b"%d\n" % os.getpid())
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["variables"])
    words = asked["words"]
    sys.argv = words if is_script(words) else [TOOLFLEET, *words]
    sys.stdin, sys.stdout, sys.stderr = stream(0, "r"), stream(1, "w"), stream(2, "w")


def is_script(words: list[str]) -> bool:
    return bool(words) and words[0].endswith(".py")


def stream(number: int, mode: str) -> TextIO:
    """As the interpreter opens it when it begins."""
    is_error = number == 2
    return TextIOWrapper(
        open(number, f"{mode}b", closefd=False),  # until the process ends
        encoding="utf-8",
        errors="backslashreplace" if is_error else "strict",
        line_buffering=is_error or os.isatty(number),
    )


if __name__ == "__main__":
    sys.path[0] = str(Path(TOOLFLEET).parent)  # as the installed script has it
    from toolfleet.orchestrator.doors.cli import main  # `load` puts the module of this name there

    load()
    until_it_is_a_command(socket.socket(fileno=os.dup(0)))
    if is_script(sys.argv):
        sys.path[0] = str(Path.cwd())
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        main()
