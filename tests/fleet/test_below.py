"""Runs of agents below their caller's: nothing that holds for the caller is escaped, and what they use is counted once.

A file tells what had an effect.
"""

import asyncio
import json

import httpx
import pytest
from conversations import WrittenModel, requesting
from fleets import HERE

from toolfleet import Agent, FailureKind, Interceptor, Limits, Orchestrator, Permission, Returned
from toolfleet.errors import CallerError
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, SystemMessage, ToolMessage, Usage
from toolfleet.orchestrator import Approval
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.errors import UnknownInterceptor
from toolfleet.orchestrator.models import ReplyComplete
from toolfleet.orchestrator.run.limits import cost_of
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import CallAwaitsApproval
from toolfleet.prices import Price

WAIT_S = 30
PER_REPLY = Usage(input_tokens=10, output_tokens=5)


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["fleet_tools", "ledger_tools"], pools={"io": 1, "long": 1}, environment=HERE, lease_s=2, heartbeat_s=0.3
    ) as running:
        yield running


class Ledger:
    def __init__(self, path):
        self.path = path
        path.touch()

    @property
    def lines(self):
        return self.path.read_text().splitlines()

    def charge(self, what):
        return "charge", {"ledger": str(self.path), "what": what}


def priced(settings):
    """These settings, with a price for the model."""
    return settings.model_copy(update={"prices": {"written": Price(input=1000.0, output=2000.0)}})


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger")


class Roles(WrittenModel):
    """A model that plays the caller and its agents: each says what was written down for its instructions."""

    def __init__(self, name="written", **roles):
        super().__init__()
        self.name = name
        self.asked = []
        self.closed = 0
        self._roles = {role: list(replies) for role, replies in roles.items()}

    async def stream(self, messages, tools, *, extra_body=None, **_):
        first = messages[0]
        role = first.content if isinstance(first, SystemMessage) else "caller"
        self.asked.append((role, [tool.name for tool in tools], dict(extra_body or {})))
        taken = sum(isinstance(message, AssistantMessage) for message in messages)
        replies = self._roles.get(role, [])
        said = replies[taken] if taken < len(replies) else AssistantMessage(content=f"{role} is done")
        said = said() if callable(said) else said
        reason = "tool_calls" if said.tool_calls else "stop"
        yield ReplyComplete(message=said, usage=PER_REPLY, model=self.name, finish_reason=reason)

    async def aclose(self):
        self.closed += 1


def asks(*calls):
    return requesting(*((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls)))


def helps(name="helper", task="?"):
    return name, {"task": task}


def charges(ledger, count, what="child"):
    return asks(*(ledger.charge(f"{what} {n}") for n in range(count)))


def answers(run):
    return [message.content for message in run.messages if isinstance(message, ToolMessage)]


HELPER = Agent("helper", "Helps.", "helper", tools=["charge"])


# --- limits and usage -------------------------------------------------------------------------------------------------


async def test_P6_what_a_run_below_uses_is_counted_once_and_in_its_callers_too(fleet, ledger):
    middle = Agent("middle", "Asks another.", "middle", tools=["helper", "charge"])
    model = Roles(
        caller=[asks(helps("middle"), ledger.charge("own"))],
        middle=[asks(helps(), ledger.charge("middle"))],
        helper=[charges(ledger, 2)],
    )
    async with Orchestrator(model, agents=[HELPER, middle], settings=priced(fleet.settings)) as it:
        run = await it.run("?", limits=Limits(cost=100.0))
        child = await it.get(run.calls[0].call_id)
        grandchild = await it.get(child.calls[0].call_id)
    assert sorted(ledger.lines) == ["child 0", "child 1", "middle", "own"]
    assert grandchild.usage == PER_REPLY + PER_REPLY
    assert child.usage == grandchild.usage + PER_REPLY + PER_REPLY
    assert run.usage == child.usage + PER_REPLY + PER_REPLY
    assert run.calls[0].spent.calls == {"helper": 1, "charge": 3}
    assert cost_of(run) == pytest.approx(6 * (10 * 1000 + 5 * 2000) / 1e6)


@pytest.mark.parametrize("slow", ["wait", "handle"])
async def test_P6_calls_of_a_run_below_count_against_its_callers_limit(fleet, ledger, slow):
    model = Roles(caller=[asks(helps()), charges(ledger, 2, "own")], helper=[charges(ledger, 2)])
    async with Orchestrator(model, agents=[HELPER], settings=fleet.settings) as it:
        run = await it.run("?", limits=Limits(calls=4), slow=slow)
    assert (run.state, run.reason) == (State.FAILED, "the limit of 4 calls is reached")
    assert sorted(ledger.lines) == ["child 0", "child 1"]


@pytest.mark.parametrize(
    ("limits", "most"),
    [(Limits(calls=3), 2), (Limits(calls=5), 4), (Limits(calls_per_tool=3), 3), (Limits(calls_per_tool=2), 2)],
)
@pytest.mark.parametrize("own", [None, Limits(calls=1000, calls_per_tool=1000, tokens=10**9)])
async def test_P6_a_run_below_has_no_more_calls_than_its_caller_has_left(fleet, ledger, limits, most, own):
    greedy = Agent("helper", "Helps.", "helper", tools=["charge"], limits=own)
    model = Roles(caller=[asks(helps())], helper=[charges(ledger, 1, f"turn {n}") for n in range(8)])
    async with Orchestrator(model, agents=[greedy], settings=fleet.settings) as it:
        run = await it.run("?", limits=limits)
    assert len(ledger.lines) == most
    assert run.calls[0].result.kind is FailureKind.ERROR
    assert "limit" in run.calls[0].result.message


async def test_P6_runs_below_that_go_side_by_side_share_what_is_left(fleet, ledger):
    model = Roles(caller=[asks(helps(), helps(), helps())], helper=[charges(ledger, 1, f"{n}") for n in range(8)])
    async with Orchestrator(model, agents=[HELPER], settings=fleet.settings) as it:
        await it.run("?", limits=Limits(calls=9))
    assert len(ledger.lines) == 6


async def test_P6_an_agent_that_nothing_is_left_for_does_not_start_and_the_model_reads_why(fleet, ledger):
    toolless = Agent("thinker", "Thinks.", "thinker", tools=[])
    model = Roles(caller=[asks(helps(), helps("thinker"))], helper=[charges(ledger, 1)])
    async with Orchestrator(model, agents=[HELPER, toolless], settings=fleet.settings) as it:
        run = await it.run("?", limits=Limits(calls=2))
    refused, thought = (call.result for call in run.calls)
    assert refused.kind is FailureKind.LIMIT
    assert "helper was not called: the limit of 2 calls leaves nothing for it" in refused.message
    assert thought.content == "thinker is done"
    assert (ledger.lines, run.state) == ([], State.DONE)


async def test_P6_how_often_an_agent_is_called_takes_nothing_from_the_tools_that_it_calls(fleet, ledger):
    free = Agent("helper", "Helps.", "helper", model_options={"seed": 1})
    model = Roles(caller=[asks(helps())], helper=[charges(ledger, 2)])
    async with Orchestrator(model, agents=[free], settings=fleet.settings) as it:
        run = await it.run("?", limits=Limits(calls_per_tool=2))
    assert (run.state, len(ledger.lines)) == (State.DONE, 2)


@pytest.mark.parametrize("limits", [Limits(tokens=60), Limits(cost=0.1)], ids=["tokens", "cost"])
async def test_P6_tokens_and_cost_of_a_run_below_end_where_its_callers_do(fleet, ledger, limits):
    model = Roles(caller=[asks(helps())], helper=[charges(ledger, 1, f"{n}") for n in range(20)])
    async with Orchestrator(model, agents=[HELPER], settings=priced(fleet.settings)) as it:
        run = await it.run("?", limits=limits)
    # The reply that passes the limit is known to do so only once it has come.
    assert len(ledger.lines) <= 5
    assert run.state is State.FAILED
    assert "limit" in run.reason


async def test_P6_an_agents_own_limits_and_model_options_hold(fleet, ledger):
    frugal = Agent(
        "helper", "Helps.", "helper", tools=["charge"], limits=Limits(calls=1), model_options={"temperature": 0.25}
    )
    model = Roles(caller=[asks(helps())], helper=[charges(ledger, 1, f"{n}") for n in range(5)])
    async with Orchestrator(model, agents=[frugal], settings=fleet.settings) as it:
        run = await it.run("?", model_options={"temperature": 1.0})
    assert ledger.lines == ["0 0"]
    assert "the limit of 1 calls is reached" in run.calls[0].result.message
    assert {role: body for role, _, body in model.asked} == {
        "caller": {"temperature": 1.0},
        "helper": {"temperature": 0.25},
    }


async def test_P6_a_run_below_ends_with_its_caller_however_that_ends(fleet, ledger):
    slow = Agent("slow", "Is slow.", "slow", tools=["charge_slowly"])
    charge = "charge_slowly", {"ledger": str(ledger.path), "what": "late", "seconds": 60}
    model = Roles(caller=[asks(helps("slow")), charges(ledger, 3, "own")], slow=[asks(charge)])
    async with Orchestrator(model, agents=[slow], settings=fleet.settings) as it:
        run = await it.run("?", slow="handle", patience_s=0, limits=Limits(calls=2))
        child = await asyncio.wait_for(it.wait(f"{run.run_id}.1.0"), WAIT_S)
    assert (run.state, child.state) == (State.FAILED, State.CANCELLED)
    assert ledger.lines == []


# --- interceptors -----------------------------------------------------------------------------------------------------


class Noting(Interceptor):
    def __init__(self):
        self.seen = []

    async def before(self, call):
        self.seen.append((call.tool, call.context.get("user"), call.tenant))
        return call


async def test_P6_the_interceptors_of_the_caller_stand_before_the_calls_of_a_run_below(fleet, ledger):
    not_today = Permission(lambda call: "not today" if call.tool == "charge" else None)
    model = Roles(caller=[asks(helps())], helper=[charges(ledger, 1)])
    async with Orchestrator(
        model, agents=[HELPER], settings=fleet.settings, named_interceptors={"sunday": not_today}
    ) as it:
        run = await it.run("?", interceptors=["sunday"])
        child = await it.get(run.calls[0].call_id)
    assert ledger.lines == []
    assert child.calls[0].result.kind is FailureKind.DENIED


async def test_P6_an_agents_own_interceptors_stand_inside_those_of_its_caller(fleet, ledger):
    mine, its_own = Noting(), Noting()
    agent = Agent("helper", "Helps.", "helper", tools=["charge"], interceptors=["its_own"])
    model = Roles(caller=[asks(helps(), ledger.charge("own"))], helper=[charges(ledger, 1)])
    named = {"mine": mine, "its_own": its_own}
    async with Orchestrator(model, agents=[agent], settings=fleet.settings, named_interceptors=named) as it:
        await it.run("?", interceptors=["mine"], context={"user": "Ada"}, tenant="acme")
    assert sorted(mine.seen) == [(tool, "Ada", "acme") for tool in ("charge", "charge", "helper")]
    assert its_own.seen == [("charge", "Ada", "acme")]


def test_P6_an_agent_with_an_interceptor_or_options_that_do_not_exist_is_refused(fleet):
    with pytest.raises(UnknownInterceptor, match="audit"):
        Orchestrator(agents=[Agent("helper", "Helps.", interceptors=["audit"])], settings=fleet.settings)
    with pytest.raises(CallerError, match="messages"):
        Orchestrator(agents=[Agent("helper", "Helps.", model_options={"messages": []})], settings=fleet.settings)


# --- a model of its own -----------------------------------------------------------------------------------------------


async def test_P6_an_agents_own_model_is_asked_in_its_runs_wherever_they_go_on_and_closed_once(fleet, ledger):
    main = [Roles(caller=[asks(helps())]) for _ in range(2)]
    slow_charge = "charge_slowly", {"ledger": str(ledger.path), "what": "child", "seconds": 3}
    own = [Roles("cheap", helper=[asks(slow_charge)]) for _ in range(2)]

    def orchestrator(n):
        agents = [
            Agent("helper", "Helps.", "helper", tools=["charge_slowly"], model=own[n]),
            Agent("other", "Helps too.", "other", tools=[], model=own[n]),
        ]
        return Orchestrator(main[n], agents=agents, settings=fleet.settings)

    async with orchestrator(0) as first:
        run_id = await first.start("?")
        while not (await first.get(run_id)).calls or not own[0].asked:
            await asyncio.sleep(0.05)
    async with orchestrator(1) as second:
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert run.calls[0].result == Returned(content="helper is done")
    assert {role for each in main for role, _, _ in each.asked} == {"caller"}
    assert {role for each in own for role, _, _ in each.asked} == {"helper"}
    assert ledger.lines == ["child"]
    assert [each.closed for each in (*main, *own)] == [1, 1, 1, 1]


async def test_P6_a_run_of_an_agent_with_a_model_that_is_not_here_says_so(fleet, ledger):
    slow_charge = "charge_slowly", {"ledger": str(ledger.path), "what": "child", "seconds": 3}
    own = Roles("cheap", helper=[asks(slow_charge)])
    agent = Agent("helper", "Helps.", "helper", tools=["charge_slowly"], model=own)
    async with Orchestrator(Roles(caller=[asks(helps())]), agents=[agent], settings=fleet.settings) as first:
        run_id = await first.start("?")
        while not own.asked:
            await asyncio.sleep(0.05)
    async with Orchestrator(Roles(), settings=fleet.settings) as second:
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert "one of the agent helper, which has a model of its own and is not here" in run.calls[0].result.message


# --- approvals --------------------------------------------------------------------------------------------------------


async def test_P5_what_waits_in_a_run_below_is_seen_at_its_caller_and_told_by_its_stream(fleet, ledger):
    asking = Agent("asking", "Asks first.", "asking", tools=["charge_if_allowed"])
    middle = Agent("middle", "Asks another.", "middle", tools=["asking"])
    charge = "charge_if_allowed", {"ledger": str(ledger.path), "what": "child"}
    model = Roles(caller=[asks(helps("middle"))], middle=[asks(helps("asking"))], asking=[asks(charge)])
    async with Orchestrator(model, agents=[asking, middle], settings=fleet.settings) as it:
        waiting = []
        async for event in it.stream("?"):
            if isinstance(event, CallAwaitsApproval):
                run_id = event.call_id.partition(".")[0]
                seen = (await it.get(run_id)).awaiting_approval
                waiting.append((event.tool, event.call_id, [call.call_id for call in seen]))
                assert ledger.lines == []
                await it.approve(event.call_id, Approval(granted=True))
    run = event.run
    below = f"{run.run_id}.1.0.1.0.1.0"
    assert waiting == [("charge_if_allowed", below, [below])]
    assert (run.state, ledger.lines) == (State.DONE, ["child"])
    assert answers(run) == ["middle is done"]
    assert run.awaiting_approval == ()


async def test_P5_what_waits_in_a_run_below_is_decided_at_its_caller_over_http(fleet, ledger):
    asking = Agent("asking", "Asks first.", "asking", tools=["charge_if_allowed"])
    charge = "charge_if_allowed", {"ledger": str(ledger.path), "what": "child"}
    model = Roles(caller=[asks(helps("asking"))], asking=[asks(charge)])
    app = create_app(fleet.settings, options=ApiOptions(is_insecure=True))
    async with (
        Orchestrator(model, agents=[asking], settings=fleet.settings) as it,
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        run_id = await it.start("?")
        address = f"/v1/runs/{run_id}"
        while not (waiting := (await client.get(address)).json()["awaiting_below"]):
            await asyncio.sleep(0.05)
        for stranger in (f"{run_id}.7.0.1.0", f"{run_id}0.1.0.1.0", "x.1.0"):
            answer = await client.post(f"{address}/approvals", json={"call_id": stranger, "granted": True})
            assert answer.status_code == 404, answer.text
        decided = {"call_id": waiting[0]["call_id"], "granted": True}
        assert (await client.post(f"{address}/approvals", json=decided)).status_code == 200
        run = await asyncio.wait_for(it.wait(run_id), WAIT_S)
    assert (run.state, ledger.lines) == (State.DONE, ["child"])
