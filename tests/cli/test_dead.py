"""`toolfleet dead`: what no worker could handle is listed, shown, put back once it is mended, and dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from post import Post

from tests.cli.command import Ended, Terminal
from toolfleet.calls import Failed, FailureKind, Returned, ToolCall
from toolfleet.local.fleet import LocalFleet

TOOLS = """
import os
import signal
from pathlib import Path
from toolfleet import tool

@tool(read_only=True, queue="cpu", blocking="process")
def poison(remedy: str) -> str:
    "Kill the process that runs this, until a remedy lies on the disk."
    if not Path(remedy).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return Path(remedy).read_text()

@tool(queue="cpu")
def pay(ledger: str) -> str:
    "Pay once more."
    with open(ledger, "a") as book:
        book.write("paid ")
    return "paid"
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalFleet, Terminal]]:
    """A fleet that gives a call up with its first lost worker, and a terminal that reaches it."""
    terminal = Terminal(tmp_path_factory.mktemp("fleet"))
    terminal.write("risky", TOOLS)
    here = {"PYTHONPATH": str(terminal.folder)}
    with LocalFleet(
        ["risky"], pools={"cpu": 1}, environment=here, max_deliveries=1, lease_s=3, heartbeat_s=0.5
    ) as fleet:
        yield fleet, replace(terminal, variables=fleet.settings.as_environment())


@pytest.fixture
async def post(running: tuple[LocalFleet, Terminal]) -> AsyncIterator[Post]:
    post = Post(running[0].settings)
    await post.client.delete(post.keys.dead_letters())
    await post.forget_the_past()
    yield post
    await post.aclose()


@pytest.fixture
def dead(running: tuple[LocalFleet, Terminal]) -> Any:
    """`toolfleet dead …`, run to its end while this test's loop goes on."""

    async def dead(*words: str, said: str | None = None) -> Ended:
        return await asyncio.to_thread(running[1].run, "dead", *words, said=said, COLUMNS="200")

    return dead


async def crashed(post: Post, remedy: Path) -> ToolCall:
    """A call whose worker is lost until it is given up."""
    call = post.call("poison", {"remedy": str(remedy)})
    post.send(call, queue="cpu")
    call_id, result = await post.result()
    assert (call_id, result.kind) == (call.call_id, FailureKind.CRASHED)
    return call


async def buried(post: Post, call: ToolCall, text: str, mac: str, **headers: Any) -> str:
    """A message that no worker believes; why."""
    post.send_text(text, mac, call, queue="cpu", **headers)
    return (await post.letter())["reason"].decode()


async def test_a_poisonous_call_is_listed_and_replayed_under_its_id_after_its_tool_was_mended(post, dead, tmp_path):
    remedy = tmp_path / "remedy"
    call = await crashed(post, remedy)

    [listed] = json.loads((await dead("list", "--json")).out)
    assert (listed["reason"], listed["tool"], listed["call_id"]) == ("crashed", "poison", call.call_id)
    assert listed["signed"] is True
    remedy.write_text("a cure")
    replayed = await dead("replay", listed["id"])
    assert replayed.code == 0, replayed
    assert replayed.out.splitlines() == [f"{listed['id']} poison: replayed, returned a cure", "1 of 1 replayed"]
    stored = await post.client.get(post.keys.result(call.call_id))
    assert post.seal.open_result(stored, call.call_id) == Returned(content="a cure")
    assert (await dead("list")).out == "No dead letters.\n"


async def test_a_call_that_is_still_poisonous_comes_back_to_the_dead_letters(post, dead, tmp_path):
    call = await crashed(post, tmp_path / "no remedy")
    table = (await dead("list", "--reason", "crash")).out
    assert call.call_id in table
    assert len(table.splitlines()) == 1
    outcomes = json.loads((await dead("replay", "--all", "--reason", "crashed", "--json")).out)
    assert [outcome["result"]["kind"] for outcome in outcomes] == ["crashed"]
    letter = await post.letter()
    assert (letter["reason"], letter["id"].decode()) == (b"crashed", call.call_id)


async def test_what_is_not_signed_is_listed_and_never_replayed(post, dead, tmp_path):
    ledger = tmp_path / "ledger"
    call = post.call("pay", {"ledger": str(ledger)})
    assert await buried(post, call, post.seal.close_call(call)[0], "") == "unsigned or altered"
    assert "does not hold" in (await dead("list")).out
    refused = await dead("replay", call.call_id, "--force")
    assert refused.code == 1
    assert "not replayed: unsigned or altered: only what this fleet has signed is ever run" in refused.out
    assert refused.out.endswith("0 of 1 replayed\n")
    assert await post.client.xlen(post.keys.dead_letters()) == 1
    assert not ledger.exists()


async def test_arguments_are_shown_only_when_asked_for(post, dead, tmp_path):
    call = post.call("pay", {"ledger": "secret"}, context={"tenant": "secret"})
    await buried(post, call, post.seal.close_call(call)[0], "")
    hidden = (await dead("show", call.call_id)).out
    assert "secret" not in hidden
    assert "hidden; --arguments shows it" in hidden
    assert "unsigned or altered" in hidden
    [shown] = json.loads((await dead("show", call.call_id, "--arguments", "--json")).out)
    assert json.loads(shown["envelope"]["arguments"]) == {"ledger": "secret"}


async def test_a_signed_call_with_an_effect_is_replayed_by_force_only_and_then_runs_in_spite_of_its_claim(
    post, dead, tmp_path
):
    ledger = tmp_path / "ledger"
    call = post.call("pay", {"ledger": str(ledger)})
    text, mac = post.seal.close_call(call)
    assert "another call" in await buried(post, call, text, mac, task="poison")
    post.send(call, queue="cpu", claim=60)
    assert (await post.result())[1] == Returned(content="paid")

    refused = await dead("replay", call.call_id)
    assert refused.code == 1
    assert "pay is not to be repeated, and may have had its effect" in refused.out
    assert ledger.read_text() == "paid "
    forced = await dead("replay", call.call_id, "--force", "--timeout", "20")
    assert "poison: replayed, returned paid" in forced.out, forced  # the message said poison, what was signed pay
    assert ledger.read_text() == "paid paid "


async def test_a_call_that_has_another_result_by_now_keeps_it(post, dead, tmp_path):
    remedy = tmp_path / "remedy"
    call = post.call("poison", {"remedy": str(remedy)})
    text, mac = post.seal.close_call(call)
    await buried(post, call, text, mac, task="pay")
    cancelled = Failed(kind=FailureKind.CANCELLED, message="cancelled")
    await post.client.set(post.keys.result(call.call_id), post.seal.close_result(cancelled, call.call_id), ex=60)
    remedy.write_text("a cure")
    refused = await dead("replay", call.call_id)
    assert "the call has its result by now (failed: cancelled); --force discards that" in refused.out
    assert "returned a cure" in (await dead("replay", call.call_id, "--force")).out


async def test_an_entry_that_is_no_message_at_all_is_shown_and_dropped(post, dead):
    await post.write(queue="cpu", b="[]", h="{", p="[bold]x[/bold]\x1b[2J")
    await post.letter()
    [letter] = json.loads((await dead("list", "--json")).out)
    shown = await dead("show", letter["id"])
    assert "the headers are no JSON" in shown.out
    assert "[bold]x[/bold]" in shown.out
    assert "\x1b" not in shown.out
    assert (await dead("drop", letter["id"])).out == "1 dropped\n"
    assert await post.client.xlen(post.keys.dead_letters()) == 0


async def test_dropping_all_asks_first(post, dead):
    for _ in range(3):
        await post.client.xadd(post.keys.dead_letters(), {"reason": "told to", "task": "t", "id": "i"})
    declined = await dead("drop", "--all", said="n\n")
    assert declined.code == 1
    assert "Delete 3 dead letters for good?" in declined.out
    assert (await dead("drop", "--all", "--reason", "told", "--yes")).out == "3 dropped\n"


async def test_a_letter_that_is_not_there_is_named(post, dead):
    complaint = (await dead("show", "1-0")).complaint()
    assert complaint == "toolfleet: no dead letter '1-0': `toolfleet dead list` shows their ids"


@pytest.mark.parametrize("words", [("replay",), ("drop", "1-0", "--reason", "x")], ids=repr)
async def test_a_choice_that_is_none_is_wrong_usage(dead, words):
    assert (await dead(*words)).code == 2
