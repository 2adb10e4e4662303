"""The workers' command: one worker process with the settings that suit its pool. `toolfleet worker` runs this."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final

import typer
from celery.platforms import SecurityWarning
from celery.signals import worker_ready, worker_shutting_down
from kombu.exceptions import OperationalError

from toolfleet.changing_tools import changing_in
from toolfleet.connections import address
from toolfleet.declaration import ON_A_THREAD, THREADS, may_outlive_its_limit
from toolfleet.errors import BrokerUnreachable, InvalidSettings, ToolfleetError
from toolfleet.exit_status import ExitStatus, status_of
from toolfleet.garbage import collect_rarely
from toolfleet.help_text import flowing
from toolfleet.local.fleet import redis_or_embedded
from toolfleet.local.lifeline import stop_with
from toolfleet.local.worker_process import CLEAR_LINE
from toolfleet.logs import FactLog, configure_logs
from toolfleet.settings import Settings, read_settings
from toolfleet.terminal import harmless
from toolfleet.tool import Tool
from toolfleet.workers.app import modules_from_environment, worker_app
from toolfleet.workers.celery.joining import join, once_it_answers
from toolfleet.workers.celery.node_name import generated_name, hold_name
from toolfleet.workers.each_shard import serve_each_shard
from toolfleet.workers.modules import not_served, tools_of
from toolfleet.workers.over import KEY_VARIABLE
from toolfleet.workers.pool_presets import POOLS, PREFORK, Pool, pool_for
from toolfleet.workers.tool.interceptors import interceptors_of
from toolfleet.workers.tool.threads import TOOL_THREAD

BROKER_WITHIN_S: Final = 5.0

HAND_BACK_S: Final = 10.0
"""Beyond its grace a worker whose owner is gone needs this to hand back its calls."""

log = FactLog("toolfleet.workers")


class Kind(StrEnum):
    """How a pool runs calls: the keys of `pool_presets.KINDS`."""

    ASYNCIO = "asyncio"
    """Coroutines on one event loop; blocking tools run on threads beside it."""
    PREFORK = "prefork"
    """Child processes, one call at a time in each."""
    THREADS = "threads"
    """Threads of one process, one call at a time in each."""
    SOLO = "solo"
    """The worker's own thread, one call at a time."""


class LogLevel(StrEnum):
    """The least severe messages that a worker logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(epilog="Example: toolfleet worker --pool io --import toolfleet.workers.packs.arithmetic")
def worker(
    *,
    pool: Annotated[str, typer.Option(help=f"What the worker is for: {', '.join(POOLS)}, or a queue of yours.")] = "io",
    modules: Annotated[
        list[str] | None, typer.Option("--import", help="A module with tools; may be given again.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Calls at a time; the pool's default suits it.")
    ] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="How calls run; the pool decides, if you do not.")] = None,
    queues: Annotated[str | None, typer.Option(help="Comma-separated queues to consume, if not the pool's.")] = None,
    name: Annotated[str | None, typer.Option(help="This worker's name in Flower and `toolfleet tools`.")] = None,
    log_level: Annotated[LogLevel, typer.Option(help="What is worth a line.")] = LogLevel.WARNING,
    interceptors: Annotated[
        list[str] | None,
        typer.Option("--interceptor", help="module:name of an interceptor for every call; may be given again."),
    ] = None,
    instruments: Annotated[
        list[str] | None, typer.Option("--instrument", hidden=True, help="A module without tools, imported first.")
    ] = None,
    lifeline: Annotated[
        int | None, typer.Option(hidden=True, min=0, help="A file descriptor; the worker stops when it is closed.")
    ] = None,
    max_tasks_per_child: Annotated[
        int | None, typer.Option(min=1, help="Calls of one process, before another takes over; for tools that leak.")
    ] = None,
    max_memory_per_child: Annotated[
        int | None, typer.Option(min=1, help="KiB that a process may hold after a call, before another takes over.")
    ] = None,
    events: Annotated[bool, typer.Option(help="Send Celery's task events, which Flower shows.")] = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Answer Prometheus here: GET /metrics, without a key.")
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(help="Serve all tools of these modules through this API, https://…, without reaching Redis."),
    ] = None,
    key: Annotated[
        str,
        typer.Option(
            envvar=KEY_VARIABLE,
            show_default=False,
            help="With --over: a key of the scope work. In the variable nobody sees it in a list of processes.",
        ),
    ] = "",
) -> None:
    """Serve tools until SIGTERM or Ctrl-C; running calls may end first, a second signal stops at once.

    The queues are in the Redis at TOOLFLEET_REDIS_URL. Without it, this user's embedded server is used, which is
    that of `toolfleet up`; it is started if it does not run. With TOOLFLEET_SHARDS each shard has a process
    with its share of the calls at a time.

    With --over it needs neither Redis nor the fleet's secret, and nobody has to reach it:
    toolfleet worker --over https://toolfleet.example.com --import my_tools
    """
    configure_logs(log_level)
    for instrument in instruments or ():
        importlib.import_module(instrument)
    if lifeline is not None:
        stop_with(lifeline, kill_after_s=read_settings().shutdown_grace_s + HAND_BACK_S)
    if over is not None:
        imported = modules or modules_from_environment()
        own_port = {} if metrics_port is None else {"metrics_port": metrics_port}
        _serve_over(over, key, imported, interceptors or (), own_port, name=name, concurrency=concurrency)
        return
    served = queues_of(queues, pool)
    imported = modules or modules_from_environment()
    tools = tools_of(imported)
    own = {name: tool for name, tool in tools.items() if tool.spec.queue in served}
    in_processes = [name for name, tool in own.items() if tool.blocking == "process"]
    chosen = pool_for(
        pool,
        kind=kind,
        concurrency=concurrency,
        in_processes=in_processes,
        max_tasks_per_child=max_tasks_per_child,
        max_memory_per_child=max_memory_per_child,
    )
    if (fleet := read_settings()).is_for_all_shards:
        _warn_of_limits(own, len(fleet.all_shards))
        raise typer.Exit(serve_each_shard(fleet, sys.argv[1:], chosen.concurrency))
    _warn_of_threads(own, chosen)
    for line in not_served(tools.values(), served, imported):
        if sys.stderr.isatty():
            typer.echo(harmless(line), err=True)
        else:
            log.warning("tools_not_served", told=line)
    with redis_or_embedded(**({} if metrics_port is None else {"metrics_port": metrics_port})) as settings:
        once_it_answers(lambda: join(settings))
        around = interceptors_of([*settings.interceptor_names, *(interceptors or ())])
        celery = worker_app(settings, tools, around, changing_in(imported))
        if settings.broker_url:
            _reach_broker(celery, settings.broker_url)
        node = f"{name or generated_name(pool)}@{os.uname().nodename}"
        with hold_name(celery, settings, node):
            _say_when_ready(node, pool, served, tools, settings)
            code = _serve(celery, chosen, served, node, log_level, events=events)
    raise typer.Exit(code)


def _serve_over(
    over: str, key: str, imported: Sequence[str], interceptors: Sequence[str], given: dict[str, Any], **chosen: Any
) -> None:
    """Serve through an API; which queues that is, is its business."""
    from toolfleet.workers.over.command import serve_over  # noqa: PLC0415  # loads an HTTP client, which few workers need

    settings = read_settings(**given)
    around = interceptors_of([*settings.interceptor_names, *interceptors])
    say = partial(typer.echo, file=sys.__stdout__)
    serve_over(over, key, tools_of(imported), settings=settings, interceptors=around, say=say, **chosen)


def _warn_of_threads(tools: Mapping[str, Tool[..., Any]], pool: Pool) -> None:
    """Tell of tools that may have their effect after their time, unless their declaration has told so already."""
    for name, tool in tools.items():
        told = tool.spec.queue == THREADS
        if pool.implementation != PREFORK and not told and may_outlive_its_limit(tool.spec, is_async=tool.is_async):
            log.warning("tool_cannot_be_stopped", tool=name, why=ON_A_THREAD, remedy='blocking="process"')


def _warn_of_limits(tools: Mapping[str, Tool[..., Any]], shards: int) -> None:
    """Tell of tools whose limits each shard keeps by itself: together they let through more than is declared."""
    if limited := sorted(name for name, tool in tools.items() if tool.spec.limits is not None):
        log.warning("limits_hold_on_each_shard", tools=", ".join(limited), shards=shards, remedy="declare a share")


def _reach_broker(celery: Any, url: str) -> None:
    """Return when a broker of the user's own answers: Celery itself would try for ever, and say so in tracebacks."""
    try:
        with celery.connection_for_read() as connection:
            connection.ensure_connection(max_retries=1, timeout=BROKER_WITHIN_S)
    except OperationalError as error:
        raise BrokerUnreachable(
            f"the broker at {address(url)} does not answer ({error}); start it, or set TOOLFLEET_BROKER_URL"
        ) from error
    except ImportError as error:
        raise InvalidSettings(f"the broker at {address(url)} needs a package that is missing: {error}") from error


def queues_of(words: str | None, pool: str) -> list[str]:
    """Return the queues that were asked for, or the pool's. Raises BadParameter when no queue is named."""
    if not pool.strip():
        raise typer.BadParameter("names no pool", param_hint="'--pool'")
    queues = [pool] if words is None else [word.strip() for word in words.split(",") if word.strip()]
    if not queues:
        raise typer.BadParameter("names no queue: leave it out for the pool's own", param_hint="'--queues'")
    return queues


def _say_when_ready(
    name: str, pool: str, queues: Sequence[str], tools: Mapping[str, Tool[..., Any]], settings: Settings
) -> None:
    """Print one line when the first calls can be taken, and none after a connection was lost and made again."""
    count = sum(tool.spec.queue in queues for tool in tools.values())

    @worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]  # celery ships no types
    def ready(**_: Any) -> None:
        worker_ready.disconnect(ready)
        where = address(settings.redis_url)
        typer.echo(
            f"Ready: worker {name}, pool {pool}, queues {', '.join(queues)}, {count} tools, Redis at {where}. "
            "Ctrl-C stops it.",
            # Celery has made log lines of what is printed to sys.stdout.
            file=sys.__stdout__,
        )


def _serve(celery: Any, pool: Pool, queues: Sequence[str], name: str, log_level: str, *, events: bool) -> int:
    # Celery warns superusers because a pickle could run anything; only JSON is read here.
    warnings.simplefilter("ignore", SecurityWarning)
    serving = celery.Worker(
        hostname=name,
        pool_cls=pool.implementation,
        concurrency=pool.concurrency,
        prefetch_multiplier=pool.prefetch_multiplier,
        max_tasks_per_child=pool.max_tasks_per_child,
        max_memory_per_child=pool.max_memory_per_child,
        queues=list(queues),
        loglevel=log_level.upper(),
        without_mingle=True,
        without_gossip=True,
        task_events=events,
        quiet=True,
    )
    told: list[str] = []
    worker_shutting_down.connect(lambda how, **_: told.append(how), weak=False)
    collect_rarely()  # before a pool of processes is forked: they share what is there
    serving.start()
    code = int(serving.exitcode or 0)
    # Celery calls a stop by Ctrl-C a failure, though every call has ended or was handed back.
    return ExitStatus.DONE if told == ["Warm"] and code == ExitStatus.FAILED else code


def main() -> None:
    """Run the command. Errors raised on purpose are one line on standard error and an exit status."""
    try:
        command = typer.main.get_command(app)
        command.help = flowing(command.help)
        command(prog_name="toolfleet worker")
    except ToolfleetError as error:
        typer.secho(f"{CLEAR_LINE}{harmless(str(error))}", err=True, fg="red")
        sys.exit(status_of(error))
    except SystemExit as ended:
        if any(thread.name.startswith(f"{TOOL_THREAD}_") for thread in threading.enumerate()):
            # Python would wait for a tool that blocks its thread; its call has been given to another worker.
            atexit._run_exitfuncs()
            os._exit(int(ended.code or 0))
        raise
