"""Any life of a run, legal and illegal events mixed, against a model that says what may happen when."""

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.run import machine
from toolfleet.orchestrator.errors import IllegalTransition
from toolfleet.orchestrator.run.events import RUN_EVENT
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run

KINDS = st.sampled_from(["returned", "failed"])


class RunMachine(RuleBasedStateMachine):
    """`phase` is the model's own word for where the run is; the code's state must follow it."""

    def __init__(self):
        super().__init__()
        self.run = Run.start(machine.STARTED)
        self.history = [machine.STARTED]
        self.phase = "thinking"
        self.owed, self.sent, self.undecided, self.decided, self.slow = set(), set(), set(), set(), set()
        self.streamed, self.early = 0, set()

    def happens(self, event, phase):
        self.run = self.run.on(event)
        self.history.append(event)
        self.phase = phase

    def refused(self, event):
        before = self.run
        with pytest.raises(IllegalTransition):
            self.run.on(event)
        assert self.run == before

    # --- what the model, the workers and people do ----------------------------------------------------------------

    @rule(calls=st.integers(1, 3))
    def calls_are_complete_before_the_reply_is(self, calls):
        event = machine.streamed(max(calls, self.streamed), self.run.turn)
        if self.phase != "thinking":
            self.refused(event)
            return
        self.happens(event, "thinking")
        self.streamed = max(calls, self.streamed)

    @precondition(lambda self: self.streamed)
    @rule(data=st.data())
    def some_of_them_are_sent(self, data):
        known = [f"m.{self.run.turn + 1}.{n}" for n in range(self.streamed)]
        sent = data.draw(st.sets(st.sampled_from(known), min_size=1))
        self.happens(machine.sent(sorted(sent), []), "thinking")
        self.early |= sent

    @rule(calls=st.integers(0, 3))
    def the_model_replies(self, calls):
        calls = max(calls, self.streamed)  # no call is taken back
        event = machine.reply(calls, self.run.turn)
        if self.phase != "thinking":
            self.refused(event)
            return
        phase = "calling" if calls else ("waiting" if self.slow else "done")
        self.happens(event, phase)
        self.owed = {f"m.{self.run.turn}.{n}" for n in range(calls)}
        self.sent, self.undecided, self.decided = self.early, set(), set()
        self.streamed, self.early = 0, set()

    @precondition(lambda self: not self.streamed)
    @rule(data=st.data())
    def calls_are_sent(self, data):
        ready = sorted(self.owed - self.sent - self.undecided)
        held = data.draw(st.sets(st.sampled_from(ready))) - self.decided if ready else set()
        event = machine.sent(sorted(set(ready) - held), sorted(held))
        if self.phase != "calling":
            self.refused(event)
            return
        self.happens(event, "calling")
        self.sent |= set(ready) - held
        self.undecided |= held

    @precondition(lambda self: self.owed)
    @rule(data=st.data(), kind=KINDS)
    def calls_come_back(self, data, kind):
        back = data.draw(st.sets(st.sampled_from(sorted(self.owed)), min_size=1))
        event = machine.back(self.run, sorted(back), kind)
        if self.phase not in {"calling", "parked"}:
            self.refused(event)
            return
        self.happens(event, self.phase if self.owed - back else "thinking")
        self.owed -= back
        self.undecided -= back

    @precondition(lambda self: self.phase == "calling" and self.owed and self.owed == self.sent)
    @rule()
    def the_model_gets_handles(self):
        self.happens(machine.back(self.run, sorted(self.owed), "submitted"), "thinking")
        self.slow |= self.owed
        self.owed = set()

    @rule()
    def only_slow_calls_are_left(self):
        event = machine.parked(sorted(self.owed & self.sent))
        if self.phase != "calling" or self.owed - self.sent - self.undecided:
            self.refused(event)
            return
        self.happens(event, "parked")

    @rule(granted=st.booleans())
    def somebody_decides(self, granted):
        call_id = min(self.undecided, default="m.1.0")
        event = machine.decided(call_id, granted=granted)
        if not self.undecided or self.phase not in {"calling", "parked"}:
            self.refused(event)
            return
        self.happens(event, "calling")
        self.undecided.discard(call_id)
        self.decided.add(call_id)
        decided = next(call for call in self.run.calls if call.call_id == call_id)
        assert (decided.refusal is None) == granted

    @rule()
    def late_results_are_delivered(self):
        event = machine.delivered(self.run)
        if self.phase != "waiting":
            self.refused(event)
            return
        self.happens(event, "thinking")
        self.slow = set()

    @rule()
    def a_result_of_nobodys_call(self):
        self.refused(
            machine.back(self.run, [], "returned").model_copy(update={"results": {"x.9.9": machine.result("failed")}})
        )

    # --- what happens around it -----------------------------------------------------------------------------------

    @rule(how=st.sampled_from(sorted(machine.STOPS)))
    def it_is_stopped(self, how):
        if self.phase in {"done", "failed", "cancelled"}:
            self.refused(machine.STOPS[how])
            return
        self.happens(machine.STOPS[how], how)
        self.owed, self.undecided = set(), set()
        self.streamed, self.early = 0, set()

    @rule()
    def another_orchestrator_takes_it(self):
        if self.phase in {"done", "failed", "cancelled"}:
            self.refused(machine.ADOPTED)
        else:
            self.happens(machine.ADOPTED, self.phase)

    @rule()
    def it_is_resumed(self):
        if self.phase in {"done", "failed", "cancelled"}:
            self.happens(machine.RESUMED, "thinking")
        else:
            self.refused(machine.RESUMED)

    # --- what must always hold ------------------------------------------------------------------------------------

    @invariant()
    def the_state_is_what_the_model_says(self):
        assert self.run.state is State(self.phase)

    @invariant()
    def what_is_owed_is_what_the_model_says(self):
        assert {call.call_id for call in self.run.calls_owed} == self.owed
        assert {call.call_id for call in self.run.open_slow_calls} == self.slow
        assert {call.call_id for call in self.run.awaiting_approval} == self.undecided
        under_way = {call.call_id for call in self.run.calls_under_way}
        assert under_way == (self.owed & self.sent) | self.slow | self.early

    @invariant()
    def every_call_has_its_one_message_as_soon_as_the_model_may_be_asked(self):
        if self.phase not in {"calling", "parked"}:
            assert machine.unanswered(self.run.messages) == []

    @invariant()
    def the_stored_history_tells_the_same_run(self):
        stored = [RUN_EVENT.validate_json(RUN_EVENT.dump_json(event)) for event in self.history]
        told = Run.start(stored[0])
        for event in stored[1:]:
            told = told.on(event)
        assert told == self.run


TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
