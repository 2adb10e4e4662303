"""The options of a run on the command line: the same for `toolfleet run` and `toolfleet batch`, declared once.

Reads words into keywords; whether they can be meant is said by `run.terms`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from toolfleet.orchestrator.options import RunOptions, terms_of

GROUP: Final = "How a run is run"

OPTION_OF: Final = {
    "tools": "--offer",
    "slow": "--slow",
    "patience_s": "--patience",
    "context": "--context",
    "state": "--state",
    "merging": "--merging",
    "interceptors": "--interceptor",
    "limits": "--limit",
    "max_turns": "--max-turns",
    "timeout_s": "--timeout",
    "turn_timeout_s": "--turn-timeout",
    "calls_at_a_time": "--at-a-time",
    "compensate": "--compensate",
    "keep_s": "--keep",
    "model_options": "--model-option",
    "output_schema": "--schema",
    "client_tools": "--client-tools",
    "priority": "--priority",
    "webhook": "--webhook",
    "tenant": "--tenant",
    "subject": "--subject",
}
"""What each term is called on the command line; a test holds it to the terms there are."""


class Slow(StrEnum):
    """What a run does with long-running tools."""

    WAIT = "wait"
    """The run waits for their results."""
    HANDLE = "handle"
    """The model gets a handle for each, and goes on."""


class PriorityName(StrEnum):
    """Whether the calls of a run go before or behind those of others."""

    INTERACTIVE = "interactive"
    """Before all others: somebody waits for them."""
    NORMAL = "normal"
    """Behind interactive ones."""
    BATCH = "batch"
    """Behind all others."""


def _option(term: str, help_: str, **more: Any) -> Any:
    return typer.Option(OPTION_OF[term], help=help_, rich_help_panel=GROUP, **more)


def run_options(
    *,
    offer: Annotated[list[str] | None, _option("tools", "Offer only this tool; may be given again.")] = None,
    slow: Annotated[Slow, _option("slow", "Wait for long-running tools, or give the model a handle.")] = Slow.WAIT,
    patience_s: Annotated[
        float | None, _option("patience_s", "Seconds until a call counts as slow.", min=0, max=1e7)
    ] = None,
    context: Annotated[str | None, _option("context", "Your own JSON object, handed to tools.", metavar="JSON")] = None,
    state: Annotated[
        str | None, _option("state", "What the tools share to begin with, a JSON object.", metavar="JSON")
    ] = None,
    merging: Annotated[
        list[str] | None,
        _option("merging", "How a key of the state is updated: replace, append, merge.", metavar="KEY=HOW"),
    ] = None,
    interceptors: Annotated[
        list[str] | None, _option("interceptors", "One that the orchestrator which works on it knows by name.")
    ] = None,
    max_calls: Annotated[
        int | None,
        typer.Option(
            "--max-calls",
            min=1,
            help="Calls that a run may make; 150, and 40 of one tool, by default.",
            rich_help_panel=GROUP,
        ),
    ] = None,
    limits: Annotated[
        list[str] | None,
        _option("limits", "What one answer may use up: calls, calls_per_tool, tokens, cost, …", metavar="NAME=NUMBER"),
    ] = None,
    max_turns: Annotated[int | None, _option("max_turns", "Replies of the model at most.", min=1)] = None,
    timeout_s: Annotated[
        float | None, _option("timeout_s", "Seconds until a run fails and its calls expire.", min=0.1, max=1e7)
    ] = None,
    turn_timeout_s: Annotated[
        float | None, _option("turn_timeout_s", "Seconds that the calls of one reply may take.", min=0.1, max=1e7)
    ] = None,
    calls_at_a_time: Annotated[
        int | None, _option("calls_at_a_time", "Calls of a reply that are made together at most.", min=1)
    ] = None,
    compensate: Annotated[
        bool, _option("compensate", "When a call fails, take back what the others of its reply have done.")
    ] = False,
    keep_s: Annotated[
        float | None, _option("keep_s", "Seconds that a run is kept once it has ended.", min=0.1, max=3e9)
    ] = None,
    model_options: Annotated[
        list[str] | None,
        _option("model_options", "What the model is asked with: temperature=0.2, …", metavar="NAME=VALUE"),
    ] = None,
    output_schema: Annotated[
        Path | None, _option("output_schema", "A file with the JSON Schema of the answer.", metavar="FILE")
    ] = None,
    client_tools: Annotated[
        Path | None,
        _option("client_tools", "A file with a JSON list of tools that end the run when called.", metavar="FILE"),
    ] = None,
    priority: Annotated[
        PriorityName | None, _option("priority", "Whether its calls go before or behind those of others.")
    ] = None,
    webhook: Annotated[
        str | None,
        _option("webhook", "The id or URL of an endpoint that is told of it: toolfleet webhooks.", metavar="ENDPOINT"),
    ] = None,
    tenant: Annotated[str | None, _option("tenant", "Whose run it is; nobody's by default.")] = None,
    subject: Annotated[str | None, _option("subject", "Who asks, as its tools read it; nobody by default.")] = None,
) -> RunOptions:
    """Return the options that were given, as keywords. Raises InvalidOption, BadParameter for what cannot be read."""
    limit = {name: _value(number) for name, number in _pairs("limits", limits)}
    if max_calls is not None:
        limit = {"calls": max_calls, "calls_per_tool": max_calls, **limit}
    words: dict[str, Any] = {
        "tools": offer or None,
        "slow": slow.value,
        "patience_s": patience_s,
        "context": _json("context", context),
        "state": _json("state", state),
        "merging": dict(_pairs("merging", merging)) or None,
        "interceptors": interceptors or None,
        "limits": limit or None,
        "max_turns": max_turns,
        "timeout_s": timeout_s,
        "turn_timeout_s": turn_timeout_s,
        "calls_at_a_time": calls_at_a_time,
        "compensate": compensate or None,
        "keep_s": keep_s,
        "model_options": {name: _value(value) for name, value in _pairs("model_options", model_options)} or None,
        "output_schema": _file("output_schema", output_schema),
        "client_tools": _file("client_tools", client_tools),
        "priority": None if priority is None else priority.value,
        "webhook": webhook,
        "tenant": tenant,
        "subject": subject,
    }
    given: Any = {name: value for name, value in words.items() if value is not None}
    terms = terms_of(given)
    found: Any = {name: getattr(terms, name) for name in given}
    options: RunOptions = found
    return options


def takes_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every option of a run: it gets them as its keyword `options`, a RunOptions."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(run_options, eval_str=True).parameters
    parameters = [each for name, each in own.parameters.items() if name != "options"] + list(shared.values())

    @functools.wraps(command)
    def run(**given: Any) -> None:
        words = {name: given.pop(name) for name in shared}
        command(**given, options=run_options(**words))

    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # what inspect looks for
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _pairs(term: str, words: Iterable[str] | None) -> Iterable[tuple[str, str]]:
    for word in words or ():
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{word!r} is not NAME=VALUE", param_hint=OPTION_OF[term])
        yield name, value


def _value(word: str) -> Any:
    """Return a word as the JSON value that it is, or else as text."""
    try:
        return orjson.loads(word)
    except orjson.JSONDecodeError:
        return word


def _json(term: str, text: str | bytes | None) -> Any:
    try:
        return None if text is None else orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint=OPTION_OF[term]) from None


def _file(term: str, path: Path | None) -> Any:
    try:
        return None if path is None else _json(term, path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=OPTION_OF[term]) from None
