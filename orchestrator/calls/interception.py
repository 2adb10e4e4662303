"""Calls shown to the interceptors of their scope, on the way out and on the way back. Without any, nothing is paid."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from toolfleet.calls import Failed, FailureKind, Returned, ToolResult
from toolfleet.errors import BrokerUnreachable, StoreUnreachable
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.tools.interceptors import RequestedToolCall, after_all, before_all


def as_intercepted(record: CallRecord, scope: CallScope, arguments: str) -> RequestedToolCall:
    """The call as an interceptor, or a policy of approval, sees it."""
    return RequestedToolCall(
        call_id=record.call_id,
        run_id=scope.run_id,
        tool=record.tool,
        arguments=arguments,
        spec=scope.offered[record.tool],
        context=scope.context,
    )


async def intercept_calls(
    records: Sequence[CallRecord], scope: CallScope, arguments: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, Returned | Failed], Exception | None]:
    """Show calls to the interceptors before they are sent.

    Returns the arguments to send, the results of the calls that an interceptor has answered itself, and what was raised
    first, if anything was: the call at which it was raised is not sent, its siblings are. Raises what says that the
    store or the broker is away.
    """
    changed, answers = dict(arguments), dict[str, Returned | Failed]()
    seen = [as_intercepted(record, scope, arguments.get(record.call_id, record.arguments)) for record in records]
    # Side by side: an interceptor may ask a model, and the calls of one reply do not wait for each other.
    outcomes = await asyncio.gather(*(before_all(scope.interceptors, call) for call in seen), return_exceptions=True)
    for call, outcome in zip(seen, outcomes, strict=True):
        if isinstance(outcome, RequestedToolCall):
            changed[call.call_id] = outcome.arguments
        elif isinstance(outcome, BaseException):
            must_be_of_one_call(outcome)
            said = f"{call.tool} was not called ({type(outcome).__name__}: {outcome})."
            answers[call.call_id] = Failed(kind=FailureKind.ERROR, message=said)
        else:
            answers[call.call_id] = outcome
    return changed, answers, next((each for each in outcomes if isinstance(each, Exception)), None)


def must_be_of_one_call(error: BaseException) -> None:
    """Raise what is not about one call: a cancellation, or a store that is away, after which all is done again."""
    if isinstance(error, StoreUnreachable | BrokerUnreachable) or not isinstance(error, Exception):
        raise error


async def intercept_results(
    records: Iterable[CallRecord], results: Mapping[str, ToolResult], scope: CallScope
) -> dict[str, ToolResult]:
    """Show results to the interceptors before they are recorded; the results as they want them."""
    changed = dict(results)
    for record in records if scope.interceptors else ():
        result = results.get(record.call_id)
        # A handle is no result, and a tool that nobody offers any more has no spec to show.
        if isinstance(result, Returned | Failed) and record.tool in scope.offered:
            said = await after_all(scope.interceptors, as_intercepted(record, scope, record.arguments), result)
            changed[record.call_id] = said.model_copy(update={"attempt": result.attempt})
    return changed


async def intercept_each(
    records: Iterable[CallRecord], results: Mapping[str, ToolResult], scope: CallScope
) -> tuple[dict[str, ToolResult], Exception | None]:
    """As `intercept_results`, but what is raised at one result takes no other along; the first error, if any.

    The result at which an interceptor raised is withheld if it is one: nobody may read what was to be changed.
    """
    changed, first = dict(results), None
    for record in records if scope.interceptors else ():
        result = results.get(record.call_id)
        if result is None:
            continue
        try:
            changed |= await intercept_results([record], {record.call_id: result}, scope)
        except Exception as error:  # noqa: BLE001  # a caller's own code: what it raises ends the run, once all is written down
            must_be_of_one_call(error)
            first = first or error
            changed[record.call_id] = result if isinstance(result, Failed) else withheld(record.tool, error)
    return changed, first


def withheld(tool: str, why: Exception) -> Failed:
    """What stands for a result that could not be shown to the interceptors."""
    said = f"{tool} has returned, but its result is withheld ({type(why).__name__}: {why}). Do not repeat the call."
    return Failed(kind=FailureKind.ERROR, message=said)
