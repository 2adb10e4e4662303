"""Starts `toolfleet …` in processes that have read its modules already: each is forked from this one.

Reading them takes most of a short command's processor time. What runs then is the command's own `main`, to the end of
the interpreter, in a process with a folder, an environment and streams of its own. `tests.cli.forked` asks for them.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import selectors
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

COMMANDS = "toolfleet.orchestrator.doors.cli"
TOOLFLEET = str(Path(sys.executable).with_name("toolfleet"))
LONGEST = 1 << 20
HIGHEST_FILE = 1024
ALSO_READ = ("redis.asyncio", "rich.markdown", "rich.live", "rich.table", "toolfleet.local.fleet")
"""What commands read when they come to it."""


def read_modules() -> None:
    for module in pkgutil.iter_modules(import_module(COMMANDS).__path__):
        if module.name != "__main__":
            import_module(f"{COMMANDS}.{module.name}")
    for name in ALSO_READ:
        import_module(name)
    gc.collect()
    gc.freeze()  # what is shared stays shared


def next_command(door: socket.socket) -> dict[str, Any]:
    """Serve until asked for a command, and return what was asked for, in its own process; never where nobody asks."""
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data:
                    selector.unregister(key.fd)
                    tell_end(key.fd, *key.data)
                    continue
                text, files, _, _ = socket.recv_fds(door, LONGEST, 4)
                if not text:
                    sys.exit()
                assert threading.active_count() == 1, threading.enumerate()
                if not (pid := os.fork()):
                    return {**json.loads(text), "files": files}
                *streams, status = files
                for file in streams:
                    os.close(file)
                asker = socket.socket(fileno=status)
                asker.send(str(pid).encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, asker))


def tell_end(process: int, pid: int, asker: socket.socket) -> None:
    os.close(process)
    _, status = os.waitpid(pid, 0)
    with asker, suppress(OSError):  # who asked may have gone
        asker.send(str(status).encode())


def become(asked: dict[str, Any]) -> None:
    """Be the process that `exec` would have made of this one."""
    for stream, file in enumerate(asked["files"][:3]):
        os.dup2(file, stream)
    os.closerange(3, HIGHEST_FILE)
    os.chdir(asked["folder"])
    if asked["in_new_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = [TOOLFLEET, *asked["words"]]
    sys.path[:1] = [str(Path(TOOLFLEET).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    for file, name in enumerate(("stdin", "stdout", "stderr")):
        past, mode, buffering = getattr(sys, name), "w" if file else "r", 1 if name == "stderr" else -1
        stream = open(file, mode, buffering, past.encoding, past.errors, closefd=False)  # noqa: SIM115  # to its end
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    main = import_module(COMMANDS).main  # which is its submodule of this name once that is read
    read_modules()
    become(next_command(socket.socket(fileno=0)))
    sys.exit(main())
