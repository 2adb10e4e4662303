"""Exported runs begun anew with another model, while recorded tools answer: who passes, at which cost; no effect."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys

import pytest
from conversations import WrittenModel, requesting
from typer.testing import CliRunner

from tests.steering.replayed import command, export_of, file_of, offline_settings
from tests.steering.steered import WAIT_S, parked, until
from toolfleet.errors import ToolfleetError
from toolfleet.exit_status import ExitStatus, status_of
from toolfleet.messages import AssistantMessage, ToolMessage, Usage
from toolfleet.orchestrator import FunctionModel, Orchestrator
from toolfleet.orchestrator.doors.cli.main import app
from toolfleet.orchestrator.models import ReplyComplete
from toolfleet.orchestrator.replay import checks
from toolfleet.orchestrator.replay.evaluating import Evaluation
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.prices import Price

HUGE = 9007199254740993


def asks(*calls):
    return requesting(
        *(
            (f"c{n}", name, given if isinstance(given, str) else json.dumps(given))
            for n, (name, given) in enumerate(calls)
        )
    ), "tool_calls"


def says(text):
    return AssistantMessage(content=text), "stop"


async def evaluated(export, model, *asked, **options):
    evaluation = Evaluation(model, offline_settings(), asked or [checks.exact()], **options)
    return await evaluation.of_one(export)


def told(model):
    """What a model was told by tools before its last reply."""
    return [message.content for message in model.heard[-1] if isinstance(message, ToolMessage)]


@pytest.fixture
async def studied(fleet, stage, observer):
    """An exported run: a study that must not happen twice, a payment that a person allowed, and a huge number."""
    model = WrittenModel(
        asks(("study", {"stage": stage.path}), ("pay", {"amount": 2}), ("anything", {"n": HUGE, "a": 1})),
        asks(("study", {"stage": stage.path})),
        says("owls"),
    )
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("What is out there?")
        (await stage.enters()).returns("one owl")
        run = await until(fleet, run_id, parked)
        await observer.approve(run.awaiting_approval[0].call_id, Approval(granted=True))
        (await stage.enters()).returns("two owls")
        await orchestrator.wait(run_id)
        yield await export_of(orchestrator, run_id)


async def test_U9_recorded_tools_answer_another_model_and_nothing_happens(stage, studied):
    model = WrittenModel(
        asks(("anything", f'{{"a": 1.0,  "n": {HUGE}}}'), ("anything", {"n": HUGE - 1, "a": 1})),
        asks(("study", {"stage": stage.path}), ("pay", '{"amount": 2.00}'), ("study", {"stage": stage.path})),
        asks(("study", {"stage": stage.path}), ("nobody", {})),
        says(" owls\n"),
    )
    done = await evaluated(studied, model)
    assert (done.passed, done.state, done.answer, done.expected) == (True, State.DONE, " owls\n", "owls")
    same, other, first, paid, second, again, unknown = told(model)
    assert json.loads(same) == {"n": HUGE, "a": 1}
    assert "no result is recorded for these arguments (one other call of it is). Nothing has happened." in other
    assert (first, paid, second, again) == ("one owl", "paid 2.0", "two owls", "two owls")
    assert "There is no tool 'nobody'" in unknown
    assert (done.unrecorded, done.used.calls, done.used.turns, done.recorded.calls) == (1, 7, 4, 4)
    assert len(stage.actors) == 2  # those of the recorded run


async def test_U9_slow_calls_are_handles_and_what_the_user_said_later_is_said_again(fleet, stage):
    model = WrittenModel(
        asks(("research", {"stage": stage.path, "run_in_background": True})),
        says("under way"),
        says("found"),
        says("bye"),
    )
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("Look.", slow="handle")
        actor = await stage.enters()
        await until(fleet, run_id, lambda run: run.state is State.WAITING)
        actor.returns("mice")
        await orchestrator.wait(run_id)
        await orchestrator.resume(run_id, "Thanks.")
        await orchestrator.wait(run_id)
        export = await export_of(orchestrator, run_id)

    def fetches(messages):
        task_id = json.loads(messages[-1].content)["task_id"]
        return requesting(("f", "task_result", json.dumps({"task_id": task_id})))

    other = WrittenModel(
        asks(("research", {"run_in_background": True, "stage": stage.path})),
        (fetches, "tool_calls"),
        says("fetched"),
        says("bye"),
    )
    done = await evaluated(export, other)
    assert (done.passed, done.unrecorded) == (True, 0)
    assert [message.content for message in other.heard[-1] if message.role == "user"] == ["Look.", "Thanks."]
    assert any("mice" in message.content for message in other.heard[-1])


@pytest.mark.parametrize(
    ("check", "answer", "complaint"),
    [
        (checks.exact(), "Owls", "the answer is another one"),
        (checks.contains(), "There  are\nOWLS.", None),
        (checks.contains(), "mice", "the recorded answer is not in it"),
        (checks.fits({"type": "object", "required": ["bird"]}), '{"bird": "owl"}', None),
        (checks.fits({"type": "object", "required": ["bird"]}), '{"mouse": 1}', "'bird' is a required property"),
        (checks.fits(), "owls", "no schema"),
        (checks.own("own", lambda recorded, run: run.answer == recorded.answer), "owls", None),
        (checks.own("own", lambda recorded, run: "too short"), "owls", "too short"),
        (checks.own("own", lambda recorded, run: None), "mice", None),
        (checks.own("own", lambda recorded, run: 1 / 0), "owls", "ZeroDivisionError"),
    ],
)
async def test_U9_an_answer_is_checked_as_is_asked_for(studied, check, answer, complaint):
    done = await evaluated(studied, FunctionModel(lambda _: AssistantMessage(content=answer)), check)
    assert done.passed is (complaint is None)
    assert complaint is None or complaint in done.complaints[check.name]


async def test_U9_a_run_that_fails_has_not_passed_and_says_why(studied):
    class Counted(WrittenModel):
        name = "counted"

        async def stream(self, messages, tools, **options):
            async for event in super().stream(messages, tools, **options):
                yield ReplyComplete(
                    message=event.message, usage=Usage(input_tokens=1000, output_tokens=10), model="", finish_reason=""
                )

    circles = Counted(*[asks(("anything", {"n": 1}))] * 9)
    settings = offline_settings().model_copy(update={"prices": {"counted": Price(input=2, output=100)}})
    done = await Evaluation(circles, settings, [checks.contains()]).of_one(studied)
    assert (done.passed, done.state, done.complaints) == (False, State.FAILED, {"contains": "failed: loop"})
    assert done.used.usd == pytest.approx(done.used.turns * 0.003)
    assert done.recorded.usd is None  # nobody has said what that model costs


async def test_U9_so_many_run_at_a_time(studied):
    going, most = 0, 0

    class Slow(WrittenModel):
        async def stream(self, messages, tools, **options):
            nonlocal going, most
            going += 1
            most = max(most, going)
            for _ in range(5):
                await asyncio.sleep(0)
            going -= 1
            async for event in super().stream(messages, tools, **options):
                yield event

    done = []
    evaluation = Evaluation(Slow(*[says("owls")] * 9), offline_settings(), [checks.exact()], concurrency=3)
    await evaluation.of_all([studied] * 9, done.append)
    assert (most, [each.passed for each in done]) == (3, [True] * 9)


@pytest.fixture
async def sums(fleet, model, tmp_path):
    """A file with two runs of the rehearsal model, in the folder of a test."""
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        runs = [await orchestrator.run(f'call add {{"a": {n}, "b": 2}}') for n in range(2)]
        text = "".join(["".join((await export_of(orchestrator, run.run_id)).lines()) for run in runs])
    (tmp_path / "runs.jsonl").write_text(text)
    return runs


async def test_U9_at_the_command_line_there_is_a_table_or_json_and_a_status_by_the_pass_rate(rehearsal, tmp_path, sums):
    where = {"OPENAI_BASE_URL": rehearsal.base_url, "OPENAI_API_KEY": "rehearsal"}
    where["TOOLFLEET_PRICES"] = json.dumps({"toolfleet-rehearsal": {"input": 1, "output": 1}})
    code, out, err = await toolfleet(tmp_path, "eval", "runs.jsonl", "--model", "openai:toolfleet-rehearsal", **where)
    assert code == 0, err
    assert out.splitlines()[0].split("\t")[:4] == [sums[0].run_id, "yes", "2", "1"]
    assert "2 of 2 runs passed (100%) with toolfleet-rehearsal" in out
    assert "used:     $" in out
    (tmp_path / "my_checks.py").write_text("def never(recorded, run):\n    return recorded.answer != run.answer\n")
    asked = ("eval", "runs.jsonl", "--model", "openai:toolfleet-rehearsal", "--json", "--min-pass-rate", "0.5")
    code, out, err = await toolfleet(tmp_path, *asked, "--check", "exact", "--check", "my_checks:never", **where)
    told = json.loads(out)
    assert (told["runs"], told["ended"], told["passed"], told["pass_rate"], told["unrecorded"]) == (2, 2, 0, 0.0, 0)
    assert (told["used"]["calls"], told["recorded"]["calls"]) == (2, 2)
    assert [each["complaints"] for each in told["results"]] == [{"my_checks:never": "it says no"}] * 2
    assert (code, err.splitlines()[0]) == (1, "model: toolfleet-rehearsal")
    assert err.splitlines()[-1] == "toolfleet: 0% of the runs have passed, and 50% are asked for"


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("runs.jsonl", "--check", "bogus"), ExitStatus.USAGE, "is no check"),
        (("runs.jsonl", "--check", "nowhere:check"), ExitStatus.FAILED, "cannot load a check"),
        (("runs.jsonl", "--check", "schema:none.json"), ExitStatus.USAGE, "cannot be read"),
        (("none.jsonl",), ExitStatus.FAILED, "cannot be read"),
        (("runs.jsonl", "--model", "gpt-5"), ExitStatus.CONFIGURATION, "OPENAI_API_KEY"),
        (("runs.jsonl", "--min-pass-rate", "90"), ExitStatus.USAGE, "--min-pass-rate"),
    ],
)
def test_U9_what_cannot_be_meant_is_refused_before_anything_begins(tmp_path, monkeypatch, studied, words, status, why):
    file_of(studied, tmp_path / "runs.jsonl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    said = CliRunner().invoke(app, ["eval", *words])
    error = said.exception
    ended = status_of(error) if isinstance(error, ToolfleetError) else said.exit_code
    assert (ended, said.stdout) == (status, "")
    assert why in " ".join((said.stderr + str(error)).replace("│", " ").split())


ANSWER = {"choices": [{"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}]}


async def test_U9_ctrl_c_shows_what_is_there_and_leaves_nothing(tmp_path, sums):
    asked = asyncio.Queue()

    async def answer_once(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
                asked.put_nowait(head)
                said = f"data: {json.dumps(ANSWER)}\n\ndata: [DONE]\n\n".encode()
                if asked.qsize() == 1:
                    kind = b"content-type: text/event-stream\r\ncontent-length: %d" % len(said)
                    writer.write(b"HTTP/1.1 200 OK\r\n" + kind + b"\r\n\r\n" + said)
                else:
                    second.set()
        writer.close()

    second = asyncio.Event()
    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TOOLFLEET_")}
    words = ("eval", "runs.jsonl", "--model", "openai:slow", "--concurrency", "1")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolfleet.orchestrator.doors.cli", *words),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**ours, "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "none"},
    )
    try:
        async with asyncio.timeout(WAIT_S):
            await second.wait()
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        server.close()
        await server.wait_closed()
    assert process.returncode == 130, err
    assert out.decode().splitlines()[0].startswith(f"{sums[0].run_id}\tno\t1\t0\t")
    assert "0 of 1 run passed (0%) with slow; 1 had not ended" in out.decode()
    assert err.decode().splitlines()[-1] == "toolfleet: stopped"


async def toolfleet(folder, *words, **variables):
    return await command(folder, "-m", "toolfleet.orchestrator.doors.cli", *words, **variables)
