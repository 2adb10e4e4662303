"""What `toolfleet worker --over` does: checks what it was told, and serves until it is stopped."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolfleet.errors import InvalidSettings
from toolfleet.event_loop import run_service
from toolfleet.interceptors import ToolInterceptor
from toolfleet.last_words import say_last
from toolfleet.logs import FactLog
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.work import MAX_TIMES, MAX_TOOLS, WORKER_NAME
from toolfleet.workers.over.client import address_of
from toolfleet.workers.over.worker import OverWorker

log = FactLog("toolfleet.workers")

DEFAULT_CONCURRENCY: Final = 10
NAME_CHARS: Final = 40


def serve_over(
    url: str,
    key: str,
    tools: Mapping[str, Tool[..., Any]],
    *,
    name: str | None,
    concurrency: int | None,
    settings: Settings,
    interceptors: tuple[ToolInterceptor, ...],
    say: Callable[[str], None],
) -> None:
    """Serve tools over HTTPS until SIGTERM or Ctrl-C. Raises InvalidSettings, OperatorError."""
    address, named = address_of(url), name or _generated_name()
    times = concurrency or DEFAULT_CONCURRENCY
    _must_be_servable(tools)
    if not re.fullmatch(WORKER_NAME, named):
        raise InvalidSettings(f"--name {named[:100]!r}: up to 64 letters, digits, dots, - and _")
    if times > MAX_TIMES:
        raise InvalidSettings(f"--concurrency {times}: at most {MAX_TIMES} over HTTPS")

    async def serve() -> None:
        worker = OverWorker(address, key, named, tools, concurrency=times, settings=settings, interceptors=interceptors)
        ready = f"Ready: worker {named}, {len(tools)} tools, {times} calls at a time, over {address}. Ctrl-C stops it."
        await worker.serve(lambda: say(ready), lambda calls, grace_s: say_last(stopping(calls, grace_s)))

    run_service(serve())


def stopping(calls: int, grace_s: float) -> str:
    """Return what a worker says when it is told to stop."""
    if not calls:
        return "Stopping: no call is running."
    named = "1 call that runs has" if calls == 1 else f"{calls} calls that run have"
    return f"Stopping: {named} {grace_s:g} s to end. Ctrl-C again gives back what may be repeated, and stops now."


def _must_be_servable(tools: Mapping[str, Tool[..., Any]]) -> None:
    """Raise InvalidSettings for tools that need what only a worker beside Redis has."""
    if len(tools) > MAX_TOOLS:
        raise InvalidSettings(f"{len(tools)} tools: a worker over HTTPS serves at most {MAX_TOOLS}; start several")
    for tool_name, tool in sorted(tools.items()):
        if tool.blocking == "process":
            raise InvalidSettings(f'{tool_name}: blocking="process" needs a worker beside Redis; leave it out here')
        if tool.hooks.get("poll") or tool.hooks.get("cancel"):
            raise InvalidSettings(f"{tool_name} starts jobs elsewhere, which only a worker beside Redis asks for")
        if tool.hooks.get("reconcile"):
            log.warning("reconcile_not_asked", tool=tool_name, note="over HTTPS a lost call is in doubt at once")


def _generated_name() -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).strip("-.")[:NAME_CHARS] or "worker"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
