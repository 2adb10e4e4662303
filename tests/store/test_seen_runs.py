"""Runs that are read again and again: only what is new is read, and what is told is what a first reader is told."""

from __future__ import annotations

import asyncio

import pytest

from tests.run import machine
from toolfleet.orchestrator.errors import RunNotBelieved, RunNotFound
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.store.journal import Journal
from toolfleet.orchestrator.store.run_store import RunStore
from toolfleet.orchestrator.store.seen import SeenRuns, _size
from toolfleet.wire import Seal


@pytest.fixture
def store(client, settings):
    return RunStore(client, settings, Seal(settings))


async def begun(store, run_id="m"):
    started = machine.STARTED.model_copy(update={"run_id": run_id})
    return Journal(store, await store.begin(started, owner="a"), "a")


async def without_its_beginning(client, settings, run_id="m"):
    """Whoever reads the run from its beginning has none from here on."""
    [(first, _)] = await client.xrange(settings.keys.run(run_id), count=1)
    await client.xdel(settings.keys.run(run_id), first)


async def test_what_was_read_is_not_read_again(store, client, settings):
    journal, seen = await begun(store), SeenRuns(store)
    await journal.append(machine.reply(1, 0))
    assert (await seen.load("m")).run == journal.run
    await journal.append(machine.sent([], [call.call_id for call in journal.run.calls_owed]))
    await without_its_beginning(client, settings)
    found = await seen.load("m")
    assert (found.run, found.link) == (journal.run, journal.link)
    assert (await seen.load("m")) == found
    with pytest.raises(RunNotBelieved):
        await store.load("m")


async def test_the_times_of_calls_are_those_that_a_first_reader_is_told(store):
    journal, seen = await begun(store), SeenRuns(store)
    await journal.append(machine.reply(2, 0))
    before = await seen.read("m")
    owed = [call.call_id for call in journal.run.calls_owed]
    await journal.append(machine.sent(owed, []))
    sent = await seen.read("m")
    await journal.append(machine.back(journal.run, owed[:1], "returned"))
    back = await seen.read("m")
    assert (list(sent.times.sent_unix_s), list(back.times.back_unix_s)) == (owed, owed[:1])
    assert (
        before.times.sent_unix_s == before.times.back_unix_s == sent.times.back_unix_s == {}
    )  # what was told before has not changed
    assert before.times.changed_unix_s <= sent.times.changed_unix_s <= back.times.changed_unix_s
    assert await SeenRuns(store).read("m") == back == await seen.read("m")


async def test_who_waits_for_the_end_of_a_run_reads_each_entry_once(store, client, settings):
    journal, heard = await begun(store), asyncio.Queue()
    await journal.append(machine.reply(1, 0))
    waiting = asyncio.create_task(store.end_of("m", on_news=heard.put_nowait))
    async with asyncio.timeout(20):
        await heard.get()
        await without_its_beginning(client, settings)
        await journal.append(machine.STOPS["cancelled"])
        assert await waiting == journal.run
    assert journal.run.state is State.CANCELLED


async def test_an_entry_that_was_exchanged_is_read_with_all_before_it(store, client, settings):
    journal, seen = await begun(store), SeenRuns(store)
    await journal.append(machine.reply(1, 0))
    await seen.load("m")
    (first, _), (last, fields) = await client.xrange(settings.keys.run("m"))
    await client.xdel(settings.keys.run("m"), last)
    await client.xadd(settings.keys.run("m"), {**fields, b"s": b"0" * 64}, id=f"{last.decode().partition('-')[0]}-9")
    found = await seen.load("m")
    assert (found.link.entry_id, len(found.tail)) == (first.decode(), 1)
    assert found == await store.load("m")


async def test_what_is_made_up_behind_it_is_no_part_of_it(store, client, settings):
    journal, seen = await begun(store), SeenRuns(store)
    await seen.load("m")
    await client.xadd(settings.keys.run("m"), {"e": machine.reply(0, 0).model_dump_json(), "s": "0" * 64})
    found = await seen.load("m")
    assert (found.run, len(found.tail)) == (journal.run, 1)
    assert found == await seen.load("m") == await store.load("m")


async def test_a_run_that_is_deleted_is_not_found_and_not_kept(store):
    seen = SeenRuns(store)
    await begun(store)
    await seen.load("m")
    await store.delete("m")
    with pytest.raises(RunNotFound):
        await seen.load("m")
    assert (seen._bytes, len(seen._seen)) == (0, 0)


async def test_of_many_those_are_kept_that_were_asked_for_last(store, client, settings):
    for name in "abc":
        await begun(store, name)
    size = _size(await store.load("a"))
    seen = SeenRuns(store, kept_bytes=2 * size)
    for name in ("a", "b", "a", "c"):
        await seen.load(name)
    assert list(seen._seen) == ["a", "c"]
    assert seen._bytes == 2 * size
    await begun(store, "large")
    small = SeenRuns(store, kept_bytes=size - 1)
    assert (await small.load("large")).run.run_id == "large"
    assert (seen._bytes, small._bytes, len(small._seen)) == (2 * size, 0, 0)


async def test_many_who_ask_at_once_are_told_the_same_and_it_is_counted_once(store):
    journal, seen = await begun(store), SeenRuns(store)
    first = await asyncio.gather(*(seen.load("m") for _ in range(5)))
    await journal.append(machine.reply(1, 0))
    second = await asyncio.gather(*(seen.load("m") for _ in range(5)))
    assert [found.run for found in (*first, *second)] == 5 * [first[0].run] + 5 * [journal.run]
    assert second[0].size_bytes == (await store.load("m")).size_bytes
    assert seen._bytes == _size(second[0])


async def test_calls_that_were_back_at_once_have_the_time_at_which_they_were_sent(store):
    journal, seen = await begun(store), SeenRuns(store)
    await journal.append(machine.reply(2, 0))
    owed = [call.call_id for call in journal.run.calls_owed]
    sent = machine.sent(owed, []).model_copy(update={"held_s": 0.08})
    back = machine.back(journal.run, owed, "returned").model_copy(update={"sent": sent})
    await journal.append(back)
    times = (await seen.read("m")).times
    assert times.back_unix_s.keys() == times.sent_unix_s.keys() == set(owed)
    assert times.back_unix_s[owed[0]] - times.sent_unix_s[owed[0]] == pytest.approx(0.08)
    assert [call.deadline_unix_s for call in (await seen.load("m")).run.calls] == [machine.DEADLINE_UNIX_S] * 2
