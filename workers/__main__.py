"""`python -m workers`: one worker process with the settings that suit its pool. `toolfleet worker` runs this."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import warnings
from typing import Annotated, Any

import typer
from celery.platforms import SecurityWarning
from kombu.exceptions import OperationalError

from toolfleet.connections import address
from toolfleet.errors import BrokerUnreachable, InvalidSettings, ToolfleetError
from toolfleet.lifeline import stop_with
from toolfleet.local import redis_or_embedded
from toolfleet.logs import configure_logs
from toolfleet.worker_process import CLEAR_LINE
from workers.app import modules_from_environment, worker_app
from workers.interceptors import interceptors_of
from workers.modules import not_served, tools_of
from workers.pool import TOOL_THREAD
from workers.pools import POOLS, Pool, pool_for

BROKER_WITHIN_S = 5.0

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog="Example: toolfleet worker --pool io --import workers.packs.arithmetic")
def worker(
    *,
    pool: Annotated[str, typer.Option(help=f"What the worker is for: {', '.join(POOLS)}, or a queue of yours.")] = "io",
    modules: Annotated[
        list[str] | None, typer.Option("--import", help="A module with tools; may be given again.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Calls at a time; the pool's default suits it.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="How calls run: asyncio, prefork, threads or solo; the pool decides.")
    ] = None,
    queues: Annotated[str | None, typer.Option(help="Comma-separated queues to consume, if not the pool's.")] = None,
    name: Annotated[str | None, typer.Option(help="This worker's name in Flower and `toolfleet tools`.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "warning",
    interceptors: Annotated[
        list[str] | None,
        typer.Option("--interceptor", help="module:name of an interceptor for every call; may be given again."),
    ] = None,
    instruments: Annotated[
        list[str] | None, typer.Option("--instrument", hidden=True, help="A module without tools, imported first.")
    ] = None,
    lifeline: Annotated[
        int | None, typer.Option(hidden=True, help="A file descriptor; the worker stops when it is closed.")
    ] = None,
    events: Annotated[bool, typer.Option(help="Send Celery's task events, which Flower shows.")] = False,
) -> None:
    """Serve tools until SIGTERM or Ctrl-C; running calls may end first, a second signal stops at once.

    The queues are in the Redis at TOOLFLEET_REDIS_URL. Without it, this user's embedded server is used, which is
    that of `toolfleet up`; it is started if it does not run.
    """
    configure_logs(log_level)
    for instrument in instruments or ():
        importlib.import_module(instrument)
    if lifeline is not None:
        stop_with(lifeline)
    chosen = pool_for(pool, kind=kind, concurrency=concurrency)
    imported = modules or modules_from_environment()
    tools = tools_of(imported)
    for line in not_served(tools.values(), (queues or pool).split(","), imported):
        typer.echo(line, err=True)
    with redis_or_embedded() as settings:
        around = interceptors_of([*settings.interceptor_names, *(interceptors or ())])
        celery = worker_app(settings, tools, around)
        if settings.broker_url:
            _reach_broker(celery, settings.broker_url)
        code = _serve(celery, chosen, queues or pool, name or f"{pool}-{os.getpid()}", log_level, events=events)
    raise typer.Exit(code)


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


def _serve(celery: Any, pool: Pool, queues: str, name: str, log_level: str, *, events: bool) -> int:
    # Celery warns superusers because a pickle could run anything; only JSON is read here.
    warnings.simplefilter("ignore", SecurityWarning)
    serving = celery.Worker(
        hostname=f"{name}@{os.uname().nodename}",
        pool_cls=pool.implementation,
        concurrency=pool.concurrency,
        prefetch_multiplier=pool.prefetch_multiplier,
        queues=queues.split(","),
        loglevel=log_level.upper(),
        without_mingle=True,
        without_gossip=True,
        task_events=events,
        quiet=True,
    )
    serving.start()
    return int(serving.exitcode or 0)


def main() -> None:
    """The command's entry point."""
    try:
        app(prog_name="toolfleet worker")
    except ToolfleetError as error:
        typer.secho(f"{CLEAR_LINE}{error}", err=True, fg="red")
        sys.exit(1)
    except SystemExit as ended:
        if any(thread.name.startswith(f"{TOOL_THREAD}_") for thread in threading.enumerate()):
            # Python would wait for a tool that blocks its thread; its call has been given to another worker.
            atexit._run_exitfuncs()
            os._exit(int(ended.code or 0))
        raise


if __name__ == "__main__":
    main()
