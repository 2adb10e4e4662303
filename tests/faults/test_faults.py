"""Every fault once. `make faults` makes them happen as often as it takes to believe it."""

import pytest

from tests.faults.arena import FAULTS, Form, Suffered
from tests.faults.suite import chosen, suffer


@pytest.fixture(scope="module")
def suffered() -> dict[str, Suffered]:
    """All of them, on two fleets at the same time: most of what they take is waiting."""
    return {each.fault.name: each for each in suffer(chosen([]), Form.ONCE, "toolfleet", lambda _: None, lanes=2)}


@pytest.mark.timeout(300)  # the first of these tests waits for all faults
@pytest.mark.parametrize("name", FAULTS)
def test_no_call_is_lost_repeated_or_mistaken_when(suffered, name):
    tally = suffered[name].tally()
    assert tally.is_clean, f"{tally.last_line()}\n" + "\n".join(tally.notes)
    assert tally.injected
    assert tally.calls
