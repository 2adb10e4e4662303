"""The screen of `toolfleet watch`: what is seen of a fleet as lines that fit the terminal. Pure, but for the clock.

Users, models, tools and whoever writes to Redis are strangers here: `wording.one_line` makes what they wrote harmless.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from rich.text import Text

from toolfleet.orchestrator.budgets.tenants import Amounts
from toolfleet.orchestrator.doors.cli.full_screen import Room
from toolfleet.orchestrator.doors.cli.limit_words import declared, in_words, share_in_words
from toolfleet.orchestrator.doors.cli.tables import Column, Listing, fitting
from toolfleet.orchestrator.doors.cli.telling import WAITS_FOR_APPROVAL
from toolfleet.orchestrator.doors.cli.version_words import COLUMNS, LAST, line_of
from toolfleet.orchestrator.doors.cli.wording import moment, one_line, plural, shortened, span
from toolfleet.orchestrator.fleet.queues import QueueStanding
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.status.fleet_standing import FleetStanding, RunLine

SAMPLES: Final = 24
"""So many frames a sparkline tells of."""

BARS: Final = "▁▂▃▄▅▆▇█"

HEAD_LINES: Final = 3
"""Of each section: a blank line, its title, the names of its columns."""

LOST_LINES: Final = 4
"""Of why Redis does not answer."""

ROWS_MIN: Final = 1
"""Of each section so many rows are shown at least; what there is no room for even so is cut off at the end."""

ROWS_MAX: Final = 200
"""More is read by nobody, also where there is room for all."""


class Seen:
    """What was seen of a fleet so far: the newest standing, the queues' last samples, and whether Redis answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.standing: FleetStanding | None = None
        self.lost = ""
        """Why nothing is heard now; "" while Redis answers."""
        self._lost_at_s = 0.0
        self._loads: dict[str, deque[int]] = {}

    def note(self, standing: FleetStanding) -> None:
        """Take a new standing."""
        self.standing, self.lost = standing, ""
        served = {each.queue: each.unsettled for each in standing.queues}
        self._loads = {
            queue: deque([*self._loads.get(queue, ()), load], maxlen=SAMPLES) for queue, load in served.items()
        }

    def note_lost(self, why: str) -> None:
        """Remember that Redis does not answer."""
        self._lost_at_s = self._lost_at_s if self.lost else time.monotonic()
        self.lost = why

    @property
    def lost_for_s(self) -> float:
        """Since when nothing is heard."""
        return time.monotonic() - self._lost_at_s

    def sparkline(self, queue: str) -> str:
        """Draw how much a queue held in the last frames; nothing for one frame alone."""
        loads = self._loads.get(queue, deque())
        if len(loads) < 2:
            return ""
        top = max(*loads, 1)
        return "".join(BARS[load * (len(BARS) - 1) // top] for load in loads)


Row = tuple[object, ...]
Filled = tuple[Listing, Sequence[Row]]
"""A list without rows, and the rows that are to be in it."""


class Section(NamedTuple):
    """A title, the names of columns, and rows of which some may be left out."""

    title: str
    names: Text
    rows: Sequence[Text]
    stored: int
    """How many rows there would be."""


def frame(seen: Seen, room: Room) -> Text:
    """Draw a frame that has no more columns and rows than there is room for."""
    top = list(_top(seen, room.columns))
    sections = list(_sections(seen, room.columns)) if seen.standing else []
    lines = [*top, *_fitted(sections, room.rows - len(top))][: room.rows]
    for line in lines:
        line.truncate(room.columns, overflow="ellipsis")
    return Text("\n").join(lines)


# --- what stands above ----------------------------------------------------------------------------------------------


def _top(seen: Seen, columns: int) -> Iterator[Text]:
    now = seen.standing
    yield Text(f"{one_line(seen.name)}  {f'{moment(now.at_unix_s)} UTC' if now else 'asked'}", "bold")
    if seen.lost:
        how_old = f"as it was {span(seen.lost_for_s)} ago" if now else f"asked for {span(seen.lost_for_s)}"
        for line in wrap(f"{how_old}: {one_line(seen.lost)}", max(columns, 2))[:LOST_LINES]:
            yield Text(line, "bold red")
    if now:
        yield Text(_in_short(now))
        yield from _complaints(now)


def _in_short(now: FleetStanding) -> str:
    slots, held = sum(each.slots for each in now.workers), [each.busy for each in now.workers]
    busy = "" if None in held else f", {plural(sum(each or 0 for each in held), 'call')} with them"
    own = sum(each.runs for each in now.orchestrators)
    return (
        f"{plural(len(now.workers), 'worker')} with {plural(slots, 'slot')}{busy}; "
        f"{plural(len(now.orchestrators), 'orchestrator')} with {plural(own, 'run')}"
    )


def _complaints(now: FleetStanding) -> Iterator[Text]:
    """Yield what somebody should look after."""
    if not now.workers:
        yield Text("no worker is live: toolfleet up, or toolfleet worker", "red")
    for worker in now.workers:
        if worker.ailing:
            yield Text(one_line(f"{worker.worker}: {', '.join(worker.ailing)} down"), "red")
    for name in now.failing.strangers:
        yield Text(one_line(f"{name} has another secret: toolfleet secret"), "red")
    for queue in now.queues:
        if queue.unsettled and not queue.slots:
            yield Text(one_line(f"queue {queue.queue} has {plural(queue.unsettled, 'call')} and no worker"), "red")


# --- the sections ---------------------------------------------------------------------------------------------------


def _sections(seen: Seen, columns: int) -> Iterator[Section]:
    now = seen.standing
    assert now is not None  # noqa: S101  # only then there are any
    for title, listing, rows in (
        ("queues", *_queues(now, seen)),
        ("workers", *_workers(now)),
        (_runs_title(now), *_runs(now)),
        (_failing_title(now), *_failing(now)),
        ("versions", *_versions(now)),
        ("limits", *_limits(now)),
        (_budgets_title(now), *_budgets(now)),
    ):
        for row in rows[:ROWS_MAX]:
            listing.add(*row)
        if rows:
            names, *lines = listing.lines(columns)
            yield Section(fitting(title, columns), names, lines, len(rows))


def _queues(now: FleetStanding, seen: Seen) -> Filled:
    listing = Listing(
        *("queue", "waiting", "running", "slots", "oldest"), Column("held back", True), elastic="waiting and running"
    )
    return listing, [_queue(each, now, seen) for each in now.queues]


def _queue(each: QueueStanding, now: FleetStanding, seen: Seen) -> Row:
    oldest = "" if each.oldest_unix_s is None else span(now.at_unix_s - each.oldest_unix_s)
    load = f"{seen.sparkline(each.queue)} {each.unsettled}".lstrip()
    return each.queue, each.waiting, each.running, each.slots, oldest, each.held_back or "", load


def _workers(now: FleetStanding) -> Filled:
    listing = Listing("worker", "pool", "busy", "slots", "seen", elastic="queues")
    return listing, [
        (
            *(each.worker, each.pool, "" if each.busy is None else each.busy, each.slots),
            *(f"{span(now.at_unix_s - each.seen_unix_s)} ago", ", ".join(each.queues)),
        )
        for each in now.workers
    ]


def _runs_title(now: FleetStanding) -> str:
    runs = now.runs
    told = [f"{count} {state.value}" for state, count in sorted(runs.by_state.items(), key=lambda each: -each[1])]
    told += [f"{runs.awaiting_approval} {WAITS_FOR_APPROVAL}"] if runs.awaiting_approval else []
    return f"runs: {runs.stored} stored; {', '.join(told)}"


def _runs(now: FleetStanding) -> Filled:
    listing = Listing("id", "state", "age", "calls", Column("turns", True), Column("tenant", True), elastic="question")
    return listing, [
        (
            *(run.run_id, _state(run), span(now.at_unix_s - run.started_unix_s), run.calls),
            *(run.turn, run.tenant or "", run.title),
        )
        for run in now.runs.latest
    ]


def _state(run: RunLine) -> str:
    waits = run.awaiting_approval and run.state in {State.CALLING, State.PARKED}
    return WAITS_FOR_APPROVAL if waits else run.state.value


def _failing_title(now: FleetStanding) -> str:
    dead = now.failing.dead_letters
    return f"what fails: {plural(dead, 'dead letter')} (toolfleet dead list)" if dead else "what fails"


def _failing(now: FleetStanding) -> Filled:
    dead: list[Row] = [
        (
            "dead letter",
            f"{span(now.at_unix_s - letter.buried_unix_s)} ago",
            f"{shortened(letter.tool)} {shortened(letter.call_id)}: {shortened(letter.reason)}",
        )
        for letter in now.failing.newest_dead
    ]
    rare: list[Row] = [(what.replace("_", " "), "", plural(count, "time")) for what, count in now.failing.rare.items()]
    return Listing("what", "when", elastic="of"), dead + rare


def _versions(now: FleetStanding) -> Filled:
    return Listing(*COLUMNS, elastic=LAST), [line_of(each) for each in now.versions]


def _limits(now: FleetStanding) -> Filled:
    rows: list[Row] = []
    for each in now.limits.tools:
        for key, said in {"": each.override, **each.keys}.items():
            override = in_words(said, now.limits.now_ms) if said else ""
            rows.append((each.tool, key, "" if key else declared(each), override))
    rows += ((f"tenant {tenant}", "", "", share_in_words(share)) for tenant, share in now.limits.tenants.items())
    return Listing("tool or tenant", Column("key", True), "declared", elastic="said"), rows


def _budgets_title(now: FleetStanding) -> str:
    tenants = len({each.tenant for each in now.budgets})
    return f"budgets: {now.budgets_stored} set; those of {plural(tenants, 'tenant')}"


def _budgets(now: FleetStanding) -> Filled:
    listing = Listing("tenant", "per", "limit", "used", Column("reserved", True), elastic="remaining")
    rows: list[Row] = []
    for each in now.budgets:
        period = f"{each.period}, strict" if each.strict else each.period
        for unit, amounts in each.amounts.items():
            limit, *used = _amounts(unit, amounts)
            rows.append((each.tenant, period, f"{limit} {unit}", *used))
    return listing, rows


def _amounts(unit: str, amounts: Amounts) -> list[str]:
    each = (amounts.limit, amounts.used, amounts.reserved, amounts.remaining)
    return [f"{amount:.4f}" if unit == "usd" else f"{amount:.0f}" for amount in each]


# --- as much as there is room for -----------------------------------------------------------------------------------


def _fitted(sections: list[Section], room: int) -> Iterator[Text]:
    """Yield the sections with as many rows as there is room for; the longest lose theirs first, and say so."""
    taken = [len(section.rows) for section in sections]
    while sum(taken) + HEAD_LINES * len(taken) > room and max(taken, default=0) > ROWS_MIN:
        taken[taken.index(max(taken))] -= 1
    for section, n in zip(sections, taken, strict=True):
        more = f"  ({section.stored - n} more)" if n < section.stored else ""
        yield Text()
        yield Text(section.title, "bold cyan") + Text(more, "dim")
        yield section.names
        yield from section.rows[:n]
