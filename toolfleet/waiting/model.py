"""What the scripts of the waiting room promise, as plain values without Redis: the reference that they are tested by.

The same order for the same calls, moment by moment. Slow and short: no sets are kept in order, the least is looked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import Final, NamedTuple

from toolfleet.limits import Gate

LEVELS: Final = (0, 3, 6)
LOWER_FIRST_EVERY: Final = 20
LOOK_AGAIN_MS: Final = 1000
LOOK_AGAIN_LATE_MS: Final = 30_000
LOOK_EACH_MS: Final = 5
LEVEL_SCORE: Final = 2.0**40
OWED: Final = -1.0
"""The start of a tenant that has less than it is guaranteed: before all others."""


class Call(NamedTuple):
    """A call that waits, or may go."""

    call_id: str
    level: int = 3
    tenant: str = ""
    run_id: str = ""
    gates: tuple[Gate, ...] = ()
    ends_ms: float = 0


class Flow(NamedTuple):
    """Calls of one level and one tenant that pass the same gates: plain ones, or others."""

    level: int
    tenant: str
    gates: tuple[Gate, ...]
    is_plain: bool = False


class Line(NamedTuple):
    """The plain calls of one run in a flow, first come first."""

    run_id: str
    flow: Flow


class Numbers(NamedTuple):
    """What people have said of a tool's limits; None: what is declared."""

    rate: float | None = None
    burst: int | None = None
    concurrency: float | None = None


class TenantTerms(NamedTuple):
    """What people have said of a tenant."""

    weight: float = 1.0
    guaranteed: int = 0
    ceiling: int | None = None


def name_of(gate: Gate) -> str:
    """Return what calls share that meet the same gate."""
    return f"{gate.kind}|{gate.tool}|{gate.value}"


@dataclass
class Gates:
    """The rates and places of the fleet."""

    arrivals: dict[str, float] = field(default_factory=dict)
    holders: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    lost: set[str] = field(default_factory=set)
    """Holders whose messages are gone."""
    paused: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Until when nobody passes, and for how long that was said to be."""
    said_paused: dict[str, float] = field(default_factory=dict)
    """Until when people have paused a tool."""
    said: dict[str, Numbers] = field(default_factory=dict)
    """The numbers that people have said of a tool."""
    opened: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many flows each gate has let go on while several levels waited there."""
    _checked: dict[str, float] = field(default_factory=dict)

    def room_at(self, gate: Gate, now: float, call_id: str = "") -> tuple[float, float]:
        """Return how many may pass now, and when to look again."""
        gate = self.as_said(gate)
        latest, paused = now + LOOK_AGAIN_LATE_MS, self.paused_until(gate, now)
        if gate.kind == "rate":
            self._heed_a_raised_rate(gate, now)
        if paused > now:
            return 0, min(paused, latest)
        if gate.kind == "concurrency":
            places = gate.amount - self.held_at(gate, gate.amount, now)
            return (1 if places < 1 and call_id in self.holders[name_of(gate)] else places), now + LOOK_AGAIN_MS
        each = 1000 / gate.amount
        opens = self._arrival(gate, now) - (gate.burst - 1) * each
        if opens > now:
            return 0, min(ceil(opens), latest)
        places = floor((now - opens) / each) + 1
        return places, min(ceil(opens + places * each), latest)

    def as_said(self, gate: Gate) -> Gate:
        """Return a gate with the numbers that hold for it now."""
        said = self.said.get(gate.tool, Numbers())
        if gate.kind == "concurrency":
            return gate._replace(amount=said.concurrency or gate.amount)
        return gate._replace(amount=said.rate or gate.amount, burst=said.burst or gate.burst)

    def _heed_a_raised_rate(self, gate: Gate, now: float) -> None:
        known, latest = self.arrivals.get(name_of(gate)), now + gate.burst * 1000 / gate.amount
        if known is not None and known > latest:
            self.arrivals[name_of(gate)] = round(latest, 6)

    def held_at(self, gate: Gate, most: float, now: float) -> int:
        """Return how many have a place. Where they are as many as may, lost ones are looked for, once in a while."""
        name = name_of(gate)
        if len(self.holders[name]) >= most and abs(now - self._checked.get(name, 0)) >= LOOK_AGAIN_MS / 2:
            self._checked[name] = now
            self.holders[name] -= self.lost
        return len(self.holders[name])

    def pause(self, gate: Gate, until: float, now: float) -> None:
        """Let nobody pass a gate for a while."""
        until = max(self._own_pause(self.as_said(gate), now), until)
        self.paused[name_of(gate)] = until, until - now

    def _own_pause(self, gate: Gate, now: float) -> float:
        """Until when; no longer than it was to last, where the clock was set back."""
        self._bear_a_clock_set_back(gate, now)
        until, _ = self.paused.get(name_of(gate), (0, 0))
        return until

    def _bear_a_clock_set_back(self, gate: Gate, now: float) -> None:
        """Keep nothing that lies further ahead than it can: whoever looks at a gate sees to that."""
        name = name_of(gate)
        if name in self.paused:
            until, lasts = self.paused[name]
            self.paused[name] = min(until, now + lasts), lasts
        if name in self.arrivals:  # a rate may have been raised as well
            self.arrivals[name] = min(self.arrivals[name], round(now + gate.burst * 1000 / gate.amount, 6))

    def paused_until(self, gate: Gate, now: float) -> float:
        """Return until when nobody passes a gate."""
        return max(self._own_pause(gate, now), self.said_paused.get(gate.tool, 0))

    def first_shut(self, gates: Sequence[Gate], now: float, call_id: str) -> tuple[Gate, float] | None:
        """Return the first gate that the call may not pass, and when to look again. Places come before rates."""
        for gate in sorted(gates, key=lambda gate: gate.kind):
            places, again_ms = self.room_at(gate, now, call_id)
            if places < 1:
                return gate, again_ms
        return None

    def let_pass(self, gates: Sequence[Gate], now: float, call_id: str) -> None:
        """Take a start of each rate, and a place of each concurrency."""
        for gate in gates:
            if gate.kind == "rate":
                bound = self.as_said(gate)
                self.arrivals[name_of(gate)] = round(self._arrival(bound, now) + 1000 / bound.amount, 6)
            else:
                self.holders[name_of(gate)].add(call_id)

    def _arrival(self, gate: Gate, now: float) -> float:
        each = 1000 / gate.amount
        known = self.arrivals.get(name_of(gate))
        if known is None:
            return now + (gate.burst - 1) * each
        return max(now, known)


class Room:
    """The waiting room of one queue. `send` of what it lets go is its user's: `admit` returns the calls."""

    def __init__(self, gates: Gates, queue: str = "io", terms: Mapping[str, TenantTerms] | None = None) -> None:
        self.gates = gates
        self.queue = queue
        self.terms = terms if terms is not None else {}
        self.calls: dict[str, Call] = {}
        self.cancelled: set[str] = set()
        self.moves = 0
        self._v = dict.fromkeys(LEVELS, 0.0)
        self._tags: defaultdict[Flow, dict[str, float]] = defaultdict(dict)
        self._runs: dict[tuple[Flow, str], float] = {}
        self._lines: dict[Line, list[Call]] = {}
        self._run_turns: defaultdict[Flow, dict[str, float]] = defaultdict(dict)
        self._flows: defaultdict[tuple[int, str], dict[Flow, float]] = defaultdict(dict)
        self._turns: dict[int, dict[str, float]] = {level: {} for level in LEVELS}
        self._shares: dict[int, dict[str, float]] = {level: {} for level in LEVELS}
        self._aside: defaultdict[str, dict[Flow, float]] = defaultdict(dict)
        self._openings: dict[str, float] = {}
        self._ends: dict[str | Line, float] = {}
        """Of a line that of the first call that has waited there, until it is looked at."""
        self._is_said = False
        self._begun = 0

    def gates_of(self, call: Call | Flow) -> tuple[Gate, ...]:
        """Return the gates that a call passes: its own, and that of a tenant whose calls are counted."""
        own = self._gate_of_tenant(call.tenant)
        return (*call.gates, own) if own else call.gates

    def let_wait(self, call: Call, now: float, *, is_first: bool = False, for_lane: bool = False) -> None:
        """Let a call wait for its turn; one that a worker has had goes first of its own."""
        if call.call_id in self.calls:
            return
        self.calls[call.call_id] = call
        line = Line(call.run_id, Flow(call.level, call.tenant, call.gates, is_plain=True))
        if for_lane or self._gate_of_tenant(call.tenant) or not self._keeps_order(line, call, is_first=is_first):
            self._let_wait_by_tag(call, now, is_first=is_first)
        else:
            self._let_wait_in_line(line, call, now, is_first=is_first)

    def _keeps_order(self, line: Line, call: Call, *, is_first: bool) -> bool:
        """Whether those of a line with limits end in the order in which they stand there."""
        waiting = self._lines.get(line)
        if not (waiting and call.gates):
            return True
        return _ends(call) <= _ends(waiting[0]) if is_first else _ends(waiting[-1]) <= _ends(call)

    def _let_wait_in_line(self, line: Line, call: Call, now: float, *, is_first: bool) -> None:
        run_id, flow = line
        is_new = line not in self._lines
        self._lines.setdefault(line, []).insert(0 if is_first else len(self._lines[line]), call)
        if (is_new or is_first) and call.gates and call.ends_ms:
            self._ends[line] = call.ends_ms
        if is_new:
            self._begun += 1
            turn = self.moves + self._begun / 2**22
            if not self._run_turns[flow]:
                self._activate(flow, turn, now)
            self._run_turns[flow][run_id] = turn
        if is_first:
            self._run_turns[flow][run_id] = OWED
            self._go_next(flow)

    def _go_next(self, flow: Flow) -> None:
        flows = self._flows[flow.level, flow.tenant]
        if flow in flows:
            flows[flow] = OWED

    def _let_wait_by_tag(self, call: Call, now: float, *, is_first: bool) -> None:
        flow = Flow(call.level, call.tenant, call.gates)
        tags = self._tags[flow]
        if is_first:
            tag = min(tags.values(), default=1.0) - 1
            self._go_next(flow)
        else:
            tag = max(min(tags.values(), default=0.0), self._runs.get((flow, call.run_id), 0.0))
            self._runs[flow, call.run_id] = tag + 1
        if not tags:
            self._activate(flow, OWED if is_first else self.moves, now)
        tags[call.call_id] = tag
        if call.ends_ms:
            self._ends[call.call_id] = call.ends_ms

    def hear_of_limits(self) -> None:
        """Note that people have said something: all gates are looked at again."""
        self._is_said = True

    def look_and_admit(self, most: int, now: float) -> list[tuple[Call, bool]]:
        """Do what `admit` does, behind what time and people have changed."""
        if not self.calls:
            return []
        if self._is_said or self._has_lost_time(now):
            self._openings, self._is_said = dict.fromkeys(self._openings, 0.0), False
        gone = self._send_off_late(most, now)
        for _, name in sorted((due, name) for name, due in self._openings.items() if due <= now):
            self._reopen(name, now)
        gone += self.admit(most - len(gone), now)
        self._forget_what_lies_behind()
        return gone

    def _has_lost_time(self, now: float) -> bool:
        """Whether a gate is to be looked at later than any is: then the clock was set back since."""
        latest = now + LOOK_AGAIN_LATE_MS + LOOK_AGAIN_MS + len(self._openings) * LOOK_EACH_MS
        return max(self._openings.values(), default=0.0) > latest

    def admit(self, most: int, now: float) -> list[tuple[Call, bool]]:
        """Return up to `most` calls that go now, each with whether it passed its gates: what nobody wants does not."""
        gone: list[tuple[Call, bool]] = []
        while len(gone) < most and (turn := self._next_turn()):
            gone += self._move_one(*turn, now)
        self._forget_what_lies_behind()
        return gone

    def _forget_what_lies_behind(self) -> None:
        for level in LEVELS:
            self._shares[level] = {t: f for t, f in self._shares[level].items() if f > self._v[level] and self.calls}
        if not self.calls:
            self._v = dict.fromkeys(LEVELS, 0.0)

    def _send_off_late(self, most: int, now: float) -> list[tuple[Call, bool]]:
        gone: list[tuple[Call, bool]] = []
        late = [(at, of if isinstance(of, str) else _index(of), of) for of, at in self._ends.items() if at <= now]
        for _, _, of in sorted(late)[:most]:
            if len(gone) < most:
                gone += [self._send_off(of)] if isinstance(of, str) else self._send_off_line(of, most - len(gone), now)
        return gone

    def _send_off(self, call_id: str) -> tuple[Call, bool]:
        call = self.calls[call_id]
        self._forget(Flow(call.level, call.tenant, call.gates), call)
        return call, False

    def _send_off_line(self, line: Line, most: int, now: float) -> list[tuple[Call, bool]]:
        gone: list[tuple[Call, bool]] = []
        while len(gone) < most and line in self._lines and _ends(self._lines[line][0]) <= now:
            call = self._lines[line][0]
            self._forget(line.flow, call)
            gone.append((call, False))
        self._ends.pop(line, None)
        if line in self._lines and _ends(self._lines[line][0]) < inf:
            self._ends[line] = _ends(self._lines[line][0])
        return gone

    def _is_empty(self, flow: Flow) -> bool:
        return not (self._run_turns[flow] if flow.is_plain else self._tags[flow])

    def _forget_flow(self, flow: Flow) -> None:
        self._deactivate(flow)
        for gate in self.gates_of(flow):
            aside = self._aside[name_of(gate)]
            if aside.pop(flow, None) is not None and not aside:
                self._openings.pop(name_of(gate), None)

    def is_waited_for(self, call: Call) -> bool:
        """Whether anybody waits for a place that this call has: aside, or for the turn that it decides."""
        return any(self._aside[name_of(gate)] or gate.tool == f"@{self.queue}" for gate in self._places_of(call))

    def _places_of(self, call: Call) -> list[Gate]:
        places = [gate for gate in self.gates_of(call) if gate.kind == "concurrency"]
        return [gate for gate in places if call.call_id in self.gates.holders[name_of(gate)]]

    def free(self, call: Call, now: float) -> None:
        """Take back the places of a call that has ended."""
        freed = self._places_of(call)
        for gate in freed:
            self.gates.holders[name_of(gate)].remove(call.call_id)
        for gate in freed if self.calls else ():
            if self._aside[name_of(gate)]:
                self._reopen(name_of(gate), now)
            for level in LEVELS:
                if gate.tool == f"@{self.queue}" and call.tenant in self._turns[level]:
                    self._take_next_turn(level, call.tenant, now)

    def _terms_of(self, tenant: str) -> TenantTerms:
        return self.terms.get(tenant, TenantTerms())

    def _gate_of_tenant(self, tenant: str) -> Gate | None:
        terms = self._terms_of(tenant)
        if terms.ceiling is None and not terms.guaranteed:
            return None
        return Gate("concurrency", f"@{self.queue}", f"tenant={tenant}", terms.ceiling or 1e15, 0)

    def _fair_start(self, level: int, tenant: str) -> float:
        return max(self._v[level], self._shares[level].get(tenant, 0.0))

    def _start_of(self, level: int, tenant: str, now: float) -> float:
        own, guaranteed = self._gate_of_tenant(tenant), self._terms_of(tenant).guaranteed
        if own and guaranteed and self.gates.held_at(own, guaranteed, now) < guaranteed:
            return OWED
        return self._fair_start(level, tenant)

    def _activate(self, flow: Flow, score: float, now: float) -> None:
        self._flows[flow.level, flow.tenant][flow] = score
        start = self._start_of(flow.level, flow.tenant, now)
        self._turns[flow.level].setdefault(flow.tenant, start)

    def _deactivate(self, flow: Flow) -> None:
        flows = self._flows[flow.level, flow.tenant]
        flows.pop(flow, None)
        if not flows:
            self._turns[flow.level].pop(flow.tenant, None)

    def _take_next_turn(self, level: int, tenant: str, now: float) -> None:
        if self._flows[level, tenant]:
            self._turns[level][tenant] = self._start_of(level, tenant, now)
        else:
            self._turns[level].pop(tenant, None)

    def _next_turn(self) -> tuple[int, str, float] | None:
        for level in _levels_at(self.moves):
            if self._turns[level]:
                start, tenant = min((start, tenant) for tenant, start in self._turns[level].items())
                return level, tenant, start
        return None

    def _move_one(self, level: int, tenant: str, start: float, now: float) -> list[tuple[Call, bool]]:
        if start == OWED and self._start_of(level, tenant, now) != OWED:
            self._take_next_turn(level, tenant, now)
            return []
        _, _, flow = min((score, _text(flow), flow) for flow, score in self._flows[level, tenant].items())
        call = self._next_call(flow)
        is_looked_at = bool(call.gates) or not flow.is_plain
        is_over = is_looked_at and (0 < call.ends_ms <= now or call.call_id in self.cancelled)
        gates = self.gates_of(call)
        if not is_over and (shut := self.gates.first_shut(gates, now, call.call_id)):
            self._set_aside(flow, start, shut, now)
            return []
        if not is_over:
            self.gates.let_pass(gates, now, call.call_id)
        self._forget(flow, call, turn=self.moves + 1)
        self._charge(flow, start, now)
        if is_over:
            self._leave_to_others(gates, now)
        return [(call, not is_over)]

    def _next_call(self, flow: Flow) -> Call:
        if flow.is_plain:
            _, run_id = min((turn, run_id) for run_id, turn in self._run_turns[flow].items())
            return self._lines[Line(run_id, flow)][0]
        call_id, _ = min(self._tags[flow].items(), key=lambda waiting: waiting[1])  # the first of those that came
        return self.calls[call_id]

    def _forget(self, flow: Flow, call: Call, turn: float | None = None) -> None:
        """Forget a call that is next, or sent off without a turn: then its flow goes with its last call."""
        del self.calls[call.call_id]
        if flow.is_plain:
            line = Line(call.run_id, flow)
            self._lines[line].pop(0)
            if not self._lines[line]:
                del self._lines[line], self._run_turns[flow][call.run_id]
                self._ends.pop(line, None)
            elif turn is not None:
                self._run_turns[flow][call.run_id] = turn
        else:
            tag = self._tags[flow].pop(call.call_id)
            self._ends.pop(call.call_id, None)
            if self._runs.get((flow, call.run_id), 0) <= tag + 1:
                self._runs.pop((flow, call.run_id), None)
        if turn is None and self._is_empty(flow):
            self._forget_flow(flow)

    def _charge(self, flow: Flow, start: float, now: float) -> None:
        level, tenant, *_ = flow
        if start == OWED:
            start = self._fair_start(level, tenant)
        self._shares[level][tenant] = start + 1 / self._terms_of(tenant).weight
        self._v[level] = max(self._v[level], start)
        self.moves += 1
        if self._is_empty(flow):
            del self._flows[level, tenant][flow]
        else:
            self._flows[level, tenant][flow] = self.moves
        self._take_next_turn(level, tenant, now)

    def _set_aside(self, flow: Flow, start: float, shut: tuple[Gate, float], now: float) -> None:
        gate, again_ms = shut
        self._deactivate(flow)
        self._aside[name_of(gate)][flow] = flow.level * LEVEL_SCORE + min(start + 1, LEVEL_SCORE)
        self._openings.setdefault(name_of(gate), self._looks_again_ms(gate, again_ms, now))
        self._leave_to_others([other for other in self.gates_of(flow) if other != gate], now)

    def _leave_to_others(self, gates: Sequence[Gate], now: float) -> None:
        for gate in gates:
            if self._aside[name_of(gate)]:
                self._reopen(name_of(gate), now)

    def _looks_again_ms(self, gate: Gate, again_ms: float, now: float) -> float:
        return again_ms if gate.kind == "rate" else max(again_ms, now + len(self._openings) * LOOK_EACH_MS)

    def _reopen(self, name: str, now: float) -> None:
        aside = self._aside[name]
        [gate] = [gate for gate in self.gates_of(self._first_aside(aside, LEVELS)) if name_of(gate) == name]
        places, again_ms = self.gates.room_at(gate, now)
        for flow in self._take_aside(name, floor(places)):
            self._activate(flow, OWED, now)
        if aside:
            self._openings[name] = max(self._looks_again_ms(gate, again_ms, now), now + 1)
        else:
            self._openings.pop(name, None)

    def _take_aside(self, name: str, most: int) -> list[Flow]:
        """Take flows in order of their levels; while several levels wait, one of so many times lower levels first."""
        aside, taken = self._aside[name], list[Flow]()
        are_several = len({flow.level for flow in aside}) > 1
        while len(taken) < most and aside:
            order = _levels_at(self.gates.opened[name]) if are_several else LEVELS
            flow = self._first_aside(aside, order)
            del aside[flow]
            taken.append(flow)
            self.gates.opened[name] += are_several
        return taken

    def _first_aside(self, aside: Mapping[Flow, float], order: Sequence[int]) -> Flow:
        level = next(level for level in order if any(flow.level == level for flow in aside))
        return min((flow for flow in aside if flow.level == level), key=lambda flow: (aside[flow], _text(flow)))


def _levels_at(count: int) -> Sequence[int]:
    """Return the order of levels for one of many moves."""
    at = count % LOWER_FIRST_EVERY
    return {LOWER_FIRST_EVERY - 1: (6, 3, 0), LOWER_FIRST_EVERY // 2 - 1: (3, 0, 6)}.get(at, LEVELS)


def _ends(call: Call) -> float:
    """Return when nobody wants a call any more."""
    return call.ends_ms or inf


def _text(flow: Flow) -> str:
    """Return what scripts break ties by."""
    gates = ",".join(f'["{g.kind}","{g.tool}","{g.value}",{g.amount},{g.burst}]' for g in flow.gates)
    mark = "~" if flow.is_plain else ""
    return f"{flow.level}:{len(flow.tenant)}:{flow.tenant}{mark}{f'[{gates}]' if gates else ''}"


def _index(line: Line) -> str:
    """Return the same of a line."""
    return f"{len(line.run_id)}:{line.run_id}~{_text(line.flow)}"
