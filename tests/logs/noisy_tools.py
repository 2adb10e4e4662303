"""Tools whose author says things in every way there is."""

import logging
import sys
import threading
import warnings

from toolfleet import Context, tool

log = logging.getLogger("my.tools")


def say(text):
    print("printed", text)
    sys.stderr.write("written\n")
    log.warning("logged %s\nin two lines", text)
    log.warning("%d of them", "wrong")
    log.warning("escapes \x1b[2J")


@tool(read_only=True)
async def chatter(text: str, ctx: Context) -> str:
    "Say it on the loop."
    say(text)
    warnings.warn("warned", stacklevel=1)
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    return text.upper()


@tool(read_only=True)
async def stumble(password: str) -> str:
    "Raise, with a secret among what it holds."
    held = f"held {password}"
    raise RuntimeError("no" if held else "")


@tool(read_only=True, blocking="process")
def heavy(text: str) -> str:
    "Say it in a process."
    say(text)
    return text.upper()
