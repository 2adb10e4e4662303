"""Calls that are back at once are written down as sent together with their results; all others before."""

from __future__ import annotations

from stages import Stage

from tests.steering.steered import until
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.calls.group import BACK_SOON_S
from toolfleet.orchestrator.models import OpenAIChat
from toolfleet.orchestrator.run.events import CallsBack, CallsSent, sending_in
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.wire import Seal

TURNS = 20


def adds(number: int) -> str:
    return f'call add {{"a": {number}, "b": 1}}'


async def history(fleet: LocalFleet, run_id: str) -> list[object]:
    async with connect_async(fleet.settings) as client:
        entries = await RunStore(client, fleet.settings, Seal(fleet.settings)).entries(run_id)
    return [entry.event for entry in entries]


async def test_one_entry_says_that_calls_were_sent_and_what_they_came_to(fleet: LocalFleet, model: OpenAIChat) -> None:
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run(" then ".join(f"{adds(turn)} and {adds(-turn)}" for turn in range(1, TURNS + 1)))
    events = await history(fleet, run.run_id)
    together = [event for event in events if isinstance(event, CallsBack) and event.sent is not None]
    assert together  # a busy machine may keep some of them waiting
    assert all(event.sent.deadlines_unix_s.keys() == event.results.keys() for event in together)
    assert all(0 <= event.sent.held_s < 2 * BACK_SOON_S for event in together)
    sent = [call_id for event in events if (sending := sending_in(event)) for call_id in sending.deadlines_unix_s]
    assert sent == [call.call_id for call in run.calls]
    assert len(run.calls) == 2 * TURNS
    assert all(call.deadline_unix_s is not None for call in run.calls)


async def test_a_call_that_takes_longer_is_written_down_as_sent_while_it_runs(
    fleet: LocalFleet, stage: Stage, model: OpenAIChat
) -> None:
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start(f'call study {{"stage": "{stage.path}"}}')
        actor = await stage.enters()
        run = await until(fleet, run_id, lambda run: run.calls and run.calls[0].deadline_unix_s is not None)
        assert run.state is State.CALLING
        actor.returns("done")
        await orchestrator.wait(run_id)
    events = await history(fleet, run_id)
    [sent] = [event for event in events if isinstance(event, CallsSent)]
    [back] = [event for event in events if isinstance(event, CallsBack)]
    assert (list(sent.deadlines_unix_s), list(back.results), back.sent) == ([actor.call_id], [actor.call_id], None)
    assert sent.held_s >= BACK_SOON_S / 2
