"""Whoever can write to Redis and has no secret cannot change what a run is: its entries are sealed in a chain."""

import asyncio
import time

import pytest
from pydantic import SecretStr

from tests.run import machine
from toolfleet.messages import UserMessage
from toolfleet.orchestrator.errors import LostRun, NewerVersion, Overtaken, RunNotBelieved, RunNotFound
from toolfleet.orchestrator.run.events import ApprovalGiven, RunAdopted, RunStopped
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.store.chain import beginning
from toolfleet.orchestrator.store.journal import Journal, adopt, write_from_outside
from toolfleet.orchestrator.store.recent import RecentWrites
from toolfleet.orchestrator.store.resealing import Resealing
from toolfleet.orchestrator.store.run_store import CUT_AGAIN_S, RunStore
from toolfleet.settings import new_secret
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal

WAIT_S = 20


@pytest.fixture
def store(client, settings):
    return RunStore(client, settings, Seal(settings), recent=RecentWrites())


async def begun(store, run_id="m", owner="a"):
    started = machine.STARTED.model_copy(update={"run_id": run_id, "orchestrator_id": owner})
    return Journal(store, await store.begin(started, owner=owner), owner)


async def calling(store, run_id="m", *, calls=2):
    """A run of five entries whose owner waits for a person."""
    journal = await begun(store, run_id)
    await journal.append(machine.reply(1, 0))
    await journal.append(machine.back(journal.run, [f"{run_id}.1.0"], "returned"))
    await journal.append(machine.reply(calls, 1))
    await journal.append(machine.sent([], [call.call_id for call in journal.run.calls_owed]))
    return journal


async def raw(client, settings, run_id="m"):
    return await client.xrange(settings.keys.run(run_id))


def approval(call_id):
    event = ApprovalGiven(call_id=call_id, approval={"granted": True, "arguments": '{"amount": 1000000}'})
    return event.model_dump_json()


# --- attacks --------------------------------------------------------------------------------------------------------


async def test_a_made_up_run_is_none(store, client, settings):
    event = machine.STARTED.model_dump_json()
    for seal in ({}, {"s": "0" * 64}, {"s": b"\xff\xfe"}):
        await client.delete(settings.keys.run("m"))
        await client.xadd(settings.keys.run("m"), {"e": event, **seal})
        with pytest.raises(RunNotBelieved, match="PREVIOUS_SECRET"):
            await store.load("m")
        with pytest.raises(RunNotBelieved):
            await adopt(store, "m", "b")


async def test_a_made_up_approval_is_no_part_of_the_run_and_is_cut_off_by_who_writes_next(store, client, settings):
    journal = await calling(store)
    before = journal.run
    await client.xadd(settings.keys.run("m"), {"e": approval("m.2.0"), "s": "0" * 64})
    assert (await store.load("m")).run == before
    run = await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": False, "reason": "no"}))
    assert (await store.load("m")).run == run
    assert await store.kept_aside("m") == 1
    [(_, aside)] = await client.xrange(settings.keys.aside("m"))
    assert b"1000000" in aside[b"e"]
    assert await client.hget(settings.keys.counters(), "entries_set_aside") == b"1"


async def test_one_who_decides_from_outside_cuts_it_off_too(store, client, settings):
    await calling(store)
    await client.xadd(settings.keys.run("m"), {"e": approval("m.2.0")})
    decided = ApprovalGiven(call_id="m.2.0", approval={"granted": False})
    run = await write_from_outside(store, "m", decided)
    assert [call.refusal is not None for call in run.calls_owed] == [True, False]
    assert (await store.load("m")).tail == ()


async def test_an_entry_of_another_run_is_no_part_of_this_one(store, client, settings):
    await calling(store, "m")
    other = await calling(store, "n")
    await other.append(ApprovalGiven(call_id="n.2.0", approval={"granted": True}))
    _, fields = (await raw(client, settings, "n"))[-1]
    before = (await store.load("m")).run
    await client.xadd(settings.keys.run("m"), fields)
    found = await store.load("m")
    assert (found.run, len(found.tail)) == (before, 1)


async def test_a_whole_history_is_nothing_under_another_id(store, client, settings):
    await calling(store, "n")
    for _, fields in await raw(client, settings, "n"):
        await client.xadd(settings.keys.run("m"), fields)
    with pytest.raises(RunNotBelieved):
        await store.load("m")


async def test_an_entry_that_is_added_once_more_is_no_part_of_the_run(store, client, settings):
    journal = await calling(store)
    run = await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    await client.xadd(settings.keys.run("m"), (await raw(client, settings))[-1][1])
    assert (await store.load("m")).run == run


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_history_with_a_gap_ends_before_it(store, client, settings, at):
    await calling(store)
    entries = await raw(client, settings)
    await client.xdel(settings.keys.run("m"), entries[at][0])
    assert len((await store.load("m")).tail) == len(entries) - at - 1
    assert [entry.link.position for entry in await store.entries("m")] == list(range(1, at + 1))


async def test_an_entry_that_was_altered_ends_the_history_before_it(store, client, settings):
    await calling(store)
    entries = await raw(client, settings)
    await client.delete(settings.keys.run("m"))
    for at, (_, fields) in enumerate(entries):
        event = fields[b"e"].replace(b'"add"', b'"pay"') if at == 3 else fields[b"e"]
        await client.xadd(settings.keys.run("m"), {"e": event, "s": fields[b"s"]})
    found = await store.load("m")
    assert (len(found.tail), {call.tool for call in found.run.calls}) == (2, {"add"})


async def test_entries_in_another_order_are_no_history(store, client, settings):
    await calling(store)
    first, second, third, *_ = await raw(client, settings)
    await client.delete(settings.keys.run("m"))
    for _, fields in (first, third, second):
        await client.xadd(settings.keys.run("m"), fields)
    assert len((await store.load("m")).tail) == 2


async def test_what_another_secret_has_sealed_is_no_part_of_the_run(store, client, settings):
    await calling(store)
    other = settings.model_copy(update={"secret": SecretStr(new_secret())})
    with pytest.raises(RunNotBelieved):
        await RunStore(client, other, Seal(other)).load("m")
    strangers = await begun(RunStore(client, other, Seal(other)), "n")
    await strangers.append(machine.reply(0, 0))
    with pytest.raises(RunNotBelieved):
        await store.load("n")


async def test_a_forged_head_changes_nothing_of_what_a_run_is(store, client, settings):
    journal = await calling(store)
    forged = {"state": "done", "owner": "mallory", "model": "another", "calls": "x", "awaiting": "no"}
    await client.hset(settings.keys.head("m"), mapping=forged)
    found = await store.load("m")
    assert (found.run, found.owner) == (journal.run, "a")
    await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))


# --- what is cut off, and what is not -------------------------------------------------------------------------------


async def sealed(store, client, settings, event, run_id="m"):
    """An entry that the fleet has sealed, whatever it says."""
    link = (await store.entries(run_id))[-1].link
    seal = Seal(settings).sign_entry(run_id, link.position + 1, link.digest_with(event))
    await client.xadd(settings.keys.run(run_id), {"e": event, "s": seal})


async def test_an_entry_of_a_newer_version_is_refused_and_never_touched(store, client, settings):
    journal = await calling(store)
    await sealed(store, client, settings, b'{"type":"run_dreamt","of":"sheep"}')
    before = await raw(client, settings)
    for attempt in (store.load("m"), adopt(store, "m", "b"), journal.append(RunStopped(state="failed", reason="x"))):
        with pytest.raises(NewerVersion, match=r"run_dreamt.*upgrade"):
            await attempt
    assert await raw(client, settings) == before


async def test_a_sealed_entry_that_cannot_have_happened_is_cut_off_and_the_run_goes_on(store, client, settings):
    journal = await calling(store)
    await sealed(store, client, settings, machine.parked(["m.2.9"]).model_dump_json().encode())
    assert (await store.load("m")).run == journal.run
    with pytest.raises(Overtaken):
        await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    assert (await store.load("m")).run == journal.run
    assert await store.kept_aside("m") == 1


async def test_cutting_off_never_takes_what_was_written_meanwhile(store, client, settings):
    journal = await calling(store)
    await client.xadd(settings.keys.run("m"), {"e": "junk"})
    tail = (await store.load("m")).tail
    await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))  # cuts it off first
    before = await raw(client, settings)
    await store.set_aside("m", tail)
    stands_there = [each._replace(id=before[-1][0].decode()) for each in tail]
    await store.set_aside("m", stands_there)
    assert await raw(client, settings) == before


WRITERS = {
    "its owner": lambda store, journal: journal.append(RunStopped(state="cancelled", reason="x")),
    "who adopts it": lambda store, journal: adopt(store, "m", "b"),
    "who decides from outside": lambda store, journal: write_from_outside(
        store, "m", RunStopped(state="cancelled", reason="x")
    ),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("seal", [b"\xff", b"\xed\xa0\x80", "\ufffd".encode(), b"", b"\0" * 64])
async def test_an_entry_is_cut_off_whatever_bytes_its_seal_is_of(store, client, settings, write, seal):
    journal = await calling(store)
    await client.xadd(settings.keys.run("m"), {"e": "junk", "s": seal, b"\xff": b"\xff"})
    async with asyncio.timeout(WAIT_S):
        await write(store, journal)
    assert (await store.load("m")).tail == ()
    [(_, aside)] = await client.xrange(settings.keys.aside("m"))
    assert aside[b"s"] == seal


async def test_a_run_whose_last_seal_is_spoilt_and_vouched_for_goes_on(store, client, settings):
    """A second seal in the head speaks for it, so its own is what the next entry follows, of whatever bytes."""
    journal = await calling(store)
    vouched = f"{journal.link.position}:{journal.link.seal.decode()}"
    entry_id, fields = (await raw(client, settings))[-1]
    await client.xdel(settings.keys.run("m"), entry_id)
    await client.xadd(settings.keys.run("m"), {"e": fields[b"e"], "s": b"\xff"})
    await client.hset(settings.keys.head("m"), "vouched", vouched)
    await adopt(store, "m", "b")
    assert (await store.load("m")).owner == "b"


async def test_whoever_can_cut_off_nothing_reads_the_run_again_after_a_moment_only(store, client, settings):
    await calling(store)
    await client.xadd(settings.keys.run("m"), {"e": "junk"})
    tail = (await store.load("m")).tail
    await store.set_aside("m", tail)
    began_s = time.monotonic()
    await store.set_aside("m", tail)
    assert time.monotonic() - began_s >= CUT_AGAIN_S


async def test_a_thousand_junk_entries_cost_a_run_nothing_but_the_reading(store, client, settings):
    journal = await calling(store)
    pipeline = client.pipeline(transaction=False)
    for number in range(1000):
        pipeline.xadd(settings.keys.run("m"), {"e": f"junk {number}", "x": "y"})
    await pipeline.execute()
    run = await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    assert (await store.load("m")).run == run
    assert len(await raw(client, settings)) == 6


# --- secrets change -------------------------------------------------------------------------------------------------


async def test_histories_outlive_a_change_of_the_secret(store, client, settings):
    await calling(store)
    old, new = settings.secret, SecretStr(new_secret())
    both = settings.model_copy(update={"secret": new, "previous_secret": old})
    await adopt(RunStore(client, both, Seal(both)), "m", "b")
    after = settings.model_copy(update={"secret": new})
    found = await RunStore(client, after, Seal(after)).load("m")
    assert (found.owner, found.run.state, found.tail) == ("b", State.CALLING, ())


async def test_a_run_that_nobody_touches_is_sealed_anew_before_the_old_secret_is_dropped(store, client, settings):
    before = (await calling(store)).run
    old, new = settings.secret, SecretStr(new_secret())
    both = settings.model_copy(update={"secret": new, "previous_secret": old})
    after = settings.model_copy(update={"secret": new})
    late = RunStore(client, after, Seal(after))
    with pytest.raises(RunNotBelieved):
        await late.load("m")
    resealing = Resealing(RunStore(client, both, Seal(both)), both, Supervisor())
    resealing.start()
    await resealing._kept.ended(within_s=WAIT_S)
    assert (await late.load("m")).run == before
    await adopt(late, "m", "b")
    assert (await late.load("m")).owner == "b"
    await client.hset(settings.keys.head("m"), "vouched", "5:" + "0" * 64)
    assert (await late.load("m")).owner == "b", "the newest seal speaks for all"
    assert await RunStore(client, both, Seal(both)).reseal("m") is False


async def test_whose_a_run_is_can_be_told_after_the_secret_of_its_time_is_dropped(store, client, settings):
    await calling(store)
    old, new = settings.secret, SecretStr(new_secret())
    both = settings.model_copy(update={"secret": new, "previous_secret": old})
    after = settings.model_copy(update={"secret": new})
    late = RunStore(client, after, Seal(after))
    with pytest.raises(RunNotBelieved):
        await late.tenant("m")
    assert await late.heads(tenant="") == []
    assert [(head.run_id, head.tenant) for head in await late.heads()] == [("m", None)]
    await RunStore(client, both, Seal(both)).reseal("m")
    assert await late.tenant("m") == ""
    assert [(head.run_id, head.tenant) for head in await late.heads(tenant="")] == [("m", "")]


async def test_a_seal_of_another_runs_tenant_says_nothing_in_a_head(store, client, settings):
    await calling(store)
    keys = settings.keys
    await client.hset(keys.head("m"), "tenant", Seal(settings).close_kept(b"evil", keys.head("another")))
    await client.zadd(keys.runs_of("evil"), {"m": 1})
    assert (await store.heads(tenant="evil"), await store.tenant("m")) == ([], "")


@pytest.mark.parametrize("forged", ["6:" + "0" * 64, "x", "6:", "99999999999999:x", b"\xff:\xff"])
async def test_a_second_seal_that_is_made_up_seals_nothing(store, client, settings, forged):
    before = (await calling(store)).run
    await client.xadd(settings.keys.run("m"), {"e": approval("m.2.0"), "s": "0" * 64})
    await client.hset(settings.keys.head("m"), "vouched", forged)
    assert (await store.load("m")).run == before


async def test_without_a_secret_a_rollback_is_seen_all_the_same(client, settings):
    open_ = settings.model_copy(update={"secret": SecretStr("")})
    store = RunStore(client, open_, Seal(open_))
    journal = await calling(store)
    await truncate(client, settings, keeps=3)
    with pytest.raises(Overtaken, match="came back older"):
        await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    assert journal.run == (await store.load("m")).run


# --- a tail that is gone, by a rollback or by who cut it off: the two are one and the same --------------------------


async def truncate(client, settings, *, keeps, run_id="m"):
    entries = await raw(client, settings, run_id)
    await client.xdel(settings.keys.run(run_id), *(entry_id for entry_id, _ in entries[keeps:]))


@pytest.mark.parametrize("keeps", [4, 3, 1, 0])
async def test_the_owner_writes_again_what_the_store_has_lost(store, client, settings, keeps):
    journal = await calling(store)
    await truncate(client, settings, keeps=keeps)
    run = await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    found = await store.load("m")
    assert (found.run, found.link.position, found.tail) == (run, 6, ())
    await journal.append(ApprovalGiven(call_id="m.2.1", approval={"granted": True}))
    assert (await store.load("m")).run == journal.run


async def test_what_others_wrote_and_the_owner_has_read_is_written_again_too(store, client, settings):
    journal = await calling(store)
    other = RunStore(client, settings, Seal(settings))
    await write_from_outside(other, "m", ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    await journal.append(ApprovalGiven(call_id="m.2.1", approval={"granted": True}))
    await truncate(client, settings, keeps=2)
    run = await journal.append(RunStopped(state="cancelled", reason="enough"))
    assert (await store.load("m")).run == run


async def test_where_others_have_gone_on_the_owner_takes_what_is_stored(store, client, settings):
    journal = await calling(store)
    await truncate(client, settings, keeps=3)
    other = RunStore(client, settings, Seal(settings))
    await write_from_outside(other, "m", RunStopped(state="cancelled", reason="enough"))
    with pytest.raises(Overtaken, match="what is stored"):
        await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    assert (journal.run.state, journal.run.reason) == (State.CANCELLED, "enough")
    assert (await store.load("m")).run == journal.run


async def test_where_another_orchestrator_has_gone_on_the_run_is_lost(store, client, settings):
    journal = await calling(store)
    await truncate(client, settings, keeps=3)
    await adopt(RunStore(client, settings, Seal(settings)), "m", "b")
    with pytest.raises(LostRun, match="goes on with b"):
        await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))


async def test_a_run_that_was_deleted_is_not_written_again(store, client, settings):
    journal = await calling(store)
    assert await store.delete("m")
    with pytest.raises(LostRun, match="deleted"):
        await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))
    with pytest.raises(RunNotFound):
        await store.load("m")


async def test_an_entry_whose_id_is_given_out_again_is_not_taken_for_the_one_that_was_lost(store, client, settings):
    journal = await calling(store)
    newest, _ = (await raw(client, settings))[-1]
    await truncate(client, settings, keeps=4)
    copy = [fields for _, fields in await raw(client, settings)]
    ids = [entry_id for entry_id, _ in await raw(client, settings)]
    await client.delete(settings.keys.run("m"))  # with it the memory of the ids it had given out
    for entry_id, fields in zip(ids, copy, strict=True):
        await client.xadd(settings.keys.run("m"), fields, id=entry_id)
    four = await store.load("m")
    other = RunAdopted(orchestrator_id="b")
    assert await store.append(four.run.on(other), other, follows=four.link, owner="b")
    moved = (await raw(client, settings))[-1]
    await client.xdel(settings.keys.run("m"), moved[0])
    await client.delete(settings.keys.run("m"))
    for entry_id, fields in [*zip(ids, copy, strict=True), (newest, moved[1])]:
        await client.xadd(settings.keys.run("m"), fields, id=entry_id)
    with pytest.raises(LostRun, match="goes on with b"):
        await journal.append(ApprovalGiven(call_id="m.2.0", approval={"granted": True}))


async def test_whoever_follows_a_run_reads_each_entry_once_though_it_was_written_again(store, client, settings):
    journal = await calling(store)
    following = store.follow("m")
    seen = [await anext(following) for _ in range(5)]
    await truncate(client, settings, keeps=2)
    await journal.append(RunStopped(state="cancelled", reason="enough"))
    seen += [entry async for entry in following]
    assert [entry.link.position for entry in seen] == [1, 2, 3, 4, 5, 6]


def test_two_runs_that_begin_alike_have_no_link_in_common():
    assert beginning("m").digest != beginning("n").digest
    said = UserMessage(content="?").model_dump_json().encode()
    assert beginning("m").digest_with(said) != beginning("n").digest_with(said)
