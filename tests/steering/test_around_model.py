"""Interceptors that come with it, around the model of a run, on real workers; models are written down in the tests."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from conversations import WrittenModel, requesting
from hypothesis import given, settings as how, strategies as st
from stages import Stage

from tests.steering.around import ADDING, interceptors
from tests.steering.steered import ROOT, WAIT_S, answers
from toolfleet import (
    ClearOldResults,
    ExtraArguments,
    Guardrail,
    InvalidTool,
    JudgedBy,
    PersonalData,
    Summaries,
    Todos,
    ToolSelection,
    Verdict,
)
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, Message, SystemMessage, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator import Interceptor, Orchestrator
from toolfleet.orchestrator.models import ReplyComplete, TextDelta, ThoughtDelta
from toolfleet.orchestrator.run.limits import Limits
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import CallEnded, RunEnded, TextArrived, ThoughtArrived
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.tools.standard.kinds_of_data import passes_luhn

CARD = "4111 1111 1111 1111"
TASKS = ("task_result", "task_cancel")


def asks(*calls: tuple[str, Any]) -> tuple[AssistantMessage, str]:
    written = (
        (f"c{n}", name, given if isinstance(given, str) else json.dumps(given)) for n, (name, given) in enumerate(calls)
    )
    return requesting(*written), "tool_calls"


def says(text: str) -> tuple[AssistantMessage, str]:
    return AssistantMessage(content=text), "stop"


class Offered(WrittenModel):
    """Remembers what it was offered each time."""

    def __init__(self, *replies: tuple[Any, str]) -> None:
        super().__init__(*replies)
        self.offered: list[Mapping[str, Any]] = []

    async def stream(self, messages: Sequence[Message], tools: Any, **options: Any) -> AsyncIterator[ReplyComplete]:
        self.offered.append({spec.name: spec for spec in tools})
        async for event in super().stream(messages, tools, **options):
            yield event


class Counted(WrittenModel):
    """Says what it has used up."""

    async def stream(self, messages: Sequence[Message], tools: Any, **options: Any) -> AsyncIterator[ReplyComplete]:
        async for event in super().stream(messages, tools, **options):
            yield ReplyComplete(event.message, Usage(input_tokens=70, output_tokens=7), "counted", "stop")


def results_shown(messages: Sequence[Message]) -> list[str]:
    return [each.content for each in messages if isinstance(each, ToolMessage)]


async def run_with(
    fleet: LocalFleet, model: WrittenModel, *around: Interceptor, question: str = "?", **options: Any
) -> Run:
    async with Orchestrator(model, interceptors=around, settings=fleet.settings) as orchestrator:
        return await orchestrator.run(question, **options)


# --- clearing old results --------------------------------------------------------------------------------------------


async def test_U15_old_results_are_cleared_for_the_model_and_stay_in_the_history(fleet: LocalFleet) -> None:
    model = Offered(*(asks(("anything", {"n": n}), ("add", {"a": n, "b": 0})) for n in range(3)))
    clearing = ClearOldResults(above_tokens=60, keep=2, exclude=["add"], placeholder="[gone]")
    run = await run_with(fleet, model, clearing)
    assert results_shown(model.heard[1]) == ['{"n": 0}', "0"]  # it is short
    assert results_shown(model.heard[3]) == ["[gone]", "0", "[gone]", "1", '{"n": 2}', "2"]
    assert results_shown(run.messages) == ['{"n": 0}', "0", '{"n": 1}', "1", '{"n": 2}', "2"]
    assert [call.id for each in model.heard[3] if isinstance(each, AssistantMessage) for call in each.tool_calls]
    with pytest.raises(InvalidTool, match="pass a collection"):
        ClearOldResults(exclude="add")


# --- summaries -------------------------------------------------------------------------------------------------------


async def test_U15_what_was_found_out_for_a_run_is_used_by_whoever_adopts_it_and_not_asked_for_again(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    ledger = tmp_path / "asked"

    def asked() -> list[list[str]]:
        return [json.loads(line) for line in ledger.read_text().splitlines()]

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.steering.around", str(ledger), "noted:3"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **fleet.settings.as_environment()},
    )
    assert process.stdout is not None
    run_id = (await process.stdout.readline()).decode().strip()
    assert await process.wait() < 0
    assert [kind for kind, _ in asked()] == ["verdict", "tools", "summary"]
    async with Orchestrator(ADDING, interceptors=interceptors(ledger), settings=fleet.settings) as second:
        run = await asyncio.wait_for(second.wait(run_id), WAIT_S)
    assert (run.state, run.answer, len(answers(run, "add"))) == (State.DONE, "done, with 1 said", 6)
    assert [kind for kind, _ in asked()] == ["verdict", "tools", "summary", "summary"]
    assert asked()[2][1] != asked()[3][1]
    assert "summary of what came before: The user wants six sums." in asked()[3][1]


async def test_U15_a_summary_stands_in_the_place_of_what_it_says_and_counts_as_the_runs_use(fleet: LocalFleet) -> None:
    long = "word " * 400
    model = Offered(
        asks(("anything", {"first": long})),
        asks(("anything", {"second": "short"})),
    )
    summing = Counted(says("They said a lot."))
    async with Orchestrator(
        model, interceptors=[Summaries(summing, above_tokens=600, keep=1)], settings=fleet.settings
    ) as orchestrator:
        run = await orchestrator.run([SystemMessage(content="Be brief."), UserMessage(content="?")])
    assert [each.role for each in model.heard[1]] == ["system", "user", "assistant", "tool"]
    shown = model.heard[2]
    assert [each.role for each in shown] == ["system", "user", "assistant", "tool"]
    assert shown[1].content.endswith("They said a lot.")
    assert [each.content for each in shown if isinstance(each, ToolMessage)] == ['{"second": "short"}']
    assert (len(summing.heard), run.usage.input_tokens, run.usage.output_tokens) == (1, 70, 7)
    told = str(summing.heard[0][1].content)
    assert "user: ?" in told
    assert "result of anything" in told
    assert long in str([call.arguments for call in run.calls])


async def test_U15_where_no_summary_is_made_all_is_shown(fleet: LocalFleet) -> None:
    class Away(WrittenModel):
        async def stream(self, messages: Any, tools: Any, **_: Any) -> AsyncIterator[ReplyComplete]:
            from toolfleet.orchestrator.errors import ModelUnreachable

            raise ModelUnreachable("it is away")
            yield

    model = Offered(asks(("anything", {"first": "word " * 400})))
    run = await run_with(fleet, model, Summaries(Away(), above_tokens=300, keep=1))
    assert (run.state, run.notes, len(model.heard[1])) == (State.DONE, {}, 3)


# --- personal data ---------------------------------------------------------------------------------------------------


async def test_U15_personal_data_is_taken_out_of_input_output_and_results(fleet: LocalFleet) -> None:
    model = Offered(
        asks(("anything", {"to": "bob@example.com", "card": CARD})),
        says(f"I wrote to bob@example.com from 10.0.0.1, {CARD}."),
    )
    around = PersonalData(patterns={"badge": r"\bB-\d{5}\b"})
    run = await run_with(fleet, model, around, question="I am ada@example.com, badge B-12345, +49 30 1234567")
    assert model.heard[0][0].content == "I am [REDACTED_EMAIL], badge [REDACTED_BADGE], [REDACTED_PHONE]"
    told = '{"to": "[REDACTED_EMAIL]", "card": "[REDACTED_CREDIT_CARD]"}'
    assert results_shown(model.heard[1]) == results_shown(run.messages) == [told]
    assert run.answer == "I wrote to [REDACTED_EMAIL] from [REDACTED_IP], [REDACTED_CREDIT_CARD]."
    assert "ada@example.com" in run.messages[0].content  # what was said stays what was said
    assert "bob@example.com" in run.calls[0].arguments  # the tool needs it


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ("mask", "***@example.com and ***1111"),
        ("hash", None),
        ("redact", "[REDACTED_EMAIL] and [REDACTED_CREDIT_CARD]"),
    ],
)
async def test_U15_what_stands_in_its_place_is_as_was_asked_for(fleet: LocalFleet, strategy: Any, told: str) -> None:
    model = Offered(says(f"ada@example.com and {CARD}"))
    around = PersonalData(strategy=strategy, key=b"sixteen bytes at least")
    run = await run_with(fleet, model, around, question=f"ada@example.com and {CARD}")
    assert run.answer == model.heard[0][0].content
    assert "ada" not in str(run.answer)
    assert told is None or run.answer == told
    assert await around.hear(None, AssistantMessage(content=run.answer)) == await around.hear(  # type: ignore[arg-type]  # it does not look
        None,  # type: ignore[arg-type]  # as above
        AssistantMessage(content=run.answer),
    )


async def test_U15_personal_data_may_stop_a_run_and_withhold_a_result(fleet: LocalFleet) -> None:
    blocks = PersonalData(kinds=["email"], strategy="block")
    model = Offered()
    run = await run_with(fleet, model, blocks, question="I am ada@example.com")
    assert (run.state, model.heard) == (State.FAILED, [])
    assert run.reason == "PersonalData stopped the input: it has an e-mail address in it"
    run = await run_with(fleet, Offered(says("It is ada@example.com")), blocks)
    assert (run.state, run.answer) == (State.FAILED, None)
    assert run.reason == "PersonalData stopped the output: it has an e-mail address in it"
    assert "ada" not in run.model_dump_json()
    model = Offered(asks(("anything", {"to": "bob@example.com"})))
    run = await run_with(fleet, model, blocks)
    assert (run.state, "is withheld: it has an e-mail address" in answers(run, "anything")[0]) == (State.DONE, True)


class Spoken(WrittenModel):
    """Says a text piece by piece, and thinks it first."""

    def __init__(self, pieces: Sequence[str]) -> None:
        super().__init__()
        self._pieces = pieces

    async def stream(self, messages: Any, tools: Any, **_: Any) -> AsyncIterator[Any]:
        for piece in self._pieces:
            yield ThoughtDelta(piece)
        for piece in self._pieces:
            yield TextDelta(piece)
        whole = "".join(self._pieces)
        message = AssistantMessage(content=whole, thoughts=whole)
        yield ReplyComplete(message=message, usage=Usage(), model=self.name, finish_reason="stop")


async def looked_on(fleet: LocalFleet, model: WrittenModel, *around: Interceptor) -> tuple[str, str, Run, list[Any]]:
    """What whoever looks on is told of a run's text and thoughts; the run, and all updates."""
    async with Orchestrator(model, interceptors=around, settings=fleet.settings) as orchestrator:
        updates = [update async for update in orchestrator.stream("?")]
    text = "".join(each.text for each in updates if isinstance(each, TextArrived))
    thoughts = "".join(each.text for each in updates if isinstance(each, ThoughtArrived))
    assert isinstance(updates[-1], RunEnded)
    return text, thoughts, updates[-1].run, updates


async def test_U15_streamed_text_leaks_nothing_that_is_taken_out_in_the_end(fleet: LocalFleet) -> None:
    whole = "word " * 150 + f"ada@example.com {CARD} " + "and " * 150 + "bob@example.com"
    for size in (1, 7):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        text, thoughts, run, updates = await looked_on(fleet, Spoken(pieces), PersonalData())
        assert text == thoughts == run.answer
        assert "ada" not in text
        assert CARD not in text
        assert sum(isinstance(each, TextArrived) for each in updates) > 20  # it is told as it comes
    text, thoughts, run, _ = await looked_on(fleet, Spoken(pieces), PersonalData(strategy="block"))
    assert (text, thoughts, run.state) == ("", "", State.FAILED)


async def test_U15_whoever_looks_on_is_told_of_results_without_what_is_taken_out(fleet: LocalFleet) -> None:
    model = Offered(asks(("anything", {"to": "bob@example.com"}), ("add", {"a": 1, "b": 2})))
    _, _, _, updates = await looked_on(fleet, model, PersonalData())
    ended = [each.result for each in updates if isinstance(each, CallEnded)]
    assert sorted(result.content for result in ended) == ["3", '{"to": "[REDACTED_EMAIL]"}']


PARTS = st.lists(
    st.sampled_from(
        ["ada@ex.de", "a.b", "@", " ", "x" * 400, "4111-1111 1111 1111", "1234", "+49 30 12345", "\n", "10.0.0.1"]
    ),
    max_size=30,
)


@how(max_examples=60, deadline=None)
@given(parts=PARTS, sizes=st.lists(st.integers(1, 50), min_size=1))
def test_U15_however_a_text_is_cut_into_pieces_the_same_is_told(parts: list[str], sizes: list[int]) -> None:
    around, whole = PersonalData(), "".join(parts)
    filtering, told, at = around.text_filter(), "", 0
    assert filtering is not None
    for n in range(len(whole)):
        if at >= len(whole):
            break
        size = sizes[n % len(sizes)]
        told += filtering.feed(whole[at : at + size])
        at += size
    told += filtering.end()
    once = around.replaced(whole, around.spans(whole))
    assert told == once
    apart = " ".join(parts)  # what stands in one's place may end a word, and begin another piece
    once = around.replaced(apart, around.spans(apart))
    assert around.replaced(once, around.spans(once)) == once


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ä.ö+x@sub.example.org.", "email"),
        (f"12 {CARD.replace(' ', '')}", "credit_card"),
        ("3782-822463-10005", "credit_card"),
        ("fe80::1%", "ip"),
        ("::ffff:10.1.2.3", "ip"),
        ("(415) 555-2671", "phone"),
        ("030 / 1234567", "phone"),
        ("4111 1111 1111 1112", None),
        ("12:30:45 std::vector 2026-11-23 1.2.3 999.1.1.1 12345678", None),
        ("a@b @ada " + "a" * 100_000, None),
        ("1" * 100_000, None),
    ],
)
def test_U15_kinds_of_data_are_told_from_what_looks_like_them(text: str, kind: str | None) -> None:
    assert {span.kind for span in PersonalData().spans(text)} == ({kind} if kind else set())
    assert passes_luhn("79927398713")
    assert not passes_luhn("79927398710")


def test_U15_what_cannot_be_meant_is_refused_with_one_line() -> None:
    odd: Any = "passport"
    with pytest.raises(InvalidTool, match="no kind 'passport'"):
        PersonalData(kinds=[odd])
    with pytest.raises(InvalidTool, match="wants a secret key"):
        PersonalData(strategy="hash")
    with pytest.raises(InvalidTool, match="no regular expression"):
        PersonalData(patterns={"badge": "("})
    with pytest.raises(InvalidTool, match="pass a check"):
        Guardrail()
    with pytest.raises(InvalidTool, match="note something as PersonalData"):
        Orchestrator(interceptors=[PersonalData(), PersonalData()])
    with pytest.raises(InvalidTool, match="ask for the argument why"):
        Orchestrator(interceptors=[ExtraArguments(), ExtraArguments()])


# --- a to-do list ----------------------------------------------------------------------------------------------------


async def test_U15_a_model_keeps_a_to_do_list_in_the_state_of_its_run(fleet: LocalFleet) -> None:
    first = [{"content": "look", "status": "in_progress"}, {"content": "tell", "status": "pending"}]
    then = [{"content": "look", "status": "completed"}, {"content": "tell", "status": "in_progress"}]
    model = Offered(
        asks(("write_todos", {"todos": first})),
        asks(("write_todos", {"todos": [{"content": "look", "status": "perhaps"}]})),
        asks(("write_todos", {"todos": then}), ("add", {"a": 1, "b": 2})),
    )
    summing = Counted(says("They began."))
    around = (Summaries(summing, above_tokens=260, keep=1), Todos())
    run = await run_with(fleet, model, *around)
    assert run.values["todos"] == then
    assert [bool(call.result and call.result.type == "failed") for call in run.calls] == [False, True, False, False]
    assert answers(run, "write_todos")[0] == "The list is written down: 0 of 2 done."
    assert "write_todos" in model.offered[0]


async def test_U15_a_model_that_cannot_see_its_list_any_more_is_reminded_of_it(fleet: LocalFleet) -> None:
    listed = [{"content": "look", "status": "in_progress"}]
    model = Offered(
        asks(("write_todos", {"todos": listed})),
        asks(("anything", {"n": "word " * 100})),
        asks(("add", {"a": 1, "b": 2})),
    )
    around = (Summaries(Counted(says("They began."), says("They went on.")), above_tokens=150, keep=1), Todos())
    run = await run_with(fleet, model, *around)
    reminded = str(model.heard[-1][-1].content)
    assert (
        run.state,
        reminded.startswith("Your to-do list"),
        json.dumps(listed[0])[1:10] in reminded.replace('":', '": '),
    ) == (
        State.DONE,
        True,
        True,
    )


# --- tools chosen by a model -----------------------------------------------------------------------------------------


async def test_U15_another_model_chooses_the_tools_once_each_time_that_the_user_has_spoken(fleet: LocalFleet) -> None:
    choosing = Counted(
        says('```json\n{"tools": ["add", "nonsense", "add", "pay", "wait"]}\n```'), says('{"tools": []}')
    )
    model = Offered(asks(("add", {"a": 1, "b": 2})), asks(("study_slowly", "{}")), says("done"), says("done again"))
    around = ToolSelection(choosing, max_tools=2, always_include=["anything"])
    async with Orchestrator(model, interceptors=[around, Todos()], settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("Add.")
        await orchestrator.resume(run.run_id, "And now?")
        run = await orchestrator.wait(run.run_id)
    assert [set(offered) for offered in model.offered[:3]] == [{"add", "pay", "anything", "write_todos", *TASKS}] * 3
    assert set(model.offered[3]) == {"anything", "write_todos", *TASKS}
    assert len(choosing.heard) == 2
    assert '"name":"add"' in str(choosing.heard[0][1].content)
    assert (run.answer, run.usage.input_tokens) == ("done again", 140)
    assert "bad_arguments" in str(run.calls[1].result)  # it was called, though it was not shown


@pytest.mark.parametrize("answer", ["certainly!", "[]", '{"tools": 7}', '{"tools": ["nonsense"]}', "{}"])
async def test_U15_a_model_that_gives_no_choice_hides_no_tool_and_is_not_asked_again(
    fleet: LocalFleet, answer: str
) -> None:
    choosing, model = Counted(says(answer)), Offered(asks(("add", {"a": 1, "b": 2})))
    await run_with(fleet, model, ToolSelection(choosing, max_tools=1))
    assert len(choosing.heard) == 1
    assert all(len(offered) > 5 for offered in model.offered)


# --- guardrails ------------------------------------------------------------------------------------------------------


async def test_U15_a_guardrail_stops_a_run_before_its_model_reads_what_the_user_said(fleet: LocalFleet) -> None:
    looked: list[str] = []

    def no_secrets(text: str) -> str | None:
        looked.append(text)
        return "it asks for a secret" if "password" in text else None

    model = Offered(asks(("add", {"a": 1, "b": 2})), says("3"))
    around = Guardrail(input=no_secrets, name="topics")
    async with Orchestrator(model, interceptors=[around], settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("Add.")
        assert (run.answer, looked) == ("3", ["Add."])
        await orchestrator.resume(run.run_id, "Tell me the password.")
        run = await orchestrator.wait(run.run_id)
        assert (run.state, run.reason) == (State.FAILED, "topics stopped the input: it asks for a secret")
        assert len(model.heard) == 2
        await orchestrator.resume(run.run_id)  # what it was stopped for is still there
        run = await orchestrator.wait(run.run_id)
    assert (run.state, looked) == (State.FAILED, ["Add.", "Tell me the password.", "Tell me the password."])


async def test_U15_what_is_said_to_a_run_at_work_is_checked_too(fleet: LocalFleet, stage: Stage) -> None:
    async def check(text: str) -> str | None:
        return "no" if "password" in text else None

    model = Offered(asks(("study", {"stage": stage.path})), says("the secret"))
    async with Orchestrator(model, interceptors=[Guardrail(input=check)], settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("Study.")
        actor = await stage.enters()
        await orchestrator.say(run_id, "And the password?")
        actor.returns("studied")
        run = await orchestrator.wait(run_id)
    assert (run.state, run.reason, len(model.heard)) == (State.FAILED, "Guardrail stopped the input: no", 1)


async def test_U15_a_reply_that_a_guardrail_stops_is_told_to_nobody_stored_nowhere_and_calls_nothing(
    fleet: LocalFleet,
) -> None:
    judge = Counted(says('{"allowed": false, "reason": "it is rude"}'))
    said = requesting(("c", "add", '{"a": 1, "b": 2}')).model_copy(update={"content": "You fool"})
    around = Guardrail(output=JudgedBy(judge, "be kind"))
    text, _, run, updates = await looked_on(fleet, Offered((said, "tool_calls")), around)
    assert (run.state, run.reason) == (State.FAILED, "Guardrail stopped the output: it is rude")
    assert ("fool" in run.model_dump_json(), text, run.calls, run.usage.input_tokens) == (False, "", (), 70)
    assert not any("fool" in str(update) for update in updates)
    text, _, run, _ = await looked_on(fleet, Spoken(["good ", "day"]), Guardrail(output=lambda text: Verdict()))
    assert (text, run.answer) == ("good day", "good day")


@pytest.mark.parametrize("answer", ["", "allowed", '{"allowed": "yes"}', "[true]"])
async def test_U15_a_judge_that_gives_no_verdict_is_against_it(fleet: LocalFleet, answer: str) -> None:
    run = await run_with(fleet, Offered(), Guardrail(input=JudgedBy(Counted(says(answer)), "be kind")))
    assert run.reason == "Guardrail stopped the input: nobody could tell whether it is allowed"


async def test_U15_a_check_that_raises_ends_the_run(fleet: LocalFleet) -> None:
    model = Offered()
    run = await run_with(fleet, model, Guardrail(input=lambda text: str(1 / 0)))
    assert (run.state, "division" in str(run.reason), model.heard) == (State.FAILED, True, [])


# --- arguments that no tool gets -------------------------------------------------------------------------------------


async def test_U15_a_model_says_why_it_calls_a_tool_and_the_tool_never_hears_of_it(fleet: LocalFleet) -> None:
    heard: list[tuple[str, Any]] = []
    given = '{"n": 9007199254740993, "why": "to see", "urgency": 3, "run_in_background": false}'
    model = Offered(asks(("anything", given), ("add", {"a": 1, "b": 2, "why": "sums"})), asks(("signed", {"why": "x"})))
    around = ExtraArguments(
        {"why": "Why?", "urgency": {"type": "integer"}},
        on_call=lambda call, said: heard.append((call.tool, dict(said))),
    )
    async with Orchestrator(model, interceptors=[around, Todos()], settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        async for waiting in _approvals(orchestrator, run_id):
            await orchestrator.approve(waiting.call_id, _granted())
        run = await orchestrator.wait(run_id)
    schema = model.offered[0]["add"].input_schema
    assert schema["properties"]["why"] == {"type": "string", "description": "Why?"}
    assert set(schema["required"]) == {"a", "b", "why", "urgency"}
    assert "why" not in model.offered[0]["write_todos"].input_schema["properties"]
    assert answers(run, "anything") == ['{"n": 9007199254740993}']
    assert (answers(run, "add"), answers(run, "signed")) == (["3"], ["{}"])
    assert '"why": "to see"' in run.calls[0].arguments
    assert heard == [("anything", {"why": "to see", "urgency": 3}), ("add", {"why": "sums"}), ("signed", {"why": "x"})]


async def test_U15_a_tool_keeps_an_argument_of_its_own_that_has_the_same_name(fleet: LocalFleet) -> None:
    model = Offered(asks(("pay", {"amount": 1, "stage": ""}), ("add", {"a": 1, "b": 2})))
    around = ExtraArguments({"a": "An a of its own?"})
    async with Orchestrator(model, interceptors=[around], settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?", tools=["add"])
    assert model.offered[0]["add"].input_schema["properties"]["a"] != {
        "type": "string",
        "description": "An a of its own?",
    }
    assert answers(run, "add") == ["3"]


async def _approvals(orchestrator: Orchestrator, run_id: str) -> AsyncIterator[Any]:
    while not (waiting := (await orchestrator.get(run_id)).awaiting_approval):
        await asyncio.sleep(0.05)
    for call in waiting:
        yield call


def _granted() -> Any:
    from toolfleet import Approval

    return Approval(granted=True)


# --- together --------------------------------------------------------------------------------------------------------


async def test_U15_what_interceptors_use_up_counts_against_the_runs_limits(fleet: LocalFleet) -> None:
    choosing = Counted(says('{"tools": ["add"]}'))
    model = Offered(asks(("add", {"a": 1, "b": 2})))
    limited = Limits(tokens=76)
    run = await run_with(fleet, model, ToolSelection(choosing, max_tools=1), limits=limited)
    assert (run.state, len(model.heard)) == (State.FAILED, 1)
