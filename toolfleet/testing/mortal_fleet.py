"""A local fleet whose workers can be killed, frozen, or born with a fate. Knows processes, nothing of what they run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import psutil
import redis

from toolfleet.local import fleet as local
from toolfleet.local.worker_process import WorkerProcess
from toolfleet.points import Point
from toolfleet.testing.fates import kill_at

INSTRUMENTS: Final = "toolfleet.testing.instruments"
WITHIN_S: Final = 60.0
POLL_S: Final = 0.02


class MortalFleet(local.LocalFleet):
    """As `toolfleet.local.fleet.LocalFleet`, for tests of what happens when a worker is lost.

    `workers` holds those that were not killed here. Use a short lease: `MortalFleet([...], lease_s=3)`.
    """

    def alive(self, pool: str | None = None) -> list[WorkerProcess]:
        """Return the workers of a pool, or of all, whose process runs; a frozen one runs too."""
        return [worker for worker in self.workers if worker.is_running and pool in {None, worker.pool}]

    def kill_worker(
        self, pool: str = "io", *, at: Point | str | None = None, nth: int = 1, matching: str = "*"
    ) -> WorkerProcess:
        """Kill -9 a worker of a pool: the longest-lived one now, or, with `at`, a new one that will die there.

        The new one shares its pool's calls and dies the `nth` time that it reaches that point with a call id like
        `matching`; on prefork it is the child process that dies, but for a common call's `settled`. `wait_until_gone`
        waits for a worker.
        """
        if at is not None:
            return self.start_fated(pool, kill_at(at, nth, matching))
        worker = self.alive(pool)[0]
        self.kill(worker)
        return worker

    def start_fated(self, pool: str, *fates: Mapping[str, str]) -> WorkerProcess:
        """Start a worker with fates: `kill_at`, `stop_at`, `clock_offset`, or any other environment."""
        environment = {name: value for fate in fates for name, value in fate.items()}
        return self.start_worker(pool, "--instrument", INSTRUMENTS, environment=environment)

    def kill(self, worker: WorkerProcess) -> None:
        """Kill -9 the main process only. Its companion notices and gives the calls back at once."""
        worker.process.kill()
        worker.process.wait(WITHIN_S)
        self._forget(worker)

    def lose_machine(self, worker: WorkerProcess) -> None:
        """Kill -9 the worker and everything it started, companion first: only the lapse of its lease tells."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(worker.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.kill(worker)

    def kill_child(self, worker: WorkerProcess, choose: Callable[[list[int]], int] = min) -> int | None:
        """Kill -9 one of the processes in which a prefork worker runs its tools; its pid, None if there is none."""
        children = {child.pid: child for child in tool_processes(worker)}
        if not children:
            return None
        pid = choose(sorted(children))
        with suppress(psutil.NoSuchProcess):
            children[pid].kill()
        return pid

    def freeze(self, worker: WorkerProcess) -> None:
        """SIGSTOP: alive for the kernel, lost for everybody else."""
        worker.process.send_signal(signal.SIGSTOP)

    def thaw(self, worker: WorkerProcess) -> None:
        """SIGCONT. It goes on where it was, and thinks that nothing has happened."""
        worker.process.send_signal(signal.SIGCONT)

    def wait_until_gone(self, worker: WorkerProcess, timeout_s: float = WITHIN_S) -> None:
        """Return when a worker's process has ended. Raises subprocess.TimeoutExpired."""
        worker.process.wait(timeout_s)
        self._forget(worker)

    def wait_until_frozen(self, worker: WorkerProcess, timeout_s: float = WITHIN_S) -> None:
        """Return when a worker has stopped itself. Raises TimeoutError."""
        give_up = time.monotonic() + timeout_s
        while psutil.Process(worker.pid).status() != psutil.STATUS_STOPPED:
            if time.monotonic() > give_up:
                raise TimeoutError(f"worker {worker.name} did not stop within {timeout_s:g} s")
            time.sleep(POLL_S)

    def wait_until_ready(self, timeout_s: float = local.READY_WITHIN_S) -> None:
        """As the original, but workers that were killed, or are frozen, are not waited for."""
        for worker in [worker for worker in self.workers if worker.process.poll() == -signal.SIGKILL]:
            self._forget(worker)
        super().wait_until_ready(timeout_s)

    def _unannounced(self, client: redis.Redis) -> list[WorkerProcess]:
        return [worker for worker in super()._unannounced(client) if not _is_frozen(worker)]

    def replenish(self, **pools: int) -> None:
        """Start workers until so many of each pool run; return when each has announced its tools."""
        for worker in [worker for worker in self.workers if not worker.is_running]:
            self._forget(worker)
        for pool, wanted in pools.items():
            for _ in range(wanted - len(self.alive(pool))):
                self.start_worker(pool)
        self.wait_until_ready()

    def _forget(self, worker: WorkerProcess) -> None:
        with suppress(ValueError):
            self.workers.remove(worker)


def tool_processes(worker: WorkerProcess) -> list[psutil.Process]:
    """Return the processes in which a prefork worker runs its tools: those below its fork server, without their own."""
    with suppress(psutil.NoSuchProcess):
        main = psutil.Process(worker.pid)
        servers = [child for child in main.children() if child.cmdline() == main.cmdline()]
        return [child for server in servers for child in server.children()]
    return []


def _is_frozen(worker: WorkerProcess) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED)
    return False
