"""What was asked, what came of it, and what the ledger says: each call is judged once everything has come to rest.

Pure: no clock, no Redis, no processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.cells import Cell
from toolfleet.calls import Failed, Returned, ToolResult

RETURNED = "returned"
BURIED = "buried"
"""The message went to the dead letters, and no result was promised."""

IN_DOUBT = "in_doubt"
EXPIRED = "expired"

UNASKED = "unasked"
"""No worker was asked, for want of one that has the tool."""


@dataclass(eq=False)
class Ask:
    """One call and what became of it. Times are of the monotonic clock."""

    nonce: str
    tool: str
    arguments: str
    once: bool
    expects: frozenset[str]
    """How it may end: `returned`, `buried`, or kinds of failure. Anything else counts as lost."""

    sent_s: float = 0.0
    call_id: str = ""
    outcome: str = ""
    content: str = ""
    ended_s: float = 0.0
    answers: int = 0
    message: str | None = None
    """What the conversation was given, where there is one."""
    error: str = ""
    """Why nobody answered, where it is known."""
    cell: Cell | None = None
    """Its place in the matrix of losses; its tool writes when it is done, too."""
    stood: bool = False
    """Whether it stood where its cell says when the loss came."""
    forgotten: bool = False
    """Whether the server has forgotten something of it, so that its effect may happen twice, as is documented."""

    def answer(self, result: ToolResult, now_s: float) -> None:
        """A terminal result has come."""
        self.answers += 1
        self.ended_s = now_s
        match result:
            case Returned(content=content):
                self.outcome, self.content = RETURNED, content
            case Failed(kind=kind, message=message):
                self.outcome, self.content = kind.value, message
            case _:
                self.outcome = "submitted"

    def bury(self, now_s: float) -> None:
        """Its message is among the dead letters."""
        self.outcome, self.ended_s = BURIED, now_s


@dataclass(frozen=True)
class Injection:
    """A fault that was made to happen, and when it was over (a kill at once, an outage at its end)."""

    at_s: float
    over_s: float
    recovery_s: float | None = None
    """From its end until all was well again, where that was measured; else the last answer that it delayed counts."""


@dataclass
class Tally:
    """The figures of one fault, or of all of them."""

    calls: int = 0
    lost: int = 0
    duplicated: int = 0
    mispaired: int = 0
    unfinished: int = 0
    in_doubt: int = 0
    not_promised: int = 0
    """Effects that happened twice, or answers that never came, where the documentation promises no better."""
    injected: int = 0
    recovery_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.mispaired or self.unfinished or self.notes)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            calls=self.calls + other.calls,
            lost=self.lost + other.lost,
            duplicated=self.duplicated + other.duplicated,
            mispaired=self.mispaired + other.mispaired,
            unfinished=self.unfinished + other.unfinished,
            in_doubt=self.in_doubt + other.in_doubt,
            not_promised=self.not_promised + other.not_promised,
            injected=self.injected + other.injected,
            recovery_s=max(self.recovery_s, other.recovery_s),
            notes=self.notes + other.notes,
        )

    def last_line(self) -> str:
        return (
            f"calls={self.calls} lost={self.lost} duplicated={self.duplicated} "
            f"mispaired={self.mispaired} unfinished={self.unfinished}"
        )


def done_mark(nonce: str) -> str:
    """How the ledger says that a tool of the matrix has done its work."""
    return f"done:{nonce}"


def entries_of(ledger: Path) -> dict[str, list[str]]:
    """The call ids in the ledger, by nonce: one for each time that the effect happened."""
    entries: dict[str, list[str]] = {}
    for line in ledger.read_text().splitlines() if ledger.exists() else ():
        nonce, call_id, *_ = line.split()
        entries.setdefault(nonce, []).append(call_id)
    return entries


def judge(
    asks: Iterable[Ask], entries: dict[str, list[str]], injections: Iterable[Injection], notes: Iterable[str] = ()
) -> Tally:
    """The figures."""
    tally, reasons = Tally(), Counter[str]()
    asks = list(asks)
    for ask in asks:
        tally.calls += 1
        tally.in_doubt += ask.outcome == IN_DOUBT
        effects = entries.get(ask.nonce, [])
        tally.not_promised += _not_promised(ask, effects)
        for count, reason in (
            ("unfinished", _unfinished(ask)),
            ("lost", _lost(ask, effects)),
            ("duplicated", _duplicated(ask, effects)),
            ("mispaired", _mispaired(ask, effects) or _untrue(ask, entries)),
        ):
            if reason:
                setattr(tally, count, getattr(tally, count) + 1)
                reasons[f"{count}: {reason}"] += 1
    for injection in injections:
        tally.injected += 1
        if injection.recovery_s is not None:
            tally.recovery_s = max(tally.recovery_s, injection.recovery_s)
            continue
        affected = [ask.ended_s for ask in asks if ask.sent_s <= injection.at_s < ask.ended_s]
        tally.recovery_s = max(tally.recovery_s, max(affected, default=0.0) - injection.over_s)
    tally.notes = [*notes, *(f"{reason} ({count})" for reason, count in reasons.most_common(5))]
    return tally


def _unfinished(ask: Ask) -> str:
    return "" if ask.outcome or ask.error else f"{ask.tool} never ended"


def _lost(ask: Ask, effects: list[str]) -> str:
    if ask.error:
        return f"{ask.tool}: {ask.error}"
    if ask.outcome and ask.outcome not in ask.expects:
        return f"{ask.tool} ended as {ask.outcome}: {ask.content[:120]}"
    if ask.outcome == RETURNED and not effects:
        return f"{ask.tool} returned without an effect"
    return ""


def _duplicated(ask: Ask, effects: list[str]) -> str:
    if BURIED in ask.expects and effects and RETURNED not in ask.expects:
        return f"{ask.tool} ran though nobody signed for it"
    if ask.once and len(effects) > 1 and not ask.forgotten:
        return f"{ask.tool} had its effect {len(effects)} times"
    return ""


def _not_promised(ask: Ask, effects: list[str]) -> bool:
    return ask.forgotten and (ask.outcome == EXPIRED or (ask.once and len(effects) > 1))


def _untrue(ask: Ask, entries: dict[str, list[str]]) -> str:
    if ask.cell and ask.outcome == RETURNED and done_mark(ask.nonce) not in entries:
        return f"{ask.tool} was told as done, and was not"
    return ""


def _mispaired(ask: Ask, effects: list[str]) -> str:
    if ask.outcome == RETURNED and not ask.content.startswith(ask.nonce):
        return f"{ask.tool} was answered {ask.content[:60]!r}"
    if ask.answers > 1:
        return f"{ask.tool} was answered {ask.answers} times"
    if ask.message is not None and ask.outcome == RETURNED and not ask.message.startswith(ask.nonce):
        return f"the message for {ask.tool} was {ask.message[:60]!r}"
    if ask.call_id and any(call_id != ask.call_id for call_id in effects):
        return f"{ask.tool} ran under another call's id"
    if ask.outcome == EXPIRED and "no effect" in ask.content and effects:
        return f"{ask.tool} was said to have had no effect, and had one"
    return ""
