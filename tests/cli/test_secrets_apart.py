"""Two halves with different secrets would never believe each other: whoever comes second says so, and does not wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.cli.command import Terminal, ended, interrupted, read_until
from toolfleet.errors import OtherSecret
from toolfleet.exit_status import ExitStatus
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.fleet import LocalFleet
from toolfleet.membership import must_be_ours, must_be_welcome
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings, new_secret, read_settings
from toolfleet.wire import Seal

ARITHMETIC = "toolfleet.workers.packs.arithmetic"
QUESTION = "What is the square root of 475695037565?"
OLD, NEW = new_secret(), new_secret()
WRONG = "uses another TOOLFLEET_SECRET than this process: set the same one everywhere"


# --- who trusts whom -------------------------------------------------------------------------------------------------

CHANGE = [{"secret": OLD}, {"secret": OLD, "previous_secret": NEW}, {"secret": NEW, "previous_secret": OLD}]
STAGES = [*CHANGE, {"secret": NEW}]
"""How a secret is changed: neighbours must get on with each other at any time."""


def seal(stage: dict[str, str]) -> Seal:
    return Seal(Settings(redis_url="redis://127.0.0.1", **stage))


@pytest.mark.parametrize("mine", range(4))
@pytest.mark.parametrize("other", range(4))
def test_neighbouring_stages_of_a_change_trust_each_other_and_no_others_do(mine: int, other: int) -> None:
    trust = seal(STAGES[mine]).trust("io@host", seal(STAGES[other]).proofs("io@host"))
    assert trust.is_mutual == (abs(mine - other) <= 1)
    assert trust.is_none == (abs(mine - other) == 3)


def test_proofs_hold_for_one_member_only_and_without_any_nobody_is_trusted() -> None:
    mine = seal(STAGES[0])
    assert mine.trust("cpu@host", mine.proofs("io@host")).is_none
    assert mine.trust("io@host", ()).is_none


def test_with_one_of_ours_among_strangers_we_go_on_and_know_the_strangers() -> None:
    mine, theirs = seal(STAGES[0]), seal(STAGES[3])
    members = {"a": mine.proofs("a"), "b": theirs.proofs("b")}
    assert must_be_ours(members, mine) == ["b"]
    must_be_welcome(members, mine)
    with pytest.raises(OtherSecret, match="a and b use another TOOLFLEET_SECRET than this process"):
        must_be_ours(members, seal({"secret": new_secret()}))


# --- real processes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    """A fleet in the midst of a change: signs with the new secret, accepts the old one."""
    with LocalFleet([ARITHMETIC], pools={"io": 1}, secret=NEW, previous_secret=OLD) as running:
        yield running


@pytest.fixture
def others(fleet: LocalFleet, terminal: Terminal) -> Terminal:
    """A terminal that has neither of the fleet's secrets."""
    terminal.variables.update(TOOLFLEET_REDIS_URL=fleet.settings.redis_url, TOOLFLEET_SECRET=new_secret())
    return terminal


COMMANDS = {
    "run": ("run", QUESTION),
    "detached_run": ("run", "--detach", QUESTION),
    "orchestrator": ("orchestrator",),
    "serve": ("serve", "--port", "0"),
    "worker": ("worker", "--import", ARITHMETIC),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_whoever_comes_with_another_secret_is_told_which_worker_has_which(others: Terminal, command) -> None:
    refused = others.run(*command)
    assert WRONG in refused.complaint()
    assert "io1-" in refused.complaint()
    assert refused.code == ExitStatus.CONFIGURATION


def test_nothing_that_others_announce_is_shown_but_a_warning(others: Terminal) -> None:
    shown = others.run("tools", "--json")
    assert WRONG in shown.err
    assert shown.code == 0
    assert json.loads(shown.out) == []


def test_in_the_midst_of_a_change_runs_are_answered(others: Terminal) -> None:
    changing = {"TOOLFLEET_SECRET": OLD, "TOOLFLEET_PREVIOUS_SECRET": NEW}
    assert "689706" in others.run("run", QUESTION, **changing).out
    changed = {"TOOLFLEET_SECRET": NEW}
    assert "689706" in others.run("run", QUESTION, **changed).out


def test_who_signs_as_the_workers_do_and_is_not_believed_hears_of_it_too(fleet: LocalFleet) -> None:
    behind = read_settings(redis_url=fleet.settings.redis_url, secret=OLD)

    async def entered() -> None:
        async with Orchestrator(settings=behind):
            pass

    with pytest.raises(OtherSecret):
        asyncio.run(entered())


def test_a_worker_that_comes_to_an_orchestrator_with_another_secret_does_not_take_its_calls(terminal: Terminal) -> None:
    with EmbeddedServer(temporary=True) as server:
        terminal.variables.update(TOOLFLEET_REDIS_URL=server.url, TOOLFLEET_SECRET=OLD)
        with terminal.start("orchestrator") as waiting:
            read_until(waiting, "Ready.")
            with terminal.start("worker", "--import", ARITHMETIC, TOOLFLEET_SECRET=NEW) as worker:
                refused = ended(worker)
            assert WRONG in refused.complaint()
            assert refused.code == ExitStatus.CONFIGURATION
            assert interrupted(waiting).code == 0
