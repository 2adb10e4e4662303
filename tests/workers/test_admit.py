"""Who may start, decided in one place: a table of deliveries and what becomes of each."""

import pytest

from toolfleet.calls import Effect, FailureKind, ToolCall
from toolfleet.keys import CLOCKS_APART_S
from toolfleet.settings import Settings, new_secret
from toolfleet.wire import Seal
from toolfleet.workers.delivery.admit import Admitted, Ended, Unbelievable, Unresolved, admit
from toolfleet.workers.delivery.message import Delivery

SETTINGS = Settings(secret=new_secret())
SEAL = Seal(SETTINGS)
DEADLINE = 1000.0
CALL = ToolCall(call_id="r.1.0", run_id="r", tool="add", arguments="{}", deadline_unix_s=DEADLINE, reply_to="o")


def delivered(call=CALL, *, mac=None, text=None, **facts):
    sealed_text, sealed_mac = SEAL.close_call(call)
    given = {"task_id": "r.1.0", "task": "add", "text": text or sealed_text, "mac": mac or sealed_mac}
    return Delivery(**given | facts)


def decide(delivery, effect=Effect.READ_ONLY, *, now=0.0, max_deliveries=3, **options):
    return admit(delivery, effect, SEAL, now_unix_s=now, max_deliveries=max_deliveries, **options)


@pytest.mark.parametrize("effect", Effect)
def test_a_first_delivery_is_admitted(effect):
    decision = decide(delivered(), effect)
    assert isinstance(decision, Admitted)
    assert decision.call == CALL


@pytest.mark.parametrize(
    ("effect", "claimed_s", "must_claim"),
    [
        (Effect.ONCE, 0.0, True),
        (Effect.ONCE, DEADLINE + CLOCKS_APART_S, False),
        (Effect.ONCE, DEADLINE + CLOCKS_APART_S - 1, True),
        (Effect.IDEMPOTENT, 0.0, False),
        (Effect.READ_ONLY, 0.0, False),
    ],
)
def test_only_an_effect_that_must_not_repeat_is_claimed_beyond_its_deadline_and_only_once(
    effect, claimed_s, must_claim
):
    assert decide(delivered(stream="s", claimed_s=claimed_s), effect).must_claim is must_claim


@pytest.mark.parametrize("facts", [{"stream": ""}, {"returned": True}, {"first_id": "1-0"}])
def test_a_claim_of_which_it_is_not_known_when_it_was_made_is_made_anew(facts):
    given = {"stream": "s", "claimed_s": DEADLINE + CLOCKS_APART_S} | facts
    assert decide(delivered(**given), Effect.ONCE).must_claim


ENDS = {
    "an_effect_may_have_begun": (Effect.ONCE, 2, 0.0, FailureKind.IN_DOUBT),
    "an_effect_may_have_begun_long_ago": (Effect.ONCE, 9, 2000.0, FailureKind.IN_DOUBT),
    "it_was_lost_too_often": (Effect.READ_ONLY, 4, 0.0, FailureKind.CRASHED),
    "it_was_lost_too_often_and_is_late": (Effect.IDEMPOTENT, 4, 2000.0, FailureKind.CRASHED),
    "its_deadline_has_come": (Effect.READ_ONLY, 1, DEADLINE, FailureKind.EXPIRED),
    "its_deadline_has_passed": (Effect.ONCE, 1, 2000.0, FailureKind.EXPIRED),
}


@pytest.mark.parametrize(("effect", "deliveries", "now", "kind"), ENDS.values(), ids=ENDS)
def test_a_call_that_must_not_start_ends_with_the_reason(effect, deliveries, now, kind):
    decision = decide(delivered(deliveries=deliveries), effect, now=now)
    assert isinstance(decision, Ended)
    assert decision.result.kind is kind
    assert decision.result.message.startswith("add ")
    assert decision.dead_letter is (kind is FailureKind.CRASHED)


@pytest.mark.parametrize("deliveries", [1, 2, 3])
def test_a_repeatable_call_is_admitted_as_often_as_allowed(deliveries):
    assert isinstance(decide(delivered(deliveries=deliveries)), Admitted)


def test_what_expired_while_it_waited_does_not_start_whatever_the_worker_takes_the_time_for():
    decision = decide(delivered(expired=True), now=DEADLINE - 5)
    assert isinstance(decision, Ended)
    assert decision.result.kind is FailureKind.EXPIRED


def test_it_is_admitted_until_the_last_moment():
    assert isinstance(decide(delivered(), now=DEADLINE - 0.001), Admitted)


UNBELIEVABLE = {
    "unsigned": {"mac": "0" * 64},
    "altered": {"text": '{"v":1}'},
    "no_text": {"text": {"a": 1}},
    "no_mac": {"mac": 5},
    "of_another_tool": {"task": "subtract"},
    "of_another_call": {"task_id": "r.1.1"},
    "too_large": {"text": "x" * (SETTINGS.max_message_bytes + 1)},
}


@pytest.mark.parametrize("facts", UNBELIEVABLE.values(), ids=UNBELIEVABLE)
@pytest.mark.parametrize("deliveries", [1, 9])
def test_what_cannot_be_believed_is_nobodys_call_however_often_it_comes(facts, deliveries):
    assert isinstance(decide(delivered(deliveries=deliveries, **facts), now=2000.0), Unbelievable)


def test_trust_is_checked_before_anything_that_the_text_says():
    forged = CALL.model_copy(update={"deadline_unix_s": 0.0}).model_dump_json()
    assert decide(delivered(text=forged), now=2000.0) == Unbelievable("unsigned or altered")


ONCE_MORE = {"deliveries": 2, "stream": "s", "entry_id": "1-0", "consumer": "c", "claimed_s": 9000.0}


@pytest.mark.parametrize("facts", [{}, {"claimed_s": 0.0}, {"deliveries": 3}])
def test_an_effect_that_may_have_begun_is_claimed_and_asked_about_where_the_tool_can_tell(facts):
    delivery = delivered(**ONCE_MORE | facts)
    assert decide(delivery, Effect.ONCE, reconciles=True) == Unresolved(CALL, must_claim=True)


@pytest.mark.parametrize(
    ("facts", "now"),
    [({"stream": ""}, 0.0), ({"deliveries": 4}, 0.0), ({}, DEADLINE)],
    ids=["the_first_attempt_may_still_run", "asking_was_fatal_too_often", "there_is_no_time_left"],
)
def test_an_effect_is_in_doubt_where_asking_would_not_help(facts, now):
    decision = decide(delivered(**ONCE_MORE | facts), Effect.ONCE, now=now, reconciles=True)
    assert decision.result.kind is FailureKind.IN_DOUBT


def test_a_repeatable_call_is_repeated_and_not_asked_about():
    assert decide(delivered(**ONCE_MORE), Effect.IDEMPOTENT, reconciles=True) == Admitted(CALL, must_claim=False)
