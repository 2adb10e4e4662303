"""The matrix of losses is whole: what is not in it has a reason, and what was not reached is said."""

from itertools import product

from tests.faults.arena import Form
from tests.faults.cells import PLACES, Cell, Party, Stage, Way, all_cells, coverage, missing_ways, stages, tool_of
from tests.faults.lost_tools import __dict__ as tools
from tests.faults.of_losses import LOSSES
from tests.faults.suite import FAULTS_OF_THE_MATRIX, PARTS, chosen
from toolfleet.calls import Effect
from toolfleet.workers.pool_presets import KINDS, POOLS

EVERY = LOSSES.values()


def test_everybody_is_lost_in_two_ways_of_each_kind_or_there_is_a_reason():
    assert all(missing_ways(EVERY).values())
    assert set(missing_ways(EVERY)) == {(Party.WORKER, Way.ROLLED_BACK), (Party.ORCHESTRATOR, Way.ROLLED_BACK)}


def test_every_preset_and_every_kind_of_pool_has_a_place():
    assert PLACES.keys() >= POOLS.keys()
    assert {place.kind for place in PLACES.values()} == KINDS.keys()


def test_a_combination_is_either_tried_or_has_a_reason():
    possible, cannot = all_cells(EVERY)
    whole = {Cell(*parts) for parts in product(LOSSES, PLACES, Effect, Stage)}
    assert possible
    assert set(possible) | cannot.keys() == whole
    assert not set(possible) & cannot.keys()
    assert all(cannot.values())


def test_each_place_and_effect_has_its_tool():
    for place, effect in product(PLACES.values(), Effect):
        spec = tools[tool_of(place, effect)].spec
        assert (spec.effect, spec.queue, spec.long_running) == (effect, place.name, place.long_running)


def test_the_long_form_comes_to_every_stage_twice_and_the_days_come_to_each_of_them_once():
    assert [stages(1, 6).count(stage) for stage in Stage] == [2, 2, 2]
    met = set()
    for turn in range(PARTS * len(Stage)):
        for fault in chosen([], Form.ONCE, turn):
            if fault.name in FAULTS_OF_THE_MATRIX:
                [stage] = stages(turn + FAULTS_OF_THE_MATRIX.index(fault.name), 1)
                met.add((fault.name, stage))
    assert met == set(product(FAULTS_OF_THE_MATRIX, Stage))


def test_what_was_not_covered_is_told_apart():
    lost = [LOSSES["child_killed"]]
    possible, cannot = all_cells(lost)
    reached, missed, *others = possible
    covered = coverage(lost, [(reached, True), (reached, False), (missed, False)])
    assert covered.reached == {reached: 1}
    assert covered.never_reached == [missed]
    assert covered.not_chosen == others
    assert covered.impossible == cannot
    said = "\n".join(covered.lines())
    assert f"1 of {len(possible)} cells reached, 1 never reached" in said
    assert f"never reached: child_killed / {missed.place} / {missed.effect} / {missed.stage}" in said
    assert "there is no child to lose" in said
    assert covered.figures()["never_reached"] == [str(missed)]
