"""Messages put into the queues by hand, as a stranger, an old orchestrator or an attacker would."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from typing import Any, Self

from toolfleet.broker import celery_app, tool_queue
from toolfleet.calls import Progress, Returned, ToolCall
from toolfleet.connections import connect_async
from toolfleet.settings import Settings
from toolfleet.wire import Seal

WAIT_MS = 60_000
NOTHING = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


class Post:
    """Sends anything, and reads what comes of it: results, dead letters and counters."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = settings.keys
        self.seal = Seal(settings)
        self.reply_to = f"post-{secrets.token_hex(4)}"
        self.client = connect_async(settings)
        self._last_letter = "0"
        self._last_reply = "0"
        self._results: deque[tuple[str, bytes]] = deque()
        self._app = celery_app(settings)

    def call(self, tool: str, arguments: Any = None, **fields: Any) -> ToolCall:
        run_id = secrets.token_hex(4)
        given: dict[str, Any] = {
            "call_id": f"{run_id}.1.0",
            "run_id": run_id,
            "tool": tool,
            "arguments": json.dumps(arguments or {}),
            "deadline_unix_s": time.time() + 60,
            "reply_to": self.reply_to,
        }
        return ToolCall(**given | fields)

    def send(self, call: ToolCall, *, queue: str = "io", **headers: Any) -> None:
        """As the dispatcher does, but for what `headers` says."""
        self.send_text(*self.seal.close_call(call), call, queue=queue, **headers)

    def send_text(self, text: Any, mac: Any, call: ToolCall, *, queue: str = "io", **headers: Any) -> None:
        self.send_body([[text, mac], {}, NOTHING], call, queue=queue, **headers)

    def send_body(self, body: Any, call: ToolCall, *, queue: str = "io", **headers: Any) -> None:
        with self._app.connection_for_write() as connection:
            self._app.amqp.Producer(connection, auto_declare=False).publish(
                body,
                serializer="json",
                routing_key=queue,
                exchange="",
                declare=[tool_queue(queue)],
                headers={"lang": "py", "task": call.tool, "id": call.call_id} | headers,
            )

    async def write(self, queue: str = "io", **fields: Any) -> None:
        """An entry past every check of the sending side."""
        await self.client.xadd(self.keys.queue(queue, 3), fields)

    async def __aenter__(self) -> Self:
        await self.forget_the_past()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def forget_the_past(self) -> None:
        """Read dead letters and replies from here on."""
        self._last_letter = await self._last_of(self.keys.dead_letters())

    async def _last_of(self, stream: str) -> str:
        newest = await self.client.xrevrange(stream, count=1)
        return newest[0][0].decode() if newest else "0"

    async def letter(self) -> dict[str, bytes]:
        """The next dead letter."""
        self._last_letter, letter = await self._next(self.keys.dead_letters(), self._last_letter)
        return letter

    async def result(self) -> tuple[str, Any]:
        """The next result: whose, and what."""
        while not self._results:
            self._last_reply, reply = await self._next(self.keys.replies(self.reply_to), self._last_reply)
            if "c" not in reply:  # those of several calls
                self._results += reply.items()
            elif "r" in reply:
                self._results.append((reply["c"].decode(), reply["r"]))
        call_id, sealed = self._results.popleft()
        return call_id, self.seal.open_result(sealed, call_id)

    async def progress(self) -> list[Progress]:
        """What is told of the next call's progress until its result is."""
        told: list[Progress] = []
        while True:
            self._last_reply, reply = await self._next(self.keys.replies(self.reply_to), self._last_reply)
            if "p" not in reply:
                return told
            told.append(self.seal.open_progress(reply["p"], reply["c"].decode()))

    async def _next(self, stream: str, last_id: str) -> tuple[str, dict[str, bytes]]:
        reply = await self.client.xread({stream: last_id}, count=1, block=WAIT_MS)
        assert reply, f"nothing in {stream} within {WAIT_MS} ms"
        [[_, entries]] = reply.items() if isinstance(reply, dict) else reply
        entry_id, fields = (entries[0] if isinstance(entries[0], list) else entries)[0]
        return entry_id.decode(), {name.decode(): value for name, value in fields.items()}

    async def counted(self, name: str) -> int:
        return int(await self.client.hget(self.keys.counters(), name) or 0)

    async def serves(self, tool: str = "echo", queue: str = "io") -> None:
        """The worker goes on: one more ordinary call comes back."""
        call = self.call(tool, {"value": "alive"})
        self.send(call, queue=queue)
        assert await self.result() == (call.call_id, Returned(content="alive"))

    async def running(self) -> int:
        """How many calls the workers themselves take for running."""
        inspect = self._app.control.inspect(timeout=1.0)
        active = await asyncio.to_thread(inspect.active)
        return sum(map(len, active.values()))

    async def aclose(self) -> None:
        await self.client.delete(self.keys.replies(self.reply_to))
        await self.client.aclose()
        self._app.close()
