"""Histories of ended runs are packed: nobody who reads, follows, goes on with or heals a run sees a difference."""

import asyncio
import zlib
from contextlib import aclosing

import pytest
from hypothesis import given, strategies as st

from tests.run import machine
from toolfleet.orchestrator.doors.http.tail import Tail
from toolfleet.orchestrator.errors import RunIsOver, RunNotBelieved
from toolfleet.orchestrator.run.events import RunResumed, RunStopped
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.store import packed as form
from toolfleet.orchestrator.store.journal import Journal, write_from_outside
from toolfleet.orchestrator.store.packed import FIELD, MAX_BYTES, packed, unpacked
from toolfleet.orchestrator.store.packing import Packing
from toolfleet.orchestrator.store.recent import RecentWrites
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.settings import new_secret
from toolfleet.supervision import Supervisor
from toolfleet.wire import Seal

WAIT_S = 20
RUN = "m"

entry_ids = st.tuples(st.integers(1, 10**15), st.integers(0, 10**6))
histories = st.lists(st.tuples(entry_ids, st.binary(), st.binary()), min_size=2, unique_by=lambda each: each[0])


def as_entries(history):
    return [(b"%d-%d" % place, {b"e": event, b"s": seal}) for place, event, seal in sorted(history)]


# --- the form -------------------------------------------------------------------------------------------------------


@given(histories, st.data())
def test_a_pack_holds_the_entries_byte_for_byte_from_any_of_them_on(history, data):
    entries = as_entries(history)
    pack = (entries[-1][0], packed(entries))
    behind = [(b"%d-0" % 10**16, {b"e": b"later", b"s": b""})]
    assert unpacked([pack]) == entries
    since = data.draw(st.integers(0, len(entries) - 1))
    assert unpacked([pack, *behind], since=entries[since][0].decode()) == [*entries[since:], *behind]


def deflated(text):
    deflating = zlib.compressobj(wbits=form._WINDOW, zdict=form._OFTEN)
    return deflating.compress(text) + deflating.flush()


@pytest.mark.parametrize(
    "made_up",
    [
        b"",
        b"junk",
        deflated(b""),
        deflated(b"9\n"),
        deflated(b"1\n5-0 0 -1\nx"),
        deflated(b"1\n0-0 0 1\nxlast"),
        deflated(b"1\n9-0 0 1\nxlast"),
        deflated(b"1\n5\r-0 0 1\nxlast"),
        deflated(b"2\n5-0 0 1\nx5-0 0 1\nylast"),
        deflated(b"0\n" + bytes(MAX_BYTES)),
        deflated(b"0\n" + bytes(100 * MAX_BYTES)),
    ],
)
def test_what_is_no_pack_of_ours_stays_an_entry_without_an_event(made_up):
    found = [(b"9-0", {FIELD: made_up, b"s": b"seal"}), (b"9-1", {b"e": b"{}", b"s": b""})]
    assert unpacked(found) == found


def test_only_the_first_entry_can_be_a_pack():
    entries = as_entries([((1, 0), b"one", b""), ((2, 0), b"two", b"")])
    found = [(b"1-5", {b"e": b"", b"s": b""}), (entries[-1][0], packed(entries))]
    assert unpacked(found) == found


@pytest.mark.parametrize(
    "entries",
    [
        as_entries([((1, 0), b"alone", b"")]),
        as_entries([((1, 0), bytes(MAX_BYTES), b""), ((2, 0), b"", b"")]),
        [(b"1-0", {b"e": b"", b"s": b"", b"x": b""}), (b"2-0", {b"e": b"", b"s": b""})],
    ],
)
def test_what_would_not_be_the_same_or_too_long_is_not_packed(entries):
    assert packed(entries) is None


# --- on a server ----------------------------------------------------------------------------------------------------


@pytest.fixture
def packing(client, settings):
    return Packing(client, settings.keys)


@pytest.fixture
def store(client, settings, packing):
    return RunStore(client, settings, Seal(settings), recent=RecentWrites(), packing=packing)


async def ended(store):
    """A run with one call that has ended: its journal."""
    journal = Journal(store, await store.begin(machine.STARTED, owner="a"), "a")
    await journal.append(machine.reply(1, 0))
    await journal.append(machine.sent([], [call.call_id for call in journal.run.calls_owed]))
    await journal.append(machine.back(journal.run, [call.call_id for call in journal.run.calls_owed], "returned"))
    await journal.append(machine.reply(0, 1))
    assert journal.run.state is State.DONE
    return journal


async def is_packed(client, settings):
    [(_, first), *_] = await client.xrange(settings.keys.run(RUN), count=1)
    return FIELD in first


async def frames(client, settings, *, after="0-0"):
    async with Tail(client, settings, max_frames=100, supervisor=Supervisor()) as tail, asyncio.timeout(WAIT_S):
        return [(frame.id, frame.data) async for frame in tail.listen(RUN, after=after)]


async def test_a_short_run_that_has_ended_takes_a_fifth_of_the_memory(client, settings, store, packing):
    await ended(store)
    before = await client.memory_usage(settings.keys.run(RUN))
    await packing.aclose()
    assert await is_packed(client, settings)
    assert await client.memory_usage(settings.keys.run(RUN)) < before / 5


async def test_it_is_packed_by_itself_soon_after_its_end(client, settings, store, packing):
    packing.start(Supervisor())
    await ended(store)
    async with asyncio.timeout(WAIT_S):
        while not await is_packed(client, settings):
            await asyncio.sleep(0.05)
    await packing.aclose()


async def test_readers_and_listeners_are_told_the_same_as_before(client, settings, store, packing):
    await ended(store)

    async def told():
        run, entries = await store.history(RUN)
        following = [entry async for entry in store.follow(RUN)]
        listening = [await frames(client, settings, after=after) for after in ["0-0", *(each.id for each in entries)]]
        newer = [await store.newer(RUN, entry.link) for entry in entries]
        return run, entries, following, listening, newer, await store.heads(), await store.tenant(RUN)

    before, left_ms = await told(), await client.pttl(settings.keys.run(RUN))
    await packing.aclose()
    assert await is_packed(client, settings)
    assert await told() == before
    assert left_ms - WAIT_S * 1000 < await client.pttl(settings.keys.run(RUN)) <= left_ms
    assert await client.exists(settings.keys.packing(RUN)) == 0


async def test_who_waits_for_news_while_a_run_is_packed_hears_that_it_goes_on(client, settings, store, packing):
    await ended(store)
    last_id = (await store.entries(RUN))[-1].id
    waiting = asyncio.create_task(client.xread({settings.keys.run(RUN): last_id}, block=WAIT_S * 1000))
    async with asyncio.timeout(WAIT_S):
        while not (await client.info("clients"))["blocked_clients"]:
            await asyncio.sleep(0.01)
        await packing.aclose()
        assert await is_packed(client, settings)
        await write_from_outside(store, RUN, machine.RESUMED)
        assert "run_resumed" in repr(await waiting)


async def test_a_listener_that_has_read_half_of_a_run_when_it_is_packed_misses_nothing(
    client, settings, store, packing
):
    await ended(store)
    async with (
        asyncio.timeout(WAIT_S),
        Tail(client, settings, max_frames=100, supervisor=Supervisor()) as tail,
        aclosing(tail.listen(RUN)) as listening,
    ):
        heard = [await anext(listening) for _ in range(2)]
        await packing.aclose()
        heard += [frame async for frame in listening]
    assert await is_packed(client, settings)
    assert [frame.id for frame in heard] == [entry.id for entry in await store.entries(RUN)]


async def test_a_run_goes_on_behind_its_pack_and_is_packed_anew(client, settings, store, packing):
    await ended(store)
    await packing.aclose()
    await write_from_outside(store, RUN, machine.RESUMED)
    assert await client.xlen(settings.keys.run(RUN)) == 2
    before = await store.entries(RUN)
    await write_from_outside(store, RUN, RunStopped(state="cancelled", reason="enough"))
    await packing.aclose()
    assert await client.xlen(settings.keys.run(RUN)) == 1
    assert (await store.entries(RUN))[:-1] == before
    assert (await store.load(RUN)).run.state is State.CANCELLED


async def test_a_run_that_goes_on_already_is_left_as_it_is(client, settings, store, packing):
    await ended(store)
    await write_from_outside(store, RUN, machine.RESUMED)
    await packing.aclose()
    assert not await is_packed(client, settings)


async def test_what_is_written_between_reading_and_packing_is_never_lost(client, settings, store, packing):
    journal = await ended(store)
    entries = await client.xrange(settings.keys.run(RUN))
    await write_from_outside(store, RUN, machine.RESUMED)
    fields = [part for field in packed(entries).items() for part in field]
    keys = [settings.keys.run(RUN), settings.keys.packing(RUN)]
    assert await packing._rewrite(keys=keys, args=[journal.link.seal, 5, entries[-1][0], 4, *fields]) == 0
    assert (await store.load(RUN)).link.position == 6


async def test_an_owner_whose_run_was_ended_elsewhere_and_packed_hears_that_it_is_over(settings, store, packing):
    journal = Journal(store, await store.begin(machine.STARTED, owner="a"), "a")
    await journal.append(machine.reply(1, 0))
    await write_from_outside(store, RUN, RunStopped(state="cancelled", reason="enough"))
    await packing.aclose()
    with pytest.raises(RunIsOver):
        await journal.append(machine.sent([], [call.call_id for call in journal.run.calls_owed]))


async def test_a_packed_run_that_the_store_has_lost_is_written_again(client, settings, store, packing):
    journal = await ended(store)
    entries = await client.xrange(settings.keys.run(RUN))
    await packing.aclose()
    await client.delete(settings.keys.run(RUN))  # as a store that came back older has it
    for entry_id, fields in entries[:2]:
        await client.xadd(settings.keys.run(RUN), fields, id=entry_id)
    assert await store.restore_run(RUN) == 3
    assert (await store.load(RUN)).run == journal.run
    assert await store.restore_run(RUN) == 0


async def test_of_a_pack_only_what_is_not_believed_is_cut_off(client, settings, store, packing):
    journal = await ended(store)
    other = settings.model_copy(update={"secret": type(settings.secret)(new_secret())})
    stranger = RunStore(client, other, Seal(other), packing=packing)
    resumed = RunResumed(messages=())
    assert await stranger.append(journal.run.on(resumed), resumed, follows=journal.link)
    packing.has_ended(RUN, (await client.xrevrange(settings.keys.run(RUN), count=1))[0][1][b"s"])
    await packing.aclose()
    assert await client.xlen(settings.keys.run(RUN)) == 1
    found = await store.load_to_write(RUN)
    assert (found.run, found.link.position, found.tail) == (journal.run, 5, ())
    assert await store.kept_aside(RUN) == 1
    assert await client.ttl(settings.keys.run(RUN)) > 0


async def test_a_made_up_pack_is_no_run(client, settings, store):
    made_up = as_entries([((1, 0), machine.STARTED.model_dump_json().encode(), b"0" * 64), ((2, 0), b"{}", b"0" * 64)])
    await client.xadd(settings.keys.run(RUN), packed(made_up), id="2-0")
    with pytest.raises(RunNotBelieved):
        await store.load(RUN)


async def test_what_cannot_be_packed_keeps_no_other_run_from_it(client, settings, store, packing):
    await client.set(settings.keys.run("a string"), "odd")
    packing.has_ended("a string", b"")
    packing.has_ended("gone", b"")
    await ended(store)
    await packing.aclose()
    assert await is_packed(client, settings)


async def test_a_long_history_stays_as_it_is(client, settings, store, packing):
    long = machine.STARTED.model_copy(
        update={"messages": (type(machine.STARTED.messages[0])(content="x" * MAX_BYTES),)}
    )
    journal = Journal(store, await store.begin(long, owner="a"), "a")
    await journal.append(machine.reply(0, 0))
    await packing.aclose()
    assert not await is_packed(client, settings)
