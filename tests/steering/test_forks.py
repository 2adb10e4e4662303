"""Another way from a turn of a run: nothing is done again, and that run stays as it is."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from stages import Stage

from tests.http.fleet_of_doors import Api
from tests.steering.steered import parked, until
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, UserMessage
from toolfleet.orchestrator import FunctionModel, Orchestrator
from toolfleet.orchestrator.errors import InvalidOption, RunNotOpen
from toolfleet.orchestrator.models import OpenAIChat

EDITOR = """#!{python}
import json, sys
from pathlib import Path
file = Path(sys.argv[1])
messages = json.loads(file.read_text())
messages[0]["content"] = "What did you study?"
file.write_text({saved})
"""


def studies(stage: Stage) -> str:
    asked = json.dumps({"stage": stage.path})
    return f"call study {asked} then call add {json.dumps({'a': 1, 'b': 2})}"


async def studied(orchestrator: Orchestrator, stage: Stage, **options: Any) -> Any:
    """A run of three turns: its first call has an effect, which the stage sees."""
    run_id = await orchestrator.start(studies(stage), **options)
    (await stage.enters()).returns("studied")
    run = await orchestrator.wait(run_id)
    assert (run.turn, len(run.calls)) == (3, 2)
    return run


async def test_U7_a_fork_has_the_same_prefix_and_recorded_results_and_makes_no_call_again(
    fleet: LocalFleet, model: OpenAIChat, stage: Stage
) -> None:
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        first = await studied(orchestrator, stage, tenant="acme", context={"desk": 9007199254740993})
        forked = await orchestrator.wait(await orchestrator.fork(first.run_id, "And now?", at=1, by="ada"))
        assert forked.messages[:3] == first.messages[:3]
        assert forked.messages[3] == UserMessage(content="And now?")
        assert [call.tool for call in forked.calls] == ["add"]  # what the script still has to ask for, and no more
        assert forked.asked_as == {"forked_from": first.run_id, "turn": 1}
        assert (forked.terms.tenant, forked.terms.context) == ("acme", {"desk": 9007199254740993})
        again = await orchestrator.wait(await orchestrator.fork(first.run_id, at=2))
        assert again.messages[:5] == first.messages[:5]
        assert again.answer == first.answer
        whole = await orchestrator.get(first.run_id)
        assert whole == first
    assert len(stage.actors) == 1


async def test_U7_a_fork_may_be_for_another_model_with_other_messages(
    fleet: LocalFleet, model: OpenAIChat, stage: Stage, observer: Orchestrator
) -> None:
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        first = await studied(orchestrator, stage)
    counts = FunctionModel(lambda messages: AssistantMessage(content=f"{len(messages)} messages"), name="counts")
    forked = await observer.fork(first.run_id, at=1, model="counts")
    edited = [UserMessage(content="Count."), *first.messages[1:3]]
    other = await observer.fork(first.run_id, "Count again.", at=1, model="counts", messages=edited)
    async with Orchestrator(counts, settings=fleet.settings, adopts=True) as there:
        assert (await there.wait(forked)).answer == "3 messages"
        run = await there.wait(other)
    assert (run.messages[0].content, run.answer) == ("Count.", "4 messages")


async def test_U7_a_turn_that_was_not_taken_or_whose_calls_go_on_is_not_forked(
    fleet: LocalFleet, model: OpenAIChat, stage: Stage, observer: Orchestrator
) -> None:
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start(f"call study_slowly {json.dumps({'stage': stage.path})}", slow="wait")
        actor = await stage.enters()
        await until(fleet, run_id, parked)
        with pytest.raises(RunNotOpen, match="not every call of turn 1"):
            await observer.fork(run_id, at=1)
        with pytest.raises(RunNotOpen, match="has had 1 replies"):
            await observer.fork(run_id, at=2)
        with pytest.raises(InvalidOption, match="at: -1"):
            await observer.fork(run_id, at=-1)
        actor.returns("done")
        await orchestrator.wait(run_id)


async def test_U7_over_http_a_fork_may_name_a_model(api: Api, stage: Stage) -> None:
    run_id = await api.begin("hello")
    await api.ended(run_id)
    body = {"turn": 0, "model": "elsewhere", "messages": [{"role": "user", "content": "What else?"}]}
    forked = await api.client.post(f"/v1/runs/{run_id}/fork", json=body)
    assert forked.status_code == 202, forked.text
    run = (await api.client.get(f"/v1/runs/{forked.json()['run_id']}")).json()
    assert (run["model"], run["messages"][0]["content"], run["state"]) == ("elsewhere", "What else?", "thinking")


async def test_U7_a_person_edits_the_conversation_in_an_editor(
    fleet: LocalFleet, model: OpenAIChat, stage: Stage, tmp_path: Path
) -> None:
    async def toolfleet(*words: str, saved: str) -> tuple[int | None, str]:
        editor = tmp_path / "editor"
        editor.write_text(EDITOR.format(python=sys.executable, saved=saved))
        editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolfleet.orchestrator.doors.cli", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **fleet.settings.as_environment(), "VISUAL": str(editor)},
        )
        said, _ = await process.communicate()
        return process.returncode, said.decode()

    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        first = await studied(orchestrator, stage)
        fork = ("runs", "fork", first.run_id, "And now?", "--at", "1", "--edit")
        code, said = await toolfleet(*fork, saved="json.dumps(messages)")
        assert code == 0, said
        run = await orchestrator.wait(said.split()[1])
        assert [each.content for each in run.messages[:4]] == ["What did you study?", "", "studied", "And now?"]
        code, said = await toolfleet(*fork, saved="'[1]'")
        assert (code, "what was saved is no conversation, so no run was begun" in said) == (1, True), said
