"""Any life of a run, legal and illegal events mixed, against a model that says what may happen when.

Beside the run stand the workers with their ledger: which calls are on their way, have had their effect, have
left a result. What the run's messages say of a call must agree with the ledger at every moment, also of what happens
after the run has ended. Announced, sent, run, stored and noted are steps of their own, so a crash lies between any two.
"""

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.run import machine
from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.orchestrator.errors import IllegalTransition
from toolfleet.orchestrator.run.events import RUN_EVENT, CallsBack, CallsHandedOver, MessagesHeard, RunStopped, apart
from toolfleet.orchestrator.run.limits import Allowance, within_limits
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.tally import Tally
from toolfleet.orchestrator.run.value import Run

TOOLS = st.sampled_from(["add", "add", "ask", "mine"])
"""One that a worker has, one that needs approval, and the caller's own."""

CLOCK = st.sampled_from([machine.BEFORE] * 9 + [machine.AFTER])

ENDED = {"done", "failed", "cancelled"}


class RunMachine(RuleBasedStateMachine):
    """`phase` is the model's own word for where the run is; the code's state must follow it."""

    def __init__(self):
        super().__init__()
        self.run = Run.start(machine.LIMITED)
        self.history = [machine.LIMITED]
        self.phase = "thinking"
        self.owed, self.sent, self.undecided, self.decided, self.slow = set(), set(), set(), set(), set()
        self.streamed, self.early, self.direct, self.tools = [], set(), set(), {}
        self.allowance = None
        self.said, self.has_unheard = [], False
        # Outside of the program: what was made ready, what is in the queues, what has had its effect, what it left.
        self.announced, self.queued, self.ledger, self.stored = set(), set(), set(), {}

    def happens(self, event, phase):
        self.run = self.run.on(event)
        self.history.append(event)
        self.phase = phase

    def refused(self, event):
        before = self.run
        with pytest.raises(IllegalTransition):
            self.run.on(event)
        assert self.run == before

    def call(self, call_id):
        return next(call for call in self.run.calls if call.call_id == call_id)

    @property
    def callers(self):
        """The owed calls that are the caller's own."""
        return {id_ for id_ in self.owed if self.tools[id_] == "mine" and self.call(id_).refusal is None}

    @property
    def to_send(self):
        """The owed calls that whoever owns the run would send."""
        ready = self.owed - self.sent - self.undecided - self.callers
        return {id_ for id_ in ready if self.call(id_).refusal is None}

    def admits(self, call):
        return self.allowance.admits(call) and call.refusal is None

    def announces(self):
        """Whoever owns the run is about to send these."""
        self.announced |= {id_ for id_ in self.to_send if self.tools[id_] == "add" or id_ in self.decided}

    # --- what the model, the workers and people do ----------------------------------------------------------------

    @rule(tools=st.lists(TOOLS, min_size=1, max_size=3), data=st.data())
    def calls_are_complete_before_the_reply_is(self, tools, data):
        event = machine.streamed(tools, self.run.turn, len(self.streamed))
        if self.phase != "thinking":
            self.refused(event)
            return
        self.allowance = self.allowance or Allowance(self.run)
        fresh = self.run.on(event).streamed[len(self.streamed) :]
        # One that is about to be approved or answered elsewhere counts too, and is not sent.
        may_go = [call.call_id for call in fresh if self.admits(call) and call.tool == "add"]
        sending = data.draw(st.sets(st.sampled_from(may_go))) if may_go else set()
        self.happens(event.model_copy(update={"sending": tuple(sorted(sending))}), "thinking")
        self.announced |= sending
        self.streamed += tools

    @precondition(lambda self: self.streamed and self.announced)
    @rule(data=st.data())
    def some_of_them_are_noted_as_sent(self, data):
        known = {call.call_id for call in self.run.streamed if call.is_sending}
        if known:
            sent = data.draw(st.sets(st.sampled_from(sorted(known)), min_size=1))
            self.happens(machine.sent(sorted(sent), []), "thinking")
            self.queued |= sent
            self.early |= sent

    @rule(more=st.lists(TOOLS, max_size=3), is_half=st.booleans(), now_unix_s=CLOCK)
    def the_model_replies(self, more, is_half, now_unix_s):
        tools = self.streamed + ([] if is_half else more)  # no call is taken back
        event = self.run.half_a_reply if self.streamed and is_half else machine.reply_with(tools, self.run.turn)
        if self.phase != "thinking":
            self.refused(event)
            return
        phase = "calling" if tools else "thinking" if self.has_unheard else "waiting" if self.slow else "done"
        self.happens(within_limits(self.run, event, now_unix_s)[0], phase)
        fresh = {f"m.{self.run.turn}.{n}": tool for n, tool in enumerate(tools)}
        self.tools |= fresh
        self.owed = set(fresh)
        self.sent, self.undecided, self.decided, self.direct = self.early, set(), set(), set()
        self.streamed, self.early, self.allowance = [], set(), None
        self.announces()

    @precondition(lambda self: not self.streamed)
    @rule(is_direct=st.booleans())
    def calls_are_noted_as_sent(self, is_direct):
        ready = self.to_send
        held = {id_ for id_ in ready if self.tools[id_] == "ask"} - self.decided
        direct = sorted(ready - held) if is_direct else []
        event = machine.sent(sorted(ready - held), sorted(held), direct)
        if self.phase != "calling":
            self.refused(event)
            return
        self.happens(event, "calling")
        self.sent |= ready - held
        self.queued |= ready - held
        self.undecided |= held
        self.direct |= set(direct)

    @precondition(lambda self: self.announced)
    @rule(data=st.data())
    def a_call_reaches_its_queue(self, data):
        """Before that is noted, after it, or when the run has long ended: its sender may have been held up."""
        self.queued.add(data.draw(st.sampled_from(sorted(self.announced))))

    @precondition(lambda self: self.queued - self.stored.keys())
    @rule(data=st.data())
    def a_worker_has_an_effect(self, data):
        self.ledger.add(data.draw(st.sampled_from(sorted(self.queued - self.stored.keys()))))

    @precondition(lambda self: self.queued - self.stored.keys())
    @rule(data=st.data(), has_failed=st.booleans())
    def a_worker_stores_a_result(self, data, has_failed):
        call_id = data.draw(st.sampled_from(sorted(self.queued - self.stored.keys())))
        if call_id not in self.ledger:
            said = "add was cancelled before it started."
            self.stored[call_id] = Failed(kind=FailureKind.CANCELLED, message=said)
        else:
            self.stored[call_id] = machine.result("failed" if has_failed else "returned")

    @precondition(lambda self: self.owed)
    @rule(data=st.data())
    def calls_come_back(self, data):
        known = {id_: self.stored[id_] for id_ in self.owed & self.sent if id_ in self.stored}
        known |= {id_: call.refusal for id_ in self.owed if (call := self.call(id_)).refusal}
        if not known:
            return
        back = {id_: known[id_] for id_ in data.draw(st.sets(st.sampled_from(sorted(known)), min_size=1))}
        event = CallsBack(results=back, messages=self.run.messages_with(back))
        if self.phase not in {"calling", "parked"}:
            self.refused(event)
            return
        self.happens(event, self.phase_after(back))
        self.owed -= back.keys()
        self.undecided -= back.keys()

    def phase_after(self, back):
        if self.owed - back.keys():
            return self.phase
        last = [call for call in self.run.calls if call.turn == self.run.turn]
        results = [back.get(call.call_id) or call.result for call in last]
        if {call.call_id for call in last} <= self.direct and all(isinstance(each, Returned) for each in results):
            return "thinking" if self.has_unheard else "waiting" if self.slow else "done"
        return "thinking"

    @precondition(lambda self: self.phase == "calling" and self.owed and self.owed <= self.sent)
    @rule()
    def the_model_gets_handles(self):
        self.happens(machine.back(self.run, sorted(self.owed), "submitted"), "thinking")
        self.slow |= self.owed
        self.owed = set()

    # --- whole turns, which single steps would seldom make ----------------------------------------------------------

    @precondition(lambda self: self.phase == "thinking" and not self.streamed)
    @rule()
    def a_turn_ends_with_a_handle(self):
        self.the_model_replies(more=["add"], is_half=False, now_unix_s=machine.BEFORE)
        self.calls_are_noted_as_sent(is_direct=False)
        if self.owed <= self.sent:
            self.the_model_gets_handles()

    @precondition(lambda self: self.phase == "thinking" and not self.streamed)
    @rule()
    def a_turn_ends_with_results_that_are_the_answer(self):
        self.the_model_replies(more=["add"], is_half=False, now_unix_s=machine.BEFORE)
        self.calls_are_noted_as_sent(is_direct=True)
        for call_id in self.owed & self.sent:
            self.ledger.add(call_id)
            self.stored[call_id] = machine.result("returned")
        if self.owed <= self.stored.keys():
            back = {id_: self.stored[id_] for id_ in self.owed}
            event = CallsBack(results=back, messages=self.run.messages_with(back))
            self.happens(event, self.phase_after(back))
            self.owed = set()

    @precondition(lambda self: self.phase == "thinking" and not self.streamed)
    @rule(tools=st.lists(TOOLS, min_size=1, max_size=3), is_direct=st.booleans())
    def calls_are_back_before_it_is_noted_that_they_were_sent(self, tools, is_direct):
        self.the_model_replies(more=tools, is_half=False, now_unix_s=machine.BEFORE)
        ready = {id_ for id_ in self.to_send if self.tools[id_] == "add"}
        if not ready:
            return
        self.queued |= ready
        self.ledger |= ready
        back = dict.fromkeys(sorted(ready), machine.result("returned"))
        self.stored |= back
        direct = sorted(ready) if is_direct else []
        sent = machine.sent(sorted(ready), [], direct)
        event = CallsBack(results=back, messages=self.run.messages_with(back), sent=sent)
        first, second = apart(event)
        assert self.run.on(first).on(second) == self.run.on(event)
        self.direct |= set(direct)
        self.happens(event, self.phase_after(back))
        self.sent |= ready
        self.owed -= ready

    @precondition(lambda self: self.phase == "thinking" and not self.streamed)
    @rule()
    def a_turn_is_for_the_caller(self):
        self.the_model_replies(more=["mine"], is_half=False, now_unix_s=machine.BEFORE)
        self.the_rest_is_handed_over()

    @precondition(lambda self: self.phase == "thinking" and not self.streamed)
    @rule(calls=st.integers(3, 6), are_sent=st.booleans())
    def a_long_reply_streams(self, calls, are_sent):
        self.allowance = Allowance(self.run)
        event = machine.streamed(["add"] * calls, self.run.turn, 0)
        sending = [call.call_id for call in self.run.on(event).streamed if self.admits(call)]
        self.happens(event.model_copy(update={"sending": tuple(sending)}), "thinking")
        self.announced |= set(sending)
        self.streamed = ["add"] * calls
        if are_sent and sending:
            self.happens(machine.sent(sending, []), "thinking")
            self.queued |= set(sending)
            self.early |= set(sending)
            self.ledger.add(sending[-1])

    @rule()
    def only_slow_calls_are_left(self):
        event = machine.parked(sorted(self.owed & self.sent))
        answered_here = {id_ for id_ in self.owed if self.call(id_).refusal} if self.phase == "calling" else set()
        if self.phase != "calling" or self.to_send or answered_here:
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
        assert (self.call(call_id).refusal is None) == granted
        self.announces()

    @rule(interrupt=st.booleans())
    def somebody_says_more(self, interrupt):
        event = machine.said(len(self.said), interrupt=interrupt)
        if self.phase in ENDED:
            self.refused(event)
            return
        denied = self.undecided if interrupt else set()
        phase = "thinking" if self.phase == "waiting" else "calling" if denied else self.phase
        self.happens(event, phase)
        self.said.append(event.messages[0])
        self.has_unheard = True
        self.undecided -= denied
        self.decided |= denied

    @rule()
    def that_is_heard(self):
        if self.phase != "thinking" or self.streamed or not self.has_unheard:
            self.refused(MessagesHeard())
            return
        self.happens(MessagesHeard(), "thinking")
        self.has_unheard = False

    @rule()
    def late_results_are_delivered(self):
        late = {id_: self.stored.get(id_) or machine.result("failed") for id_ in self.slow}
        event = machine.delivered(self.run).model_copy(update={"results": late})
        hands_over = self.phase in {"calling", "parked"} and self.owed and self.owed == self.callers
        if self.phase != "waiting" and not hands_over:
            self.refused(event)
            return
        self.happens(event, self.phase if hands_over else "thinking")
        self.slow = set()

    @rule()
    def the_rest_is_handed_over(self):
        may_be = self.phase in {"calling", "parked"} and self.owed and self.owed == self.callers and not self.slow
        if not may_be:
            self.refused(CallsHandedOver())
            return
        self.happens(CallsHandedOver(), "done")
        self.owed, self.has_unheard = set(), False

    @rule()
    def a_result_of_nobodys_call(self):
        self.refused(
            machine.back(self.run, [], "returned").model_copy(update={"results": {"x.9.9": machine.result("failed")}})
        )

    # --- what happens around it -----------------------------------------------------------------------------------

    @rule(how=st.sampled_from(sorted(machine.STOPS)), data=st.data())
    def it_is_stopped(self, how, data):
        """By anybody, who has looked at what was stored a moment ago."""
        if self.phase in ENDED:
            self.refused(machine.STOPS[how])
            return
        asked = sorted(call.call_id for call in self.run.calls_that_may_have_begun if call.call_id in self.stored)
        seen = data.draw(st.sets(st.sampled_from(asked))) if asked else set()
        results = {id_: self.stored[id_] for id_ in seen}
        self.happens(RunStopped(state=how, reason="because", results=results), how)
        self.tools |= {call.call_id: call.tool for call in self.run.calls}
        self.owed, self.undecided, self.slow = set(), set(), self.slow - seen
        self.streamed, self.early, self.allowance = [], set(), None
        self.has_unheard = False
        # What a person has not decided, or nobody has begun to send, nobody sends any more.

    @rule()
    def another_orchestrator_takes_it(self):
        if self.phase in ENDED:
            self.refused(machine.ADOPTED)
        else:
            self.happens(machine.ADOPTED, self.phase)

    @rule()
    def it_is_resumed(self):
        if self.phase in ENDED:
            self.happens(machine.RESUMED, "thinking")
        else:
            self.refused(machine.RESUMED)

    # --- what must always hold ------------------------------------------------------------------------------------

    @invariant()
    def what_was_said_stands_there_once_in_its_order(self):
        spoken = [each for each in (*self.run.messages, *self.run.unheard) if machine.is_said(each)]
        assert spoken == self.said
        assert bool(self.run.unheard) is self.has_unheard

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
    def what_a_message_says_of_its_call_agrees_with_the_ledger(self):
        for call_id, said in machine.told(self.run).items():
            if any(words in said for words in ("was not called", "was not allowed", "before it started")):
                assert call_id not in self.ledger, said
            elif said == machine.result("returned").content:
                assert call_id in self.ledger, said
            elif self.tools[call_id] != "mine":
                assert said == "no" or "may or may not" in said or "task_id" in said, said

    @invariant()
    def what_has_happened_is_in_the_history(self):
        known = {call.call_id for call in (*self.run.calls, *self.run.streamed)}
        assert self.ledger <= known
        if self.phase in ENDED:
            assert self.ledger <= machine.told(self.run).keys()

    @invariant()
    def no_more_is_sent_than_the_limits_allow(self):
        limits, recent = self.run.terms.limits, [*self.run.recent_calls, *self.run.streamed]
        made = [call.tool for call in recent if call.call_id in self.announced | self.queued]
        assert len(made) <= limits.calls
        assert max(map(made.count, made), default=0) <= limits.calls_per_tool

    @invariant()
    def it_is_never_done_with_a_result_undelivered(self):
        assert self.phase != "done" or not self.run.open_slow_calls

    @invariant()
    def what_is_kept_of_its_calls_and_messages_is_what_they_say(self):
        run = self.run
        assert run.tally == Tally.of(run.messages, run.calls, run.turns_before)

    @invariant()
    def the_stored_history_tells_the_same_run(self):
        stored = [RUN_EVENT.validate_json(RUN_EVENT.dump_json(event)) for event in self.history]
        told = Run.start(stored[0])
        for event in stored[1:]:
            told = told.on(event)
        assert told == self.run


TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
