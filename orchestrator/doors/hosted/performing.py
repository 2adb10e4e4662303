"""One tool use of a session as one call of the fleet: a run of its own, whose id follows from the use.

So whoever claims the session next joins that run instead of beginning another, and goes on with it when its process is
lost. Nothing here knows leases.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection
from typing import Any, Final

import orjson

from toolfleet.calls import Failed, Submitted
from toolfleet.errors import BrokerUnreachable, StoreUnreachable, ToolfleetError
from toolfleet.logs import FactLog
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.hosted.relay_model import question_for
from toolfleet.orchestrator.doors.hosted.results import Answer
from toolfleet.orchestrator.doors.hosted.session_log import ToolUse
from toolfleet.orchestrator.errors import RunNotFound
from toolfleet.orchestrator.models.names import NameMap, legal_name
from toolfleet.orchestrator.run.value import Run
from toolfleet.read_result import READ_RESULT
from toolfleet.strict_json import encodable, written

log = FactLog("toolfleet.hosted")

AGAIN_S: Final = 1.0
SHOWN_NAME_CHARS: Final = 200
TURNS: Final = 2
"""The call, and its result."""


class Performer:
    """Makes the calls of one environment's sessions for a tenant; of the tools named, or of all that are served."""

    def __init__(
        self, orchestrator: Orchestrator, environment_id: str, *, tools: Collection[str] = (), tenant: str = ""
    ) -> None:
        self._orchestrator = orchestrator
        self._environment_id = environment_id
        self._only = frozenset(legal_name(name) for name in tools)
        self._tenant = tenant

    def is_ours(self, use: ToolUse) -> bool:
        """Whether this use is for us to answer, even if only to say that nobody serves its tool."""
        return not self._only or use.tool in self._only or use.tool == READ_RESULT.name

    async def perform(self, session_id: str, use: ToolUse) -> Answer:
        """Make the call, or wait for it where it was made already. Waits while the fleet's server is away."""
        while True:
            try:
                if use.tool == READ_RESULT.name:
                    return await self._read_on(use)
                return await self._answer(await self._run(session_id, use))
            except (StoreUnreachable, BrokerUnreachable) as error:
                log.warning("hosted_call_waits", session=session_id, use=use.id, error=str(error))
                await asyncio.sleep(AGAIN_S)
            except _NotMade as error:
                return Answer(str(error), is_error=True)
            except ToolfleetError as error:
                return Answer(f"The call cannot be made: {error}", is_error=True)

    async def _run(self, session_id: str, use: ToolUse) -> Run:
        run_id = run_id_of(self._environment_id, session_id, use.id)
        try:
            return await self._orchestrator.wait(run_id)
        except RunNotFound:
            pass
        served = await self._orchestrator.catalog.offered()
        tool = NameMap(served).to_catalog(use.tool)
        if tool not in served:
            raise _NotMade(f"No live worker serves {encodable(use.tool[:SHOWN_NAME_CHARS])!r}.")
        where = {"environment": self._environment_id, "session": session_id, "tool_use": use.id}
        await self._orchestrator.start(
            question_for(tool, _arguments(use.input)),
            run_id=run_id,
            tools=[tool],
            max_turns=TURNS,
            context={"hosted": where},
            tenant=self._tenant,
            by="hosted loop",
        )
        return await self._orchestrator.wait(run_id)

    async def _answer(self, run: Run) -> Answer:
        said = next((message for message in reversed(run.messages) if isinstance(message, ToolMessage)), None)
        if said is None:
            return Answer(f"The call has no result: {run.reason or 'its run has ended'}", is_error=True)
        whole = await self._orchestrator.with_media(said, tenant=self._tenant)
        return Answer(whole.content, whole.is_error, whole.media)

    async def _read_on(self, use: ToolUse) -> Answer:
        """Read on in a result: it changes nothing, and no worker is asked."""
        result = await self._orchestrator.call(READ_RESULT.name, _arguments(use.input), tenant=self._tenant)
        if isinstance(result, Failed):
            return Answer(result.message, is_error=True)
        return Answer("" if isinstance(result, Submitted) else result.content)


class _NotMade(ToolfleetError):
    """There is nothing to call, or nothing to call it with; the text is for the model."""


def run_id_of(environment_id: str, session_id: str, use_id: str) -> str:
    """Return the id of the run that makes the call of a tool use: the same one, whoever has claimed the session."""
    whose = [encodable(part) for part in (environment_id, session_id, use_id)]
    return "hosted" + hashlib.sha256(orjson.dumps(whose)).hexdigest()[:32]


def _arguments(value: Any) -> str:
    """Return the input as JSON text; that it is no object its model is told by the worker that checks it."""
    try:
        return written(value)
    except (TypeError, ValueError, RecursionError):
        raise _NotMade("The input of this call cannot be written as JSON.") from None
