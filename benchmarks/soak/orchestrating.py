"""An orchestrator of the soak, in a process of its own: `python -m benchmarks.soak.orchestrating`.

Its model asks for so many calls and, when their messages are back, looks at each of them.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import uvloop

from benchmarks.soak.ledger import ANSWER, DOUBT, WRONG, is_once, note
from toolfleet.garbage import collect_rarely
from toolfleet.messages import AssistantMessage, Message, RequestedCall, ToolMessage, Usage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.models import ReplyComplete
from toolfleet.settings import Settings

MODEL = "soaking"
DOUBTFUL = "may or may not"
"""What a message says of a call that nobody knows the end of."""


class Soaking:
    """The question is `RUN CALLS`: the run's number, and how many calls it makes."""

    name = MODEL

    async def stream(
        self, messages: Sequence[Message], tools: Any, **options: Any
    ) -> AsyncGenerator[ReplyComplete, None]:
        """See ChatModel."""
        del tools, options
        run, calls = map(int, str(messages[0].content).split())
        back = [message for message in messages if isinstance(message, ToolMessage)]
        if back:
            examine(run, calls, back)
            said, reason = AssistantMessage(content="done"), "stop"
        else:
            nonces = [f"{run}.{call}" for call in range(calls)]
            asked = [
                RequestedCall(
                    id=f"call-{nonce}",
                    name="happen_once" if is_once(nonce) else "happen",
                    arguments=json.dumps({"nonce": nonce}),
                )
                for nonce in nonces
            ]
            said, reason = AssistantMessage(tool_calls=tuple(asked)), "tool_calls"
        yield ReplyComplete(message=said, usage=Usage(), model=self.name, finish_reason=reason)

    async def aclose(self) -> None:
        """See ChatModel."""


def examine(run: int, calls: int, messages: Sequence[ToolMessage]) -> None:
    """Write down what each message says that is not the call's own result, and that the run is answered."""
    if [message.tool_call_id for message in messages] != [f"call-{run}.{call}" for call in range(calls)]:
        note(WRONG, f"{run}.all")
    for message in messages:
        nonce = message.tool_call_id.removeprefix("call-")
        content = str(message.content)
        if DOUBTFUL in content:
            note(DOUBT, nonce)
        elif content.strip('"') != nonce:
            note(WRONG, nonce, content[:200])
    note(ANSWER, run)


async def serve() -> None:
    """Work on runs until told to stop."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Orchestrator(model=Soaking(), settings=Settings()):
        await stopped.wait()


if __name__ == "__main__":
    collect_rarely()  # as every service of Toolfleet does
    uvloop.run(serve())
