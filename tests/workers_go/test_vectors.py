"""The worker in Go reads the published vectors as the contract says (X1), by tests of its own in Go."""

from tests.workers_go.building import check


def test_X1_the_seal_in_go_agrees_on_all_vectors():
    check()
