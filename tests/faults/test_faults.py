"""Every fault once, and today's part of the matrix. `make faults` makes them happen often enough to be believed."""

import pytest

from tests.faults.arena import FAULTS, Form, Suffered
from tests.faults.cells import coverage
from tests.faults.load import IN_GO, IN_NODE, MIXED, OVER_HTTPS
from tests.faults.of_losses import LOSSES, STAND
from tests.faults.suite import chosen, of_today, suffer

EACH_DAY = [name for name, fault in FAULTS.items() if fault.stand != STAND]


@pytest.fixture(scope="module")
def suffered() -> dict[str, Suffered]:
    """All of them, on two fleets at the same time: most of what they take is waiting."""
    turn = of_today()
    faults = chosen([], Form.ONCE, turn)
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


def broken(suffered, *names):
    """What was broken by these faults, or why they did not happen."""
    tallies = {name: suffered[name].tally() for name in names}
    return {
        name: tally.notes or tally.last_line()
        for name, tally in tallies.items()
        if not (tally.is_clean and tally.injected and tally.calls)
    }


@pytest.mark.timeout(300)
def test_U1_calls_in_the_background_are_made_once_and_told_once_when_an_orchestrator_is_killed(suffered):
    assert not broken(suffered, "background_orchestrator_killed")


@pytest.mark.timeout(300)
def test_U2_what_people_say_is_heard_once_when_orchestrators_and_the_server_are_killed(suffered):
    assert not broken(
        suffered,
        "orchestrator_killed_while_its_runs_are_told_things",
        "told_server_killed",
        "interrupted_orchestrator_killed",
    )


@pytest.mark.timeout(300)
def test_U3_one_answer_counts_for_all_whoever_is_killed_around_it(suffered):
    assert not broken(
        suffered, "asking_worker_killed", "asking_orchestrator_killed", "answerer_killed", "asking_server_killed"
    )


@pytest.mark.timeout(300)
def test_U5_calls_run_in_the_version_that_their_run_began_with_when_its_worker_is_killed(suffered):
    assert not broken(suffered, "versions_worker_killed")


@pytest.mark.timeout(300)
def test_U6_a_broken_version_is_taken_back_though_orchestrators_are_killed(suffered):
    assert not broken(suffered, "share_orchestrator_killed")


@pytest.mark.timeout(300)
def test_U7_a_fork_that_is_asked_for_twice_while_the_server_is_killed_is_one_run(suffered):
    assert not broken(suffered, "forking_server_killed")


@pytest.mark.timeout(300)
def test_U10_each_tick_is_one_run_and_each_sleep_is_slept_whoever_is_killed(suffered):
    assert not broken(
        suffered,
        "schedules_orchestrator_killed",
        "schedules_server_killed",
        "sleeping_worker_killed",
        "sleeping_server_killed",
    )


@pytest.mark.timeout(300)
def test_U11_the_end_of_each_run_is_told_under_one_id_whoever_is_killed_or_down(suffered):
    assert not broken(suffered, "webhooks_sender_killed", "webhooks_receiver_down", "webhooks_server_killed")


@pytest.mark.timeout(300)
def test_U12_a_message_that_is_sent_again_to_the_next_server_is_the_same_task(suffered):
    assert not broken(suffered, "doors_server_killed")


@pytest.mark.timeout(300)
def test_U13_a_request_that_is_sent_again_to_the_next_server_is_the_same_run(suffered):
    assert not broken(suffered, "doors_server_killed")


@pytest.mark.timeout(300)
def test_U14_what_a_tool_yields_is_of_one_attempt_when_its_worker_is_killed(suffered):
    assert not broken(suffered, "yielding_worker_killed")


@pytest.mark.timeout(300)
def test_U16_each_use_of_a_hosted_loop_is_one_call_and_one_result_when_its_process_is_killed(suffered):
    assert not broken(suffered, "hosted_loop_killed")


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
