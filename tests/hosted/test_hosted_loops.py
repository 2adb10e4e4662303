"""Environments of a hosted agent loop, judged by that side's own books and by a ledger of effects."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path

import pytest

from tests.hosted.conftest import Serving, Started
from tests.hosted.hosted_api import WITHIN_S, HostedApi
from toolfleet.orchestrator.models.names import legal_name


def text_of(result: dict) -> str:
    return result["content"][0]["text"]


def lines(ledger: Path) -> list[str]:
    return sorted(ledger.read_text().split()) if ledger.exists() else []


async def until_noted(ledger: Path, count: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while len(lines(ledger)) < count:
            await asyncio.sleep(0.02)


async def test_U16_tool_uses_of_many_sessions_are_calls_at_once_and_each_is_answered_once(
    api: HostedApi, serving: Serving, ledger: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    uses = [f"use-{session}-{number}" for session in range(4) for number in range(5)]
    for session in range(4):
        api.begin(f"session-{session}")
    async with serving(api):
        for use in uses:
            # None ends before all have begun.
            api.use(f"session-{use[4]}", use, "note_and_wait", ledger=str(ledger), word=use, until=str(go))
        await until_noted(ledger, len(uses))
        go.touch()
        await api.until(lambda: len(api.posted) == len(uses))
        api.use("session-0", "last", "note", ledger=str(ledger), word="last")
        await api.until(lambda: api.results("last"))
    assert sorted(each["custom_tool_use_id"] for each in api.posted) == sorted([*uses, "last"])
    assert all(text_of(each) == f"waited with {each['custom_tool_use_id']}" for each in api.posted[:-1])
    assert text_of(api.posted[-1]) == "noted last for acme"
    assert lines(ledger) == sorted([*uses, "last"])
    assert all(work.claims == work.stops == 1 for work in api.work.values())


async def test_U16_who_claims_after_a_kill_waits_for_the_same_calls_and_posts_what_was_not(
    api: HostedApi, started: Started, serving: Serving, ledger: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    api.ttl_s = 3
    api.begin("killed")
    work = api.work["work_killed"]
    api.use("killed", "done", "note", ledger=str(ledger), word="done")
    api.use("killed", "under-way", "note_and_wait", ledger=str(ledger), word="under-way", until=str(go))
    api.may_look.clear()
    async with started(api) as one, started(api) as other:
        await api.until(lambda: api.looks_held)
        await until_noted(ledger, 2)
        first, second = (one, other) if one.has_claimed(work) else (other, one)
        await first.kill()  # between the effect and the post
        assert not api.posted
        api.may_answer.clear()
        api.may_look.set()
        await api.until(lambda: api.posted)
        assert second.has_claimed(work)
        await second.kill()  # between the post and its answer
    assert [each["custom_tool_use_id"] for each in api.posted] == ["done"]
    api.may_answer.set()
    api.give_out_again("killed")  # as once the lease has lapsed, which was waited for before
    async with serving(api):
        go.touch()
        await api.until(lambda: len(api.posted) > 1)
        api.use("killed", "after", "note", ledger=str(ledger), word="after")
        await api.until(lambda: api.results("after"))
    assert [each["custom_tool_use_id"] for each in api.posted] == ["done", "under-way", "after"]
    assert not any(each["is_error"] for each in api.posted)
    assert lines(ledger) == ["after", "done", "under-way"]


async def test_U16_two_processes_share_a_queue_and_told_to_stop_let_calls_end_and_give_the_work_back(
    api: HostedApi, started: Started, ledger: Path, tmp_path: Path
) -> None:
    sessions = [f"shared-{number}" for number in range(4)]
    go = tmp_path / "go"
    for session in sessions:
        api.begin(session)
        api.use(session, session, "note_and_wait", ledger=str(ledger), word=session, until=str(go))
    # Two at a time each: nobody can have them all.
    async with started(api, "--sessions", "2") as one, started(api, "--sessions", "2") as other:
        await until_noted(ledger, 4)
        api.begin("left")
        ends = asyncio.gather(one.terminate(), other.terminate())
        go.touch()
        told = await ends
    assert [(code, printed.count("claimed"), printed.count("given back")) for code, printed in told] == [(0, 2, 2)] * 2
    assert sorted(each["custom_tool_use_id"] for each in api.posted) == lines(ledger) == sessions
    assert all(api.work[f"work_{session}"].claims == api.work[f"work_{session}"].stops == 1 for session in sessions)
    assert api.work["work_left"].claims == 0


async def test_U16_a_lost_heartbeat_gives_the_work_up_before_anything_is_posted(
    api: HostedApi, serving: Serving, ledger: Path
) -> None:
    api.begin("lost")
    api.use("lost", "use", "note", ledger=str(ledger), word="once")
    api.may_look.clear()
    async with serving(api) as served:
        await api.until(lambda: api.looks_held)
        api.steal("lost")
        api.may_look.set()
        await api.until(lambda: "session lost: given up, its lease is lost" in served.told)
        assert (api.posted, api.work["work_lost"].stops) == ([], 0)
        # Given out again, the call is there, and its result is posted for whoever has claimed it.
        api.give_out_again("lost")
        await api.until(lambda: api.posted)
    assert [each["custom_tool_use_id"] for each in api.posted] == ["use"]
    assert lines(ledger) == ["once"]


async def test_U16_a_requested_stop_ends_the_work_on_its_session_alone(
    api: HostedApi, serving: Serving, ledger: Path, tmp_path: Path
) -> None:
    go, api.ttl_s = tmp_path / "go", 3
    for session in ("stopped", "other"):
        api.begin(session)
        api.use(session, session, "note_and_wait", ledger=str(ledger), word=session, until=str(go))
    async with serving(api):
        await until_noted(ledger, 2)
        api.work["work_stopped"].state = "stopping"
        await api.until(lambda: api.work["work_stopped"].stops)
        go.touch()
        await api.until(lambda: api.posted)
    assert [each["custom_tool_use_id"] for each in api.posted] == ["other"]


async def test_U16_what_fails_or_fits_not_is_said_as_the_protocol_has_it(api: HostedApi, serving: Serving) -> None:
    session = api.begin("words")
    api.use("words", "fails", "fail", why="<b>no\x1b[2J</b>")
    api.use("words", "unknown", "nobody_serves_this")
    api.use("words", "wrong", "echo", number="many")
    api.use("words", "exact", "echo", number=9007199254740993)
    api.use("words", "picture", legal_name("files.dot"))
    api.use("words", "long", "long_text", size=300_000)
    api.use("words", "endless", "n" * 100_000)
    api.use("words", "deep", "echo", number=functools.reduce(lambda inner, _: [inner], range(300), 0))
    api.use("words", "\ud800", "echo", number=1)
    for garbage in (
        None,
        "text",
        [],
        {"type": 7},
        {"type": "agent.custom_tool_use"},
        {"type": "agent.custom_tool_use", "id": []},
    ):
        session.say(garbage)
    session.say({"type": "agent.custom_tool_use", "id": "no-object", "name": "echo", "input": "text"})
    api.refuse = lambda event: any(part["type"] == "image" for part in event["content"])
    async with serving(api):
        await api.until(lambda: len(api.posted) == 9)
    said = {each["custom_tool_use_id"]: each for each in api.posted}
    assert len(said) == 9
    assert {use for use, each in said.items() if each["is_error"]} == {
        "fails",
        "unknown",
        "wrong",
        "endless",
        "deep",
        "no-object",
        "picture",
    }
    assert "no" in text_of(said["fails"])
    assert text_of(said["unknown"]) == "No live worker serves 'nobody_serves_this'."
    assert text_of(said["exact"]) == "9007199254740993"
    assert "was refused (HTTP 400)" in text_of(said["picture"])
    assert len(text_of(said["long"])) < 110_000


async def test_U16_images_are_image_blocks_and_tools_of_others_are_left_to_them(
    api: HostedApi, serving: Serving
) -> None:
    api.begin("seen")
    api.use("seen", "theirs", "somebody_elses")
    api.use("seen", "ours", legal_name("files.dot"))
    async with serving(api, tools=("files.dot",)):
        await api.until(lambda: api.posted)
    [posted] = api.posted
    assert posted["custom_tool_use_id"] == "ours"
    [image] = [part for part in posted["content"] if part["type"] == "image"]
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


async def test_U16_a_server_that_is_down_for_a_while_costs_no_result_and_no_call(
    serving: Serving, ledger: Path, tmp_path: Path
) -> None:
    api, go = HostedApi(), tmp_path / "go"
    api.failing_posts = 1
    async with api.up():
        api.begin("away")
        api.use("away", "use", "note_and_wait", ledger=str(ledger), word="use", until=str(go))
        serving_it = serving(api)
        await serving_it.__aenter__()
        await until_noted(ledger, 1)
    try:
        go.touch()
        async with api.up():
            await api.until(lambda: api.posted)
            api.use("away", "more", "note", ledger=str(ledger), word="more")
            await api.until(lambda: api.results("more"))
            await serving_it.__aexit__(None, None, None)
    finally:
        assert [each["custom_tool_use_id"] for each in api.posted] == ["use", "more"]
    assert lines(ledger) == ["more", "use"]
    assert api.work["work_away"].claims == 1


async def test_U16_a_session_whose_turn_has_ended_is_given_back(api: HostedApi, serving: Serving) -> None:
    session = api.begin("idle")
    session.say({"type": "session.status_idle", "id": "e1", "stop_reason": {"type": "end_turn"}, "processed_at": "x"})
    waiting = api.begin("waiting")
    reason = {"type": "requires_action", "event_ids": []}
    waiting.say({"type": "session.status_idle", "id": "e2", "stop_reason": reason, "processed_at": "x"})
    async with serving(api, idle_s=0.1):
        await api.until(lambda: api.work["work_idle"].stops)
        assert api.work["work_waiting"].stops == 0
        waiting.say({"type": "session.deleted", "id": "e3", "processed_at": "x"})
        await api.until(lambda: api.work["work_waiting"].stops)


def test_U16_the_fleets_tools_are_printed_as_custom_tools(fleet, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolfleet.orchestrator.doors.cli.environment import environment

    for name, value in fleet.settings.as_environment().items():
        monkeypatch.setenv(name, value)
    environment(tools=True)
    declared = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert {"note", legal_name("files.dot"), "read_result"} <= declared.keys()
    assert declared["echo"]["type"] == "custom"
    assert declared["echo"]["input_schema"]["properties"]["number"]["type"] == "integer"
