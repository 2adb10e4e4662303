"""Some of the faults of what people steer, once each. `make faults` makes all of them happen, and often."""

from tests.faults.arena import Form
from tests.faults.suite import SHORT_OF_STEERING, chosen, suffer


def test_nothing_that_people_say_to_runs_is_lost_repeated_or_mistaken_whoever_is_killed():
    suffered = suffer(chosen(SHORT_OF_STEERING, Form.ONCE), Form.ONCE, "toolfleet", lambda _: None)
    tallies = {each.fault.name: each.tally() for each in suffered}
    assert tallies.keys() == set(SHORT_OF_STEERING)
    broken = {
        name: [tally.last_line(), *tally.notes]
        for name, tally in tallies.items()
        if not (tally.is_clean and tally.injected and tally.calls)
    }
    assert not broken, broken
