"""Every fault once, and today's part of the matrix. `make faults` makes them happen often enough to be believed."""

import pytest

from tests.faults.arena import FAULTS, Form, Suffered
from tests.faults.cells import coverage
from tests.faults.load import IN_GO, IN_NODE, MIXED, OVER_HTTPS
from tests.faults.of_losses import LOSSES, STAND
from tests.faults.suite import OF_STEERING, chosen, of_today, suffer

EACH_DAY = [name for name, fault in FAULTS.items() if fault.stand != STAND and name not in OF_STEERING]


@pytest.fixture(scope="module")
def suffered() -> dict[str, Suffered]:
    """All of them, on two fleets at the same time: most of what they take is waiting."""
    turn = of_today()
    faults = [fault for fault in chosen([], Form.ONCE, turn) if fault.name not in OF_STEERING]
    return {each.fault.name: each for each in suffer(faults, Form.ONCE, "toolfleet", lambda _: None, 2, turn)}


@pytest.mark.timeout(300)  # the first of these tests waits for all faults
@pytest.mark.parametrize("name", EACH_DAY)
def test_no_call_is_lost_repeated_or_mistaken_when(suffered, name):
    tally = suffered[name].tally()
    assert tally.is_clean, f"{tally.last_line()}\n" + "\n".join(tally.notes)
    assert tally.injected
    assert tally.calls


@pytest.mark.timeout(300)
def test_X3_workers_in_python_typescript_and_go_are_killed_and_nothing_is_lost_repeated_or_mistaken(suffered):
    mixed = suffered["three_languages"]
    tally = mixed.tally()
    assert (tally.lost, tally.duplicated, tally.mispaired, tally.unfinished) == (0, 0, 0, 0), tally.notes
    assert tally.injected >= 6
    assert {ask.tool for ask in mixed.load.asks} == {*MIXED, *IN_NODE, *IN_GO}


@pytest.mark.timeout(300)
def test_X5_a_worker_over_https_that_is_cut_off_for_two_thirds_of_a_lease_keeps_its_calls(suffered):
    cut_off = suffered["cut_off_over_https"]
    tally = cut_off.tally()
    assert (tally.lost, tally.duplicated, tally.mispaired, tally.unfinished, tally.in_doubt) == (0, 0, 0, 0, 0)
    assert tally.injected
    assert {ask.tool for ask in cut_off.load.asks} == set(OVER_HTTPS)


@pytest.mark.timeout(300)
def test_no_loss_of_todays_part_of_the_matrix_breaks_a_promise(suffered):
    of_the_matrix = [each for name, each in suffered.items() if name not in EACH_DAY]
    broken = {each.fault.name: each.tally().notes for each in of_the_matrix if not each.tally().is_clean}
    assert not broken, (
        f"`python -m tests.faults --once --turn {of_today()} --only NAME` makes one happen again: {broken}"
    )
    asks = [ask for each in of_the_matrix for ask in each.load.asks]
    covered = coverage(LOSSES.values(), [(ask.cell, ask.stood) for ask in asks])
    assert covered.reached
    assert not covered.never_reached
