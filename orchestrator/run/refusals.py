"""What the model reads when its call cannot even be sent. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection

from pydantic import ValidationError

from toolfleet.calls import Failed, FailureKind
from toolfleet.messages import RequestedCall
from toolfleet.misspelt import nearest
from toolfleet.orchestrator.run.incomplete import Incomplete

_ENDED = {
    Incomplete.LENGTH: (
        "was cut off by the output limit",
        "Ask again with shorter arguments, or with fewer calls at a time.",
    ),
    Incomplete.CONTENT_FILTER: ("was withheld in the midst", "Ask again in other words, or do without it."),
    Incomplete.REFUSAL: ("was broken off by a refusal", "Ask again in other words, or do without it."),
    Incomplete.INTERRUPTED: ("was broken off", "Ask again."),
}


def unknown_tool(name: str, known: Collection[str]) -> Failed:
    """What the model reads when it asks for a tool that was not offered."""
    close = nearest(name, known, at_most=3)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"The tools are: {', '.join(sorted(known)) or 'none'}."
    return Failed(kind=FailureKind.UNKNOWN_TOOL, message=f"There is no tool {name!r}. {hint}")


def version_gone(said: str) -> Failed:
    """What the model reads when it asks for a tool whose version that its run began with nobody serves any more."""
    return Failed(
        kind=FailureKind.UNKNOWN_TOOL,
        message=f"This run began with a version that is gone: {said}. It was not called. Do without it; whoever forks "
        "the run, or begins a new one, has the version that is served then.",
    )


def cut_off(request: RequestedCall, why: Incomplete) -> Failed | None:
    """What the model reads of the last call of a reply that was ended in the midst; None if the call is whole.

    Repairing half a call would run something that nobody asked for. An object that is complete cannot go on.
    """
    try:
        is_whole = isinstance(json.loads(request.arguments), dict)
    except (ValueError, RecursionError):
        is_whole = False
    if is_whole:
        return None
    ended, remedy = _ENDED.get(why, _ENDED[Incomplete.INTERRUPTED])
    return Failed(
        kind=FailureKind.BAD_ARGUMENTS,
        message=f"your reply {ended}, so {request.name} was not called: its arguments may be incomplete. {remedy}",
    )


def bad_arguments(name: str, error: ValidationError) -> Failed:
    """What the model reads when it called a built-in tool wrongly."""
    problems = "; ".join(": ".join((*_place(item["loc"]), _text(item["msg"]))) for item in error.errors())
    return Failed(kind=FailureKind.BAD_ARGUMENTS, message=f"{name}: {problems}")


def _place(location: tuple[int | str, ...]) -> tuple[str, ...]:
    return (".".join(map(str, location)),) if location else ()


def _text(problem: str) -> str:
    return problem.removeprefix("Value error, ")


def denied(tool: str, reason: str) -> Failed:
    """What the model reads of a call that a person did not allow."""
    because = f": {reason}" if reason else ""
    return Failed(kind=FailureKind.DENIED, message=f"{tool} was not allowed{because}. Do not ask for it again.")


def interrupted(tool: str) -> Failed:
    """What the model reads of a call that it asked for while the user interrupted it."""
    return Failed(
        kind=FailureKind.CANCELLED, message=f"{tool} was not called: the user has said something that you read next."
    )


def never_called(tool: str, reason: str) -> Failed:
    """What stands in the history for a call that nobody had made when its run was stopped."""
    return Failed(kind=FailureKind.CANCELLED, message=f"{tool} was not called: its run ended before ({reason}).")


def left_open(tool: str, reason: str) -> Failed:
    """What stands in the history for a call that may have begun, and had no result, when its run was stopped."""
    return Failed(
        kind=FailureKind.CANCELLED,
        message=f"{tool} was cancelled with its run ({reason}); it may have been under way, and its effect may or may "
        "not have happened. Check before you repeat it.",
    )
