"""As `test_any_life`, with agents, compensation, and interceptors that refuse, raise and change around the calls."""

import asyncio
import json
import random
from contextlib import suppress

import pytest

from tests.truth.ledger import AGENT, WAIT_S, judge, told
from tests.truth.slow_writer import Reply, slow_writer
from tests.truth.test_any_life import SETTLED_S, cancelled
from toolfleet import Agent, Failed, FailureKind, Interceptor, Limits, Orchestrator
from toolfleet.orchestrator.errors import RunNotFound

HELPER = "helper"
TOOLS = ["charge", "charge", "charge_revocably", "charge_revocably", "charge_and_fail", "charge_slowly"]


class Meddler(Interceptor):
    """Refuses, raises and changes as the key of a call says, so that each orchestrator does the same."""

    async def before(self, call):
        key = json.loads(call.arguments).get("key", "")
        if key.endswith("refused"):
            return Failed(kind=FailureKind.ERROR, message=f"{call.tool} was not called: refused")
        if key.endswith("raises"):
            raise ValueError("as it was told to")
        return call

    async def after(self, call, result):
        key = json.loads(call.arguments).get("key", "")
        if key.endswith("hidden"):
            raise ValueError("not to be seen")
        return result if isinstance(result, Failed) else replace_content(result, f"{result.content}, seen")


def replace_content(result, content):
    return result.model_copy(update={"content": content})


def replies_of(chance, ledger, *, meddling):
    endings = ["", "", "", "-refused", "-hidden", "-raises"] if meddling else [""]
    replies = []
    for turn in range(4):
        calls = [
            ledger.asks(
                chance.choice(TOOLS), f"{turn}-{n}{chance.choice(endings)}", seconds=chance.choice([0, 0, 0.3, 20])
            )
            for n in range(chance.randint(1, 6))
        ]
        if chance.random() < 0.7:
            calls.insert(chance.randrange(len(calls)), (f"{turn}-{AGENT}", HELPER, json.dumps({"task": "help"})))
        # `charge_and_fail` takes a key and no more.
        replies.append(Reply([fitting(call) for call in calls], chance.choice([0.0, 0.01, 0.1])))
    return replies


def fitting(call):
    id_, tool, text = call
    arguments = json.loads(text)
    if tool == "charge_and_fail":
        arguments.pop("seconds", None)
    return id_, tool, json.dumps(arguments)


def orchestrator_of(fleet, writer, meddling):
    return Orchestrator(
        writer and writer.model(),
        settings=fleet.settings,
        agents=[Agent(name=HELPER, description="Helps.", instructions="Help.", tools=list(dict.fromkeys(TOOLS)))],
        interceptors=[Meddler()] if meddling else [],
    )


async def family(orchestrator, run):
    """The run, and those of its agents."""
    below = []
    for call in run.calls:
        if call.tool == HELPER:
            with suppress(RunNotFound):
                below.append(await orchestrator.get(call.call_id))
    return run, *below


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_stands_around_the_calls_of_a_run_its_messages_agree_with_the_ledger(fleet, ledger, seed):
    chance = random.Random(1000 + seed)  # a test's choice, no secret
    meddling = chance.random() < 0.6
    options = {
        "slow": chance.choice(["wait", "handle"]),
        "limits": Limits(calls=chance.choice([6, 20, 60])),
        "timeout_s": chance.choice([1.5, 3.0, 60.0]),
        "compensate": chance.random() < 0.5,
    }
    async with (
        slow_writer(*replies_of(chance, ledger, meddling=meddling)) as writer,
        orchestrator_of(fleet, None, meddling) as outsider,
    ):
        async with orchestrator_of(fleet, writer, meddling) as first:
            run_id = await first.start("?", **options)
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            is_adopted = chance.random() < 0.5
            if not is_adopted:
                await cancelled(chance.choice([first, outsider]), run_id)
        if is_adopted:
            async with orchestrator_of(fleet, writer, meddling) as second:
                await asyncio.sleep(chance.uniform(0.1, 1.0))
                await cancelled(outsider, run_id)
                await asyncio.wait_for(second.wait(run_id), WAIT_S)
        await asyncio.sleep(SETTLED_S)
        run, *below = await family(outsider, await outsider.get(run_id))
    assert all(each.state.is_terminal for each in (run, *below))
    judge(run, ledger, *below)
    begun = {call.requested_id for call in run.calls if call.call_id in {each.run_id for each in below}}
    assert begun.isdisjoint(key for key, content in told(run).items() if AGENT in key and "was not called" in content)
