"""A task as it is followed: itself first, then what happens to it, until it has ended or asks a person.

The answer is told as it is written, as pieces of one artifact. A reply that turns out to ask for calls, or that is
begun anew, was no answer: the artifact then begins again, which is what `append: false` says. Whoever comes later, or
comes back after a cut, is given the task as it stands and all of the reply that is being written: nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from a2a.types import Artifact, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.a2a.shown import (
    ANSWER,
    answer_of,
    artifact_event,
    artifacts_of,
    has_answer,
    piece_of_answer,
    reply_message,
    status_event,
    task_of,
)
from toolfleet.orchestrator.doors.a2a.standing import Standing, standing_of
from toolfleet.orchestrator.doors.http.following import Followed
from toolfleet.orchestrator.run.updates import (
    CallAsks,
    CallAwaitsApproval,
    CallsRequested,
    ReplyBegan,
    RunEnded,
    RunUpdate,
    TextArrived,
)

Event = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

LOOK_EVERY_S: Final = 2.0
"""How often it is looked whether a person is asked, where nobody tells: the run is worked on elsewhere, or waits."""


@dataclass(slots=True)
class TaskUpdates:
    """What one client is told of a task."""

    asked: Asked
    followed: Followed
    standing: Standing
    """How it stood when that was last told."""
    history: int | None = None
    """How many messages of its history are shown at first."""
    _known_turns: int = field(init=False)
    """The replies that the task was first shown with: what happened until then is no news."""
    _is_news: bool = False
    """Whether what comes is of a later reply."""
    _shown: str = ""
    """The answer as the client has it."""
    _is_anew: bool = True
    _given: set[str] = field(init=False)
    """The artifacts of tools that it has."""

    def __post_init__(self) -> None:
        self._known_turns = len(self.standing.run.replies)
        self._given = {each.artifact_id for each in self._artifacts}

    async def events(self, *, ends_when_asked: bool) -> AsyncGenerator[Event, None]:
        """Yield the task and its news, until it has ended or, if that is wanted, a person is asked.

        Raises RunNotFound for one that is deleted meanwhile, OrchestratorClosed when this server stops.
        """
        yield task_of(self.standing, self.asked.base_url, history=self.history)
        if self._is_over(ends_when_asked=ends_when_asked):
            return
        async with aclosing(paced(self.followed.updates(), LOOK_EVERY_S)) as updates:
            async for update in updates:
                for event in await self._told(update):
                    yield event
                if self._is_over(ends_when_asked=ends_when_asked):
                    return

    def _is_over(self, *, ends_when_asked: bool) -> bool:
        return self.standing.has_ended or (ends_when_asked and self._is_asking)

    @property
    def _is_asking(self) -> bool:
        return self.standing.state == TaskState.TASK_STATE_INPUT_REQUIRED

    async def _told(self, update: RunUpdate | None) -> list[Event]:
        match update:
            case ReplyBegan():
                self._is_news = update.turn > self._known_turns
                self._is_anew = True
            case TextArrived() if self._is_news and update.text:
                return [self._piece(update.text)]
            case CallsRequested() if update.turn > self._known_turns:
                return await self._went_on(update)
            case RunEnded():
                return await self._looked_again(is_news=True)
            case _ if self._may_be_asked(update):
                return await self._looked_again()
        return []

    def _may_be_asked(self, update: RunUpdate | None) -> bool:
        """Whether a person may be asked now, or may have answered."""
        if self._is_asking or isinstance(update, CallAsks | CallAwaitsApproval):
            return True
        return update is None and not self.followed.is_worked_on_here

    def _piece(self, text: str) -> Event:
        append = not self._is_anew
        self._shown = self._shown + text if append else text
        self._is_anew = False
        return artifact_event(self.standing.run, piece_of_answer(text), append=append)

    async def _went_on(self, requested: CallsRequested) -> list[Event]:
        """What was written was no answer: it was said on the way, beside calls."""
        await self._look()
        run, taken_back = self.standing.run, []
        if self._shown:
            self._shown = ""
            taken_back = [artifact_event(run, piece_of_answer(""))]
        said = reply_message(run, requested.turn) if run.replies[requested.turn - 1].content else None
        calls = [call.tool for call in run.calls if call.turn == requested.turn]
        return [*taken_back, *self._fresh(), status_event(self.standing, said, calls)]

    async def _looked_again(self, *, is_news: bool = False) -> list[Event]:
        before = self.standing
        await self._look()
        now = self.standing
        if not is_news and (now.state, now.asks) == (before.state, before.asks):
            return []
        return [*self._fresh(), *(self._answer() if now.has_ended else ()), status_event(now)]

    def _answer(self) -> list[Event]:
        """Return the end of the answer, or all of it where what was shown is something else."""
        run = self.standing.run
        if not has_answer(run):
            return [artifact_event(run, piece_of_answer(""), last_chunk=True)] if self._shown else []
        if self._shown == run.answer:
            return [artifact_event(run, piece_of_answer(""), append=True, last_chunk=True)]
        return [artifact_event(run, answer_of(run), last_chunk=True)]

    def _fresh(self) -> list[Event]:
        """Return what tools have given that the client has not."""
        fresh = [each for each in self._artifacts if each.artifact_id not in self._given]
        self._given |= {each.artifact_id for each in fresh}
        return [artifact_event(self.standing.run, each, last_chunk=True) for each in fresh]

    @property
    def _artifacts(self) -> list[Artifact]:
        found = artifacts_of(self.standing.run, self.asked.base_url)
        return [each for each in found if each.artifact_id != ANSWER]

    async def _look(self) -> None:
        self.standing = await standing_of(self.asked.door, self.asked.grant, self.followed.run_id)


async def paced(updates: AsyncGenerator[RunUpdate, None], every_s: float) -> AsyncGenerator[RunUpdate | None, None]:
    """Yield updates, and None whenever none has come for so long."""
    async with aclosing(updates):
        coming = asyncio.ensure_future(anext(updates))  # watched: awaited below
        try:
            while True:
                await asyncio.wait({coming}, timeout=every_s)
                if not coming.done():
                    yield None
                    continue
                try:
                    update = coming.result()
                except StopAsyncIteration:
                    return
                coming = asyncio.ensure_future(anext(updates))  # watched: as above
                yield update
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
