"""Every call goes one way, whoever asks: past the same interceptors, out and back. A file tells what had an effect."""

import asyncio
import json
from dataclasses import replace

import httpx
import pytest
from conversations import WrittenModel, requesting
from fleets import HERE, asking
from mcp import Client

from toolfleet import FailureKind, Interceptor, OnFailure, Orchestrator, Permission, Returned, ToolSpec
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Approval
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.run.states import State


@pytest.fixture(scope="module")
def fleet():
    with LocalFleet(
        ["fleet_tools", "ledger_tools"], pools={"io": 1, "long": 1}, environment=HERE, mcp_wait_s=1
    ) as running:
        yield running


class Ledger:
    """What has happened, as the tools wrote it down."""

    def __init__(self, path):
        self.path = str(path)
        path.touch()
        self._path = path

    @property
    def lines(self):
        return self._path.read_text().splitlines()

    def write(self, line):
        with self._path.open("a") as book:
            book.write(f"{line}\n")

    def asks(self, **arguments):
        return {"ledger": self.path, "what": "charge", **arguments}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger")


class Discreet(Interceptor):
    """No card number leaves it, and it counts what it has seen."""

    def __init__(self):
        self.seen = []

    async def before(self, call):
        self.seen.append((call.tool, json.loads(call.arguments)))
        return call

    async def after(self, call, result):
        if isinstance(result, Returned):
            return result.model_copy(update={"content": result.content.replace("4711", "****")})
        return result


NOT_TODAY = Permission(lambda call: "not today" if call.tool.startswith("charge") else None)

SOFTENED = OnFailure(execution=lambda call, failed: f"softened: {json.loads(call.arguments)['what']}")


def answers(run, name=None):
    return [
        message.content
        for message in run.messages
        if isinstance(message, ToolMessage) and (name is None or message.name == name)
    ]


def reply(*calls):
    return requesting(*((f"c{n}", name, text) for n, (name, text) in enumerate(calls))), "tool_calls"


def call_of(name, arguments):
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments)


# --- whoever asks ----------------------------------------------------------------------------------------------------


async def by_call(fleet, ledger, **parts):
    async with Orchestrator(settings=fleet.settings, **parts) as it:
        result = await it.call("charge", ledger.asks())
    return result.content if isinstance(result, Returned) else result.message


async def by_execute(fleet, ledger, **parts):
    async with Orchestrator(settings=fleet.settings, **parts) as it:
        [message] = await it.execute(asking(("charge", ledger.asks())))
    return message.content


async def by_run(fleet, ledger, **parts):
    model = WrittenModel(reply(call_of("charge", ledger.asks())))
    async with Orchestrator(model, settings=fleet.settings, **parts) as it:
        run = await it.run("?")
    return answers(run)[0]


async def by_mcp(fleet, ledger, **parts):
    from tests.mcp.doors import served
    from toolfleet.orchestrator.doors.mcp import mcp_app

    async with (
        Orchestrator(settings=fleet.settings, **parts) as it,
        served(mcp_app(it)) as address,
        Client(address) as client,
    ):
        result = await client.call_tool("charge", ledger.asks())
    return result.content[0].text


async def by_http(fleet, ledger, *, interceptors):
    app = create_app(fleet.settings, interceptors=interceptors, options=ApiOptions(is_insecure=True))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        answer = (await client.post("/v1/tools/charge/call", json={"arguments": ledger.asks()})).json()
    return answer.get("content") or answer["message"]


WAYS = [by_call, by_execute, by_run, by_mcp, by_http]


@pytest.mark.parametrize("way", WAYS)
async def test_P2_a_permission_stands_before_every_call_whoever_asks(fleet, ledger, way):
    assert "not today" in await way(fleet, ledger, interceptors=[NOT_TODAY])
    assert ledger.lines == []


@pytest.mark.parametrize("way", WAYS)
async def test_P1_what_comes_back_passes_the_interceptors_whoever_asks(fleet, ledger, way):
    discreet = Discreet()
    assert await way(fleet, ledger, interceptors=[discreet]) == "charged charge, card ****"
    assert discreet.seen == [("charge", ledger.asks())]
    assert ledger.lines == ["charge"]


async def test_P1_an_interceptor_knows_whose_call_it_is(fleet, ledger):
    mine = Permission(lambda call: None if call.tenant == "acme" else f"{call.tenant!r} is a stranger")
    async with Orchestrator(settings=fleet.settings, interceptors=[mine]) as it:
        assert (await it.call("charge", ledger.asks(), tenant="acme")).type == "returned"
        assert "is a stranger" in (await it.call("charge", ledger.asks(), tenant="umbrella")).message
    assert len(ledger.lines) == 1


async def test_P4_a_rule_about_a_tool_holds_under_every_name_that_a_resolver_gives_it(fleet, ledger):
    discreet = Discreet()
    model = WrittenModel(reply(call_of("pay", ledger.asks()), call_of("echo", {"value": 4711})))
    parts = {"resolve_tool": {"pay": "charge"}.get, "interceptors": [discreet, NOT_TODAY]}
    async with Orchestrator(model, settings=fleet.settings, **parts) as it:
        run = await it.run("?", tools=["echo"])
    assert run.calls[0].result.kind is FailureKind.DENIED
    assert (ledger.lines, [tool for tool, _ in discreet.seen]) == ([], ["charge", "echo"])


async def test_P4_that_goes_for_a_result_that_comes_late_too(fleet, ledger):
    softened = OnFailure(execution=lambda call, failed: f"{call.tool} failed" if call.tool == "charge_slowly" else None)
    model = WrittenModel(reply(call_of("pay", ledger.asks(fails=True))), (AssistantMessage(content="so be it"), "stop"))
    parts = {"resolve_tool": {"pay": "charge_slowly"}.get, "interceptors": [softened]}
    async with Orchestrator(model, settings=fleet.settings, **parts) as it:
        run = await it.run("?", tools=["echo"], slow="handle")
    assert json.loads(answers(run, "task_result")[0])["error"] == "charge_slowly failed"
    assert ledger.lines == ["charge"]


# --- late results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("fetches", [False, True])
async def test_P1_a_slow_calls_result_passes_the_interceptors_whether_it_is_fetched_or_delivered(
    fleet, ledger, fetches, fails
):
    def fetch(messages):
        ticket = json.loads(messages[-1].content)["task_id"]
        return requesting(("f", "task_result", json.dumps({"task_id": ticket, "timeout_ms": 20_000})))

    asked = call_of("charge_slowly", ledger.asks(fails=fails))
    model = WrittenModel(reply(asked), (fetch if fetches else AssistantMessage(content="so be it"), "stop"))
    async with Orchestrator(model, settings=fleet.settings, interceptors=[Discreet(), SOFTENED]) as it:
        run = await it.run("?", slow="handle")
    [told] = answers(run, "task_result")
    assert "4711" not in json.dumps([message.model_dump() for message in run.messages])
    if fails:
        assert json.loads(told)["error"] == "softened: charge"
        assert run.calls[0].late_result.message == "softened: charge"
    else:
        assert json.loads(told)["result"] == "charged charge, card ****"
        assert run.calls[0].late_result.content == "charged charge, card ****"
    assert (run.state, ledger.lines) == (State.DONE, ["charge"])


async def test_P1_a_late_failure_that_is_made_a_result_is_told_as_one(fleet, ledger):
    model = WrittenModel(
        reply(call_of("charge_slowly", ledger.asks(fails=True))), (AssistantMessage(content="so be it"), "stop")
    )
    instead = OnFailure(execution=lambda call, failed: Returned(content="nothing was charged"))
    async with Orchestrator(model, settings=fleet.settings, interceptors=[instead]) as it:
        run = await it.run("?", slow="handle")
    told = json.loads(answers(run, "task_result")[0])
    assert (told["status"], told["result"]) == ("succeeded", "nothing was charged")


async def test_P1_a_handles_result_passes_the_interceptors_with_what_its_call_was_asked_with(fleet, ledger):
    said = OnFailure(
        execution=lambda call, failed: f"{json.loads(call.arguments)['what']} of {call.context['user']}, {call.tenant}"
    )
    parts = {"settings": fleet.settings, "interceptors": [said, Discreet()]}
    async with Orchestrator(**parts) as first:
        failing = await first.call(
            "charge_slowly", ledger.asks(fails=True), patience_s=0, context={"user": "Ada"}, tenant="acme"
        )
        working = await first.call("charge_slowly", ledger.asks(), patience_s=0)
    async with Orchestrator(**parts) as second:
        assert (await second.task(failing.handle, wait_s=20)).result.message == "charge of Ada, acme"
        assert (await second.task(working.handle, wait_s=20)).result.content == "charged charge, card ****"
    assert len(ledger.lines) == 2


async def test_P1_the_handle_of_a_runs_call_passes_the_interceptors_of_its_run(fleet, ledger):
    model = WrittenModel(reply(call_of("charge_slowly", ledger.asks(seconds=1.0))))
    async with Orchestrator(model, settings=fleet.settings, named_interceptors={"discreet": Discreet()}) as it:
        run_id = await it.start("?", interceptors=["discreet"])
        while not (tasks := (await it.get(run_id)).tasks):
            await asyncio.sleep(0.05)
        [handle] = tasks
        status = await it.task(handle, wait_s=20)
        run = await it.wait(run_id)
    assert status.result.content == answers(run)[0] == "charged charge, card ****"


# --- arguments that nobody can read ---------------------------------------------------------------------------------


async def test_P1_no_text_that_a_model_writes_ends_the_run_at_an_interceptor_that_reads_it(fleet, ledger):
    """Whole or repaired, it is shown one JSON object; a hopeless text is its call's failure, and nothing more."""
    discreet, heard = Discreet(), []
    told = OnFailure(arguments=lambda call, failed: heard.append(call.arguments) or "send one JSON object")
    fine = json.dumps(ledger.asks(what="fine"))
    model = WrittenModel(
        reply(
            ("charge", fine),
            ("charge", f"Here you are: ```json\n{json.dumps(ledger.asks(what='mended'))[:-1]},}}```"),
            ("charge", "I would rather not"),
            ("charge", "[" * 3000),
            ("charge", ""),
        )
    )
    needs_approval = {"needs_approval": lambda call: json.loads(call.arguments).get("what") == "risky"}
    async with Orchestrator(model, settings=fleet.settings, interceptors=[discreet, told], **needs_approval) as it:
        run = await it.run("?")
    assert run.state is State.DONE, run.reason
    assert sorted(ledger.lines) == ["fine", "mended"]
    assert answers(run)[2:4] == ["send one JSON object"] * 2
    assert [arguments.get("what") for _, arguments in discreet.seen] == ["fine", "mended", None]
    assert heard[0] == "I would rather not"


# --- the tools of an interceptor -------------------------------------------------------------------------------------

NOTE = ToolSpec(
    name="note",
    description="Keep a note.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)


class Notebook(Interceptor):
    """Brings a tool along, and trusts what it is given."""

    def __init__(self, ledger, **options):
        self.tools = (NOTE.model_copy(update=options),)
        self._ledger = ledger

    async def answer(self, call):
        text = json.loads(call.arguments)["text"]
        self._ledger.write(text)
        return Returned(content=f"noted {text} for 4711")


async def test_P1_an_interceptors_tool_is_asked_only_with_arguments_that_fit_and_those_are_repaired_first(
    fleet, ledger
):
    model = WrittenModel(
        reply(("note", '{"text": "milk",}'), ("note", '{"text": 5}'), ("note", "not at all"), ("note", '{"txt": "?"}'))
    )
    async with Orchestrator(model, settings=fleet.settings, interceptors=[Notebook(ledger)]) as it:
        run = await it.run("?")
    assert (run.state, ledger.lines) == (State.DONE, ["milk"])
    assert [call.result.type for call in run.calls] == ["returned", "failed", "failed", "failed"]
    assert all(call.result.kind is FailureKind.BAD_ARGUMENTS for call in run.calls[1:])
    assert "'text'" in run.calls[1].result.message


async def test_P1_an_interceptors_tool_is_seen_by_the_others_on_the_way_out_and_back(fleet, ledger):
    discreet = Discreet()
    no_beer = Permission(lambda call: "no beer" if "beer" in call.arguments else None)
    model = WrittenModel(reply(("note", '{"text": "milk"}'), ("note", '{"text": "beer"}')))
    async with Orchestrator(model, settings=fleet.settings, interceptors=[discreet, no_beer, Notebook(ledger)]) as it:
        run = await it.run("?")
    assert answers(run)[0] == "noted milk for ****"
    assert run.calls[1].result.kind is FailureKind.DENIED
    assert ledger.lines == ["milk"]
    assert [tool for tool, _ in discreet.seen] == ["note", "note"]


async def test_P5_an_interceptors_tool_waits_for_approval_as_any_other(fleet, ledger):
    model = WrittenModel(reply(("note", '{"text": "one"}'), ("note", '{"text": "two"}'), ("echo", '{"value": 1}')))
    heard = []
    async with Orchestrator(
        model, settings=fleet.settings, interceptors=[Notebook(ledger, requires_approval=True)]
    ) as it:
        run_id = await it.start("?", on_event=lambda event: heard.append(event.type))
        while len((run := await it.get(run_id)).awaiting_approval) < 2 or run.state is not State.PARKED:
            await asyncio.sleep(0.05)
        assert ledger.lines == []
        first, second = run.awaiting_approval
        await it.approve(first.call_id, Approval(granted=True, arguments='{"text": "another"}'))
        await it.approve(second.call_id, Approval(granted=False, reason="enough"))
        run = await it.wait(run_id)
    assert ledger.lines == ["another"]
    assert run.calls[1].result.kind is FailureKind.DENIED
    assert heard.count("call_awaits_approval") == 2


async def test_P1_an_interceptors_tool_is_there_for_callers_with_a_loop_of_their_own(fleet, ledger):
    notebook = Notebook(ledger, requires_approval=True)
    async with Orchestrator(settings=fleet.settings, interceptors=[notebook, Discreet()]) as it:
        assert (await it.call("note", {"text": "mine"})).content == "noted mine for ****"
        assert (await it.call("note", {"text": 1})).kind is FailureKind.BAD_ARGUMENTS
        denied, ran = await it.execute(
            asking(("note", {"text": "no"}), ("note", {"text": "yes"})), tools=["note"], approved={"call-1"}
        )
    assert denied.is_error
    assert ran.content == "noted yes for ****"
    assert ledger.lines == ["mine", "yes"]


async def test_P1_what_an_interceptor_makes_of_the_arguments_is_checked_for_its_neighbours_tool_too(fleet, ledger):
    class Spoiler(Interceptor):
        async def before(self, call):
            return replace(call, arguments='{"text": 1}')

    model = WrittenModel(reply(("note", '{"text": "milk"}')))
    async with Orchestrator(model, settings=fleet.settings, interceptors=[Spoiler(), Notebook(ledger)]) as it:
        run = await it.run("?")
    assert run.calls[0].result.kind is FailureKind.BAD_ARGUMENTS
    assert ledger.lines == []
