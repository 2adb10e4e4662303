"""Two halves with different secrets would never believe each other: whoever comes second says so, and does not wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.cli.command import Terminal, ended, interrupted, read_until
from toolfleet.calls import Returned
from toolfleet.connections import connect
from toolfleet.errors import OtherSecret
from toolfleet.exit_status import ExitStatus
from toolfleet.keys import REVOKED
from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.fleet import LocalFleet
from toolfleet.membership import must_be_in_step, must_be_ours, must_be_welcome, next_step
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


@pytest.mark.parametrize("mine", range(4))
@pytest.mark.parametrize("other", range(4))
def test_only_neighbouring_stages_may_come_together(mine: int, other: int) -> None:
    """Strangers are another matter: they cannot be told from what somebody made up."""
    members = {"a": seal(STAGES[mine]).proofs("a"), "b": seal(STAGES[other]).proofs("b")}
    if abs(mine - other) == 2:
        with pytest.raises(OtherSecret, match="b: one step of changing the secret behind or ahead of this process"):
            must_be_in_step(members, seal(STAGES[mine]))
    else:
        must_be_in_step(members, seal(STAGES[mine]))


NEXT = [
    ((0, [0, 0]), "all have secret {old}. To change it: accept"),
    ((1, [0, 1]), "accept: not everybody has both secrets, so nobody may sign with a new one: restart m0"),
    ((1, [1, 1]), "all sign with {old} and accept {new}. If {old} is the old one, sign: exchange the two"),
    ((2, [1, 2]), "sign: restart m0 with {new} as TOOLFLEET_SECRET and {old} as the previous one"),
    ((2, [2, 2]), "all sign with {new} and accept {old}"),
    ((2, [2, 3]), "accept: not everybody has both secrets"),
    ((3, [3, 2]), "all have secret {new}"),
    ((3, []), "no process is live"),
]


@pytest.mark.parametrize(("stages", "expected"), NEXT)
def test_what_a_change_needs_next_is_said_and_no_secret_with_it(stages, expected: str) -> None:
    mine, others = stages
    members = {f"m{at}": seal(STAGES[stage]).proofs(f"m{at}") for at, stage in enumerate(others)}
    said = next_step(members, seal(STAGES[mine]))
    ids = {"old": seal(STAGES[0]).key_ids()[0], "new": seal(STAGES[3]).key_ids()[0]}
    assert said.startswith(expected.format(**ids))
    assert OLD not in said
    assert NEW not in said


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


def test_where_each_process_stands_is_shown(fleet: LocalFleet, others: Terminal) -> None:
    shown = others.run("secret", TOOLFLEET_SECRET=NEW, TOOLFLEET_PREVIOUS_SECRET=OLD)
    old, new = seal(STAGES[0]).key_ids()[0], seal(STAGES[3]).key_ids()[0]
    worker, said = shown.out.splitlines()
    assert worker.split("\t")[1:] == [new, old]
    assert said.startswith(f"all sign with {new} and accept {old}")
    told = json.loads(others.run("secret", "--json", TOOLFLEET_SECRET=NEW).out)
    assert list(told["processes"].values()) == [[new, "?"]]
    assert told["own"] == [new]
    assert not {OLD, NEW} & set(shown.out.split())


def test_what_only_the_previous_secret_opens_is_counted(fleet: LocalFleet, others: Terminal) -> None:
    keys, before = fleet.settings.keys, seal(STAGES[0])
    kept = {
        keys.result("r.1.0"): before.close_result(Returned(content="x"), "r.1.0"),
        keys.arguments("r.1.0"): before.close_kept(b"{}", keys.arguments("r.1.0")),
        keys.handle("h"): before.close_kept(b"{}", keys.handle("h")),
        keys.artifact_grant("r", "a" * 64): before.close_grant(b"text/plain", "r", "a" * 64),
    }
    with connect(fleet.settings) as client:
        client.mset(kept)
        client.hset(keys.api_keys(), "d", before.close_api_key(b"{}", "d"))
        client.hset(keys.api_keys(), REVOKED, before.close_api_key(b"{}", REVOKED))
        try:
            shown = others.run("secret", TOOLFLEET_SECRET=NEW, TOOLFLEET_PREVIOUS_SECRET=OLD).out
        finally:
            client.delete(*kept, keys.api_keys())
    old = before.key_ids()[0]
    said = f"stored under {old}: "
    counted = [line.removeprefix(said) for line in shown.splitlines() if line.startswith(said)]
    kinds = ["API keys", "grants of artifacts", "handles", "results", "revocations of API keys", "secret arguments"]
    assert counted == [f"1 {kind}" for kind in kinds]


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
