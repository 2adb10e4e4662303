"""Runs whose calls are made one after the other, or so many at a time, on real workers."""

from __future__ import annotations

import json

import pytest
from conversations import WrittenModel, requesting
from stages import Stage

from tests.steering.steered import answers, lone
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator import Orchestrator, RehearsalServer
from toolfleet.orchestrator.errors import InvalidOption
from toolfleet.orchestrator.models import OpenAIChat
from toolfleet.orchestrator.run.states import State
from toolfleet.points import Point


def studies(stage: Stage, times: int) -> AssistantMessage:
    return requesting(*((f"c{n}", "study_slowly", json.dumps({"stage": stage.path})) for n in range(times)))


@pytest.mark.parametrize(("at_a_time", "together"), [(1, [1] * 5), (2, [2, 2, 1]), (None, [5])])
async def test_no_more_calls_are_under_way_than_may_be(
    fleet: LocalFleet, stage: Stage, at_a_time: int | None, together: list[int]
) -> None:
    model = WrittenModel((studies(stage, 5), "tool_calls"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?", calls_at_a_time=at_a_time)
        seen = 0
        for size in together:
            actors = [await stage.enters() for _ in range(size)]
            assert len(stage.actors) == seen + size  # the others wait for these
            seen += size
            for actor in actors:
                actor.returns(actor.call_id[-1])
        run = await orchestrator.wait(run_id)
    assert answers(run, "study_slowly") == ["0", "1", "2", "3", "4"]


async def test_an_interruption_calls_off_what_is_under_way_and_what_was_to_follow(
    fleet: LocalFleet, stage: Stage
) -> None:
    model = WrittenModel((studies(stage, 3), "tool_calls"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?", calls_at_a_time=1)
        actor = await stage.enters()
        await orchestrator.say(run_id, "Stop.", interrupt=True)
        assert await actor.leaves() == "cancelled"
        run = await orchestrator.wait(run_id)
    assert (run.state, len(stage.actors), len(model.heard)) == (State.DONE, 1, 2)
    assert [call.result.kind for call in run.calls] == ["cancelled"] * 3


async def test_a_killed_orchestrators_calls_go_on_one_after_the_other_and_none_is_made_twice(
    fleet: LocalFleet, stage: Stage, rehearsal: RehearsalServer, model: OpenAIChat
) -> None:
    question = " and ".join(f'call study {{"stage": "{stage.path}"}}' for _ in range(3))
    async with lone(fleet, rehearsal.base_url, question, f"{Point.DISPATCHED}:2", calls_at_a_time=1) as (
        process,
        run_id,
    ):
        (await stage.enters()).returns("done")
        await process.wait()
    async with Orchestrator(model, settings=fleet.settings) as second:
        for _ in range(2):
            (await stage.enters()).returns("done")
        run = await second.wait(run_id)
    assert (run.state, answers(run, "study")) == (State.DONE, ["done"] * 3)
    assert sorted(actor.call_id[-1] for actor in stage.actors) == ["0", "1", "2"]


async def test_how_many_at_a_time_must_be_a_number_that_can_be_meant(fleet: LocalFleet) -> None:
    async with Orchestrator(WrittenModel(), settings=fleet.settings) as orchestrator:
        for odd in (0, -1, True, "many"):
            with pytest.raises(InvalidOption, match="calls_at_a_time"):
                await orchestrator.start("?", calls_at_a_time=odd)  # type: ignore[arg-type]  # what must be refused
