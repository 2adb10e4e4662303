"""A part of the faults of what people steer, another one each day. `make faults` makes all happen, and often."""

from tests.faults.arena import Form
from tests.faults.suite import chosen, of_today, steered_of, suffer


def test_nothing_of_todays_part_of_what_people_steer_is_lost_repeated_or_mistaken():
    turn = of_today()
    suffered = suffer(chosen(steered_of(turn), Form.ONCE, turn), Form.ONCE, "toolfleet", lambda _: None, 1, turn)
    assert len(suffered) == len(steered_of(turn)) > 1
    tallies = {each.fault.name: each.tally() for each in suffered}
    broken = {
        name: [tally.last_line(), *tally.notes]
        for name, tally in tallies.items()
        if not (tally.is_clean and tally.injected and tally.calls)
    }
    assert not broken, f"`python -m tests.faults --once --turn {turn} --only NAME` makes one happen again"
