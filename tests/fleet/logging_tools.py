"""Tools that log, each in another way."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Annotated, Any

from celery.utils.log import get_task_logger
from fleet_tools import _play

from toolfleet import tool
from toolfleet.masks import Secret

log = logging.getLogger("shop.orders")


@tool(read_only=True)
async def silent() -> str:
    """Log nothing."""
    return "done"


@tool(read_only=True)
async def talkative() -> str:
    """Log at every level, on several threads, and print."""
    log.debug("too much detail")
    log.info("order %s taken", 9007199254740993)
    await asyncio.to_thread(log.warning, "from a thread")
    get_task_logger("shop.tasks").info("by Celery's logger")
    print("printed")
    return "done"


@tool(read_only=True, blocking="thread")
def on_thread() -> str:
    """Log on a thread."""
    log.info("on a thread of tools")
    return "done"


@tool(read_only=True, blocking="process")
def in_process() -> str:
    """Log in a process of a pool."""
    log.info("in a process")
    get_task_logger("shop.tasks").info("by Celery's logger")
    return "done"


@tool(read_only=True)
async def raises() -> str:
    """Fail."""
    log.info("about to fail")
    raise KeyError("no such order")


@tool(read_only=True)
async def odd(kind: str) -> str:
    """Log what is hard to keep."""
    if kind == "many":
        for n in range(500):
            log.info("line %d", n)
    elif kind == "long":
        log.info("%s", "x" * 1_000_000)
    elif kind == "bytes":
        log.info("\ud800 \x1b[2J \u202e <script>alert(1)</script> \x00")
    elif kind == "misfit":
        log.info("%d items", "no number")
    return "done"


@tool(read_only=True)
async def sign_in(user: str, token: Annotated[str, Secret()]) -> str:
    """Log a secret argument, and one of the settings."""
    log.info("%s signs in with %s", user, token)
    log.info("connecting to %s", "the-secret-of-this-fleet-0123456789")
    return "done"


@tool(read_only=True, queue="io")
async def long(stage: str) -> Any:
    """Log, then do as the stage says."""
    log.info("first word")
    said = await _play(stage)
    log.info("last word")
    return said


@tool(read_only=True)
async def leaves_one_behind() -> str:
    """Return while a thread of no call's goes on, and logs."""
    threading.Thread(target=log.info, args=["of nobody"]).start()
    return "done"
