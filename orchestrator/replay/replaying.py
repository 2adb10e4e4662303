"""A stored run taken through the turn loop again, with the replies and results that it had: does the same come out?

The loop is that of an orchestrator; what was written down stands for its model, its workers, the people who had a say
and the clock. So a difference is one that the code makes: what is folded, in which words it is told to the model, what
a limit or the guard against loops says, which calls are sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from pydantic import Field

from toolfleet.calls import Record
from toolfleet.messages import AssistantMessage, Message
from toolfleet.orchestrator.errors import IllegalTransition, RunIsOver
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.replay.differences import Difference, of_messages
from toolfleet.orchestrator.replay.export import Export
from toolfleet.orchestrator.replay.offline import Code, OfflineLoop, begin_nothing, offline_loop
from toolfleet.orchestrator.replay.recorded_code import given_code, recorded_code
from toolfleet.orchestrator.replay.recording import Recording
from toolfleet.orchestrator.replay.script import (
    Diverged,
    RecordedReplies,
    RecordedResults,
    RecordingEnds,
    ReplayJournal,
    Script,
    is_given,
    other_choices,
)
from toolfleet.orchestrator.run.events import RunStopped
from toolfleet.orchestrator.run.value import Run
from toolfleet.settings import Settings
from toolfleet.tool import ToolSpec

MAX_ATTEMPTS: Final = 200
"""What an owner knew when it began a step is in no history, so that is tried out; mostly the first attempt is right."""


class Replayed(Record):
    """What has come of a replay."""

    run_id: str
    events: int
    """How many were written down."""
    replayed: int
    """How many of them the replay came to; fewer where it goes another way."""
    turns: int
    messages: tuple[Message, ...] = Field(repr=False)
    """What has come out, as far as it went."""
    differences: tuple[Difference, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether all came out as it was written down."""
        return not self.differences


async def replay(
    export: Export,
    settings: Settings,
    *,
    tools: Mapping[str, ToolSpec] | None = None,
    code: Code | None = None,
) -> Replayed:
    """Take an exported run through the loop, and say what comes out differently. Reaches nothing, and has no effect.

    `tools`: specs as they are declared now, in the place of those exported under their names; `code`: the interceptors
    and policies of an orchestrator, asked anew about each call. Without it they are taken to decide as they did.
    """
    try:
        recording = Recording.of(export, time.time(), tools)
    except IllegalTransition as error:
        return _unreadable(export, error)
    furthest: Replayed | None = None
    choices: list[int] | None = []
    for _ in range(MAX_ATTEMPTS):
        if choices is None:
            break
        script = Script(recording, choices)
        run = await _attempt(script, recording, settings, code)
        replayed = _replayed(export, script, run)
        if replayed.is_same:
            return replayed
        if furthest is None or replayed.replayed > furthest.replayed:
            furthest = replayed
        choices = other_choices(script.made)
    assert furthest is not None  # noqa: S101  # there is one attempt at least
    return furthest


async def _attempt(script: Script, recording: Recording, settings: Settings, code: Code | None) -> Run:
    """Drive the run as far as it comes to what was written down; the run then."""
    model = RecordedReplies(script)
    offline = offline_loop(
        model,
        recording.as_offered(settings),
        tools=recording.tools,
        agents=recording.agents,
        answers=RecordedResults(script, recording.brought),
        code=recorded_code(recording, script) if code is None else given_code(code, script),
    )
    model.journal = journal = ReplayJournal(script, offline.store, Run.start(recording.started))
    with suppress(Diverged, RecordingEnds):
        await _through(script, journal, offline)
    return journal.run


async def _through(script: Script, journal: ReplayJournal, offline: OfflineLoop) -> None:
    """Drive the run to the end of what was written down. Raises Diverged, RecordingEnds."""
    work = RunAtWork(journal, None, begin_nothing)
    while True:
        journal.read()
        if (expected := script.next) is None:
            return
        before = script.at
        if not journal.run.state.is_terminal:
            try:
                await offline.loop.drive(work)
            except RunIsOver:
                continue  # somebody has ended it meanwhile
        if script.at > before or is_given(expected, journal.run):
            continue
        if not isinstance(expected, RunStopped) or journal.run.state.is_terminal:
            script.diverge(journal.run, expected.type, f"nothing: the run is {journal.run.state}")
        # Its time was over, or its orchestrator had to end it, while it was at rest.
        journal.run = script.stopped(journal.run)


def _replayed(export: Export, script: Script, run: Run) -> Replayed:
    differences = list(script.differences)
    if not differences and script.next is None:
        differences += _at_the_end(export, run)
    return Replayed(
        run_id=export.run_id,
        events=len(export.events),
        replayed=script.through + 1,
        turns=run.turn,
        messages=run.messages,
        differences=tuple(differences),
    )


def _at_the_end(export: Export, run: Run) -> list[Difference]:
    """What differs between the run and what it had come to when it was exported."""
    end = export.end
    facts: list[tuple[str, Any, Any]] = [
        ("state", end.state, run.state),
        ("answer", end.answer, run.answer),
        ("reason", end.reason, run.reason),
    ]
    found = [each for each in facts if each[1] != each[2]]
    found += of_messages(end.messages, run.messages)
    return [
        Difference(turn=_turn_at(end.messages, run, what), event=0, what=what, expected=expected, found=came)
        for what, expected, came in found
    ]


def _turn_at(messages: Sequence[Message], run: Run, what: str) -> int:
    """Return the turn of a message, or the last one for what is said of the whole run."""
    kind, _, rest = what.partition(" ")
    if kind != "message":
        return run.turn
    place = int(rest.split()[0])
    said = messages[run.began_with : place + 1]
    return sum(isinstance(message, AssistantMessage) for message in said)


def _unreadable(export: Export, error: IllegalTransition) -> Replayed:
    """What is said of a history that this version does not understand as the one did that wrote it."""
    difference = Difference(
        turn=0, event=0, what="the history", expected="one that can have happened", found=str(error)
    )
    return Replayed(
        run_id=export.run_id,
        events=len(export.events),
        replayed=0,
        turns=0,
        messages=export.started.messages,
        differences=(difference,),
    )
