"""What the ledger says against what was told: each lie is found, and what is documented is counted apart."""

import pytest

from tests.faults.cells import Cell, Stage
from tests.faults.judge import EXPIRED, IN_DOUBT, RETURNED, Ask, done_mark, judge
from tests.faults.limits_ledger import BEGINS, ENDS, Line, most_at_once, most_in_a_second
from tests.faults.of_questions import several_answers
from tests.faults.steered_tools import answered
from toolfleet.calls import Effect

NONCE = "n1"
BEGUN = {NONCE: ["call"]}
BEGUN_TWICE = {NONCE: ["call", "call"]}
DONE = {done_mark(NONCE): ["call"]}


def tally_of(entries, *, outcome=RETURNED, once=True, expects=(RETURNED, IN_DOUBT), content=NONCE, **about):
    ask = Ask(
        nonce=NONCE,
        tool="pay",
        arguments="{}",
        once=once,
        expects=frozenset(expects),
        cell=Cell("server_killed", "io", Effect.ONCE, Stage.BEGUN),
        **about,
    )
    ask.call_id, ask.outcome, ask.content = "call", outcome, content
    return judge([ask], entries, [])


def test_a_call_that_began_once_and_is_told_as_done_is_clean():
    assert tally_of(BEGUN | DONE).is_clean


def test_a_call_in_doubt_that_never_began_is_clean():
    tally = tally_of({}, outcome=IN_DOUBT)
    assert tally.is_clean
    assert tally.in_doubt == 1


@pytest.mark.parametrize(
    ("entries", "told", "counts"),
    [
        (BEGUN, {}, {"mispaired": 1}),
        ({}, {}, {"lost": 1, "mispaired": 1}),
        (BEGUN_TWICE | DONE, {}, {"duplicated": 1}),
        (BEGUN_TWICE, {"outcome": IN_DOUBT}, {"duplicated": 1}),
        (BEGUN | DONE, {"content": "n2"}, {"mispaired": 1}),
        (BEGUN | DONE, {"outcome": "cancelled"}, {"lost": 1}),
        (BEGUN | DONE, {"outcome": IN_DOUBT, "expects": [RETURNED]}, {"lost": 1}),
        (
            BEGUN,
            {"outcome": EXPIRED, "content": "it has had no effect", "forgotten": True},
            {"lost": 1, "mispaired": 1},
        ),
        (BEGUN, {"outcome": ""}, {"unfinished": 1}),
    ],
)
def test_what_is_told_against_the_ledger_is_counted(entries, told, counts):
    tally = tally_of(entries, **told)
    found = {name: getattr(tally, name) for name in ("lost", "duplicated", "mispaired", "unfinished")}
    assert {name: count for name, count in found.items() if count} == counts
    assert not tally.is_clean


def test_a_second_effect_of_what_the_server_forgot_is_counted_as_not_promised():
    tally = tally_of(BEGUN_TWICE | DONE, forgotten=True)
    assert tally.is_clean
    assert tally.not_promised == 1


def test_what_may_be_repeated_and_was_is_clean():
    tally = tally_of(BEGUN_TWICE | DONE, once=False, forgotten=True)
    assert (tally.is_clean, tally.not_promised) == (True, 0)


def ledger(*lines):
    return [Line(what, "narrow", nonce, at_s) for what, nonce, at_s in lines]


def test_calls_that_run_at_once_are_counted_and_one_that_begins_again_is_one():
    a, b = "a", "b"
    lost_and_again = ledger((BEGINS, a, 0.0), (BEGINS, a, 1.0), (ENDS, a, 2.0), (BEGINS, b, 3.0))
    assert most_at_once(lost_and_again, "narrow") == 1
    assert most_at_once(ledger((BEGINS, a, 0.0), (BEGINS, b, 1.0), (ENDS, a, 2.0)), "narrow") == 2
    assert most_at_once(lost_and_again, "another") == 0


def test_starts_within_any_second_are_counted_and_each_call_begins_once():
    begun = ledger(*((BEGINS, str(n), 0.3 * n) for n in range(10)), (BEGINS, "3", 2.8))
    assert most_in_a_second(begun, "narrow") == 4
    assert most_in_a_second(ledger((BEGINS, "a", 0.0), (BEGINS, "b", 1.0)), "narrow") == 1


@pytest.mark.parametrize(
    ("words", "taken", "content", "wrong"),
    [
        (["ann"], ["ann"], "n1 ann", 0),
        (["ghost"], [], "n1 ghost", 0),
        ([], [], "", 0),
        (["ann", "bob"], ["ann"], "n1 ann", 3),
        (["ann"], ["ann", "bob"], "n1 ann", 1),
        (["ann"], ["bob"], "n1 ann", 1),
        (["ann"], ["ann"], "n1 bob", 1),
    ],
)
def test_a_question_with_two_answers_or_another_than_the_one_that_counts_is_found(words, taken, content, wrong):
    ask = Ask("n1", "ask_once", "{}", once=True, expects=frozenset({RETURNED}))
    ask.outcome, ask.content = RETURNED if content else IN_DOUBT, content
    entries = ["n1", *(answered("n1", word) for word in words), answered("n2", "other")]
    assert len(several_answers([ask], entries, {"n1": taken})) == wrong
