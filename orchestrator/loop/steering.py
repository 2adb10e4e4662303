"""What a person says to a run while it goes on: stored first, then heard by its model before its next reply.

Any orchestrator may be told; the run's history is the only place where it stands. With `interrupt` what the run waits
for is called off once that is stored. Takes no turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolfleet.messages import Message, UserMessage
from toolfleet.orchestrator.errors import InvalidOption
from toolfleet.orchestrator.fleet.cancel import Canceller, CancelRequest
from toolfleet.orchestrator.loop.ending import Ending
from toolfleet.orchestrator.loop.images import KeptImages
from toolfleet.orchestrator.models.objections import must_take
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.models.sight import images_said
from toolfleet.orchestrator.options import conversation
from toolfleet.orchestrator.run.events import MessagesSaid
from toolfleet.orchestrator.run.saying import must_listen, was_said
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.overview import Overview
from toolfleet.orchestrator.store.journal import write_from_outside
from toolfleet.orchestrator.store.run_store import RunStore

INTERRUPTED: Final = "the user has said something else"
"""Why a call was cancelled that an interruption has called off."""


class _SaidBefore(Exception):
    """The same was said under the same key before: nothing is to be written."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


@dataclass(frozen=True, slots=True)
class Steering:
    """Says things to runs of any orchestrator."""

    model: ChatModel | None
    """This orchestrator's model."""
    store: RunStore
    ending: Ending
    canceller: Canceller
    overview: Overview
    images: KeptImages

    async def say(self, run_id: str, message: str | Sequence[Message], *, interrupt: bool, key: str, by: str) -> Run:
        """Store what a person says to a run that goes on, once for each key; the run after that.

        Raises RunNotOpen, RunNotFound, InvalidOption, NotForThisModel, StoreUnreachable.
        """
        said = await self._kept(run_id, _spoken(message))
        event = MessagesSaid(messages=said, interrupt=interrupt, key=key, by=by)

        async def unless_said(run: Run) -> MessagesSaid:
            if was_said(run, key, said):
                raise _SaidBefore(run)
            must_listen(run)
            return event

        try:
            run = await write_from_outside(self.store, run_id, unless_said)
        except _SaidBefore as before:
            run = before.run
        if interrupt and run.is_interrupted:
            await self._call_off(run, by)
        return run

    async def _kept(self, run_id: str, said: tuple[UserMessage, ...]) -> tuple[UserMessage, ...]:
        """The messages as they are stored: large images are kept once, beside the run."""
        if not images_said(said):
            return said
        run = (await self.store.load(run_id)).run
        kept = await self.images.kept(said, run_id, tenant=run.terms.tenant)
        if self.model is not None and run.model == self.model.name and not run.agent:
            must_take(self.model, kept, run.terms.model_options)
        return tuple(message for message in kept if isinstance(message, UserMessage))

    async def _call_off(self, run: Run, by: str) -> None:
        """Cancel what the run waits for; tasks that its model has handles of go on. A queued call never starts."""
        under_way = run.calls_that_may_have_begun
        calls = [call for call in under_way if not (call.is_slow_and_open or call.is_in_background)]
        if not calls:
            return
        await self.ending.call_off(calls, INTERRUPTED, by)
        # Who is seen in the queue after it was marked will never start.
        seen = {call.call_id: call.state for call in (await self.overview.run(run.run_id)).calls}
        queued = [call for call in calls if seen.get(call.call_id) is CallState.QUEUED]
        now = time.time()
        await self.canceller.end_unstarted(
            CancelRequest(call.call_id, call.tool, call.deadline_unix_s or now) for call in queued
        )
        await self.store.notify(run.run_id)


def _spoken(message: str | Sequence[Message]) -> tuple[UserMessage, ...]:
    said = conversation(message)
    users = tuple(each for each in said if isinstance(each, UserMessage))
    if len(users) < len(said) or not users or not all(each.content for each in users):
        raise InvalidOption("say something as the user: a text, or messages with the role user")
    return users
