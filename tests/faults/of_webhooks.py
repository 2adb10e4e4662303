"""Webhooks whose senders are killed, whose receiver is down, and whose server is: the receiver's own books judge."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from standardwebhooks import WebhookVerificationError

from tests.faults.arena import Arena, fault, until
from tests.faults.conversing import Plan
from tests.faults.judge import RETURNED, Ask
from tests.faults.load import MIXED
from tests.faults.of_orchestrators import Conversations, conversations
from tests.faults.steered import STAND
from tests.webhooks.receiver import Receiver, Request, receiving
from toolfleet.connections import connect_async
from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.points import Point
from toolfleet.testing import kill_at
from toolfleet.wire import Seal

RESTS_WITHIN_S = 20.0
ENDS = "run.completed"


class Told:
    """A receiver, the secret that it has, and whether it is there."""

    def __init__(self, secret: str) -> None:
        self.receiver = Receiver()
        self._secret = secret
        self._up = AsyncExitStack()

    async def come_up(self) -> None:
        await self._up.enter_async_context(receiving(self.receiver))

    async def go_down(self) -> None:
        await self._up.aclose()

    def heard(self) -> dict[str, list[str]]:
        """The ids of the messages for the end of each run, of those that prove who has sent them."""
        heard: dict[str, list[str]] = {}
        for request in self.receiver.got:
            if request.type == ENDS and self._is_proven(request):
                heard.setdefault(request.said["data"]["run_id"], []).append(request.id)
        return heard

    def _is_proven(self, request: Request) -> bool:
        try:
            request.verified(self._secret)
        except WebhookVerificationError:
            return False
        return True


@asynccontextmanager
async def told(arena: Arena) -> AsyncIterator[tuple[Told, Conversations]]:
    """Runs whose ends somebody is told of. Judged: of each that was stored, at least once, and under one id."""
    async with connect_async(arena.settings) as client:
        endpoints = Endpoints(client, arena.settings, Seal(arena.settings))
        listener = Told("")
        await listener.come_up()
        endpoint, listener._secret = await endpoints.add(listener.receiver.url)
        try:
            async with conversations(arena) as runs:
                yield listener, runs
            ended = {ask.nonce.rsplit("-", 2)[0] for ask in arena.load.asks if ask.outcome} & runs.plans.keys()
            with suppress(TimeoutError):  # those that are missing by then are lost
                await until(lambda: listener.heard().keys() >= ended)
            arena.expect(await _nothing_owed(arena), "webhooks were still owed when all had been received")
        finally:
            await listener.go_down()
            await endpoints.remove(endpoint.endpoint_id, tenant=None)
    _judge(arena, listener, sorted(ended))


async def _nothing_owed(arena: Arena) -> bool:
    """Whether nothing is to be sent any more, or will be soon."""
    with suppress(TimeoutError):
        async with asyncio.timeout(RESTS_WITHIN_S), connect_async(arena.settings) as client:
            while await client.zcard(arena.settings.keys.webhooks_due()):
                await asyncio.sleep(0.05)
            return True
    return False


def _judge(arena: Arena, listener: Told, ended: Sequence[str]) -> None:
    """Write down what was received, and ask for it as for any effect."""
    heard = listener.heard()
    ledger = os.open(arena.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for run_id, ids in heard.items():
        for id_ in ids:
            os.write(ledger, f"webhook:{run_id} {id_} 0 {os.getpid()}\n".encode())
    os.close(ledger)
    for run_id in ended:
        ask = Ask(f"webhook:{run_id}", "webhook", "{}", once=False, expects=frozenset({RETURNED}))
        arena.load.asks.append(ask)
        if run_id in heard:
            ask.outcome, ask.content, ask.call_id = RETURNED, ask.nonce, heard[run_id][0]
        else:
            ask.error = "nobody was told of the end of its run"


def brief(runs: Conversations, count: int) -> list[Plan]:
    return runs.plan(count, turns=1, calls=1, tools=MIXED)


@fault(
    "an orchestrator is killed between taking a webhook and sending it, or between the receiver's answer and noting it",
    short=6,
    long=30,
    stand=STAND,
)
async def webhooks_sender_killed(arena: Arena, times: int) -> None:
    for number in range(times):
        point = (Point.WEBHOOK_TAKEN, Point.WEBHOOK_ANSWERED)[(arena.turn + number) % 2]
        async with told(arena) as (_, runs):
            holder = await runs.hold(brief(runs, 8), kill_at(point, arena.rng.randint(1, 4)))
            arena.injected(await holder.ended())


@fault("the receiver of webhooks is down as runs end, then back", short=3, long=10, stand=STAND)
async def webhooks_receiver_down(arena: Arena, times: int) -> None:
    async with told(arena) as (listener, runs):
        for _ in range(times):
            async with arena.injecting():
                await listener.go_down()
                holder = await runs.hold(plans := brief(runs, 8))
                await until(lambda plans=plans, holder=holder: len(holder.begun) == len(plans))
                await asyncio.sleep(1 + 2 * arena.rng.random())
                await listener.come_up()
            # Before it is down again: nobody is told who is down for good.
            await until(lambda begun=holder.begun: listener.heard().keys() >= begun)
            await holder.kill()


@fault("the server is killed and started again while webhooks are owed and sent", short=6, long=30, stand=STAND)
async def webhooks_server_killed(arena: Arena, times: int) -> None:
    async with told(arena) as (_, runs):
        for _ in range(times):
            holder = await runs.hold(brief(runs, 8))
            await until(lambda holder=holder: holder.begun)
            await asyncio.sleep(0.3 * arena.rng.random())
            async with arena.injecting():
                await asyncio.to_thread(arena.server.restart, signal.SIGKILL, down_s=0.5 * arena.rng.random())
            await holder.kill()
