"""One call in, one result out. Whatever a tool does, the answer is a record: nothing is raised but cancellation.

One of the few places that may catch everything (ARCHITECTURE.md), for a tool and for its hooks. Knows nothing
of Redis, Celery or delivery.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from toolfleet.arguments.parsing import DEFAULT_LIMITS, ArgumentLimits, Arguments
from toolfleet.asking import Unanswered
from toolfleet.calls import Failed, FailureKind, NotDone, Returned, Submitted, ToolCall, ToolResult, undone_id
from toolfleet.context import Context, within
from toolfleet.errors import BadArguments, RetryAfter, ToolError
from toolfleet.hooks import HookName
from toolfleet.interceptors import ToolInterceptor
from toolfleet.logs import FactLog
from toolfleet.questions import Answerless
from toolfleet.strict_json import encodable
from toolfleet.tool import Tool
from toolfleet.workers.tool.failures import doubt, expired, limited, still_in_doubt, submit_in_doubt
from toolfleet.workers.tool.interceptors import run_through, with_attributes
from toolfleet.workers.tool.results import failure_of, record_of
from toolfleet.workers.tool.threads import ToolThreads
from toolfleet.workers.tool.time_limit import TimeLimit

log = FactLog("toolfleet.workers")


async def execute(
    call: ToolCall,
    tool: Tool[..., Any],
    context: Context,
    *,
    threads: ToolThreads | None,
    limits: ArgumentLimits = DEFAULT_LIMITS,
    interceptors: tuple[ToolInterceptor, ...] = (),
    clock: TimeLimit | None = None,
) -> Returned | Failed | Submitted:
    """Run one call to its end, through `interceptors` and the tool's own.

    Blocking tools run on `threads`, or right here without one. The time limit is the tool's own or what is left until
    the deadline, whichever is shorter; interceptors and tries share it. Whoever gives a `clock` sets it in time: most
    tools have ended before they need one. Raises CancelledError, and RetryAfter of a tool that wants to be
    tried again later.
    """
    try:
        arguments = tool.bind(call.arguments, limits)
    except BadArguments as error:
        return Failed(kind=FailureKind.BAD_ARGUMENTS, message=encodable(str(error)))
    except BaseException as error:  # noqa: BLE001  # a validator of the tool's author may raise anything
        return _report_broken(call, error)
    result = await _run(call, tool, arguments, context, threads=threads, interceptors=interceptors, clock=clock)
    if context.spendings:
        result = result.model_copy(update={"spent": context.spent})
    if arguments.repaired and not isinstance(result, Submitted):
        return result.model_copy(update={"repaired": True})
    return result


async def _run(
    call: ToolCall,
    tool: Tool[..., Any],
    arguments: Arguments,
    context: Context,
    *,
    threads: ToolThreads | None,
    interceptors: tuple[ToolInterceptor, ...],
    clock: TimeLimit | None,
) -> Returned | Failed | Submitted:
    clock = context.clock = clock or TimeLimit(limit_s(call, tool, time.time()))
    try:
        with clock:
            if interceptors or tool.interceptors:
                value = await _invoke_through((*interceptors, *tool.interceptors), tool, arguments, context, threads)
            elif tool.is_async:  # as `_invoke` has it, with a coroutine less for each call
                value = await tool.invoke(arguments, context)
            else:
                value = await _invoke(tool, arguments, context, threads)
        result = record_of(value, returns_nothing=tool.returns_nothing)
        return with_attributes(result, context) if context.attributes else result
    except BadArguments as error:
        return Failed(kind=FailureKind.BAD_ARGUMENTS, message=encodable(str(error)))
    except (ToolError, Unanswered) as error:
        return _said_by_tool(call, error, context)
    except TimeoutError as error:
        goes_on = threads is not None and not tool.is_async
        timed_out = _timed_out(tool, clock, goes_on=goes_on) if clock.expired else _report_broken(call, error)
        return _in_doubt_if_it_submits(tool, timed_out)
    except asyncio.CancelledError as error:
        if _is_asked_to_cancel():
            raise
        return _in_doubt_if_it_submits(tool, _report_broken(call, error))
    except BaseException as error:  # noqa: BLE001  # a tool may raise anything, SystemExit and MemoryError included
        if (asks := _what_it_asks(error)) is not None:
            raise asks from None
        return _tried(_in_doubt_if_it_submits(tool, _report_broken(call, error)), context)


async def reconcile(
    call: ToolCall, tool: Tool[..., Any], context: Context, *, threads: ToolThreads | None
) -> Returned | Failed | NotDone:
    """Ask a tool what became of an earlier attempt at a call. Whatever is no answer leaves the call in doubt.

    Takes no longer than until the call's deadline. Raises CancelledError only.
    """
    clock = context.clock = TimeLimit(context.time_left_s)
    try:
        with clock:
            answer = await _ask(tool, "reconcile", (call,), context, threads)
        return _verdict(call, answer)
    except TimeoutError as error:
        return _report_undecided(call, "gave no answer before the deadline" if clock.expired else _raised(error), error)
    except asyncio.CancelledError as error:
        if _is_asked_to_cancel():
            raise
        return _report_undecided(call, _raised(error), error)
    except BaseException as error:  # noqa: BLE001  # the author's function too may raise anything
        return _report_undecided(call, _raised(error), error)


def _verdict(call: ToolCall, answer: object) -> Returned | Failed | NotDone:
    match answer:
        case NotDone():
            return answer
        case Failed(kind=kind, message=message):
            return Failed(kind=kind, message=encodable(message))
        case Returned():
            settled = record_of(answer)
            return (
                settled if isinstance(settled, Returned) else _report_undecided(call, "returned what has no JSON form")
            )
        case _:
            return _report_undecided(call, f"returned a {type(answer).__name__}, not Returned, Failed or NotDone")


async def compensate(
    call: ToolCall, tool: Tool[..., Any], context: Context, *, threads: ToolThreads | None
) -> Returned | Failed:
    """Take back what a call of the tool has done. Whatever its author's function does, the answer is a record.

    Takes no longer than until the call's deadline. Raises CancelledError only.
    """
    done = call.model_copy(update={"call_id": undone_id(call.call_id), "undoes": None})
    clock = context.clock = TimeLimit(max(0.0, context.time_left_s))
    try:
        with clock:
            answer = await _ask(tool, "compensate", (done, call.undoes), context, threads)
        result = record_of(answer, returns_nothing=True)
    except TimeoutError as error:
        goes_on = threads is not None and not inspect.iscoroutinefunction(tool.hooks.get("compensate"))
        return _timed_out(tool, clock, goes_on=goes_on) if clock.expired else _report_broken(call, error)
    except asyncio.CancelledError as error:
        if _is_asked_to_cancel():
            raise
        return _report_broken(call, error)
    except BaseException as error:  # noqa: BLE001  # the author's function too may raise anything
        return _report_broken(call, error)
    if isinstance(result, Submitted):
        return Failed(kind=FailureKind.ERROR, message=f"the compensate function of {call.tool} returned Submitted")
    return result


async def _ask(
    tool: Tool[..., Any], hook: HookName, given: tuple[object, ...], context: Context, threads: ToolThreads | None
) -> Any:
    """Return what one of the tool's hooks returns, called as the tool itself is."""
    function = tool.hooks.get(hook)
    if function is None:
        raise LookupError(f"{tool.spec.name} has no {hook} function")

    def ask(given: tuple[object, ...], context: Context) -> Any:
        with within(context):
            return function(*tool.receiver, *given, context)

    if inspect.iscoroutinefunction(function):
        with within(context):
            return await function(*tool.receiver, *given, context)
    return ask(given, context) if threads is None else await _on_thread(ask, given, context, threads)


def _report_undecided(call: ToolCall, reason: str, error: BaseException | None = None) -> Failed:
    log.warning(
        "reconcile_undecided", call_id=call.call_id, run_id=call.run_id, tool=call.tool, reason=reason, exc_info=error
    )
    return still_in_doubt(call.tool, encodable(reason))


def _raised(error: BaseException) -> str:
    return f"raised {type(error).__name__}: {failure_of(error).message}"


async def _invoke_through(
    chain: tuple[ToolInterceptor, ...],
    tool: Tool[..., Any],
    arguments: Arguments,
    context: Context,
    threads: ToolThreads | None,
) -> ToolResult:
    async def invoke(values: Mapping[str, Any]) -> Any:
        return await _invoke(tool, replace(arguments, values=dict(values)), context, threads)

    return await run_through(chain, tool, arguments.values, context, invoke)


async def _invoke(tool: Tool[..., Any], arguments: Any, context: Context, threads: ToolThreads | None) -> Any:
    if tool.is_async:
        return await tool.invoke(arguments, context)
    if threads is None:
        return tool.invoke(arguments, context)
    return await _on_thread(tool.invoke, arguments, context, threads)


async def _on_thread(function: Callable[..., Any], argument: Any, context: Context, threads: ToolThreads) -> Any:
    """Run a function on a thread. Nothing can stop it: when it is cancelled, its context says that nobody waits."""
    given_up = threading.Event()
    context = replace(context, is_cancelled=given_up.is_set)
    try:
        return await threads.run(function, argument, context, context=context)
    except asyncio.CancelledError:
        given_up.set()
        raise


def limit_s(call: ToolCall, tool: Tool[..., Any], now_unix_s: float) -> float:
    """Return how long a tool may take that begins now: its own limit, or what is left until the call's deadline."""
    left_s = max(0.0, call.deadline_unix_s - now_unix_s)  # it may have passed since the call was admitted
    timeout_s = tool.spec.timeout_s
    return left_s if timeout_s is None else min(left_s, timeout_s)


def _what_it_asks(error: BaseException) -> Answerless | None:
    """Return what ends the attempt until it is answered, also where tasks of the tool have wrapped it."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_what_it_asks, error.exceptions)), None)
    return error if isinstance(error, Answerless) else None


def _is_asked_to_cancel() -> bool:
    """Return whether this task was cancelled, rather than the tool having raised CancelledError of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _timed_out(tool: Tool[..., Any], clock: TimeLimit, *, goes_on: bool) -> Failed:
    if clock.waits_to_begin:
        return expired(tool.spec.name)
    message = f"{tool.spec.name} did not finish within {clock.seconds:.3g} s"
    if not goes_on:
        said = f"{message} and was stopped.{doubt(tool.spec.effect)}"
        return Failed(kind=FailureKind.TIMED_OUT, message=said)
    may_come = "." if tool.spec.effect.repeatable else ": its effect may or may not happen."
    message += f". Its thread cannot be stopped and may still be at work{may_come}"
    return Failed(kind=FailureKind.TIMED_OUT, message=message)


def _said_by_tool(call: ToolCall, error: ToolError | Unanswered, context: Context) -> Failed | Submitted | Returned:
    """Return what the model reads of an error that the tool raised for it. Raises RetryAfter that is not for it."""
    if isinstance(error, Unanswered):
        return error.result
    if not isinstance(error, RetryAfter):
        return _tried(failure_of(error), context)
    if not error.tell_model:
        raise error
    return limited(call.tool, error)


def _tried(failure: Failed, context: Context) -> Failed:
    if context.tries == 1:
        return failure
    return failure.model_copy(update={"message": f"{failure.message} (tried {context.tries} times)"})


def _in_doubt_if_it_submits(tool: Tool[..., Any], failure: Failed) -> Failed:
    """A tool that starts jobs elsewhere may have started one before it broke, and nobody would hear of its end."""
    starts_jobs = tool.hooks.get("poll") or tool.hooks.get("cancel")
    if not starts_jobs or tool.spec.effect.repeatable or failure.kind is FailureKind.EXPIRED:
        return failure
    return submit_in_doubt(tool.spec.name, failure.message)


def _report_broken(call: ToolCall, error: BaseException) -> Failed:
    log.warning("tool_raised", call_id=call.call_id, run_id=call.run_id, tool=call.tool, exc_info=error)
    return failure_of(error)
