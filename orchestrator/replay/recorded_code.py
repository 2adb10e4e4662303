"""What an orchestrator's users' own code has decided in a run, read off its history, for a replay without that code.

And that code itself, where it is given: it is asked before calls are sent, and not about results, which are written
down as it has left them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.messages import Message
from toolfleet.orchestrator.replay.offline import Code
from toolfleet.orchestrator.replay.recording import Recording
from toolfleet.orchestrator.replay.script import Script
from toolfleet.orchestrator.run.events import CallsBack, ModelReplied
from toolfleet.orchestrator.tools.chain import NO_CHAIN, Chain, Interceptors
from toolfleet.orchestrator.tools.interceptors import Interceptor, RequestedToolCall, Result


def recorded_code(recording: Recording, script: Script) -> Code:
    """Return the decisions of code that is not here, as they were."""
    undecided = recording.undecided
    sent = {call.tool for call in recording.run.calls if call.call_id in recording.sent}
    return Code(
        interceptors=_RecordedInterceptors(_AsRecorded(recording, script)),
        needs_approval=lambda call: call.call_id in undecided,
        resolve_tool=lambda name: name if name in sent else None,
        tool_provider=_RecordedChoices(script) if _chooses_each_turn(recording) else None,
    )


def given_code(code: Code, script: Script) -> Code:
    """Return code that is asked about calls, and whose word about results stands as it was written down."""
    return replace(code, interceptors=_OnTheWayOut(code.interceptors, script))


class _AsRecorded(Interceptor):
    """Answers the calls that were answered before they were sent."""

    def __init__(self, recording: Recording, script: Script) -> None:
        self.answered = frozenset(
            call.call_id
            for call in recording.run.calls
            if call.call_id not in recording.sent and call.refusal is None and call.tool in recording.tools
        )
        self._script = script

    async def before(self, call: RequestedToolCall) -> RequestedToolCall | Result:
        """The call, or what it came to without being sent."""
        if call.call_id not in self.answered:
            return call
        return _recorded_result(self._script, call.call_id) or call


class _RecordedInterceptors(Interceptors):
    """Stands for whichever interceptors a run names."""

    def __init__(self, recorded: _AsRecorded) -> None:
        super().__init__()
        self._recorded = Chain.of([recorded]) if recorded.answered else NO_CHAIN

    def __bool__(self) -> bool:
        return True

    def chosen(self, names: Sequence[str]) -> Chain:
        """The chain of what was answered; none where nothing was."""
        del names
        return getattr(self, "_recorded", NO_CHAIN)


class _OnTheWayOut(Interceptors):
    """Interceptors that see calls, and no results."""

    def __init__(self, code: Interceptors, script: Script) -> None:
        self._code = code
        self._script = script

    def __bool__(self) -> bool:
        return True

    def chosen(self, names: Sequence[str]) -> Chain:
        """Those of a run. Raises UnknownInterceptor."""
        return Chain.of([_OneOnTheWayOut(each, self._script) for each in self._code.chosen(names).interceptors])


class _OneOnTheWayOut(Interceptor):
    """One of them."""

    def __init__(self, code: Interceptor, script: Script) -> None:
        self._code = code
        self._script = script
        self.tools = code.tools

    async def before(self, call: RequestedToolCall) -> RequestedToolCall | Result:
        """What the code says."""
        return await self._code.before(call)

    async def answer(self, call: RequestedToolCall) -> Result:
        """What it had answered: asked again, it might have an effect."""
        unrecorded = Failed(kind=FailureKind.UNKNOWN_TOOL, message=f"no answer to {call.tool} was written down")
        return _recorded_result(self._script, call.call_id) or unrecorded


class _RecordedChoices:
    """Chooses the tools that were chosen in each turn."""

    each_turn = True

    def __init__(self, script: Script) -> None:
        self._script = script

    async def __call__(self, messages: Sequence[Message], context: Mapping[str, Any]) -> Sequence[str]:
        """The choice of the next reply."""
        del messages, context
        for event in self._script.events[self._script.at :]:
            if isinstance(event, ModelReplied):
                return event.offered or ()
        return ()


def _recorded_result(script: Script, call_id: str) -> Result | None:
    back = script.coming(CallsBack)
    result = back.results.get(call_id) if isinstance(back, CallsBack) else None
    return result if isinstance(result, Returned | Failed) else None


def _chooses_each_turn(recording: Recording) -> bool:
    return any(isinstance(event, ModelReplied) and event.offered is not None for event in recording.events)
