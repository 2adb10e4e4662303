"""The processes of one measurement: a server, workers, orchestrators; what each has used; none is left over."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from redis import Redis

from benchmarks.contender import Command
from benchmarks.launch import PROJECT, pid_of_server, server
from benchmarks.processes import ProcessTree, cpu_s, running
from benchmarks.scale.driver import Answer, Order, fleet_settings
from benchmarks.scale.scale_tools import LET_GO

CONCURRENCY = 1000


class DriverFailed(Exception):
    """An orchestrator ended in the middle of an order; says what it printed last."""


class RemoteDriver:
    """An orchestrator in another process."""

    def __init__(self, redis_url: str, log: Path) -> None:
        self._log = log
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "benchmarks.scale.driver", redis_url),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                cwd=PROJECT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def listen(self) -> str:
        """Return its next line. Raises DriverFailed."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            last = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise DriverFailed(f"an orchestrator of the bench ended; it said: {last[0]}")
        return line

    def carry_out(self, order: Order) -> Answer:
        """Give an order and wait for its answer."""
        assert self._process.stdin
        self._process.stdin.write(order.model_dump_json() + "\n")
        self._process.stdin.flush()
        return Answer.model_validate_json(self.listen())


@dataclass(frozen=True)
class Used:
    """What processes have used since they began, and what the server was asked."""

    worker_s: float
    redis_s: float
    rewriting_s: float
    """Of the processes in which the server writes its append-only file anew."""
    commands: int
    bytes_in: int
    bytes_out: int

    def since(self, before: Used) -> Used:
        """What was used in between."""
        return Used(
            self.worker_s - before.worker_s,
            self.redis_s - before.redis_s,
            self.rewriting_s - before.rewriting_s,
            self.commands - before.commands,
            self.bytes_in - before.bytes_in,
            self.bytes_out - before.bytes_out,
        )


@dataclass(frozen=True)
class Stand:
    """A fleet that is ready."""

    client: Redis
    redis: ProcessTree
    workers: Sequence[ProcessTree]
    drivers: Sequence[RemoteDriver]
    let_go: Path

    def carry_out(self, order: Order) -> list[Answer]:
        """Have each orchestrator carry out its share of an order, all at the same time."""
        share = order.calls // len(self.drivers)
        orders = [order.model_copy(update={"calls": share})] * len(self.drivers)
        with ThreadPoolExecutor(len(self.drivers)) as threads:
            return list(threads.map(RemoteDriver.carry_out, self.drivers, orders))

    def used(self) -> Used:
        """What workers and server have used by now."""
        said = self.client.info("everything")
        ended_s = said["used_cpu_user_children"] + said["used_cpu_sys_children"]
        server, *writing = self.redis.processes()
        writing_s = sum(cpu_s(process) for process in writing)
        return Used(
            worker_s=sum(worker.cpu_s() for worker in self.workers),
            redis_s=cpu_s(server) - ended_s,
            rewriting_s=ended_s + writing_s,
            commands=sum(each["calls"] for name, each in said.items() if name.startswith("cmdstat_")),
            bytes_in=said["total_net_input_bytes"],
            bytes_out=said["total_net_output_bytes"],
        )

    def memory_bytes(self) -> int:
        """What the server's data takes."""
        return int(self.client.info("memory")["used_memory"])

    def worker_bytes(self) -> int:
        """Resident memory of all workers."""
        return int(sum(worker.memory_mib() for worker in self.workers) * 2**20)


@contextmanager
def standing(*, workers: int = 1, orchestrators: int = 1, concurrency: int = CONCURRENCY) -> Iterator[Stand]:
    """A server, so many io workers of so many slots, and so many orchestrators; afterwards nothing is left."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scale-")))
        url = stack.enter_context(server(folder))
        let_go = folder / "let-go"
        argv = (sys.executable, "-m", "toolfleet.workers", "--pool", "io", "--concurrency", str(concurrency))
        imports = ("--import", "benchmarks.scale.scale_tools")
        environment = {**fleet_settings(url).as_environment(), LET_GO: str(let_go)}
        command = Command((*argv, *imports), environment)
        trees = [stack.enter_context(running(command, folder / f"worker-{number}.log")) for number in range(workers)]
        drivers = [
            stack.enter_context(RemoteDriver(url, folder / f"orchestrator-{number}.log"))
            for number in range(orchestrators)
        ]
        for driver in drivers:
            driver.listen()
        client = stack.enter_context(Redis.from_url(url))
        yield Stand(client, ProcessTree(psutil.Process(pid_of_server(url))), trees, drivers, let_go)
