"""One delivered call from admission to settlement: the column that every pool runs.

Knows Redis through its parts (claims, runs, conclusion, dead letters) and nothing of Celery's pools or messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from toolfleet.calls import Effect, Failed, FailureKind, ToolCall
from toolfleet.connections import connect_async
from toolfleet.interceptors import ToolInterceptor
from toolfleet.log_subject import log_about_call
from toolfleet.points import Point, reached
from toolfleet.settings import Settings
from toolfleet.tool import Tool
from toolfleet.tracing import find_tracing
from toolfleet.wire import Seal
from toolfleet.workers.delivery.admit import Admitted, Decision, Ended, Unbelievable, Unread, Unresolved, admit
from toolfleet.workers.delivery.call_logs import CallLogs
from toolfleet.workers.delivery.checkpoints import Checkpoints
from toolfleet.workers.delivery.claims import Claimer
from toolfleet.workers.delivery.dead_letters import bury
from toolfleet.workers.delivery.forward import UNSERVED_FOR_S, Forwarder, Passed
from toolfleet.workers.delivery.log_handler import OFF
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.newest import SendingLoop, SideLoop
from toolfleet.workers.delivery.pieces import Pieces
from toolfleet.workers.delivery.progress import ProgressReporter
from toolfleet.workers.delivery.questions import Questions
from toolfleet.workers.perform.attempts import Attempts
from toolfleet.workers.perform.conclusion import Conclusion
from toolfleet.workers.perform.endings import Ending
from toolfleet.workers.perform.quick_calls import QuickCalls
from toolfleet.workers.perform.shared_answers import SharedAnswers
from toolfleet.workers.perform.tool_run import ToolRuns
from toolfleet.workers.tool.execute import limit_s
from toolfleet.workers.tool.failures import in_doubt
from toolfleet.workers.tool.threads import ToolThreads
from toolfleet.workers.tool.watch import Watch, watched

_PASSED: Final[Mapping[Passed, Ending | None]] = {
    Passed.NOT: None,
    Passed.LOST: Ending.TAKEN_OVER,
    Passed.TO_A_LANE: Ending.PASSED_ON,
    Passed.BACK: Ending.PASSED_ON,
}


class Performer:
    """Performs calls on one event loop. Create it on that loop."""

    def __init__(
        self,
        settings: Settings,
        tools: Mapping[str, Tool[..., Any]],
        threads: ToolThreads | None,
        interceptors: tuple[ToolInterceptor, ...] = (),
        watch: Watch | None = None,
    ) -> None:
        """`interceptors` stand around every tool; without `threads`, blocking tools run on the loop.

        `watch` is told of what could keep the loop to itself.
        """
        self._settings = settings
        self._tools = tools
        self._seal = Seal(settings)
        self._client = connect_async(settings)
        self._claimer = Claimer(self._client, settings.keys, self._seal)
        self._forwarder = Forwarder(self._client, settings.keys, self._seal)
        # A blocking tool without a thread of its own blocks this loop, and nothing could be sent from it meanwhile.
        loop: SendingLoop = asyncio.get_running_loop() if threads else SideLoop("reports")
        client = self._client if threads else connect_async(settings)
        self._checkpoints = Checkpoints(loop, client, settings.keys, self._seal)
        tracing = find_tracing()
        self._attempts = None if tracing is None else Attempts(tracing, loop, client, settings.keys, self._seal)
        self._runs = ToolRuns(
            self._client,
            settings,
            self._seal,
            ProgressReporter(loop, client, settings.keys, self._seal),
            self._checkpoints,
            questions=Questions(
                loop, client, settings.keys, self._seal, self._checkpoints, is_tools_loop=threads is not None
            ),
            pieces=Pieces(loop, client, settings.keys, self._seal),
            threads=threads,
            interceptors=interceptors,
            attempts=self._attempts,
            logs=None if settings.call_log_level == OFF else CallLogs(loop, client, settings, self._seal, tools),
            watch=watch,
        )
        self._watch = watch
        self._shared = SharedAnswers(self._client, settings, self._seal, is_surrounded=bool(interceptors))
        self._conclusion = Conclusion(self._client, settings, tools, self._seal, self._checkpoints)
        self.quick = QuickCalls(settings, tools, self._seal, self._runs, self._conclusion)

    async def perform(self, delivery: Delivery) -> Ending:
        """See one delivery to its end. Returns how it ended; raises nothing of the tool's."""
        reached(Point.RECEIVED, delivery.task_id)
        tool = self._tools.get(delivery.task)
        if tool is None or delivery.contract not in ("", tool.spec.contract):
            served = None if tool is None else tool.spec
            passed = _PASSED[await self._forwarder.pass_on_unopened(delivery, served=served)]
            if passed is not None:
                return passed
        decision = self._admit(delivery, tool)
        if tool is not None and _is_of_another_version(decision, tool):
            return await self._leave_to_others(delivery, decision)
        if not isinstance(decision, Unbelievable):  # what nobody has signed names no trace
            call = decision.call
            log_about_call(call.run_id, call.call_id, call.traceparent)
        if tool is None or not isinstance(decision, Admitted | Unresolved):
            return await self._end(delivery, decision, tool)
        return await self._start(delivery, decision, tool)

    async def _start(self, delivery: Delivery, decision: Admitted | Unresolved, tool: Tool[..., Any]) -> Ending:
        """See a call to its end that is this worker's to run."""
        if decision.must_claim and not await self._claimer.claim(delivery, decision.call):
            return Ending.BURIED
        if tool.spec.cache_s is not None and (question := self._question(delivery, decision.call, tool)):
            return await self._share(question, delivery, decision, tool)
        outcome = await self._runs.run(delivery, decision, tool)
        if isinstance(outcome, Ending):
            return outcome
        return await self._conclusion.conclude(delivery, decision.call, outcome)

    def _question(self, delivery: Delivery, call: ToolCall, tool: Tool[..., Any]) -> str:
        with watched(self._watch, limit_s(call, tool, time.time())):  # its author's validators run
            return self._shared.question(delivery, call, tool)

    async def _share(
        self, question: str, delivery: Delivery, decision: Admitted | Unresolved, tool: Tool[..., Any]
    ) -> Ending:
        """See a call to its end whose answer others may have, or find."""
        call = decision.call
        outcome = await self._shared.answer(
            question, delivery, call, tool, lambda: self._runs.run(delivery, decision, tool)
        )
        if isinstance(outcome, Ending):
            return outcome
        ending = await self._conclusion.conclude(delivery, call, outcome)
        await self._shared.end(question, delivery, call, outcome)
        return ending

    async def drain(self) -> None:
        """Return when the results of quick calls are settled."""
        await self._conclusion.drain()

    async def aclose(self) -> None:
        """Close the connection; what is still running fails."""
        await self._checkpoints.aclose()
        await self._client.aclose()

    def _admit(self, delivery: Delivery, tool: Tool[..., Any] | None) -> Decision:
        return admit(
            delivery,
            delivery.effect(tool.spec.effect if tool else Effect.READ_ONLY),
            self._seal,
            now_unix_s=time.time(),
            max_deliveries=self._settings.max_deliveries,
            reconciles=tool is not None and tool.hooks.get("reconcile") is not None,
        )

    async def _leave_to_others(self, delivery: Delivery, decision: Admitted | Unresolved) -> Ending:
        """Pass on a call that says itself that it is not for this worker, whatever its message says; or end it."""
        passed = _PASSED[await self._forwarder.pass_on(delivery, decision.call, can_run=False)]
        return passed or await self._end(delivery, decision, None)

    async def _pass_on_unread(self, delivery: Delivery, unread: Unread) -> Ending:
        """Pass on a call of a version that is not read here; end it where nobody came who does."""
        passed = await self._forwarder.pass_on(delivery, unread.call, can_run=False, version=unread.version)
        return _PASSED[passed] or await self._conclusion.conclude(delivery, unread.call, unread.otherwise)

    async def _end(self, delivery: Delivery, decision: Decision, tool: Tool[..., Any] | None) -> Ending:
        """End a delivery whose call must not start here: it cannot be believed, it is too late, or nobody serves it."""
        match decision:
            case Unbelievable(reason=reason):
                await self._bury(delivery, reason)
                return Ending.BURIED
            case Unread():
                return await self._pass_on_unread(delivery, decision)
            case Ended(call=call, result=result, dead_letter=dead_letter):
                if self._attempts is not None and tool is not None:
                    await self._attempts.earlier(delivery, call, tool.spec)
                if dead_letter:
                    await self._bury(delivery, result.kind)
                return await self._conclusion.conclude(delivery, call, result)
            case Admitted(call=call):
                return await self._conclusion.conclude(delivery, call, self._unknown(call))
            case Unresolved(call=call):  # who could have said what became of it is gone
                return await self._conclusion.conclude(delivery, call, in_doubt(call.tool))

    async def _bury(self, delivery: Delivery, reason: str) -> None:
        tool = self._tools.get(delivery.task)
        await bury(self._client, self._settings.keys, delivery, reason, tool.spec.input_schema if tool else None)

    def _unknown(self, call: ToolCall) -> Failed:
        known = ", ".join(sorted(self._tools)) or "none"
        return Failed(
            kind=FailureKind.UNKNOWN_TOOL,
            message=f"{self._forwarder.unserved(call)}, and none came within {UNSERVED_FOR_S:g} s or before the "
            f"call's deadline. The worker that gave it up has: {known}",
        )


def _is_of_another_version(decision: Decision, tool: Tool[..., Any]) -> TypeGuard[Admitted | Unresolved]:
    """Whether a call that may start is one of another version of its tool than this worker serves."""
    return isinstance(decision, Admitted | Unresolved) and not decision.call.is_for(tool.spec.version)
