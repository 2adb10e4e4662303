"""How late polls are when many jobs wait elsewhere: `python -m benchmarks.jobs`.

One real worker, one real server, jobs written by the function that workers submit them with.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import psutil
import redis
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.about import about
from benchmarks.job_tools import ANSWER_MS, POLLED
from benchmarks.processes import ProcessTree
from toolfleet.calls import JobRecord, ToolCall
from toolfleet.connections import connect, connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.settings import Settings
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.jobs.schedule import submit

TOOL = "elsewhere"
FAR_AWAY_S = 12 * 3600.0
AT_ONCE = 200
NO_MESSAGE = Delivery(task_id="", task=TOOL, text=None, mac=None)
LAST_ANSWERS_S = 3.0
"""After the last job was due."""


@dataclass(frozen=True)
class Finding:
    """What was measured; lateness in milliseconds."""

    jobs: int
    polls_due: int
    polls_made: int
    due_per_s: float
    answer_ms: int
    late_p50_ms: float
    late_p99_ms: float
    late_max_ms: float
    worker_cpu_percent: float
    worker_idle_cpu_percent: float
    server_cpu_percent: float
    worker_mib: float
    bytes_per_job: float


async def write_jobs(settings: Settings, due_unix_s: list[float]) -> None:
    """One job for each due time, submitted as a worker does it."""
    seal = Seal(settings)
    async with connect_async(settings) as client:

        async def write(number: int, due: float) -> None:
            call = ToolCall(
                call_id=f"0af7651916cd43dd8448eb211c80319c{number}.1.0",
                run_id=f"0af7651916cd43dd8448eb211c80319c{number}",
                tool=TOOL,
                arguments='{"video": "s3://bucket/some/longer/path/to/a/file.mp4", "preset": "1080p"}',
                deadline_unix_s=time.time() + 7 * 24 * 3600,
                reply_to="benchmark",
            )
            now = time.time()
            job = JobRecord(
                call=call,
                external_id=f"projects/benchmark/locations/somewhere/jobs/{number:012}",
                poll_after_s=max(0.001, due - now),
                submitted_unix_s=now,
                polled=True,
                cancellable=False,
            )
            await submit(client, settings, seal, NO_MESSAGE, job)

        for start in range(0, len(due_unix_s), AT_ONCE):
            some = enumerate(due_unix_s[start : start + AT_ONCE], start)
            await asyncio.gather(*(write(number, due) for number, due in some))


def measure(*, jobs: int, per_s: float, seconds: float, answer_ms: int) -> Finding:
    """Let `per_s` of the jobs become due each second, and see when they are asked about."""
    with tempfile.TemporaryDirectory() as folder:
        polled = Path(folder, "polled")
        environment = {POLLED: str(polled), ANSWER_MS: str(answer_ms)}
        with (
            LocalFleet(["benchmarks.job_tools"], pools={"io": 1}, environment=environment) as fleet,
            connect(fleet.settings) as client,
        ):
            worker = ProcessTree(psutil.Process(fleet.workers[0].pid))
            before_bytes = client.info("memory")["used_memory"]
            due_count = min(jobs, int(per_s * seconds))
            # Writing them takes a while, during which none must become due.
            begin = time.time() + 5 + jobs / 1500
            due = [begin + n / per_s for n in range(due_count)] + [begin + FAR_AWAY_S] * (jobs - due_count)
            asyncio.run(write_jobs(fleet.settings, due))
            scores = dict(client.zrange(fleet.settings.keys.jobs(TOOL), 0, due_count - 1, withscores=True))
            bytes_per_job = (client.info("memory")["used_memory"] - before_bytes) / jobs
            if time.time() > begin - 2:
                raise SystemExit(f"writing {jobs} jobs took too long: they were due before all were written")

            idle_from, idle_cpu_s = time.time(), worker.cpu_s()
            time.sleep(max(0.0, begin - time.time()))
            idle_percent = 100 * (worker.cpu_s() - idle_cpu_s) / (time.time() - idle_from)

            cpu_s, server_s = worker.cpu_s(), server_cpu_s(client)
            time.sleep(due_count / per_s)
            took_s = time.time() - begin
            cpu_percent = 100 * (worker.cpu_s() - cpu_s) / took_s
            server_percent = 100 * (server_cpu_s(client) - server_s) / took_s
            time.sleep(LAST_ANSWERS_S + answer_ms / 1000)
            memory_mib = worker.memory_mib()
        late_ms = sorted(
            (float(at) - scores[call.encode()] / 1000) * 1000
            for call, at in (line.split() for line in polled.read_text().splitlines())
        )
    return Finding(
        jobs=jobs,
        polls_due=due_count,
        polls_made=len(late_ms),
        due_per_s=per_s,
        answer_ms=answer_ms,
        late_p50_ms=late_ms[len(late_ms) // 2],
        late_p99_ms=late_ms[int(len(late_ms) * 0.99)],
        late_max_ms=late_ms[-1],
        worker_cpu_percent=cpu_percent,
        worker_idle_cpu_percent=idle_percent,
        server_cpu_percent=server_percent,
        worker_mib=memory_mib,
        bytes_per_job=bytes_per_job,
    )


def server_cpu_s(client: redis.Redis) -> float:
    """Processor seconds of the server."""
    used = client.info("cpu")
    return float(used["used_cpu_sys"] + used["used_cpu_user"])


def as_table(finding: Finding) -> Table:
    """The finding, for people."""
    table = Table(title=f"{finding.jobs:,} jobs elsewhere, {finding.due_per_s:g} due per second, one worker")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_row("polls due / made", f"{finding.polls_due:,} / {finding.polls_made:,}")
    table.add_row("lateness p50", f"{finding.late_p50_ms:.1f} ms")
    table.add_row("lateness p99", f"{finding.late_p99_ms:.1f} ms")
    table.add_row("lateness max", f"{finding.late_max_ms:.1f} ms")
    table.add_row("worker, processor", f"{finding.worker_cpu_percent:.0f} % of a core")
    table.add_row("worker, processor, none due", f"{finding.worker_idle_cpu_percent:.1f} % of a core")
    table.add_row("server, processor", f"{finding.server_cpu_percent:.0f} % of a core")
    table.add_row("worker, memory", f"{finding.worker_mib:.0f} MiB")
    table.add_row("server, memory per job", f"{finding.bytes_per_job:.0f} bytes")
    return table


def main(
    *,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs that wait.")] = 100_000,
    per_s: Annotated[float, typer.Option(min=1, help="Jobs that become due each second.")] = 500,
    seconds: Annotated[float, typer.Option(min=1, help="For how long.")] = 30,
    answer_ms: Annotated[int, typer.Option(min=0, help="How long the other system takes to answer.")] = 20,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure how late polls are."""
    finding = measure(jobs=jobs, per_s=per_s, seconds=seconds, answer_ms=answer_ms)
    if json_:
        print(json.dumps({"about": about(quick=False), "jobs": asdict(finding)}, indent=2))
    else:
        Console().print(as_table(finding))


if __name__ == "__main__":
    typer.run(main)
