"""Stored runs taken through the turn loop again: from a file, reaching nothing, and what comes out differently."""

from __future__ import annotations

import asyncio
import json

import pytest
from conversations import WrittenModel, requesting

from tests.steering.replayed import command, export_of, file_of, offline_settings, sealed
from tests.steering.steered import lone, parked, until
from toolfleet.calls import Failed, FailureKind
from toolfleet.errors import ToolfleetError
from toolfleet.messages import AssistantMessage, ToolMessage
from toolfleet.orchestrator import Interceptor, Limits, Orchestrator
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.errors import ExportUnreadable
from toolfleet.orchestrator.replay.export import Export, exports_in, read_exports
from toolfleet.orchestrator.replay.replaying import replay
from toolfleet.orchestrator.run import limits
from toolfleet.orchestrator.run.events import Approval
from toolfleet.orchestrator.run.states import State
from toolfleet.points import Point

HUGE = 9007199254740993

NOW_APPROVED = """
from toolfleet import tool

@tool(requires_approval=True)
async def add(a: int, b: int) -> int:
    return a + b
"""

FORBIDS = """
from toolfleet import Orchestrator
from toolfleet.orchestrator import Permission

orchestrator = Orchestrator(interceptors=[Permission(lambda call: "no sums" if call.tool == "add" else None)])
"""


def asks(*calls):
    return requesting(*((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(calls))), "tool_calls"


def says(text):
    return AssistantMessage(content=text), "stop"


async def replayed(export, **options):
    return await replay(export, offline_settings(), **options)


@pytest.fixture
async def sums(fleet):
    """An exported run of two turns with two calls."""
    model = WrittenModel(asks(("add", {"a": 1, "b": 2}), ("anything", {"n": HUGE})), says("three"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("1 + 2?", context={"desk": HUGE})
        yield await export_of(orchestrator, run.run_id)


async def test_U8_a_run_is_exported_and_its_file_replays_to_the_same_messages_reaching_nothing(fleet, tmp_path, sums):
    where = fleet.settings.as_environment()
    wrote = await command(
        tmp_path,
        *("-m", "toolfleet.orchestrator.doors.cli", "runs", "export", sums.run_id[:8], "-o", "run.jsonl"),
        **where,
    )
    assert (wrote.code, wrote.err) == (0, "1 run exported to run.jsonl\n"), wrote
    assert (tmp_path / "run.jsonl").read_text() == "".join(sums.lines())
    said = await sealed(tmp_path, "runs", "replay", "run.jsonl")
    assert (said.code, said.out) == (0, f"run {sums.run_id}: 2 turns, 5 messages, the same\n"), said
    done = await replayed(sums)
    assert (done.run_id, done.differences, done.replayed) == (sums.run_id, (), len(sums.events))
    assert done.messages == sums.end.messages
    assert str(HUGE) in done.messages[2].content + done.messages[3].content
    assert sums.started.terms.context == {"desk": HUGE}
    stored = await command(tmp_path, "-m", "toolfleet.orchestrator.doors.cli", "runs", "replay", sums.run_id, **where)
    assert (stored.code, stored.out) == (0, f"run {sums.run_id}: 2 turns, 5 messages, the same\n")


async def test_U8_what_people_said_and_what_took_long_comes_at_its_place_again(fleet, stage, observer):
    model = WrittenModel(
        asks(("pay", {"amount": 1}), ("pay", {"amount": 2}), ("study_slowly", {"stage": stage.path})),
        asks(("study", {"stage": stage.path})),
        asks(("unlock", {"word": "sesame"})),
        says("too soon"),
        says("done"),
    )
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?", slow="handle")
        slow = await stage.enters()
        first, second = (await until(fleet, run_id, parked)).awaiting_approval
        await observer.approve(first.call_id, Approval(granted=True, arguments='{"amount": 3}', by="ada"))
        await observer.approve(second.call_id, Approval(granted=False, reason="too much"))
        quick = await stage.enters()
        await observer.say(run_id, "And hurry.", by="ada")
        quick.returns("studied")
        secret = (await until(fleet, run_id, parked)).awaiting_approval[0]
        await observer.approve(secret.call_id, Approval(granted=True))
        await until(fleet, run_id, lambda run: run.state is State.WAITING)
        slow.returns("slowly")
        run = await orchestrator.wait(run_id)
        export = await export_of(orchestrator, run_id)
    assert (run.state, run.answer) == (State.DONE, "done")
    text = "".join(export.lines())
    assert "sesame" not in text
    done = await replayed(export)
    assert done.is_same, done.differences
    assert done.messages == run.messages


async def test_U8_a_run_whose_orchestrators_were_killed_replays(fleet, stage, rehearsal, model, observer):
    question = f"call study {json.dumps({'stage': stage.path})} then call add {json.dumps({'a': 1, 'b': 2})}"
    async with lone(fleet, rehearsal.base_url, question, Point.GATHERED) as (process, run_id):
        (await stage.enters()).returns("studied")
        await process.wait()
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.wait(run_id)
        export = await export_of(orchestrator, run_id)
    assert "run_adopted" in [line.event.type for line in export.events]
    done = await replayed(export)
    assert (done.is_same, done.messages) == (True, run.messages)


@pytest.mark.parametrize("ends", ["loop", "limit", "wraps up", "error", "unfit", "cancelled", "unknown tool"])
async def test_U8_whatever_ends_a_run_ends_its_replay(fleet, ends):
    again = asks(("add", {"a": 1, "b": 2}))
    options = {}
    replies = [again] * 8
    match ends:
        case "limit":
            options = {"limits": Limits(calls=2)}
        case "wraps up":
            options = {"limits": Limits(calls=2, wrap_up=True)}
        case "error":
            replies = [again, (lambda _: (_ for _ in ()).throw(ToolfleetError("the model is away")), "stop")]
        case "unfit":
            replies, options = [again, says("no"), says("no JSON")], {"output_schema": {"type": "object"}}
        case "unknown tool":
            replies = [asks(("ad", {}), ("add", {"a": 1, "b": 2})), says("I see")]
        case "cancelled":
            replies = [asks(("pay", {"amount": 1}))]
    async with Orchestrator(WrittenModel(*replies), settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?", **options)
        if ends == "cancelled":
            await until(fleet, run_id, parked)
            await orchestrator.cancel(run_id, "never mind", by="ada")
        run = await orchestrator.wait(run_id)
        export = await export_of(orchestrator, run_id)
    done = await replayed(export)
    assert done.is_same, done.differences
    assert (done.messages, done.replayed) == (run.messages, len(export.events))


async def test_U8_where_the_code_now_decides_otherwise_the_difference_is_shown_and_the_status_is_1(
    fleet, tmp_path, sums
):
    file_of(sums, tmp_path / "run.jsonl")
    (tmp_path / "now_approved.py").write_text(NOW_APPROVED)
    (tmp_path / "forbids.py").write_text(FORBIDS)
    first = f"{sums.run_id}.1.0"
    said = await sealed(tmp_path, "runs", "replay", "run.jsonl", "--tools", "now_approved")
    assert said.code == 1
    assert "turn 1, calls_sent: awaiting_approval\n    expected: []\n" + f'    found:    ["{first}"]' in said.out
    assert "1 of 1 run came out differently" in said.err
    said = await sealed(tmp_path, "runs", "replay", "run.jsonl", "--with", "forbids:orchestrator", "--json")
    told = json.loads(said.out)["differences"]
    assert said.code == 1
    assert [(each["turn"], each["what"]) for each in told] == [(1, "calls_sent: sent")]
    assert (told[0]["expected"], told[0]["found"]) == ([first, f"{sums.run_id}.1.1"], [f"{sums.run_id}.1.1"])


async def test_U8_a_change_of_the_orchestrators_own_code_is_found(fleet, monkeypatch):
    again = asks(("add", {"a": 1, "b": 2}))
    async with Orchestrator(WrittenModel(*[again] * 3, says("3")), settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
        export = await export_of(orchestrator, run.run_id)
    assert (await replayed(export)).is_same
    with monkeypatch.context() as patched:
        patched.setattr(limits, "AGAIN_TOLD", 1)  # what a model is told that goes in circles
        told = (await replayed(export)).differences
        assert {(each.turn, each.what) for each in told} >= {(2, "message 4 (tool): content")}
        assert "2 times" in next(each.found for each in told if each.turn == 2)
    with monkeypatch.context() as patched:
        patched.setattr(limits, "AGAIN_MAX", 2)  # when it is stopped
        [stopped] = (await replayed(export)).differences
        assert (stopped.turn, stopped.what, stopped.found) == (2, "model_replied: over_limit", "loop")


async def test_U8_code_that_is_given_is_asked_about_calls_and_what_it_made_of_results_stays(fleet):
    class Louder(Interceptor):
        def __init__(self):
            self.asked = []

        async def before(self, call):
            self.asked.append(call.tool)
            if call.tool == "pay":
                return Failed(kind=FailureKind.DENIED, message="not now")
            return call

        async def after(self, call, result):
            return result.model_copy(update={"content": result.content + "!"}) if result.type == "returned" else result

    model = WrittenModel(asks(("add", {"a": 1, "b": 2}), ("study", {"stage": "none"})), says("ok"))
    louder = Louder()
    async with Orchestrator(model, settings=fleet.settings, interceptors=[louder]) as orchestrator:
        run = await orchestrator.run("?", tools=["add", "anything"])
        export = await export_of(orchestrator, run.run_id)
        louder.asked.clear()
        assert next(message.content for message in run.messages if isinstance(message, ToolMessage)) == "3!"
        assert (await replayed(export)).is_same
        assert louder.asked == []
        assert (await replayed(export, code=orchestrator.code)).is_same
        assert louder.asked == ["add"]


async def test_U8_what_is_no_export_is_refused_in_one_line(tmp_path, sums):
    whole = "".join(sums.lines())
    lines = whole.splitlines(keepends=True)
    for garbage, why in {
        "": "holds no run",
        "\x1b[2J\n": "line 1",
        '{"type": "run", "v": 1, "run_id": "\x1b[31m"}\n': "line 1",
        "[" * 100_000: "line 1",
        "".join(lines[:-1]): "cut off",
        "".join(lines[:3]) + lines[0]: "cut off",
        "".join(lines[:-2]) + lines[-1]: "events were exported",
        lines[-1]: "begins with its line",
        whole.replace('"v":1', '"v":2', 1): "newer toolfleet",
        whole.replace(sums.run_id, "other", 1): "not the beginning",
    }.items():
        with pytest.raises(ExportUnreadable) as refused:
            exports_in(garbage.encode().splitlines(keepends=True), "x")
        assert why in str(refused.value), garbage[:80]
    (tmp_path / "cut.jsonl").write_text("".join(lines[:-1]))
    said = await sealed(tmp_path, "runs", "replay", "cut.jsonl")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("toolfleet: cut.jsonl ends in the midst of run ")
    assert len(said.err.splitlines()) == 1
    with pytest.raises(ExportUnreadable, match="cannot be read: No such file"):
        read_exports([tmp_path / "nothing.jsonl"])


async def test_U8_an_edited_file_shows_what_was_edited_and_its_escapes_do_nothing(tmp_path, sums):
    edited = "".join(sums.lines()).replace('"answer":"three"', '"answer":"\\u001b[2Jfour \\u202e"')
    (tmp_path / "run.jsonl").write_text(edited + "".join(sums.lines()))
    said = await sealed(tmp_path, "runs", "replay", "run.jsonl")
    assert said.code == 1
    assert "turn 2, answer\n    expected: \\x1b[2Jfour \\u202e\n    found:    three" in said.out
    assert "1 of 2 runs came out differently" in said.err


async def test_U8_over_http_and_from_the_page_a_run_is_a_file_for_those_who_see_payloads(api, fleet):
    run_id = await api.begin('call add {"a": 1, "b": 2}')
    await api.ended(run_id)
    file = await api.client.get(f"/v1/runs/{run_id}/export")
    assert (file.status_code, file.headers["content-type"]) == (200, "application/jsonl")
    [export] = exports_in(file.content.splitlines(keepends=True), "http")
    assert (await replayed(export)).is_same
    assert (await api.client.get(f"/runs/{run_id}/export")).content == file.content
    assert f'href="/runs/{run_id}/export"' in (await api.client.get(f"/runs/{run_id}")).text
    assert (await api.client.get("/v1/runs/none/export")).status_code == 404
    key, _ = await api.door.keyring.add(scopes=(Scope.READ,))
    blind = {"authorization": f"Bearer {key}"}
    assert (await api.client.get(f"/v1/runs/{run_id}/export", headers=blind)).status_code == 403
    assert "/export" not in (await api.client.get(f"/runs/{run_id}", headers=blind)).text
    other, _ = await api.door.keyring.add(tenant="other", scopes=tuple(Scope))
    stranger = {"authorization": f"Bearer {other}"}
    assert (await api.client.get(f"/v1/runs/{run_id}/export", headers=stranger)).status_code == 404


async def test_U8_many_runs_replay_side_by_side_and_one_that_goes_on_as_far_as_it_was(fleet, sums, stage):
    model = WrittenModel(asks(("study", {"stage": stage.path})))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        run_id = await orchestrator.start("?")
        actor = await stage.enters()
        await until(fleet, run_id, lambda run: run.calls and run.calls[0].deadline_unix_s)
        unfinished: Export = await export_of(orchestrator, run_id)
        actor.returns("studied")
        await orchestrator.wait(run_id)
    done = await asyncio.gather(*(replayed(each) for each in [sums, unfinished] * 5))
    assert all(each.is_same for each in done)
    assert {each.replayed for each in done} == {len(sums.events), len(unfinished.events)}
