"""The screen of one run: what it is, what was said, and what became of its calls, failures first. Prints only.

However long the conversation and however many its calls, it fits a few screens unless all of them are asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Final, NamedTuple

from rich.console import Console
from rich.text import Text

from toolfleet.calls import Failed
from toolfleet.messages import AssistantMessage, Message, ToolMessage, described
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import WAITS_FOR_APPROVAL, deadline, how_far, outcome, state_of, took
from toolfleet.orchestrator.doors.cli.wording import dollars, moment, one_line, plural, shortened, span
from toolfleet.orchestrator.status.call_standing import CallStanding
from toolfleet.orchestrator.status.call_state import CallState
from toolfleet.orchestrator.status.overview import RunOverview
from toolfleet.terminal import harmless

FIRST_MESSAGES: Final = 2
LAST_MESSAGES: Final = 10

LAST_CHARACTERS, LAST_LINES = 4000, 20
"""Of the last message, which mostly is the answer."""

EARLIER_CHARACTERS, EARLIER_LINES = 500, 5
RESULT_CHARACTERS: Final = 200

FEW: Final = 10
"""So many calls, failures or results are told one by one without being asked for."""


class _Said(NamedTuple):
    """One message, or the results of one turn, as they are printed."""

    name: str
    text: str
    note: str = ""


def print_run(seen: RunOverview, console: Console, *, all_calls: bool, all_messages: bool) -> None:
    """Print all that is shown of a run."""
    _print_facts(_described(seen), console)
    console.print()
    for said in _conversation(seen.run.messages, whole=all_messages):
        _print_said(said, console)
    if seen.calls:
        console.print()
        _tools(seen.calls).draw(console, plural(len(seen.calls), "call"))
    if all_calls or 0 < len(seen.calls) <= FEW:
        console.print()
        calls_listed(seen.calls).draw(console)
    _print_failures(seen, console, hint=not all_calls)
    _print_waiting(seen, console)


def calls_listed(calls: Sequence[CallStanding]) -> Listing:
    """List all calls with what became of them, failures first."""
    listing = Listing(
        *("call", "state", "took", "tool"), Column("attempt", True), Column("worker", True), elastic="result"
    )
    for call in sorted(calls, key=lambda call: not _is_failure(call)):
        attempt = "" if call.attempt is None else call.attempt
        told = outcome(call) or how_far(call) or call.arguments
        listing.add(call.call_id, state_of(call), took(call), call.tool, attempt, call.worker, told)
    return listing


# --- what it is -----------------------------------------------------------------------------------------------------


def _described(seen: RunOverview) -> list[tuple[str, str]]:
    run = seen.run
    awaiting = len(run.awaiting_approval)
    state = WAITS_FOR_APPROVAL if awaiting and not run.state.is_terminal else run.state
    tokens = f"{plural(run.usage.input_tokens, 'token')} in, {run.usage.output_tokens} out"
    described = [
        ("run", run.run_id),
        ("state", f"{state}: {told}" if (told := run.reason or run.shortcoming) else state),
        ("model", run.model),
        ("began (UTC)", moment(run.started_unix_s)),
        ("so far", f"{plural(run.turn, 'turn')}, {plural(len(run.calls), 'call')}, {tokens}"),
    ]
    if uses := run.usage.provider_tools:
        each = ", ".join(f"{one_line(tool)} {plural(number, 'time')}" for tool, number in uses.items())
        described.append(("tools of its model's provider", each))
    if run.spent_by_tools:
        each = ", ".join(f"{one_line(tool)} {dollars(usd)}" for tool, usd in run.spent_by_tools.items())
        described.append(("spent by tools", f"{dollars(sum(run.spent_by_tools.values()))} ({each})"))
    if run.state.is_terminal:
        described.append(("took", span(max(0.0, seen.changed_unix_s - run.started_unix_s))))
    else:
        described.append(("worked on by", seen.owner or "nobody: waits for an orchestrator with its model"))
        if run.deadline_unix_s is not None:
            described.append(("deadline", deadline(run.deadline_unix_s)))
    if seen.set_aside:
        found = f"{seen.set_aside} of the entries that were found in its history; they are no part of it"
        described.append(("not believed", found))
    return described


def _print_facts(facts: Sequence[tuple[str, str]], console: Console) -> None:
    widest = max(len(name) for name, _ in facts)
    for name, value in facts:
        console.print(Text(name.ljust(widest + 2), "bold") + Text(one_line(value), ""), soft_wrap=True)


# --- what was said --------------------------------------------------------------------------------------------------


def _conversation(messages: Sequence[Message], *, whole: bool) -> Iterator[_Said]:
    """Yield the messages; unless `whole`, without the middle of a long conversation, and each of them cut."""
    said = [each for group in _turns(messages) for each in _told(group, whole=whole)]
    left_out = 0 if whole else max(0, len(said) - FIRST_MESSAGES - LAST_MESSAGES)
    for at, each in enumerate(said):
        if FIRST_MESSAGES <= at < FIRST_MESSAGES + left_out:
            if at == FIRST_MESSAGES:
                yield _Said("…", f"{plural(left_out, 'message')} left out: --messages shows them")
            continue
        is_last = at == len(said) - 1
        bounds = (LAST_CHARACTERS, LAST_LINES) if is_last else (EARLIER_CHARACTERS, EARLIER_LINES)
        yield each if whole else each._replace(text=_cut(each.text, *bounds))


def _cut(text: str, characters: int, lines: int) -> str:
    """Return the beginning of a long text, and a word about the rest."""
    first = text.split("\n", lines)
    if len(first) > lines:
        more = first.pop().count("\n") + 1
        first.append(f"… {plural(more, 'line')} more: --messages shows them")
        text = "\n".join(first)
    return shortened(text, characters)


def _turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield the messages, those of one turn's results together."""
    for is_results, group in groupby(messages, key=lambda message: isinstance(message, ToolMessage)):
        if is_results:
            yield list(group)
        else:
            yield from ([message] for message in group)


def _told(messages: Sequence[Message], *, whole: bool) -> Iterator[_Said]:
    if not isinstance(messages[0], ToolMessage):
        [message] = messages
        called = message.tool_calls if isinstance(message, AssistantMessage) else ()
        yield _Said(
            message.role, described(message), f"calls {_counted(call.name for call in called)}" if called else ""
        )
    elif whole or len(messages) <= FEW:
        for result in messages:
            name = f"tool {result.name}" if isinstance(result, ToolMessage) else result.role
            yield _Said(name, result.content if whole else shortened(result.content, RESULT_CHARACTERS))
    else:
        results = [message for message in messages if isinstance(message, ToolMessage)]
        failed = sum(message.is_error for message in results)
        yield _Said("tools", f"{plural(len(results), 'result')}, {failed} of them failed")


def _counted(names: Iterator[str] | Sequence[str]) -> str:
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in Counter(names).items())


def _print_said(said: _Said, console: Console) -> None:
    line = said.text or said.note
    console.print(Text(harmless(said.name), "bold") + Text(f" {harmless(line)}".rstrip(), ""), soft_wrap=True)
    if said.text and said.note:
        console.print(Text(f"  {harmless(said.note)}", "dim"), soft_wrap=True)


# --- what became of its calls ---------------------------------------------------------------------------------------


def _tools(calls: Sequence[CallStanding]) -> Listing:
    by_tool: defaultdict[str, list[CallStanding]] = defaultdict(list)
    for call in calls:
        by_tool[call.tool].append(call)
    listing = Listing("tool", "calls", "failed", "under way", "median", "longest", elastic="failures")
    for tool, asked in sorted(by_tool.items(), key=lambda item: -len(item[1])):
        kinds = [_why(call) for call in asked if _is_failure(call)]
        times_s = [call.took_s for call in asked if call.took_s is not None]
        middle, longest = (span(median(times_s)), span(max(times_s))) if times_s else ("", "")
        under_way = sum(call.state.is_under_way for call in asked)
        listing.add(tool, len(asked), len(kinds), under_way, middle, longest, _counted(kinds))
    return listing


def _print_failures(seen: RunOverview, console: Console, *, hint: bool) -> None:
    failed = [call for call in seen.calls if _is_failure(call)]
    if failed:
        console.print()
    for call in failed[:FEW]:
        for line in _failure(call):
            console.print(Text(line), soft_wrap=True)
    if len(failed) > FEW:
        where = f": toolfleet runs show {seen.run.run_id} --calls" if hint else ""
        console.print(Text(f"{plural(len(failed) - FEW, 'failure')} more{where}"), soft_wrap=True)


def _is_failure(call: CallStanding) -> bool:
    """Whether a call has ended without what it was to return: as its state says, like everywhere."""
    return call.is_over and call.state is not CallState.SUCCEEDED


def _why(call: CallStanding) -> str:
    kind = call.result.kind.value if isinstance(call.result, Failed) else call.state.value
    return kind.replace("_", " ")


def _failure(call: CallStanding) -> Iterator[str]:
    known = [
        f"after {took(call)}" if call.took_s is not None else "",
        f"on {call.worker}" if call.worker else "",
        f"attempt {call.attempt}" if call.attempt is not None else "",
    ]
    yield one_line(f"{call.call_id} {call.tool} failed ({_why(call)}) {', '.join(filter(None, known))}".rstrip())
    yield f"    {one_line(call.arguments, RESULT_CHARACTERS)}"
    yield f"    {one_line(outcome(call), RESULT_CHARACTERS)}"


def _print_waiting(seen: RunOverview, console: Console) -> None:
    waiting = [call for call in seen.calls if call.state is CallState.AWAITING_APPROVAL]
    if waiting:
        console.print()
    for call in waiting[:FEW]:
        line = f"{call.tool} {WAITS_FOR_APPROVAL}: toolfleet runs approve {call.call_id}"
        console.print(Text(one_line(line)), soft_wrap=True)
        console.print(Text(f"  {one_line(call.arguments, RESULT_CHARACTERS)}"), soft_wrap=True)
    if len(waiting) > FEW:
        more = f"{plural(len(waiting) - FEW, 'call')} more: toolfleet runs approve {seen.run.run_id} --all"
        console.print(Text(more), soft_wrap=True)
