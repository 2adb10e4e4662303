"""Calls of one's own run that wait for approval: asked about on a terminal, told of anywhere else.

Asks and tells; the decision is the orchestrator's to write down. Whoever decides first, here or elsewhere, has decided.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Final

import orjson
from rich.console import Console
from rich.text import Text

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import one_line
from toolfleet.orchestrator.errors import RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.updates import (
    CallAsks,
    CallAwaitsApproval,
    CallsRequested,
    CallStarted,
    RunEnded,
    RunUpdate,
    TextArrived,
)
from toolfleet.outages import until_redis_is_back
from toolfleet.supervision import run_errand
from toolfleet.terminal import harmless

ARGUMENTS_CHARACTERS: Final = 2000

LINE_BYTES: Final = 65536

CHOICE: Final = "[a]pprove, [d]eny, [e]dit the arguments? "


@asynccontextmanager
async def deciding(
    orchestrator: Orchestrator,
    console: Console,
    paused: Callable[[], AbstractContextManager[None]],
    *,
    elsewhere: Mapping[str, str],
) -> AsyncIterator[Callable[[RunUpdate], None]]:
    """Yield what is to be called with each update of the run.

    `elsewhere` is the environment in which other commands find its fleet.
    """
    if not (console.is_terminal and sys.stdin.isatty()):
        yield Telling(console, elsewhere).heed
        return
    asking = ApprovalPrompts(orchestrator, console, paused)
    try:
        yield asking.heed
    finally:
        await asking.stop()


def question_of(event: CallAsks, prefix: str = "") -> str:
    """Return what a tool asks, and how it is answered, on one line."""
    asked = one_line(event.message, ARGUMENTS_CHARACTERS)
    return f"{event.tool} asks: {asked}  ({prefix}toolfleet answer {event.question_id} ANSWER)"


class Telling:
    """Says how each call can be decided about."""

    def __init__(self, console: Console, elsewhere: Mapping[str, str]) -> None:
        self._console = console
        self._prefix = "".join(f"{name}={value} " for name, value in elsewhere.items())

    def heed(self, event: RunUpdate) -> None:
        """Tell of a call that waits."""
        if isinstance(event, CallAwaitsApproval):
            asked = one_line(event.arguments, ARGUMENTS_CHARACTERS)
            command = f"{self._prefix}toolfleet runs approve {event.call_id}"
            for line in (f"{event.tool} waits for approval: {command} (or deny)", f"  {asked}"):
                self._console.print(Text(harmless(line)), soft_wrap=True)
        if isinstance(event, CallAsks):
            self._console.print(Text(harmless(question_of(event, self._prefix))), soft_wrap=True)


class ApprovalPrompts:
    """Asks about one call after the other, while the run goes on with its others."""

    def __init__(
        self, orchestrator: Orchestrator, console: Console, paused: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._orchestrator = orchestrator
        self._console = console
        self._paused = paused
        self._waiting: dict[str, CallAwaitsApproval] = {}
        self._task: asyncio.Task[None] | None = None
        self._asked: asyncio.Task[Approval | None] | None = None
        self._asked_id = ""

    def heed(self, event: RunUpdate) -> None:
        """Ask about a call that waits; ask no longer about one that was decided elsewhere."""
        match event:
            case CallAwaitsApproval():
                self._waiting[event.call_id] = event
                if self._task is None or self._task.done():
                    self._task = run_errand("approvals", self._ask_all())
            case CallAsks():
                self._say(question_of(event))
            case CallStarted():
                self._stop_asking(event.call_id)
            case TextArrived() | CallsRequested() | RunEnded():
                # The model goes on, or nobody does: nothing waits any more.
                for call_id in list(self._waiting):
                    self._stop_asking(call_id)
            case _:
                pass

    async def stop(self) -> None:
        """Ask no more."""
        tasks = [task for task in (self._task, self._asked) if task is not None]
        for task in tasks:
            task.cancel()
        # The screen is given back before others go on with it.
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop_asking(self, call_id: str) -> None:
        self._waiting.pop(call_id, None)
        if call_id == self._asked_id and self._asked is not None:
            self._asked.cancel()

    async def _ask_all(self) -> None:
        with self._paused():
            while self._waiting:
                call = next(iter(self._waiting.values()))
                approval = await self._answer(call)
                self._waiting.pop(call.call_id, None)
                if approval is not None:
                    with suppress(RunNotOpen, RunNotFound):  # somebody else was quicker
                        # What a person has said is not forgotten because Redis is away.
                        await until_redis_is_back(partial(self._orchestrator.approve, call.call_id, approval))

    async def _answer(self, call: CallAwaitsApproval) -> Approval | None:
        """Return the person's decision; None once somebody has decided elsewhere."""
        self._asked_id = call.call_id
        self._asked = asyncio.create_task(self._ask_about(call))  # watched: its result is returned below
        await asyncio.wait([self._asked])
        if not self._asked.cancelled():
            return self._asked.result()
        self._say("")
        self._say(f"call {call.call_id} was decided about elsewhere")
        return None

    async def _ask_about(self, call: CallAwaitsApproval) -> Approval | None:
        self._say(f"{call.tool} waits for approval ({call.call_id}):")
        self._say(f"  {one_line(call.arguments, ARGUMENTS_CHARACTERS)}")
        digest = call.digest  # what is decided about is what was shown here
        while True:
            said = await self._line(CHOICE)
            if said is None:  # Ctrl-D: nobody answers here any more
                self._say("")
                self._say(f"It goes on waiting: toolfleet runs approve {call.call_id}, or Ctrl-C")
                return None
            match said.strip().lower():
                case "a" | "approve" | "y" | "yes":
                    return Approval(granted=True, by=who(), digest=digest)
                case "d" | "deny" | "n" | "no":
                    reason = await self._line("Why not? The model reads it: ")
                    return Approval(granted=False, reason=(reason or "").strip(), by=who(), digest=digest)
                case "e" | "edit":
                    if arguments := await self._arguments():
                        return Approval(granted=True, arguments=arguments, by=who(), digest=digest)

    async def _arguments(self) -> str:
        """Ask for other arguments. Returns "" for what is no JSON object."""
        text = (await self._line("Arguments, a JSON object: ") or "").strip()
        with suppress(orjson.JSONDecodeError):
            if isinstance(orjson.loads(text), dict):
                return text
        self._say("That is no JSON object.")
        return ""

    async def _line(self, prompt: str) -> str | None:
        """Read one line from the terminal, None at its end. Cancelled, it leaves the terminal as it was."""
        self._console.print(Text(prompt, "bold"), end="")
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        # A terminal is readable once there is a whole line. A thread that reads could not be stopped.
        loop.add_reader(sys.stdin.fileno(), ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
        # Not through `sys.stdin`, whose buffer would keep further lines from the reader above.
        return os.read(sys.stdin.fileno(), LINE_BYTES).decode(errors="replace") or None

    def _say(self, text: str) -> None:
        self._console.print(Text(harmless(text)), soft_wrap=True)
