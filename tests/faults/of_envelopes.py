"""Messages that strangers and attackers would put into the queues: nothing of theirs may run."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio

from tests.faults.arena import Arena, fault
from tests.faults.judge import BURIED, RETURNED, Ask
from toolfleet.calls import FailureKind, ToolCall
from toolfleet.connections import connect_async
from toolfleet.wire import Seal

BURIED_ONLY = frozenset({BURIED})
EXPIRED = frozenset({FailureKind.EXPIRED.value})
NO_OPTIONS = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
ANSWERED_WITHIN_S = 30.0


class Stranger:
    """Writes to the queue past every check of the sending side, and looks up what came of it."""

    def __init__(self, arena: Arena, client: redis.asyncio.Redis) -> None:
        self._arena = arena
        self._client = client
        self._keys = arena.settings.keys
        self.seal = Seal(arena.settings)

    def call(self, tool: str = "once", *, expects: frozenset[str], **fields: Any) -> tuple[Ask, ToolCall]:
        """A call that was never asked for."""
        ask = self._arena.load.ask(tool, expects=expects, seconds=0.0)
        run_id = ask.nonce
        given: dict[str, Any] = {
            "call_id": f"{run_id}.1.0",
            "run_id": run_id,
            "tool": tool,
            "arguments": ask.arguments,
            "deadline_unix_s": time.time() + 60,
            "reply_to": "stranger",
        }
        call = ToolCall(**given | fields)
        ask.call_id = call.call_id
        return ask, call

    async def send(self, ask: Ask, text: object, mac: object, call: ToolCall, **headers: Any) -> None:
        """As the dispatcher would, but for what the arguments say."""
        body = json.dumps([[text, mac], {}, NO_OPTIONS])
        await self.write(ask, body, {"lang": "py", "task": call.tool, "id": call.call_id} | headers)

    async def write(self, ask: Ask, body: str | bytes, headers: Any, **properties: Any) -> None:
        """An entry of the queue."""
        self._arena.load.asks.append(ask)
        self._arena.injected()
        ask.sent_s = time.monotonic()
        about = {"delivery_info": {"exchange": "", "routing_key": "io"}, "priority": 3} | properties
        fields: dict[Any, Any] = {"b": body, "h": json.dumps(headers), "p": json.dumps(about)}
        if isinstance(headers, dict) and "claim" in headers:
            fields |= {"id": headers["id"], "claim": headers["claim"]}
        await self._client.xadd(self._keys.queue("io", 3), fields)

    async def await_ends(self, asks: Sequence[Ask]) -> None:
        """Until each has a result or is among the dead letters; who has neither by then is unfinished."""
        open_asks = {ask.call_id: ask for ask in asks}
        give_up = time.monotonic() + ANSWERED_WITHIN_S
        while open_asks and time.monotonic() < give_up:
            for call_id, ask in list(open_asks.items()):
                if sealed := await self._client.get(self._keys.result(call_id)):
                    ask.answer(self.seal.open_result(sealed, call_id), time.monotonic())
            for _, letter in await self._client.xrange(self._keys.dead_letters()):
                text = b" ".join(letter.values())
                for call_id, ask in open_asks.items():
                    if not ask.outcome and call_id.encode() in text:
                        ask.bury(time.monotonic())
            open_asks = {call_id: ask for call_id, ask in open_asks.items() if not ask.outcome}
            await asyncio.sleep(0.02)


@asynccontextmanager
async def stranger(arena: Arena) -> AsyncIterator[Stranger]:
    async with connect_async(arena.settings) as client:
        yield Stranger(arena, client)
    # Nobody was hurt: an ordinary call comes back.
    await arena.load.perform(arena.load.mixture(4))


@fault("a message is not signed, or by a stranger, or as something else", once=5, short=20, long=100)
async def unsigned(arena: Arena, times: int) -> None:
    async with stranger(arena) as writer:
        foreign = Seal(arena.settings.model_copy(update={"secret": type(arena.settings.secret)("f" * 32)}))
        asks = []
        for number in range(times):
            ask, call = writer.call(expects=BURIED_ONLY)
            text, mac = writer.seal.close_call(call)
            forged = [("", ""), (text, ""), (text, "0" * 64), foreign.close_call(call), (text, None), (text, mac[:-1])]
            await writer.send(ask, *forged[number % len(forged)], call)
            asks.append(ask)
        await writer.await_ends(asks)


@fault("a signed message is altered in one place", once=5, short=20, long=100)
async def altered(arena: Arena, times: int) -> None:
    async with stranger(arena) as writer:
        asks = []
        for number in range(times):
            ask, call = writer.call(expects=BURIED_ONLY)
            text, mac = writer.seal.close_call(call)
            headers: dict[str, Any] = {}
            match number % 4:
                case 0:
                    text = text.replace('"seconds\\": 0.0', '"seconds\\": 9.0')
                case 1:
                    headers["task"] = "again"
                case 2:
                    headers["id"] = f"{call.run_id}.1.1"
                case 3:
                    at = arena.rng.randrange(len(text))
                    text = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
            ask.call_id = headers.get("id", call.call_id)
            await writer.send(ask, text, mac, call, **headers)
            asks.append(ask)
        await writer.await_ends(asks)


@fault("a signed message is sent again after its call has ended", once=5, short=20, long=100)
async def replayed(arena: Arena, times: int) -> None:
    async with stranger(arena) as writer, connect_async(arena.settings) as client:
        for number in range(times):
            ask, call = writer.call(expects=frozenset({RETURNED}))
            claim = {"claim": 660} if number % 2 else {}
            await writer.send(ask, *writer.seal.close_call(call), call, **claim)
            await writer.await_ends([ask])
            if number % 3 == 0:
                # Its result is recorded elsewhere and dropped here, as orchestrators do.
                await client.delete(arena.settings.keys.result(call.call_id))
            await writer.send(ask, *writer.seal.close_call(call), call, **claim)
            arena.load.asks.pop()


@fault("a signed message arrives after its deadline", once=5, short=20, long=100)
async def expired(arena: Arena, times: int) -> None:
    async with stranger(arena) as writer:
        asks = []
        for _ in range(times):
            ask, call = writer.call(expects=EXPIRED, deadline_unix_s=time.time() - 1000 * arena.rng.random())
            await writer.send(ask, *writer.seal.close_call(call), call)
            asks.append(ask)
        await writer.await_ends(asks)


class Evil:
    """Unpickled, it would have an effect."""

    def __init__(self, nonce: str, ledger: str) -> None:
        self._command = f"echo {nonce} stolen 1 1 >> {ledger}"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self._command,)


@fault("a message's body is a pickle", once=3, short=12, long=60)
async def pickle_body(arena: Arena, times: int) -> None:
    async with stranger(arena) as writer:
        asks = []
        for number in range(times):
            ask, call = writer.call(expects=BURIED_ONLY)
            pickled = pickle.dumps(Evil(ask.nonce, str(arena.ledger)))
            headers = {"lang": "py", "task": call.tool, "id": call.call_id}
            kind = {"content-type": "application/x-python-serialize", "content-encoding": "binary"}
            match number % 3:
                case 0:
                    await writer.write(ask, pickled, headers | kind, **kind)
                case 1:
                    await writer.write(ask, base64.b64encode(pickled), headers, body_encoding="base64", **kind)
                case 2:
                    encoded = json.dumps([base64.b64encode(pickled).decode(), "application/x-python-serialize"])
                    await writer.write(ask, encoded, headers, **kind)
            asks.append(ask)
        await writer.await_ends(asks)


@fault("a message itself is a bomb of JSON: depth, size, numbers", once=5, short=10, long=50)
async def message_bombs(arena: Arena, times: int) -> None:
    bombs = ["[" * 300_000, "[" * 900 + "]" * 900, "9" * 500_000, "[" + "0," * 500_000 + "0]", "x" * (5 << 20)]
    async with stranger(arena) as writer:
        asks = []
        for number in range(times):
            ask, call = writer.call(expects=BURIED_ONLY)
            headers = {"lang": "py", "task": call.tool, "id": call.call_id}
            await writer.write(ask, bombs[number % len(bombs)], headers)
            asks.append(ask)
        await writer.await_ends(asks)
