"""A whole fleet on this machine: the embedded server and real worker processes, for laptops, notebooks and tests.

Starts and stops processes; knows nothing of what they do. Whatever ends this process ends them.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import redis
from pydantic import SecretStr

from toolfleet.catalog import Believer, read_live_workers
from toolfleet.connections import connect, must_be_one_redis
from toolfleet.errors import InvalidSettings, NoToolsFound, WorkerNotReady
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.lifeline import lifeline
from toolfleet.local.worker_process import WorkerProcess, start_worker_process, stop_workers
from toolfleet.log_secrets import hide, hide_passwords
from toolfleet.misspelt import check_options, keywords
from toolfleet.settings import Settings, new_secret, read_settings
from toolfleet.stream_urls import stream_url
from toolfleet.streams import check_broker_url
from toolfleet.wire import Seal

__all__ = ["LocalFleet", "WorkerProcess", "redis_or_embedded"]

REDIS_VARIABLE: Final = "TOOLFLEET_REDIS_URL"

DEFAULT_POOLS: Final = {"io": 1, "cpu": 1, "long": 1}

NOT_STARTED_YET: Final = "unix:///not/started/yet"
"""Stands for a server of our own while the other settings are checked, which is quicker than starting it."""

READY_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05

TEMPORARY_GRACE_S: Final = 3.0
"""Calls that still run when a fleet is left whose server goes with it: nobody could ever read their results."""

SHARED_GRACE_MARGIN_S: Final = 5.0
"""On a server that stays, a worker needs this beyond `shutdown_grace_s` to hand its calls back."""


class LocalFleet:
    """Worker processes that serve `modules`, and an embedded server of their own unless `redis_url` names one.

    A context manager: entering returns when every worker has announced its tools, leaving stops all of it. `pools`
    says how many workers of each pool, `interceptors` what stands around every tool (each as `module:name`); further
    keywords are settings, such as `lease_s=3`. Raises WorkerNotReady with the worker's last words when one does not
    come up, UnknownOption for a keyword that is neither.
    """

    def __init__(
        self,
        modules: Sequence[str],
        *,
        pools: Mapping[str, int] | None = None,
        redis_url: str | None = None,
        data_dir: Path | None = None,
        log_level: str = "warning",
        environment: Mapping[str, str] | None = None,
        worker_options: Sequence[str] = (),
        interceptors: Sequence[str] = (),
        **overrides: object,
    ) -> None:
        check_options("LocalFleet", overrides, _OPTION_NAMES)
        if not modules:
            raise NoToolsFound("a fleet needs a module with tools: pass modules=['your_package.your_tools']")
        self._modules = list(modules)
        self._pools = DEFAULT_POOLS if pools is None else pools
        self._redis_url = redis_url
        self._data_dir = data_dir
        self._environment = dict(environment or {})
        self._worker_options = [
            *("--log-level", log_level),
            *(word for name in interceptors for word in ("--interceptor", name)),
            *worker_options,
        ]
        self._overrides = overrides
        self._numbers = count(1)
        # Two fleets on one machine may serve the same queues: no two workers have one name.
        self._mark = secrets.token_hex(2)
        self._exit = ExitStack()
        self.workers: list[WorkerProcess] = []
        self.settings: Settings

    def __enter__(self) -> Self:
        """Start everything; nothing is left behind when that fails."""
        with ExitStack() as stack:
            self.settings = self._settings(stack)
            self._directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolfleet-")))
            self._lifeline = stack.enter_context(lifeline())
            stack.callback(self._stop_workers)
            for pool, wanted in self._pools.items():
                for _ in range(wanted):
                    self.start_worker(pool)
            self.wait_until_ready()
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the workers, which may end their calls first, then the server."""
        self._exit.close()

    def start_worker(self, pool: str, *options: str, environment: Mapping[str, str] | None = None) -> WorkerProcess:
        """Start one more worker process, with `environment` on top of the fleet's; `wait_until_ready` waits for it."""
        name = f"{pool}{next(self._numbers)}-{self._mark}"
        worker = start_worker_process(
            pool,
            name,
            self._directory / f"{name}.log",
            modules=self._modules,
            options=[*self._worker_options, *options],
            environment={**self.settings.as_environment(), **self._environment, **(environment or {})},
            lifeline=self._lifeline,
        )
        self.workers.append(worker)
        return worker

    def serve_own_queues(self) -> dict[str, list[str]]:
        """Start a worker for each queue of its tools that is no pool of its own; returns when those are ready.

        What is still not served, because its pool was to have no worker: the tools, by queue. Raises WorkerNotReady.
        """
        unserved = self._unserved()
        for queue in sorted(unserved.keys() - self._pools.keys()):
            self.start_worker(queue)
        self.wait_until_ready()
        return {queue: tools for queue, tools in unserved.items() if queue in self._pools}

    def _unserved(self) -> dict[str, list[str]]:
        """Return the tools that the announced workers have loaded and nobody serves, by queue."""
        with connect(self.settings) as client:
            workers = read_live_workers(client, self.settings.keys, Believer(Seal(self.settings))).ours
        consumed = {queue for worker in workers for queue in worker.queues}
        loaded = {tool: queue for worker in workers for tool, queue in worker.not_served.items()}
        return {
            queue: sorted(tool for tool, its_queue in loaded.items() if its_queue == queue)
            for queue in sorted(set(loaded.values()) - consumed)
        }

    def wait_until_ready(self, timeout_s: float = READY_WITHIN_S) -> None:
        """Return when every worker has announced itself. Raises WorkerNotReady."""
        waited_until = time.monotonic() + timeout_s
        with connect(self.settings) as client:
            while missing := self._unannounced(client):
                for worker in missing:
                    if not worker.is_running:
                        raise worker.not_ready()
                if time.monotonic() > waited_until:
                    names = ", ".join(worker.name for worker in missing)
                    raise WorkerNotReady(f"{names} did not announce within {timeout_s:g} s:\n{missing[0].log_tail()}")
                time.sleep(POLL_S)

    def still_serving(self, workers: Sequence[WorkerProcess], timeout_s: float) -> list[WorkerProcess]:
        """Wait until these, asked to stop, read no more calls. Returns those that may still after that time.

        Raises StoreUnreachable.
        """
        waited_until = time.monotonic() + timeout_s
        with connect(self.settings) as client:
            while True:
                announced = self._announced(client)
                serving = [worker for worker in workers if worker.is_running and _node(worker) in announced]
                if not serving or time.monotonic() > waited_until:
                    return serving
                time.sleep(POLL_S)

    def _unannounced(self, client: redis.Redis) -> list[WorkerProcess]:
        announced = self._announced(client)
        return [worker for worker in self.workers if _node(worker) not in announced]

    def _announced(self, client: redis.Redis) -> set[bytes]:
        return {each for each in client.zrange(self.settings.keys.workers(), 0, -1) if isinstance(each, bytes)}

    def _settings(self, stack: ExitStack) -> Settings:
        if self._redis_url:
            return _check(read_settings(redis_url=self._redis_url, **self._overrides))
        _check(read_settings(redis_url=NOT_STARTED_YET, **self._overrides))
        server = EmbeddedServer(data_dir=self._data_dir, temporary=self._data_dir is None)
        settings = read_settings(redis_url=stack.enter_context(server).url, **self._overrides)
        if settings.secret.get_secret_value():
            return settings
        return settings.model_copy(update={"secret": SecretStr(new_secret())})

    def _stop_workers(self) -> None:
        is_temporary = self._redis_url is None and self._data_dir is None
        grace_s = TEMPORARY_GRACE_S if is_temporary else self.settings.shutdown_grace_s + SHARED_GRACE_MARGIN_S
        workers, self.workers[:] = list(self.workers), []
        stop_workers(workers, grace_s=grace_s)


def _node(worker: WorkerProcess) -> bytes:
    """Its name as it is announced."""
    return f"{worker.name}@{os.uname().nodename}".encode()


def where_processes_join() -> dict[str, str]:
    """Return the environment by which processes of this user's fleet find its server.

    Told no address, a process joins the embedded server by itself, which then stays until that process has handed back
    its calls or runs, even if the one that started it is killed.
    """
    return {} if os.environ.get(REDIS_VARIABLE) else {REDIS_VARIABLE: ""}


@contextmanager
def redis_or_embedded(**overrides: object) -> Iterator[Settings]:
    """Settings whose Redis answers: the one at TOOLFLEET_REDIS_URL, or this user's embedded server.

    The embedded server is started unless it runs already, and stops with its last user. `overrides` are settings.
    Raises InvalidSettings, StoreUnreachable, ServerNotStarted.
    """
    settings = read_settings(**overrides)
    must_be_one_redis(settings)
    if settings.names_redis:
        with connect(_check(settings)) as client:
            client.ping()
        yield _with_secrets_hidden(settings)
        return
    with EmbeddedServer() as server:
        yield _with_secrets_hidden(_check(read_settings(redis_url=server.url, **overrides)))


@contextmanager
def redis_or_shards(**overrides: object) -> Iterator[Settings]:
    """Do as `redis_or_embedded`, for those who may be for all shards: then no Redis is asked whether it is there."""
    settings = read_settings(**overrides)
    if settings.is_for_all_shards:
        yield _with_secrets_hidden(settings)
        return
    with redis_or_embedded(**overrides) as settings:
        yield settings


_OPTION_NAMES: Final = Settings.model_fields.keys() | keywords(LocalFleet.__init__)


def _with_secrets_hidden(settings: Settings) -> Settings:
    """Return the same settings, whose secrets now stand in no log line of this process."""
    hide(secret.get_secret_value() for secret in (settings.secret, settings.previous_secret))
    hide_passwords(settings.redis_url, settings.broker_url, *(shard.url for shard in settings.all_shards))
    return settings


def _check(settings: Settings) -> Settings:
    """Return the same settings, if their URLs can be used. Raises InvalidSettings."""
    stream_url(settings.redis_url)
    check_broker_url(settings.celery_broker_url)
    if not settings.redis_url.startswith("sentinel://"):
        try:
            redis.connection.parse_url(settings.redis_url)
        except ValueError as error:
            raise InvalidSettings(f"TOOLFLEET_REDIS_URL cannot be read: {error}") from None
    return settings
