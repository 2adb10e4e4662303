"""The scripts do what the model says, call by call, whatever comes in which order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings as how, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from benchmarks.room_transport import RETURNED_RESULT, Transport
from tests.streams.harness import Server, temporary_server
from toolfleet.limits import Gate
from toolfleet.streams import RETURNED
from toolfleet.waiting.model import LEVELS, Call, Gates, Numbers, Room, TenantTerms, name_of

SLOTS, UNKNOWN_SLOTS, WORD_MS, LATE_MS = 3, 4, 20_000, 250

STREAMS = [(level, in_lane) for level in LEVELS for in_lane in (True, False)]
"""As a worker reads them: a level's lane before its queue."""

TENANTS = ["a", "b", "c"]
PLACES = [
    (),
    (Gate("concurrency", "t", "", 2.0, 0),),
    (Gate("rate", "t", "", 4.0, 2),),
    (Gate("concurrency", "u", "", 1.0, 0), Gate("rate", "u", "", 2.0, 1)),
]
TERMS = st.builds(
    TenantTerms,
    weight=st.sampled_from([1.0, 2.0, 3.0]),
    guaranteed=st.sampled_from([0, 0, 1]),
    ceiling=st.sampled_from([None, None, 2]),
)


class Fleet(RuleBasedStateMachine):
    """One queue with one worker of three slots, which reads a lane; what is in a stream is in order of arrival."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.transport = Transport(self.server.client, reads_lane=True)
        self.terms: dict[str, TenantTerms] = {}
        self.gates = Gates()
        self.room = Room(self.gates, terms=self.terms)
        self.unread: dict[tuple[int, bool], list[Call]] = {stream: [] for stream in STREAMS}
        self.for_lane: set[str] = set()
        self.lane_until = 0
        """Until when anybody is known to read the lane."""
        self.running: dict[str, tuple[Call, Any]] = {}
        self.passed: dict[str, float] = {}
        """When each call that is in a stream, or was, passed its gates; not one that nobody wanted."""
        self.entered: dict[str, int] = {}
        """Which entry of all each is."""
        self.returned: dict[tuple[int, bool], list[Call]] = {stream: [] for stream in STREAMS}
        self.was_returned: set[str] = set()
        self.was_put_back: set[str] = set()
        self.slots_until = 0
        self.sent = 0
        self.most_places = {"t": 2.0, "u": 1.0}
        """As many as any number has ever allowed."""

    @initialize(terms=st.dictionaries(st.sampled_from(TENANTS), TERMS))
    def people_say(self, terms: dict[str, TenantTerms]) -> None:
        self.terms.update(terms)
        for tenant, said in terms.items():
            text = {"weight": said.weight, "guaranteed": said.guaranteed, "ceiling": said.ceiling}
            known = {name: value for name, value in text.items() if value is not None}
            self.transport.client.hset(self.transport.keys.tenants(), tenant, json.dumps(known))

    # --- what the model says of the ways in and out -------------------------------------------------------------

    def length(self, level: int) -> int:
        home = self.transport.keys.queue("io", level)
        at_home = sum(delivery[0] == home for _, delivery in self.running.values())
        return len(self.unread[level, False]) + len(self.returned[level, False]) + at_home

    def slots(self) -> int:
        return SLOTS if self.slots_until > self.transport.now else 0

    def free(self) -> int:
        return self.slots() - sum(map(self.length, LEVELS))

    def goes_straight(self, call: Call) -> bool:
        gates = self.room.gates_of(call)
        if not gates:
            return call.call_id in self.for_lane or (
                not self.room.calls and self.length(call.level) < max(UNKNOWN_SLOTS, self.slots())
            )
        if self.room.calls or self.free() < 1 or self.gates.first_shut(gates, self.transport.now, call.call_id):
            return False
        self.gates.let_pass(gates, self.transport.now, call.call_id)
        return True

    def let_in(self, most: int, *, looks: bool = True) -> None:
        admit = self.room.look_and_admit if looks else self.room.admit
        for call, passed in admit(most, self.transport.now):
            self.enter(call, passed=passed)

    def enter(self, call: Call, *, passed: bool = True) -> None:
        """It goes into its lane while anybody reads that, else into the queue."""
        self.entered[call.call_id] = len(self.entered) + self.sent
        self.passed.pop(call.call_id, None)
        if passed:
            self.passed[call.call_id] = self.transport.now
        in_lane = call.call_id in self.for_lane and self.lane_until >= self.transport.now
        self.unread[call.level, in_lane].append(call)

    def starts_by_its_rates(self, call: Call, *, again: bool) -> bool:
        """Whether a call may start that was read late, or had been with a worker before."""
        rates = [gate for gate in call.gates if gate.kind == "rate"]
        passed = self.passed.get(call.call_id)
        is_late = self.transport.now - (passed or 0) > LATE_MS and call.call_id not in self.was_put_back
        if passed is None or not rates or not (again or is_late):
            return True
        if self.gates.first_shut(rates, self.transport.now, call.call_id):
            return False
        self.gates.let_pass(rates, self.transport.now, call.call_id)
        return True

    def put_back(self, call: Call) -> None:
        self.was_put_back.add(call.call_id)
        self.was_returned.discard(call.call_id)
        self.for_lane.discard(call.call_id)  # from the room it goes to the queue, as nobody says anew for whom it is
        self.room.let_wait(call, self.transport.now, is_first=True)
        self.room.free(call, self.transport.now)

    # --- what happens -------------------------------------------------------------------------------------------

    @rule(
        made=st.lists(
            st.tuples(
                st.sampled_from(LEVELS),
                st.sampled_from(TENANTS),
                st.sampled_from("xy"),
                st.sampled_from(PLACES),
                st.sampled_from([0, 0, 0, 700]),
                st.sampled_from([False, False, True]),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def publish(self, made: list[tuple[int, str, str, tuple[Gate, ...], int, bool]]) -> None:
        calls = []
        for level, tenant, run, gates, lasts_ms, is_for_lane in made:
            ends_ms = self.transport.now + lasts_ms if lasts_ms else 0
            calls.append(Call(f"{run}.{self.sent:04}", level, tenant, run, gates, ends_ms))
            self.sent += 1
            if is_for_lane:
                self.for_lane.add(calls[-1].call_id)
        self.transport.publish(calls, lanes=self.for_lane)
        waits = False
        for call in calls:
            if self.goes_straight(call):
                self.enter(call)
            else:
                self.room.let_wait(call, self.transport.now, for_lane=call.call_id in self.for_lane)
                waits = True
        if waits and self.free() > 0:
            self.let_in(self.free())

    @rule(budget=st.integers(1, SLOTS))
    def fetch(self, budget: int) -> None:
        found = self.transport.fetch(budget, SLOTS)
        self.slots_until = self.transport.now + WORD_MS
        taken = self.take_all(budget)
        if len(taken) < budget:
            self.let_in(budget - len(taken))
            taken += self.take(budget - len(taken))
        assert [delivery[2] for delivery in found] == [call.call_id for call in taken]
        for call, delivery in zip(taken, found, strict=True):
            passed = call.call_id in self.passed
            expected = self.room.gates_of(call) if passed else ()
            assert [name_of(gate) for gate in delivery[3]] == [name_of(gate) for gate in expected]
            # What has not passed because nobody wants it says so, and nothing else does.
            assert (b"over" in self.transport.fields(delivery)) is not passed
            self.running[call.call_id] = call, delivery

    def take_all(self, budget: int) -> list[Call]:
        taken: list[Call] = []
        waits: list[Call] = []
        for stream in STREAMS:
            back = sorted(self.returned[stream], key=lambda call: self.entered[call.call_id])[: budget - len(taken)]
            for call in back:
                self.returned[stream].remove(call)
                (taken if self.starts_by_its_rates(call, again=True) else waits).append(call)
            waited = -1
            while waited < len(waits) and len(taken) < budget:
                waited, wanted = len(waits), budget - len(taken)
                new, self.unread[stream] = self.unread[stream][:wanted], self.unread[stream][wanted:]
                for call in new:
                    (taken if self.starts_by_its_rates(call, again=False) else waits).append(call)
        for call in reversed(waits):
            self.put_back(call)
        return taken

    def take(self, most: int) -> list[Call]:
        taken: list[Call] = []
        for stream in STREAMS:
            wanted = most - len(taken)
            taken += self.unread[stream][:wanted]
            del self.unread[stream][:wanted]
        return taken

    @rule(which=st.integers(0, 10), sealed=st.sampled_from([RETURNED_RESULT, RETURNED_RESULT, "a failure"]))
    def settle(self, which: int, sealed: str = RETURNED_RESULT) -> None:
        if not self.running:
            return
        call, delivery = self.running.pop(sorted(self.running)[which % len(self.running)])
        self.transport.settle(delivery, sealed=sealed)
        if call.call_id in self.passed and self.room.gates_of(call):
            lets_in = self.room.is_waited_for(call)
            self.room.free(call, self.transport.now)
            if lets_in:
                self.let_in(min(1, max(0, self.free())), looks=False)

    @rule(which=st.integers(0, 10), ms=st.sampled_from([100, 1500]))
    def postpone(self, which: int, ms: int) -> None:
        limited = sorted(
            call_id
            for call_id, (call, _) in self.running.items()
            if call.gates and call_id in self.passed and call_id not in self.for_lane
        )
        if not limited:
            return
        call, delivery = self.running.pop(limited[which % len(limited)])
        self.transport.postpone(delivery, ms, call)
        for gate in call.gates:
            self.gates.pause(gate, self.transport.now + ms, self.transport.now)
        self.was_returned.discard(call.call_id)
        self.was_put_back.discard(call.call_id)
        self.room.free(call, self.transport.now)
        self.room.let_wait(call, self.transport.now, is_first=True)
        self.let_in(min(1, max(0, self.free())), looks=False)

    @rule(which=st.integers(0, 10))
    def lose_worker(self, which: int) -> None:
        """Somebody sweeps a call that runs: it is for another worker. Once, as twice may be the call's own fault."""
        known = sorted(call_id for call_id in self.running if call_id not in self.was_returned)
        if not known:
            return
        call, delivery = self.running.pop(known[which % len(known)])
        self.was_returned.add(call.call_id)
        self.transport.client.xclaim(delivery[0], "workers", RETURNED, 0, [delivery[1]], justid=True)
        in_lane = delivery[0] != self.transport.keys.queue("io", call.level)
        self.returned[call.level, in_lane].append(call)

    @rule(which=st.integers(0, 10))
    def lose(self, which: int) -> None:
        """Somebody deletes the message of a call that runs."""
        if self.running:
            call, delivery = self.running.pop(sorted(self.running)[which % len(self.running)])
            self.transport.client.xack(delivery[0], "workers", delivery[1])
            self.transport.client.xdel(delivery[0], delivery[1])
            self.gates.lost.add(call.call_id)

    @rule(tool=st.sampled_from("tu"), ms=st.sampled_from([0, 0, 700, 60_000]))
    def pause(self, tool: str, ms: int) -> None:
        self.gates.said_paused[tool] = self.transport.now + ms if ms else 0
        self.tell(tool)

    @rule(
        tool=st.sampled_from("tu"),
        said=st.builds(
            Numbers,
            rate=st.sampled_from([None, 1.0, 20.0]),
            burst=st.sampled_from([None, 1, 3]),
            concurrency=st.sampled_from([None, 1.0, 3.0]),
        ),
    )
    def change(self, tool: str, said: Numbers) -> None:
        """Other numbers, for what waits already too. Who has a place beyond a lower one keeps it."""
        self.gates.said[tool] = said
        self.most_places[tool] = max(self.most_places[tool], said.concurrency or 0)
        self.tell(tool)

    def tell(self, tool: str) -> None:
        numbers = self.gates.said.get(tool, Numbers())._asdict()
        said = {name: value for name, value in numbers.items() if value is not None}
        self.transport.say(tool, {**said, "paused_until_ms": self.gates.said_paused.get(tool, 0)})
        self.room.hear_of_limits()

    @rule(ms=st.sampled_from([0, 500, 10_000]))
    def somebody_reads_the_lane(self, ms: int) -> None:
        self.lane_until = self.transport.now + ms
        self.transport.has_reader(self.lane_until)

    @rule(ms=st.sampled_from([1, 100, 250, 999, 5000]))
    def time_passes(self, ms: int) -> None:
        self.transport.advance(ms)

    @rule(ms=st.sampled_from([400, 60_000, 3_600_000]))
    def the_clock_is_set_back(self, ms: int) -> None:
        self.transport.advance(-ms)

    @rule(which=st.integers(0, 100))
    def cancel(self, which: int) -> None:
        if self.room.calls:
            call_id = sorted(self.room.calls)[which % len(self.room.calls)]
            self.room.cancelled.add(call_id)
            self.transport.client.set(self.transport.keys.cancelled(call_id), "1")

    # --- what always holds --------------------------------------------------------------------------------------

    @invariant()
    def the_same_calls_wait(self) -> None:
        assert self.transport.waiting == set(self.room.calls)

    @invariant()
    def no_more_hold_a_place_than_there_are(self) -> None:
        for tool, most in self.most_places.items():
            name = f"concurrency|{tool}|"
            held = {key.decode() for key in self.transport.client.hkeys(self.transport.keys.holders(name))}
            assert held == self.gates.holders[name]
            assert len(held) <= most

    def teardown(self) -> None:
        """Everything goes on in the end, and the room leaves nothing behind."""
        for tool in "tu":
            self.pause(tool, 0)
        for _ in range(40 * (self.sent + 1)):
            for _ in range(len(self.running)):
                self.settle(0)
            self.fetch(SLOTS)
            if not (self.running or self.room.calls):
                break
            self.transport.advance(1000)
        assert not self.room.calls
        left = {key.decode() for key in self.transport.client.scan_iter("*:room-*")}
        assert left <= {self.transport.keys.room_workers("io")}


@given(
    runs=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(1, 700)), min_size=1, max_size=6),
    budgets=st.lists(st.integers(1, 900), min_size=1, max_size=8),
)
@how(max_examples=25, deadline=None)
def test_what_waits_alone_goes_in_the_order_of_one_by_one(
    transport_of_a_module: Transport, runs: list[tuple[str, int]], budgets: list[int]
) -> None:
    transport = Transport(transport_of_a_module.client)
    transport.fetch(1, SLOTS)
    room = Room(Gates())
    calls = [Call(f"{run}.{at}.{i:03}", 3, "a", run) for at, (run, count) in enumerate(runs) for i in range(count)]
    straight = [call.call_id for call in calls[:UNKNOWN_SLOTS]]
    for call in calls[UNKNOWN_SLOTS:]:
        room.let_wait(call, transport.now)
    transport.publish(calls)
    for budget in [*budgets, *[1000] * 5]:  # one fetch reads no more than 2,000
        expected, straight = straight[:budget], straight[budget:]
        expected += [call.call_id for call, _ in room.look_and_admit(budget - len(expected), transport.now)]
        assert [call_id for _, _, call_id, _ in transport.fetch(budget, SLOTS)] == expected
    assert not room.calls
    assert transport.waiting == set()


@given(
    groups=st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz"), st.integers(1, 90)), min_size=1, max_size=8
    ),
    terms=st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.5, 1.0, 3.0]).map(TenantTerms), max_size=2),
    limited=st.dictionaries(st.sampled_from("cd"), st.just(TenantTerms(ceiling=2)), max_size=1),
    budgets=st.lists(st.integers(1, 120), min_size=1, max_size=8),
)
@how(max_examples=40, deadline=None)
def test_rounds_of_many_tenants_and_runs_go_in_the_order_of_one_by_one(
    transport_of_a_module: Transport,
    groups: list[tuple[str, str, int]],
    terms: dict[str, TenantTerms],
    limited: dict[str, TenantTerms],
    budgets: list[int],
) -> None:
    transport = Transport(transport_of_a_module.client)
    room = Room(Gates(), terms=terms | limited)
    for tenant, said in room.terms.items():
        known = {name: value for name, value in said._asdict().items() if value is not None}
        transport.client.hset(transport.keys.tenants(), tenant, json.dumps(known))
    transport.fetch(1, SLOTS)
    transport.publish([Call(f"first.1.{n}", run_id="first") for n in range(UNKNOWN_SLOTS)])
    for at, (tenant, run, count) in enumerate(groups):
        calls = [Call(f"{tenant}{run}.{at}.{n}", 3, tenant, f"{tenant}{run}") for n in range(count)]
        transport.publish(calls)
        for call in calls:
            room.let_wait(call, transport.now)
    assert len(transport.fetch(UNKNOWN_SLOTS, 0)) == UNKNOWN_SLOTS
    for budget in [*budgets, *[120] * len(groups)]:
        expected = [call.call_id for call, _ in room.look_and_admit(budget, transport.now)]
        assert [call_id for _, _, call_id, _ in transport.fetch(budget, SLOTS)] == expected
    assert transport.waiting == set(room.calls)
    assert all(call.tenant in limited for call in room.calls.values())  # whose places nobody gives up here


WIDE = [
    (),
    (Gate("concurrency", "t", "", 60.0, 0),),
    (Gate("concurrency", "t", "", 60.0, 0), Gate("rate", "t", "x", 1000.0, 90)),
    (Gate("rate", "u", "", 50.0, 7),),
]
"""Gates that let many pass at once, two of which share one."""


@given(
    groups=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from("xyz"),
            st.sampled_from(WIDE),
            st.integers(1, 60),
            st.sampled_from([0, 10_000, 500]),
        ),
        min_size=1,
        max_size=10,
    ),
    terms=st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.5, 1.0, 3.0]).map(TenantTerms), max_size=2),
    cancelled=st.sets(st.integers(0, 300), max_size=4),
    budgets=st.lists(st.tuples(st.integers(1, 120), st.sampled_from([0, 5, 100, 700])), min_size=1, max_size=8),
)
@how(max_examples=60, deadline=None)
def test_rounds_of_calls_with_limits_go_in_the_order_of_one_by_one(
    transport_of_a_module: Transport,
    groups: list[tuple[str, str, tuple[Gate, ...], int, int]],
    terms: dict[str, TenantTerms],
    cancelled: set[int],
    budgets: list[tuple[int, int]],
) -> None:
    transport = Transport(transport_of_a_module.client)
    room = Room(Gates(), terms=terms)
    for tenant, said in terms.items():
        transport.client.hset(transport.keys.tenants(), tenant, json.dumps({"weight": said.weight}))
    transport.fetch(1, SLOTS)
    transport.publish([Call(f"first.1.{n}", run_id="first") for n in range(UNKNOWN_SLOTS)])
    waiting = []
    for at, (tenant, run, gates, count, lasts_ms) in enumerate(groups):
        ends_ms = transport.now + lasts_ms if lasts_ms else 0
        calls = [Call(f"{tenant}{run}.{at}.{n}", 3, tenant, f"{tenant}{run}", gates, ends_ms) for n in range(count)]
        transport.publish(calls)
        waiting += calls
    for call in waiting:
        room.let_wait(call, transport.now)
    for number in cancelled:
        call_id = waiting[number % len(waiting)].call_id
        room.cancelled.add(call_id)
        transport.client.set(transport.keys.cancelled(call_id), "1")
    assert len(transport.fetch(UNKNOWN_SLOTS, 0)) == UNKNOWN_SLOTS
    room_gates = {call.call_id: call.gates for call in waiting}
    for budget, ms in [*budgets, *[(120, 1000)] * len(groups)]:
        expected = [(call.call_id, passed) for call, passed in room.look_and_admit(budget, transport.now)]
        found = transport.fetch(budget, SLOTS)
        assert [(call_id, not gates) for _, _, call_id, gates in found] == [
            (call_id, not (passed and room_gates[call_id])) for call_id, passed in expected
        ]
        transport.advance(ms)
    assert transport.waiting == set(room.calls)


@pytest.mark.timeout(600)
def test_the_scripts_do_what_the_model_says():
    with temporary_server() as Fleet.server:
        run_state_machine_as_test(Fleet, settings=how(max_examples=80, stateful_step_count=40, deadline=None))


def test_a_call_that_is_postponed_leaves_a_lowered_rate_as_far_ahead_as_it_is():
    rate = (Gate("rate", "t", "", 4.0, 2),)
    free, bound = (0, "a", "x", (), 0, False), (0, "a", "x", rate, 0, False)
    with temporary_server() as Fleet.server:
        fleet = Fleet()
        fleet.people_say(terms={})
        fleet.publish([free, bound, free])
        fleet.publish([*[free] * 5, bound])
        fleet.fetch(1)
        fleet.change("t", Numbers(rate=1.0))
        fleet.fetch(1)
        fleet.postpone(0, 100)
        fleet.teardown()
