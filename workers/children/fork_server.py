"""A process that forks the children of a pool: each is as its worker was before it had threads for calls.

A fork of the worker itself would take along whatever another thread is at, and half-read connections. As with the
fork server of `multiprocessing`, which can tell nobody what a child has died of, and leaves children behind that are
at work when their worker is killed: these end with it, whatever they do.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from celery import platforms

from toolfleet.logs import FactLog
from toolfleet.workers.tool import child_processes as family

log = FactLog("toolfleet.workers")

FORK: Final = b"F"
COLLECT: Final = b"C"

REQUEST: Final = struct.Struct("!cqd")
"""What is asked for; the slot of a child that is to be forked, or the process that is to be collected; within how many
seconds that may end by itself."""

LOOK_EVERY_S: Final = 0.005
"""How often it is looked whether a process has ended by itself."""

KILLED_WITHIN_S: Final = 1.0
"""How long a process that was killed may take to end: the system may be at what cannot be interrupted for it."""

REPLY: Final = struct.Struct("!q")
"""The process of the child, or with what it ended; of a fork that failed the error number, below zero."""

NOT_ENDED: Final = -(1 << 16)
"""A process was killed and is still there."""

Serve = Callable[[socket.socket, int], None]
"""What a child does, with its end of a pipe and its slot; it ends when that returns."""


class Forked(NamedTuple):
    """A child that was just born."""

    pid: int
    pipe: socket.socket
    """This process's end: it is closed when the child ends."""


class ForkServerLost(ConnectionError):
    """The fork server has ended, and all children with it."""


class ForkServer:
    """Forks and collects children. Any thread may ask; one after the other is answered."""

    def __init__(self, serve: Serve) -> None:
        """Fork the server. `serve` is what each child does."""
        self._asking = threading.Lock()
        self._control, theirs = socket.socketpair()
        self.life, its_life = socket.socketpair()
        """Can be read once the server has ended, and not before."""
        self.pid = os.fork()
        if self.pid == 0:
            self._control.close()
            self.life.close()
            _Server(theirs, its_life, serve).run()
        theirs.close()
        its_life.close()

    def fork(self, slot: int) -> Forked:
        """Fork a child. Raises OSError when the system has no room for one, ForkServerLost."""
        with self._asking, _lost_if_it_fails():
            self._control.sendall(REQUEST.pack(FORK, slot, 0.0))
            data, descriptors, _, _ = socket.recv_fds(self._control, REPLY.size, 1)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        pid = _number_in(data)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        if not descriptors:  # there is none left here; the child has nobody at the other end, and ends
            self.collect(pid)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return Forked(pid, socket.socket(fileno=descriptors[0]))

    def collect(self, pid: int, *, within_s: float = 0.0) -> int | None:
        """See a child to its end: it is killed if it lives longer than this, and no other is served before.

        Returns with what it has ended, below zero by a signal; None for one that was killed and is still there. Raises
        ForkServerLost.
        """
        with self._asking, _lost_if_it_fails():
            self._control.sendall(REQUEST.pack(COLLECT, pid, within_s))
            data = self._control.recv(REPLY.size)
        status = _number_in(data)
        return None if status == NOT_ENDED else status

    def close(self) -> None:
        """End the server, and kill the children that are still there."""
        self._control.close()
        self.life.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def _lost_if_it_fails() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ForkServerLost("the fork server has ended") from error


def _number_in(reply: bytes) -> int:
    if len(reply) < REPLY.size:
        raise ForkServerLost("the fork server has ended")
    return int(REPLY.unpack(reply)[0])


# --- in the server ----------------------------------------------------------------------------------------------------


class _Server:
    """What the server is at."""

    def __init__(self, control: socket.socket, life: socket.socket, serve: Serve) -> None:
        self._control = control
        self._life = life
        self._serve = serve
        self._children: set[int] = set()
        self._pid = os.getpid()

    def run(self) -> NoReturn:
        """Do what the worker asks for until that has ended, however it did."""
        try:
            signal.set_wakeup_fd(-1)
            # Its end is the worker's to say: Ctrl-C and a service's stop reach all processes.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
            _have_no_input()
            gc.freeze()
            while len(request := self._control.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
                what, number, within_s = REQUEST.unpack(request)
                if what == FORK:
                    self._fork(number)
                else:
                    status = _collected(number, within_s)
                    if status != NOT_ENDED:
                        self._children.discard(number)
                    self._control.sendall(REPLY.pack(status))
        except OSError:
            pass  # the worker has ended in the middle of a word
        finally:
            # Of all before the first one is killed: the others end by themselves meanwhile, and what they leave is
            # nobody's child any more.
            for pid, begun in [(pid, family.descendants(pid)) for pid in self._children]:
                _collected(pid)
                family.kill(begun)
            os._exit(0)

    def _fork(self, slot: int) -> None:
        try:
            pid, ours = self._born(slot)
        except OSError as error:
            self._control.sendall(REPLY.pack(-(error.errno or 1)))
            return
        with ours:
            self._children.add(pid)
            socket.send_fds(self._control, [REPLY.pack(pid)], [ours.fileno()])

    def _born(self, slot: int) -> tuple[int, socket.socket]:
        """Fork a child. Returns its process, and the worker's end of its pipe."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                raise
            if pid == 0:
                for each in (self._control, self._life, ours):
                    each.close()
                _be_child(self._pid, theirs, self._serve, slot)
        return pid, ours


def _be_child(server: int, pipe: socket.socket, serve: Serve, slot: int) -> NoReturn:
    status = 1
    try:
        _end_with(server)
        serve(pipe, slot)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException as error:  # nothing of a child may run on in the server's code
        log.error("child_failed", exc_info=error)
    finally:
        os._exit(status & 0xFF)


def _end_with(server: int) -> None:
    """Have the kernel kill this process when the server dies, where it can (Linux)."""
    platforms.set_pdeathsig("SIGKILL")
    if os.getppid() != server:
        os._exit(1)


def _have_no_input() -> None:
    """Let no tool read what is typed for the worker, or wait for it."""
    if sys.stdin is not None:  # else the descriptor may be anything
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)


def _collected(pid: int, within_s: float = 0.0) -> int:
    """See a child to its end, and the processes of its tool; return with what it ended, or NOT_ENDED."""
    begun = family.descendants(pid)
    try:
        status = _status_within(pid, within_s)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            status = _status_within(pid, KILLED_WITHIN_S)
    except ChildProcessError:
        return 0  # it was collected before
    finally:
        family.kill(begun)
    return NOT_ENDED if status is None else os.waitstatus_to_exitcode(status)


def _status_within(pid: int, within_s: float) -> int | None:
    """Return with what a child has ended once it has; None when it takes longer than this."""
    give_up_s = time.monotonic() + within_s
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= give_up_s:
            return None
        time.sleep(LOOK_EVERY_S)
