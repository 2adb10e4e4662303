"""What a person approves is what runs: once, with those bytes, whoever else decides and whatever dies meanwhile."""

import asyncio
import hashlib
import json
import os
import re
import sys
from dataclasses import replace

import pytest
from conversations import WrittenModel, requesting

from tests.http.fleet_of_doors import api_of
from tests.steering.steered import WAIT_S, answers, lone, parked, until
from toolfleet.calls import FailureKind
from toolfleet.messages import AssistantMessage
from toolfleet.orchestrator import Agent, Interceptor, Orchestrator
from toolfleet.orchestrator.errors import RunNotOpen
from toolfleet.orchestrator.run.events import Approval, ApprovalBelow, ApprovalGiven
from toolfleet.orchestrator.run.states import State
from toolfleet.points import Point

AS_WRITTEN = '{"amount": 9007199254740993, "": [1.10], "amount ": "\\u202e"}'


def asks(*calls):
    return requesting(*((f"c{n}", name, given) for n, (name, given) in enumerate(calls))), "tool_calls"


def digest_of(call):
    return hashlib.sha256(
        json.dumps([call.call_id, call.tool, call.arguments], ensure_ascii=False, separators=(",", ":")).encode()
    ).hexdigest()


async def test_U4_what_is_approved_has_a_digest_and_runs_to_the_byte_as_it_was_approved(fleet, observer):
    model = WrittenModel(asks(("signed", AS_WRITTEN), ("signed", AS_WRITTEN)))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        heard = []
        run_id = await orchestrator.start("?", on_event=heard.append)
        first, second = (await until(fleet, run_id, parked)).awaiting_approval
        assert first.digest == digest_of(first) != second.digest
        told = {event.call_id: event.digest for event in heard if event.type == "call_awaits_approval"}
        assert told == {first.call_id: first.digest, second.call_id: second.digest}
        await observer.approve(first.call_id, Approval(granted=True, digest=first.digest, by="ada"))
        edited = AS_WRITTEN.replace("993", "995")
        await observer.approve(second.call_id, Approval(granted=True, arguments=edited, digest=second.digest))
        run = await orchestrator.wait(run_id)
    said = [json.loads(answer) for answer in answers(run, "signed")]
    assert said == [json.loads(AS_WRITTEN), json.loads(edited)]
    assert [list(each) for each in said] == [["amount", "", "amount "]] * 2
    assert [call.digest for call in run.calls] == [digest_of(call) for call in run.calls]
    entries = await observer._services.store.entries(run_id)
    decided = [entry.event.approval.digest for entry in entries if isinstance(entry.event, ApprovalGiven)]
    assert decided == [first.digest, second.digest]


async def test_U4_a_decision_about_other_arguments_is_refused_and_the_call_goes_on_waiting(fleet, api):
    run_id = await api.begin('call pay {"amount": 5}')
    call = (await until(fleet, run_id, parked)).awaiting_approval[0]
    [listed] = [
        each for each in (await api.client.get("/v1/approvals")).json()["approvals"] if each["run_id"] == run_id
    ]
    shown = (await api.client.get(f"/v1/runs/{run_id}/calls/{call.call_id}")).json()
    assert listed["digest"] == shown["digest"] == call.digest
    url, other = f"/v1/runs/{run_id}/approvals", "0" * 64
    for granted in (True, False):
        decided = {"call_id": call.call_id, "granted": granted, "digest": other}
        refused = await api.client.post(url, json=decided)
        assert (refused.status_code, "other arguments" in refused.json()["detail"]) == (409, True)
        refused = await api.client.post(url, json={**decided, "arguments": {"amount": 1}})
        assert refused.status_code == 409
    assert (await api.client.post(url, json={**decided, "digest": "short"})).status_code == 422
    assert (await until(fleet, run_id, parked)).awaiting_approval
    code, said = await toolfleet(fleet, "runs", "approve", call.call_id, "--digest", other)
    assert (code, "other arguments" in said) == (1, True), said
    code, said = await toolfleet(fleet, "runs", "approve", call.call_id, "--digest", call.digest)
    assert code == 0, said
    assert "paid 5" in (await api.ended(run_id))["answer"]


async def test_U4_of_many_who_decide_at_once_one_has_decided_and_the_others_hear_who(fleet, stage, observer):
    model = WrittenModel(asks(("pay", json.dumps({"amount": 1, "stage": stage.path}))))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        call = (await until(fleet, run_id, parked)).awaiting_approval[0]

        async def decide(number):
            who = observer if number % 2 else orchestrator
            edited = json.dumps({"amount": number, "stage": stage.path})
            approval = Approval(granted=True, arguments=edited, digest=call.digest, by=f"person {number}")
            return await who.approve(call.call_id, approval)

        decided = await asyncio.gather(*map(decide, range(2, 10)), return_exceptions=True)
        refused = [each for each in decided if isinstance(each, RunNotOpen)]
        actor = await stage.enters()
        actor.returns()
        run = await orchestrator.wait(run_id)
        with pytest.raises(RunNotOpen, match="approved already by person"):
            await observer.approve(call.call_id, Approval(granted=False, by="late"))
    assert (len(decided) - len(refused), len(stage.actors)) == (1, 1)
    [winner] = [each for each in decided if not isinstance(each, RunNotOpen)]
    by = winner.calls[0].approval.by
    assert all(f"already by {by}" in str(each) for each in refused)
    assert answers(run, "pay") == [f"paid {float(by.removeprefix('person '))}"]


async def test_U4_what_was_approved_runs_once_though_two_orchestrators_die_over_it(
    fleet, stage, rehearsal, model, observer
):
    question = f"call pay {json.dumps({'amount': 1, 'stage': stage.path})}"
    async with lone(fleet, rehearsal.base_url, question, f"{Point.DISPATCHED}:2") as (process, run_id):
        call = (await until(fleet, run_id, parked)).awaiting_approval[0]
        edited = json.dumps({"amount": 7, "stage": stage.path})
        await observer.approve(call.call_id, Approval(granted=True, arguments=edited, digest=call.digest, by="ada"))
        actor = await stage.enters()
        await process.wait()
    with pytest.raises(RunNotOpen, match="by ada"):
        await observer.approve(call.call_id, Approval(granted=True, digest=call.digest, by="bob"))
    async with Orchestrator(model, settings=fleet.settings) as second:
        actor.returns()
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert (run.state, answers(run, "pay"), len(stage.actors)) == (State.DONE, ["paid 7.0"], 1)


async def test_U4_arguments_that_are_changed_after_their_approval_are_not_sent(fleet, stage):
    class Raises(Interceptor):
        async def before(self, call):
            return replace(call, arguments=call.arguments.replace("1", "1000"))

    async with Orchestrator(
        WrittenModel(asks(("pay", '{"amount": 1}'), ("add", '{"a": 1, "b": 2}'))),
        interceptors=[Raises()],
        settings=fleet.settings,
    ) as orchestrator:
        run_id = await orchestrator.start("?")
        call = (await until(fleet, run_id, parked)).awaiting_approval[0]
        await orchestrator.approve(call.call_id, Approval(granted=True))
        run = await orchestrator.wait(run_id)
    assert (run.calls[0].result.kind, answers(run, "add")) == (FailureKind.DENIED, ["1002"])
    assert "changed after a person had approved" in answers(run, "pay")[0]


class Roles(WrittenModel):
    """Each agent's run asks for the next thing below it."""

    def __init__(self):
        super().__init__()

    async def stream(self, messages, tools, **options):
        if messages[-1].role == "tool":
            said = AssistantMessage(content="done"), "stop"
        else:
            role = messages[0].content if messages[0].role == "system" else "caller"
            below = {"caller": ("middle", '{"task": "?"}'), "middle": ("lowest", '{"task": "?"}')}
            said = asks(below.get(role, ("pay", '{"amount": 3}')))
        self._replies = [said]
        async for event in super().stream(messages, tools, **options):
            yield event


async def test_U4_what_waits_in_runs_below_and_what_is_decided_is_told_once_by_the_streams_above(fleet, observer):
    lowest = Agent("lowest", "Pays.", "lowest", tools=["pay"])
    middle = Agent("middle", "Has somebody pay.", "middle", tools=["lowest"])
    async with (
        Orchestrator(Roles(), agents=[lowest, middle], settings=fleet.settings) as orchestrator,
        api_of(fleet.settings) as elsewhere,
    ):
        run_id = await orchestrator.start("?")
        following = asyncio.create_task(elsewhere.events(run_id))
        run = await until(fleet, run_id, lambda run: run.told_below)
        [call] = run.awaiting_below
        await observer.approve(call.call_id, Approval(granted=True, digest=call.digest, by="ada"))
        run = await asyncio.wait_for(orchestrator.wait(run_id), WAIT_S)
        events = [data for _, kind, data in await asyncio.wait_for(following, WAIT_S) if kind == "approval_below"]
        for each in (f"{run_id}.1.0",):
            entries = await observer._services.store.entries(each)
            assert len([entry for entry in entries if isinstance(entry.event, ApprovalBelow)]) == 2
    assert run.state is State.DONE
    waits, decided = events
    assert (waits["call_id"], waits["tool"], waits["digest"]) == (call.call_id, "pay", call.digest)
    assert json.loads(waits["arguments"]) == {"amount": 3}
    assert (waits["approval"], decided["approval"]["granted"], decided["approval"]["by"]) == (None, True, "ada")


async def toolfleet(fleet, *words):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolfleet.orchestrator.doors.cli", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **fleet.settings.as_environment()},
    )
    said, _ = await process.communicate()
    return process.returncode, re.sub(r"\s+", " ", said.decode())
