"""Calls shown to the interceptors of their scope, on the way out and on the way back. Without any, nothing is paid."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from toolfleet.arguments.parsing import ArgumentLimits
from toolfleet.arguments.text import readable
from toolfleet.calls import Effect, Failed, FailureKind, Returned, ToolResult
from toolfleet.catalog import BUILT_IN_NAMES
from toolfleet.errors import BadArguments, BrokerUnreachable, StoreUnreachable
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.status.call_reader import recorded_result
from toolfleet.orchestrator.status.handles import Status
from toolfleet.orchestrator.tools.interceptors import RequestedToolCall, Result
from toolfleet.tool import ToolSpec


def as_intercepted(record: CallRecord, scope: CallScope, arguments: str) -> RequestedToolCall:
    """The call as an interceptor, or a policy of approval, sees it."""
    spec = scope.offered.get(record.tool) or _no_longer_served(record.tool)
    return RequestedToolCall(
        call_id=record.call_id,
        run_id=scope.run_id,
        # What is run, and not the name by which a model asked for it: a rule about a tool holds for all its names.
        tool=spec.name,
        arguments=arguments,
        spec=spec,
        context=scope.context,
        tenant=scope.tenant,
        subject=scope.subject,
    )


async def intercept_calls(
    records: Sequence[CallRecord], scope: CallScope, arguments: Mapping[str, str], limits: ArgumentLimits
) -> tuple[dict[str, str], dict[str, Result], Exception | None]:
    """Show calls to the interceptors before they are sent.

    Returns the arguments to send; the results of the calls that an interceptor has answered itself, or that nobody
    could make anything of: those are not shown, and fail as they would at their worker; and what was raised first, if
    anything was: the call at which it was raised is not sent, its siblings are. Raises what says that the store or the
    broker is away.
    """
    changed, answers = dict(arguments), dict[str, Result]()
    # Side by side: an interceptor may ask a model, and the calls of one reply do not wait for each other.
    outcomes = await asyncio.gather(
        *(_shown(record, scope, arguments.get(record.call_id, record.arguments), limits) for record in records),
        return_exceptions=True,
    )
    for record, outcome in zip(records, outcomes, strict=True):
        if isinstance(outcome, RequestedToolCall):
            # What they have seen is sent, not the text that it was made of: a worker could read that otherwise.
            changed[record.call_id] = outcome.arguments
        elif isinstance(outcome, BaseException):
            must_be_of_one_call(outcome)
            said = f"{record.tool} was not called ({type(outcome).__name__}: {outcome})."
            answers[record.call_id] = Failed(kind=FailureKind.ERROR, message=said)
        else:
            answers[record.call_id] = outcome
    return changed, answers, next((each for each in outcomes if isinstance(each, Exception)), None)


def must_be_of_one_call(error: BaseException) -> None:
    """Raise what is not about one call: a cancellation, or a store that is away, after which all is done again."""
    if isinstance(error, StoreUnreachable | BrokerUnreachable) or not isinstance(error, Exception):
        raise error


async def _shown(
    record: CallRecord, scope: CallScope, arguments: str, limits: ArgumentLimits
) -> RequestedToolCall | Result:
    try:
        text = readable(record.tool, arguments, limits)
    except BadArguments as error:
        return Failed(kind=FailureKind.BAD_ARGUMENTS, message=str(error))
    return await scope.interceptors.before(as_intercepted(record, scope, text))


async def intercept_each(
    records: Iterable[CallRecord], results: Mapping[str, ToolResult], scope: CallScope, limits: ArgumentLimits
) -> tuple[dict[str, ToolResult], Exception | None]:
    """Show results to the interceptors before they are recorded.

    Returns the results as they want them, and what was raised first, if anything was. What is raised at one result
    takes no other along; the result itself is withheld if it is one: nobody may read what was to be changed.
    """
    if not scope.interceptors:
        return dict(results), None
    back = [
        (record, result)
        for record in records
        # A handle is no result.
        if isinstance(result := results.get(record.call_id), Returned | Failed) and _is_of_a_tool(record, scope)
    ]
    # Side by side, as on their way out.
    outcomes = await asyncio.gather(
        *(after(record, result, scope, limits) for record, result in back), return_exceptions=True
    )
    changed = dict(results)
    for (record, result), outcome in zip(back, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            must_be_of_one_call(outcome)
            changed[record.call_id] = withheld(record, result, outcome)
        else:
            changed[record.call_id] = outcome
    return changed, next((each for each in outcomes if isinstance(each, Exception)), None)


def withheld(record: CallRecord, result: Result, why: BaseException) -> Failed:
    """What stands for a result that could not be shown to the interceptors; a failure stands for itself."""
    if isinstance(result, Failed):
        return result
    said = (
        f"{record.tool} has returned, but its result is withheld ({type(why).__name__}: {why}). Do not repeat the call."
    )
    return Failed(kind=FailureKind.ERROR, message=said)


async def intercept_late(status: Status, record: CallRecord | None, scope: CallScope, limits: ArgumentLimits) -> Status:
    """Show a result that came after its call had become a task; how the task stands with what they made of it.

    `record` is the call as its run remembers it: what it has recorded was shown before.
    """
    if not scope.interceptors or status.result is None or record is None or recorded_result(record) is not None:
        return status
    return status.ended_with(await after(record, status.result, scope, limits))


async def after(record: CallRecord, result: Result, scope: CallScope, limits: ArgumentLimits) -> Result:
    """The result as the interceptors want it, whether or not anybody serves its tool any more."""
    try:
        text = readable(record.tool, record.arguments, limits)
    except BadArguments:
        text = record.arguments
    return await scope.interceptors.after(as_intercepted(record, scope, text), result)


def _is_of_a_tool(record: CallRecord, scope: CallScope) -> bool:
    """Whether the call was of a tool, and not of one of our own about other calls, or of one that does not exist."""
    spec = scope.offered.get(record.tool)
    return record.deadline_unix_s is not None if spec is None else spec.name not in BUILT_IN_NAMES


def _no_longer_served(tool: str) -> ToolSpec:
    """What is known of a tool whose workers are gone: its name, and nothing that would make it harmless."""
    return ToolSpec(name=tool, description="", input_schema={"type": "object"}, effect=Effect.ONCE)
