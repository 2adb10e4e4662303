"""`toolfleet serve`: the HTTP API of this fleet, until Ctrl-C.

Says where it listens and who may come in; what is served is `toolfleet.orchestrator.doors.http`.
"""

from __future__ import annotations

import asyncio
import importlib.util
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, nullcontext
from typing import Annotated, Final

import typer
from rich.console import Console

from toolfleet.connections import address, connect_async
from toolfleet.errors import ExtraMissing, InvalidSettings, OperatorError
from toolfleet.event_loop import run_service
from toolfleet.garbage import collect_rarely
from toolfleet.local.fleet import redis_or_shards
from toolfleet.local.lifeline import stop_with
from toolfleet.local.local_key import LocalKey
from toolfleet.metrics.exposition import serve_metrics
from toolfleet.orchestrator.doors.cli.choosing_model import chosen_model
from toolfleet.orchestrator.doors.cli.model_option import ModelOption
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.settings import Settings

KILL_AFTER_S: Final = 15.0
"""Longer than requests may take to end, and runs to be handed over."""

DEFAULT_PORT: Final = 8000

NEEDED: Final = ("fastapi", "httptools", "uvicorn", "jinja2")

REMEDY: Final = "the HTTP API needs `pip install 'toolfleet[serve]'`"


class NoKeys(InvalidSettings):
    """The API can be reached from other machines, and there is no key that would tell who may use it."""


def serve(
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = DEFAULT_PORT,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Serve requests without a key: on loopback all but those of web pages, elsewhere all."
        ),
    ] = False,
    model: ModelOption = None,
    without_model: Annotated[
        bool, typer.Option("--no-model", help="Without one, runs are worked on by orchestrators elsewhere.")
    ] = False,
    lifeline: Annotated[
        int | None, typer.Option(hidden=True, min=0, help="A file descriptor; it stops when that is closed.")
    ] = None,
) -> None:
    """Serve the page, the HTTP API and the OpenAI-compatible one until Ctrl-C.

    Every request needs a key. That of this machine's user is made when it
    starts on loopback: toolfleet keys local prints it. On any other address it
    refuses to start unless there is one of others: toolfleet keys add.

    Without --model, OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY
    select the model; without any, a rehearsal model answers, and this says so.
    """
    if not all(importlib.util.find_spec(name) for name in NEEDED):
        raise ExtraMissing(REMEDY)
    if model is not None and without_model:
        raise typer.BadParameter("--model and --no-model contradict each other: leave one of them out")
    if lifeline is not None:
        stop_with(lifeline, kill_after_s=KILL_AFTER_S)
    console = Console(soft_wrap=True, highlight=False)
    with redis_or_shards() as settings:
        choice = nullcontext() if without_model else chosen_model(console, model)
        work = _serve(settings, console, choice, host=host, port=port, insecure=insecure)
        run_service(work)


async def _serve(
    settings: Settings,
    console: Console,
    choice: AbstractAsyncContextManager[ChatModel | None],
    *,
    host: str,
    port: int,
    insecure: bool,
) -> None:
    # The command must start without these, to say that they are missing.
    from toolfleet.orchestrator.doors.http.access import is_loopback  # noqa: PLC0415  # an extra
    from toolfleet.orchestrator.doors.http.app import create_app  # noqa: PLC0415  # an extra
    from toolfleet.orchestrator.doors.http.listening import listening_socket, server_for  # noqa: PLC0415  # an extra
    from toolfleet.orchestrator.doors.shards.app import create_sharded_app  # noqa: PLC0415  # an extra
    from toolfleet.orchestrator.doors.shards.metrics import metrics_of  # noqa: PLC0415  # an extra

    if not settings.is_for_all_shards:  # there each is asked once it is reached
        async with aclosing(connect_async(settings)) as client:
            await Catalog(client, settings).check_secret()
    is_here = is_loopback(host)
    if not (is_here or insecure):
        await _must_have_a_key(settings, host)
    async with AsyncExitStack() as stack:
        bound = listening_socket(host, port)
        stack.callback(bound.close)
        model = await stack.enter_async_context(choice)
        local_key = LocalKey()
        if is_here and not insecure:
            local_key.made()
        options = ApiOptions(is_insecure=insecure)
        make = create_sharded_app if settings.is_for_all_shards else create_app
        app = make(settings, model, options=options)
        server = server_for(app, header_timeout_s=settings.api_header_timeout_s)
        server.says_that_it_stops = True
        listening_host = f"[{host}]" if ":" in host else host
        url = f"http://{listening_host}:{bound.getsockname()[1]}"
        for each in settings.of_each_redis:
            named = f"  (shard {each.shard})" if settings.is_for_all_shards else ""
            console.print(f"Redis:   {address(each.redis_url)}{named}", markup=False)
        console.print(f"API:     {url}  (documented at {url}/docs)", markup=False)
        console.print(f"Page:    {url}/", markup=False)
        console.print(f"OpenAI:  {url}/v1", markup=False)
        if is_here and not insecure:
            console.print(f"Key:     `toolfleet keys local` prints it (in {local_key.path})", markup=False)
        if insecure:
            console.print("Anybody who reaches this address may call every tool (--insecure).", style="bold red")
        serving = asyncio.create_task(server.serve(sockets=[bound]))  # watched: awaited below
        while not (server.started or serving.done()):  # noqa: ASYNC110  # uvicorn says so in no other way
            await asyncio.sleep(0.01)
        collect_rarely()
        if server.started:
            serve_metrics(settings, metrics_of(app, asyncio.get_running_loop()))
            console.print("Ready. Ctrl-C stops it.")
        await serving
        if not server.started:
            raise ApiNotStarted("the API did not start; what is above says why")


class ApiNotStarted(OperatorError):
    """The application could not be started."""


async def _must_have_a_key(settings: Settings, host: str) -> None:
    from toolfleet.orchestrator.doors.http.key_store import Keyring  # noqa: PLC0415  # as above
    from toolfleet.wire import Seal  # noqa: PLC0415  # an extra

    for each in settings.of_each_redis:
        async with aclosing(connect_async(each)) as client:
            if not await Keyring(client, each, Seal(each)).is_empty():
                return
    raise NoKeys(
        f"{host} can be reached from other machines, and there is no key yet: make one with "
        "`toolfleet keys add`, or say --insecure"
    )
