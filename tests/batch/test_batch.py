"""`toolfleet batch`: what goes in, what comes out."""

from __future__ import annotations

import json
import math
from typing import Any

from tests.batch.desk import Desk, rooted
from toolfleet.messages import UserMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.batch import AskedLine, Manner, opened_input, read_lines
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat
from toolfleet.orchestrator.models.rehearsal import ErrorStatus
from toolfleet.orchestrator.run.events import RunStarted
from toolfleet.orchestrator.run.terms import RunTerms

ROOT = 'call square_root {"x": 2}'
TOOL = {"type": "function", "function": {"name": "square_root", "parameters": {"type": "object"}}}


def openai(custom_id: str, question: Any = ROOT, model: str = REHEARSAL_MODEL, **body: Any) -> dict[str, Any]:
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": question}]
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": model, "messages": messages, **body},
    }


async def test_lines_that_cannot_be_run_are_in_the_output_with_number_and_reason(desk: Desk) -> None:
    bad = [
        ("nonsense", "line 1: not JSON"),
        ([1, 2], "line 2: a JSON object is expected, not list"),
        ({"question": "anybody?"}, 'line 3: no "id"'),
        ({"id": "none"}, 'line 4: either "question" or "messages" is expected'),
        ({"id": "both", "question": "a", "messages": [{"role": "user", "content": "b"}]}, "line 5: either"),
        ({"id": "empty", "question": ""}, "line 6: the question is empty"),
        ({"id": "misspelt", "qestion": "?"}, "line 7: qestion: unknown field 'qestion': did you mean 'question'?"),
        ({"id": True, "question": "?"}, "line 8: id"),
        ({"id": "turns", "question": "?", "max_turns": 0}, "line 9: max_turns"),
        ({"id": "role", "messages": [{"role": "judge", "content": "?"}]}, "line 10: messages.0"),
        ({"id": "unknown", "question": "?", "tools": ["fly"]}, "line 11: no live worker serves fly"),
        ({"id": 1, "question": ROOT}, None),
        ({"id": "1", "question": ROOT}, "line 13: the id '1' is doubled; line 12 has it"),
    ]
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\r\n\n" for line, _ in bad)
    # Blank lines are nothing; they are counted, so that the numbers are those of an editor.
    text = text.replace("\r\n\n", "\r\n")
    ended = await desk.batch("-", "-", said="\ufeff" + text)
    assert ended.complaint() == "toolfleet: 12 of 13 lines failed: their reasons are in -"
    written = {line["line"]: line for line in map(json.loads, ended.out.splitlines())}
    assert sorted(written) == list(range(1, 14))
    for number, (_, reason) in enumerate(bad, start=1):
        if reason is not None:
            assert written[number]["state"] in {"refused", "failed"}
            assert written[number]["reason"].startswith(reason), written[number]
    assert written[12]["id"] == 1
    assert str(math.sqrt(2)) in written[12]["answer"]


async def test_openai_lines_come_out_as_openai_writes_them(desk: Desk) -> None:
    lines = [
        openai("offered", tools=[TOOL], temperature=0.2, logprobs=False, user="me"),
        openai("parts", [{"type": "text", "text": ROOT}], tools=[TOOL]),
        openai("toolless", "Good morning."),
        openai("other model", model="gpt-4o"),
        openai("unknown tool", tools=[{"type": "function", "function": {"name": "fly"}}]),
        openai("probable", logprobs=True),
        openai("picture", [{"type": "image_url", "image_url": {"url": "data:"}}]),
        {**openai("other url"), "url": "/v1/embeddings"},
        {"custom_id": "no body"},
    ]
    desk.write("in.jsonl", lines)
    ended = await desk.batch("in.jsonl", "out.jsonl", "--json", "--price-in", "2", "--price-out", "10")
    assert ended.code == 1
    written = {line["custom_id"]: line for line in desk.read("out.jsonl")}
    assert written.keys() == {line["custom_id"] for line in lines}
    assert all(line.keys() == {"id", "custom_id", "response", "error"} for line in written.values())
    assert len({line["id"] for line in written.values()}) == len(lines)
    for name in ("offered", "parts"):
        response = written[name]["response"]
        assert written[name]["error"] is None
        assert (response["status_code"], response["body"]["object"]) == (200, "chat.completion")
        assert written[name]["id"] == f"batch_req_{response['request_id']}"
        [choice] = response["body"]["choices"]
        assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
        assert str(math.sqrt(2)) in choice["message"]["content"]
        usage = response["body"]["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert "The tools that I see: none." in written["toolless"]["response"]["body"]["choices"][0]["message"]["content"]
    errors = {name: line["error"] for name, line in written.items() if line["error"]}
    assert errors.keys() == {line["custom_id"] for line in lines[3:]}
    assert all(written[name]["response"] is None for name in errors)
    assert "asks for the model 'gpt-4o'" in errors["other model"]["message"]
    assert (errors["unknown tool"]["code"], errors["picture"]["code"]) == ("run_not_begun", "invalid_line")
    assert "messages[1].content[0].image_url: the data: URL of an image is data:" in errors["picture"]["message"]
    assert "line 6: logprobs is not served here" in errors["probable"]["message"]

    summary = json.loads(ended.out)
    assert (summary["runs"], summary["ok"], summary["failed"], summary["refused"]) == (4, 3, 6, 5)
    assert (summary["calls"], summary["failed_calls"]) == (2, 0)
    tokens = summary["usage"]
    assert math.isclose(summary["cost"], (2 * tokens["input_tokens"] + 10 * tokens["output_tokens"]) / 1e6)
    assert 0 < summary["p50_s"] <= summary["p99_s"] <= summary["wall_s"]


async def test_runs_that_failed_go_on_where_that_is_wanted_and_the_others_are_left(desk: Desk) -> None:
    desk.write("in.jsonl", map(rooted, range(6)))
    desk.server._faults.extend([ErrorStatus(400, "no"), ErrorStatus(400, "no")])
    first = await desk.batch_here("in.jsonl", "out.jsonl", batch_id="retried")
    failed = [line for line in desk.read("out.jsonl") if line["state"] == "failed"]
    assert (first.ok, first.failed, len(failed)) == (4, 2, 2)
    assert all("no" in line["reason"] for line in failed)
    done = await desk.batch_here("in.jsonl", "out.jsonl", batch_id="retried")
    assert (done.done_before, done.written) == (6, 0)
    asked_before = desk.asked()

    again = await desk.batch_here("in.jsonl", "out.jsonl", batch_id="retried", manner=Manner(again=True))

    assert (again.done_before, again.ok, again.failed, again.joined) == (4, 2, 0, 2)
    lines = desk.read("out.jsonl")
    assert sorted(line["id"] for line in lines) == [f"line-{number}" for number in range(6)]
    assert {line["state"] for line in lines} == {"done"}
    assert {line["run_id"] for line in failed} < {line["run_id"] for line in lines}
    assert (desk.asked() - asked_before).total() == 2 * 3


async def test_ordered_output_has_the_order_of_the_input_and_no_more_than_that_many_are_in_hand(desk: Desk) -> None:
    # The earlier a line, the longer it takes.
    steps = [" then ".join(['call square_root {"x": 4}'] * (12 - number)) for number in range(12)]
    desk.write("in.jsonl", [{"id": number, "question": step} for number, step in enumerate(steps)])
    in_hand: list[int] = []
    await desk.batch_here(
        "in.jsonl",
        "out.jsonl",
        batch_id="ordered",
        manner=Manner(concurrency=4, ordered=True),
        watch=lambda runner: in_hand.append(len(runner.in_hand)),
    )
    assert [line["id"] for line in desk.read("out.jsonl")] == list(range(12))
    assert max(in_hand) <= 4


async def test_a_run_that_was_asked_something_else_is_not_taken_for_this_line(desk: Desk) -> None:
    desk.write("one.jsonl", [{"id": 1, "question": ROOT}])
    desk.write("two.jsonl", [{"id": 1, "question": "Something else."}])
    await desk.batch_here("one.jsonl", "one.out", batch_id="same")
    await desk.batch_here("two.jsonl", "two.out", batch_id="same")
    [line] = desk.read("two.out")
    assert "is stored with another question" in line["reason"]


async def test_a_run_whose_beginning_was_stored_unheard_is_worked_on(desk: Desk) -> None:
    model = OpenAIChat(REHEARSAL_MODEL, base_url=desk.server.base_url, api_key="rehearsal")
    async with Orchestrator(model, settings=desk.settings) as orchestrator:
        started = RunStarted(
            run_id="unheard", messages=(UserMessage(content=ROOT),), model=REHEARSAL_MODEL, terms=RunTerms(max_turns=5)
        )
        # As when Redis is lost between a write and its answer: stored as ours, and nobody here knows.
        assert await orchestrator._services.store.begin(started, owner=orchestrator.orchestrator_id)
        run = await orchestrator.run(ROOT, run_id="unheard")
    assert (run.state, len(run.calls)) == ("done", 1)


async def test_the_model_of_openai_lines_is_any_where_that_is_said(desk: Desk) -> None:
    desk.write("in.jsonl", [openai("a", model="gpt-4o")])
    with opened_input(str(desk.path("in.jsonl"))) as source:
        [line] = read_lines(source.lines(), model=None)
    assert isinstance(line, AskedLine)
    assert line.question.id == "a"
