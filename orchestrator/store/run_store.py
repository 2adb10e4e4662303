"""A run in Redis: an append-only stream of its events. The run is read back by folding them.

Every write names the entry it follows. One that follows an older entry is refused, whoever makes it: so two
orchestrators can never both go on with a run, and whoever lost it learns so from the entries it missed. Each entry is
sealed together with all before it (`chain.py`): what this fleet has not written is no part of a run. Beside the stream
stands a small hash, the run's head, for lists and for those who must know the owner; it is written in the same script
and is never asked what a run is, nor whose: what lists go by, its tenant, is sealed there too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

import redis.asyncio

from toolfleet.artifacts import Artifacts
from toolfleet.calls import ToolResult
from toolfleet.errors import Refused, StoreUnreachable
from toolfleet.forged import ALREADY, TrueResult, replace_forged
from toolfleet.keys import ASIDE_TTL_S, DELETED_TTL_S
from toolfleet.logs import FactLog
from toolfleet.messages import Message, UserMessage, described
from toolfleet.orchestrator.errors import (
    AmbiguousId,
    IllegalTransition,
    NewerVersion,
    OtherShard,
    RunNotBelieved,
    RunNotFound,
)
from toolfleet.orchestrator.run.events import CallRecord, RunEvent, RunResumed, RunStarted
from toolfleet.orchestrator.run.outcome import result_for_parent
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.appending import UNCHANGED, Appending, Appendings, Heading, Owing, nothing_owed
from toolfleet.orchestrator.store.chain import FIRST, Link, RawEntry, Vouched, beginning
from toolfleet.orchestrator.store.history import Entry, Read, Stored, after, followed, read, stored
from toolfleet.orchestrator.store.names import RunNames, noted
from toolfleet.orchestrator.store.news import News
from toolfleet.orchestrator.store.packed import unpacked
from toolfleet.orchestrator.store.packing import Packing, unpack
from toolfleet.orchestrator.store.recent import RecentWrites, Write
from toolfleet.redis_clients import StreamEntry
from toolfleet.replicas import Replicas, confirm, script_on_replicas
from toolfleet.replies import CLOCK, TELL
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import open_or_skip, skip, text_of
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")

FOLLOW_AGAIN_S: Final = 1.0

FOLLOW_LOST: Final = 5
"""How often an entry is looked for that the store has lost, before whoever follows the run is told so."""

UNREAD_WAITS: Final = 12
"""How often whoever waits for the end of a run waits for news before it is read again without any: a minute. One at
rest is not to be read all the time, but a store that came back older may give out ids again."""

TITLE_CHARS: Final = 100

PAGE: Final = 500
"""How many heads are read at once where only some are wanted."""

AT_ONCE: Final = 200
"""How many entries are cut off, or written again, with one command."""

CUT_AGAIN_S: Final = 0.1
"""How soon a run is read again whose end somebody else has cut off, or nobody can."""

ASIDE_MAX: Final = 1000
"""About how many of the newest entries that were cut off are kept for each run."""

APPEND: Final = lua(__package__, "trim_runs", "append", before=f"{TELL}\n{CLOCK}")
OWE: Final = lua(__package__, "owe")
APPEND_OWING: Final = "\n".join(
    (
        lua(__package__, "trim_runs", "owe", before=f"{TELL}\n{CLOCK}"),
        "local function append(KEYS, ARGV)",
        lua(__package__, "append"),
        "end",
        lua(__package__, "append_owing"),
    )
)
SET_ASIDE: Final = lua(__package__, "set_aside")
VOUCH: Final = lua(__package__, "vouch")


class Head(NamedTuple):
    """What is known of a run without reading its events."""

    run_id: str
    state: State
    owner: str
    model: str
    title: str
    turn: int
    calls: int
    started_unix_s: float
    updated_unix_s: float
    tenant: str | None = None
    """Whose it is, "" for nobody's; None where nothing that is believed says so."""
    awaiting_approval: int = 0
    """How many of its calls a person has to decide about."""


class RunStore:
    """Writes events down before what they announce is done, and reads them back."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        settings: Settings,
        seal: Seal,
        *,
        recent: RecentWrites | None = None,
        packing: Packing | None = None,
        owing: Owing = nothing_owed,
        on_owed: Callable[[], None] = lambda: None,
    ) -> None:
        """`recent` is told what is written, by whoever can write it again when the store has lost it.

        `packing` is told which runs have ended, to be packed. `owing` says which webhooks are owed for an event, and
        `on_owed` hears that some were stored.
        """
        self._client = client
        self._settings = settings
        self._seal = seal
        self._keys = settings.keys
        self._recent = recent
        self._packing = packing
        self._artifacts = Artifacts(client, settings)
        self._news = News(client, settings.keys)
        self._replicas = Replicas.of(settings)
        self._append = script_on_replicas(client, APPEND, self._replicas)
        self._append_owing = script_on_replicas(client, APPEND_OWING, self._replicas)
        self._appendings = Appendings(settings, seal, owing)
        self._on_owed = on_owed
        self._names = RunNames(client, settings.keys)
        self._vouch = client.register_script(VOUCH)
        self._set_aside = client.register_script(SET_ASIDE)

    def new_id(self) -> str:
        """Return an id for a run that is to be stored here."""
        return self._settings.new_run_id()

    async def begin(self, started: RunStarted, *, then: Sequence[RunEvent] = (), owner: str = "") -> Stored | None:
        """Store a run's first event. Returns the run, or None when one with this id is stored already.

        A run without an owner waits for any orchestrator with its model. `then` is stored with it, all or nothing: a
        run may begin in the midst of a turn. Raises StoreUnreachable, and OtherShard for an id that nobody would look
        for here.
        """
        self._must_belong_here(started.run_id)
        run = Run.start(started)
        head = {
            "model": started.model,
            "title": title_of(started.messages),
            "started_ms": int(started.started_unix_s * 1000),
            # Lists believe it without reading the run, so it is sealed as the run is.
            "tenant": self._seal.close_kept(started.terms.tenant.encode(), self._keys.head(run.run_id)),
        }
        how = Heading(owner=owner, may_be_adopted=not owner, fields=head)
        first = self._appendings.of(run, started, beginning(run.run_id), how)
        writes = [first]
        for event in then:
            run = run.on(event)
            writes.append(self._appendings.of(run, event, writes[-1].link))
        link = await self._write_all(writes)
        return Stored(run, link, owner) if link else None

    async def _write_all(self, writes: Sequence[Appending]) -> Link | None:
        """Store entries of one run that follow each other. Returns the place of the last; None where the first is not.

        Whoever reads the run finds all of them, or none.
        """
        if len(writes) == 1:
            return await self._stored(writes[0], await self._run(writes[0]))
        async with self._client.pipeline(transaction=True) as pipeline:
            for write in writes:
                await self._run(write, pipeline)
            replies = await pipeline.execute()
        await self.confirm()
        links = [await self._stored(write, reply) for write, reply in zip(writes, replies, strict=True)]
        return links[-1]

    async def append(self, run: Run, event: RunEvent, *, follows: Link, owner: str = "") -> Link | None:
        """Store an event behind the entry that it follows; `run` is what it leads to, `owner` who works on it from now.

        Returns its place, or None when it is not stored because others have written since, or because the store has
        lost the entry that it follows. Raises StoreUnreachable; then the event may be stored or not, and nothing that
        follows from it may be done.
        """
        may_be_adopted = isinstance(event, RunResumed)
        how = Heading(owner=owner, may_be_adopted=may_be_adopted) if owner or may_be_adopted else UNCHANGED
        write = self._appendings.of(run, event, follows, how)
        return await self._stored(write, await self._run(write))

    async def append_with(
        self, run: Run, event: RunEvent, *, follows: Link, watching: str, besides: Callable[[Any], Awaitable[bool]]
    ) -> Link | None:
        """Store an event and something else, both or neither, if meanwhile nobody writes to the run or to `watching`.

        `besides` is given the pipeline while it watches, to read what it must know; then it calls `multi` and queues
        what is to be done, or returns False to have nothing done. Returns the place of the event, or None as `append`.
        Raises StoreUnreachable.
        """
        stream = self._keys.run(run.run_id)
        write = self._appendings.of(run, event, follows)
        async with self._client.pipeline(transaction=True) as pipeline:
            try:
                await pipeline.watch(stream, watching)
                newest = cast("list[StreamEntry]", await pipeline.xrevrange(stream, count=1))
                if not newest or newest[0][1].get(b"s") != follows.seal or not await besides(pipeline):
                    return None
                await self._run(write, pipeline)
                *_, reply = await pipeline.execute()
            except redis.WatchError:  # also where the connection was lost: then it may be stored
                return None
        await self.confirm()
        return await self._stored(write, reply)

    async def confirm(self) -> None:
        """Return when the replicas that are waited for have all that is stored now. Raises StoreUnreachable."""
        await confirm(self._client, self._replicas)

    def _must_belong_here(self, run_id: str) -> None:
        if not self._settings.owns(run_id):
            raise OtherShard(
                f"run {run_id[:100]} does not belong to the shard {self._settings.shard}, on which it was to be begun: "
                f"an id of your own begins with the name of its shard there, {self._settings.id_prefix}…"
            )

    async def entries(self, run_id: str) -> list[Entry]:
        """Return the events of a run, as far as they are believed. Raises NewerVersion, StoreUnreachable."""
        return (await self._read(run_id))[0].entries

    async def newer(self, run_id: str, link: Link) -> Read | None:
        """Return what comes after an entry; None when the store does not have that entry (any more).

        Raises NewerVersion, StoreUnreachable.
        """
        if (raw := await self._behind(run_id, link)) is not None:
            return read(self._seal, run_id, link, raw)
        # It may stand there under another id: whoever wrote it has written it again.
        found, _ = await self._read(run_id)
        if len(found.entries) < link.position or found.entries[link.position - 1].link.digest != link.digest:
            return None
        return Read(found.entries[link.position :], found.tail)

    async def load(self, run_id: str) -> Stored:
        """Read a run back from its events. Raises RunNotFound, RunNotBelieved, NewerVersion, StoreUnreachable."""
        run, _ = await self.history(run_id)
        return run

    async def load_since(self, run_id: str, seen: Stored) -> Stored:
        """The same for whoever has read it before: no more is read than what is new. Raises as `load`."""
        found = await self.history_since(run_id, seen)
        return found[0] if found is not None else await self.load(run_id)

    async def history_since(self, run_id: str, seen: Stored) -> tuple[Stored, list[Entry]] | None:
        """The same with the events since then; None where all has to be read. Raises NewerVersion, StoreUnreachable."""
        raw = await self._behind(run_id, seen.link)
        if raw is None:
            return None
        entries = read(self._seal, run_id, seen.link, raw).entries
        now = followed(seen, entries, raw)
        return None if now.tail else (now, entries)

    async def history(self, run_id: str) -> tuple[Stored, list[Entry]]:
        """The same, with the events. Raises as `load`."""
        found, raw = await self._read(run_id)
        if (run := stored(found, raw)) is not None:
            return run, found.entries[: run.link.position]
        raise RunNotBelieved(not_believed(run_id)) if raw else RunNotFound(not_stored(run_id))

    async def load_to_write(self, run_id: str) -> Stored:
        """The same for whoever is about to write: what is no part of the run is cut off and kept aside."""
        while (found := await self.load(run_id)).tail:
            await self.set_aside(run_id, found.tail)
        return found

    async def set_aside(self, run_id: str, tail: Sequence[RawEntry]) -> None:
        """Cut entries off that are no part of a run, and keep them for people.

        Where none of them could be cut, it returns after a moment: whoever asks reads the run again. Raises
        StoreUnreachable.
        """
        cut = 0
        if tail:
            # What is believed may be in one pack with them.
            await unpack(self._client, self._keys, run_id)
        for start in range(0, len(tail), AT_ONCE):
            some = tail[start : start + AT_ONCE]
            cut += await self._set_aside(
                keys=[self._keys.run(run_id), self._keys.aside(run_id)],
                args=[ASIDE_TTL_S * 1000, ASIDE_MAX, *(part for each in some for part in (each.id, each.seal))],
            )
        if cut:
            log.warning("entries_set_aside", run_id=run_id, entries=cut, first=tail[0].id)
            await self._client.hincrby(self._keys.counters(), "entries_set_aside", cut)
        elif tail:
            await asyncio.sleep(CUT_AGAIN_S)

    async def kept_aside(self, run_id: str) -> int:
        """Return how many entries were cut off a run, of those that are still kept. Raises StoreUnreachable."""
        return await self._client.xlen(self._keys.aside(run_id))

    async def _read(self, run_id: str) -> tuple[Read, list[RawEntry]]:
        raw = await self._raw(run_id, "-")
        found = read(self._seal, run_id, beginning(run_id), raw)
        if found.tail and (vouched := await self._vouched(run_id)):
            found = read(self._seal, run_id, beginning(run_id), raw, vouched)
        return found, raw

    async def _vouched(self, run_id: str) -> Vouched | None:
        text = await cast("Awaitable[bytes | None]", self._client.hget(self._keys.head(run_id), "vouched"))
        return Vouched.read(text) if text else None

    async def reseal(self, run_id: str) -> bool:
        """Seal a run's history with the present secret, unless it is; whether that was needed.

        The entries stay as they are: the seal is kept in the head. Raises as `load`.
        """
        link = (await self.load(run_id)).link
        seal = self._seal.sign_entry(run_id, link.position, link.digest)
        vouched = await self._vouched(run_id)
        if seal.encode() == link.seal or vouched == Vouched(link.position, seal):
            return False
        # Only where there is a head: one that ends now must not come back without an end.
        await self._vouch(keys=[self._keys.head(run_id)], args=[str(Vouched(link.position, seal))])
        return True

    async def _behind(self, run_id: str, link: Link) -> list[RawEntry] | None:
        """Return what stands behind an entry, believed or not; None where that entry is not found under its id."""
        found = cast("list[StreamEntry]", await self._client.xrange(self._keys.run(run_id), min=link.entry_id))
        raw = [RawEntry.read(entry_id, fields) for entry_id, fields in found]
        # The same seal speaks for the same history, also where that is one pack by now.
        is_there = bool(raw) and (raw[0].id, raw[0].seal) == (link.entry_id, link.seal)
        return raw[1:] if is_there else None

    async def _raw(self, run_id: str, first: str, *, count: int | None = None) -> list[RawEntry]:
        found = cast(
            "list[StreamEntry]",
            await self._client.xrange(self._keys.run(run_id), min=first, count=count),
        )
        return [RawEntry.read(entry_id, fields) for entry_id, fields in unpacked(found, since=first)]

    async def end_of(self, run_id: str, *, on_news: Callable[[Run], None] | None = None) -> Run:
        """Wait until a run has ended, whoever works on it, and return it. Raises RunNotFound.

        A Redis that is away is waited for. `on_news` is given the run as it stands, now and whenever it has changed.
        """
        found: Stored | None = None
        while True:
            try:
                found = await (self.load(run_id) if found is None else self.load_since(run_id, found))
                if found.run.state.is_terminal:
                    return found.run
                if on_news is not None:
                    on_news(found.run)
                last_id = found.tail[-1].id if found.tail else found.link.entry_id
                for _ in range(UNREAD_WAITS):
                    if await self._news.wait(run_id, last_id) or not await self._is_stored(run_id):
                        break
            except StoreUnreachable:
                await asyncio.sleep(FOLLOW_AGAIN_S)

    async def results(self, call_ids: Sequence[str]) -> list[bytes | None]:
        """Return the sealed results of calls, None where there is none yet. Raises StoreUnreachable."""
        if not call_ids:
            return []
        return cast("list[bytes | None]", await self._client.mget([self._keys.result(call_id) for call_id in call_ids]))

    async def known_results(self, call_ids: Sequence[str]) -> dict[str, ToolResult]:
        """The stored results of calls, by id; one that no worker has sealed is none. Raises StoreUnreachable."""
        stored = zip(call_ids, await self.results(call_ids), strict=True)
        read = {call_id: open_or_skip("result", self._seal.open_result, sealed, call_id) for call_id, sealed in stored}
        return {call_id: result for call_id, result in read.items() if result is not None}

    async def runs_among(self, ids: Sequence[str]) -> list[str]:
        """Those of these ids that are stored runs' own. Raises StoreUnreachable."""
        pipeline = self._client.pipeline(transaction=False)
        for id_ in ids:
            pipeline.exists(self._keys.head(id_))
        found: list[int] = await pipeline.execute() if ids else []
        return [id_ for id_, is_stored in zip(ids, found, strict=True) if is_stored]

    async def keep_results(self, call_ids: Sequence[str], until_unix_s: float) -> None:
        """Keep these results until then, because others of their run are still awaited. Raises StoreUnreachable."""
        if not call_ids:
            return
        pipeline = self._client.pipeline(transaction=False)
        for call_id in call_ids:
            pipeline.expireat(self._keys.result(call_id), int(until_unix_s))
        await pipeline.execute()

    async def owner(self, run_id: str) -> str:
        """Return which orchestrator owns the run, "" for none. Raises StoreUnreachable."""
        owner = cast("bytes | None", await self._client.hget(self._keys.head(run_id), "owner"))
        return text_of(owner) if owner else ""

    async def has_lease(self, orchestrator_id: str) -> bool:
        """Whether an orchestrator has a lease that has not lapsed; "" has none. Raises StoreUnreachable."""
        return bool(orchestrator_id and await self._client.exists(self._keys.orchestrator(orchestrator_id)))

    async def tenant(self, run_id: str) -> str:
        """Return whose run it is by its sealed history, "" for nobody's; its head is not asked.

        Raises RunNotFound, RunNotBelieved, NewerVersion, StoreUnreachable.
        """
        # The first entry's own seal suffices, unless its secret is accepted no more.
        raw = (await self._raw(run_id, "-", count=1))[:1]
        entries = read(self._seal, run_id, beginning(run_id), raw).entries
        if entries and isinstance(first := entries[0].event, RunStarted):
            return first.terms.tenant
        return (await self.load(run_id)).run.terms.tenant

    async def heads(
        self,
        *,
        limit: int | None = 50,
        offset: int = 0,
        states: Collection[State] = (),
        tenant: str | None = None,
        since_unix_s: float | None = None,
        awaiting_approval: bool = False,
    ) -> list[Head]:
        """List the heads of stored runs, newest first. Raises StoreUnreachable.

        What is named leaves out other runs: `states`, `tenant`, when the run began (`since_unix_s`), and whether it
        waits for a person (`awaiting_approval`).
        """
        wanted = sys.maxsize if limit is None else limit
        # Where every entry of the list is wanted, it can be entered anywhere.
        is_sifted = bool(states) or tenant == "" or since_unix_s is not None or awaiting_approval

        def is_wanted(head: Head) -> bool:
            return (
                (not states or head.state in states)
                and tenant in {None, head.tenant}
                and head.started_unix_s >= (since_unix_s or 0.0)
                and bool(head.awaiting_approval or not awaiting_approval)
            )

        position, skipped = (0, offset) if is_sifted else (offset, 0)
        listed = self._appendings.listed(tenant or "")
        found: list[Head] = []
        more = True
        while more and len(found) < skipped + wanted:
            more, listed_still, page = await self._page(
                listed, position, PAGE if is_sifted else min(PAGE, wanted - len(found))
            )
            position += listed_still
            found += (head for head in page if is_wanted(head))
        return found[skipped : skipped + wanted]

    async def run_ids(self) -> list[str]:
        """The ids of all stored runs. Raises StoreUnreachable."""
        found = cast("list[bytes]", await self._client.zrange(self._keys.runs(), 0, -1))
        return [text_of(run_id) for run_id in found]

    async def named(self, beginning: str) -> str:
        """Return the id of the one run whose id is this or begins like this. Raises RunNotFound, AmbiguousId."""
        if await self._client.exists(self._keys.head(beginning)):
            return beginning
        found = await self._names.beginning_with(beginning) if beginning else []
        if not found:
            raise RunNotFound(not_stored(beginning))
        first, *others = found
        if others:
            raise AmbiguousId(f"{len(found)} runs have ids that begin with {beginning}, for example {first}")
        return first

    async def follow(self, run_id: str) -> AsyncGenerator[Entry, None]:
        """Yield the events of a run, stored and to come, until it has ended. Raises RunNotFound, StoreUnreachable."""
        run: Run | None = None
        link, last_id = beginning(run_id), FIRST
        while True:
            found = await self._following(run_id, link)
            for entry in found.entries:
                try:
                    run = after(run, entry) if run else Run.start(cast("RunStarted", entry.event))
                except IllegalTransition:
                    last_id = found.entries[-1].id  # until whoever writes next has cut it off
                    break
                link, last_id = entry.link, entry.id
                yield entry
            if run is None or not await self._is_stored(run_id):
                raise RunNotFound(not_stored(run_id))
            if run.state.is_terminal:
                return
            last_id = found.tail[-1].id if found.tail else last_id
            await self._news.wait(run_id, last_id)

    async def _following(self, run_id: str, link: Link) -> Read:
        """What comes after an entry. Raises RunNotFound for one that the store has lost for good, and as `newer`."""
        for _ in range(FOLLOW_LOST):
            found = (await self._read(run_id))[0] if link.position == 0 else await self.newer(run_id, link)
            if found is not None:
                return found
            await asyncio.sleep(FOLLOW_AGAIN_S)  # its owner may be about to write it again
        raise RunNotFound(
            f"run {run_id} goes on from an earlier entry than the last one shown: the store has lost some"
        )

    async def _is_stored(self, run_id: str) -> bool:
        return bool(await self._client.exists(self._keys.run(run_id)))

    async def _page(self, listed: str, offset: int, limit: int) -> tuple[bool, int, list[Head]]:
        """Return whether there may be more, how many of so many runs stay in the list, and the heads that can be read.

        Runs that are gone leave the list.
        """
        ids = cast("list[bytes]", await self._client.zrevrange(listed, offset, offset + limit - 1))
        pipeline = self._client.pipeline(transaction=False)
        for run_id in ids:
            pipeline.hgetall(self._keys.head(text_of(run_id)))
        found: list[dict[bytes, bytes]] = await pipeline.execute() if ids else []
        if gone := [run_id for run_id, head in zip(ids, found, strict=True) if not head]:
            await self._client.zrem(listed, *gone)
        told = [await self.head_of(text_of(run_id), head) for run_id, head in zip(ids, found, strict=True) if head]
        return bool(ids), len(ids) - len(gone), [head for head in told if head]

    async def head_of(self, run_id: str, fields: dict[bytes, bytes]) -> Head | None:
        """Return what a stored head tells, and whose run it is; None for one that nobody of ours has written."""
        head = _head(run_id, fields)
        return head and head._replace(tenant=await self._head_tenant(run_id, fields.get(b"tenant", b"")))

    async def _head_tenant(self, run_id: str, sealed: bytes) -> str | None:
        """Return whose run it is by its head where that is sealed, else by its history; None where neither says so."""
        try:
            return self._seal.open_kept(sealed, self._keys.head(run_id)).decode()
        except Refused:  # somebody else has written it, or its secret is accepted no more
            with suppress(RunNotFound, NewerVersion):
                return await self.tenant(run_id)
            return None

    async def delete(self, run_id: str) -> bool:
        """Delete a run, and what only it was given; False when there was none. Raises StoreUnreachable.

        The orchestrator working on it stops at its next write.
        """
        owner = await self.owner(run_id)
        calls: Sequence[CallRecord] = ()
        with suppress(RunNotFound, RunNotBelieved, NewerVersion):
            calls = (await self.load(run_id)).run.calls
        with suppress(RunNotFound, NewerVersion):  # then it leaves the list when that is read
            tenant = await self.tenant(run_id)
            await self._client.zrem(self._appendings.listed(tenant), run_id)
            await self._client.zrem(self._keys.run_names(), noted(run_id, tenant))
        pipeline = self._client.pipeline(transaction=True)
        pipeline.unlink(self._keys.run(run_id))
        pipeline.unlink(self._keys.head(run_id))
        pipeline.unlink(self._keys.pushes(run_id))
        pipeline.zrem(self._keys.runs(), run_id)
        pipeline.zrem(self._keys.run_states(), run_id)
        pipeline.srem(self._keys.owned(owner), run_id)
        pipeline.set(self._keys.deleted(run_id), "1", ex=DELETED_TTL_S)
        deleted, *_ = await pipeline.execute()
        await self._forget_logs(calls)
        # Behind the mark: what a call of it keeps from now on is not kept.
        await self._artifacts.forget(run_id)
        return bool(deleted)

    async def _forget_logs(self, calls: Sequence[CallRecord]) -> None:
        """Forget what the tools of these calls have logged."""
        for at in range(0, len(calls), AT_ONCE):
            await self._client.unlink(*(self._keys.call_log(call.call_id) for call in calls[at : at + AT_ONCE]))

    # --- a store that came back older ---------------------------------------------------------------------------

    async def restore(self, writes: Sequence[Write]) -> int:
        """Write again what the store has lost of these writes; how many of them. Raises StoreUnreachable.

        Each is stored only behind the entry that it followed: where somebody else has gone on meanwhile, none is.
        """
        begun = [write.run_id for write in writes if write.is_first]
        deleted = {run_id for run_id in begun if await self._client.exists(self._keys.deleted(run_id))}
        wanted = [write for write in writes if write.run_id not in deleted]
        restored = 0
        for start in range(0, len(wanted), AT_ONCE):
            pipeline = self._client.pipeline(transaction=False)
            for write in wanted[start : start + AT_ONCE]:
                await self._run(write, pipeline)
            restored += sum(reply is not None for reply in await pipeline.execute())
        return restored

    async def restore_run(self, run_id: str) -> int:
        """The same for all that this orchestrator remembers of one run."""
        return await self.restore(self._recent.of(run_id)) if self._recent else 0

    async def restore_since(self, at_s: float) -> int:
        """The same for all that it has written from that moment on, by our monotonic clock."""
        return await self.restore(self._recent.since(at_s)) if self._recent else 0

    def note_read(self, run: Run, entry: Entry, follows: Link) -> None:
        """Remember an entry of others that our own follow, to be written again as ours; `run` is what it led to."""
        event = entry.event.__pydantic_serializer__.to_json(entry.event)
        if self._recent is not None and follows.digest_with(event) == entry.link.digest:
            owner = getattr(entry.event, "orchestrator_id", "")
            self._note(self._appendings.again(run, entry, event, follows, Heading(owner=owner)))

    def _note(self, write: Appending) -> None:
        if self._recent is not None:
            is_first = write.follows.position == 0
            run_id, size = write.run.run_id, len(write.event)
            self._recent.note(run_id, write.keys, write.args, is_first=is_first, event_bytes=size, owes=write.owes)

    async def holds(self, run_id: str, link: Link) -> bool:
        """Whether this is the newest entry of a run. Raises StoreUnreachable."""
        newest = cast("list[StreamEntry]", await self._client.xrevrange(self._keys.run(run_id), count=1))
        return bool(newest) and newest[0][1].get(b"s") == link.seal

    async def owned(self, orchestrator_id: str) -> list[str]:
        """Return the runs that are an orchestrator's, as far as their heads are right. Raises StoreUnreachable."""
        found = await cast("Awaitable[set[bytes]]", self._client.smembers(self._keys.owned(orchestrator_id)))
        return [text_of(run_id) for run_id in found]

    async def disown(self, run_id: str, owner: str, *, model: str | None = None) -> None:
        """Let go of a run that nobody can work on, or that others of this model may. Raises StoreUnreachable."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.srem(self._keys.owned(owner), run_id)
        pipeline.hdel(self._keys.head(run_id), "owner")
        if model is not None:
            pipeline.sadd(self._keys.unowned(model), run_id)
            pipeline.expire(self._keys.unowned(model), int(self._settings.keep_unfinished_s))
        await pipeline.execute()

    async def count(self, what: str) -> None:
        """Count a rare thing. Raises StoreUnreachable."""
        await self._client.hincrby(self._keys.counters(), what, 1)

    async def notify(self, run_id: str) -> None:
        """Tell the run's owner that somebody else has written to it. Raises StoreUnreachable."""
        await self.tell(await self.owner(run_id), run_id)

    async def tell(self, owner: str, run_id: str) -> None:
        """Tell an orchestrator that somebody else has written to a run. Raises StoreUnreachable."""
        if owner:
            await self._client.xadd(self._keys.replies(owner), {"run": run_id})

    def _run(self, write: Appending | Write, client: Any = None) -> Awaitable[Any]:
        """Give the command that stores an entry, to the server or to a pipeline."""
        script = self._append_owing if write.owes else self._append
        return script(keys=write.keys, args=write.args, client=client)

    async def _stored(self, write: Appending, reply: list[Any] | None) -> Link | None:
        """Take note of what has come of a write. Returns its place, or None when it is not stored."""
        if reply is None:
            return None
        entry_id, outcome = reply
        run, link = write.run, write.link
        if outcome == ALREADY:
            await self._replace_unless_believed(run)
        self._note(write)
        if write.owes:
            self._on_owed()
        if self._packing is not None and run.state.is_terminal:
            self._packing.has_ended(run.run_id, link.seal)
        return Link(link.position, link.digest, link.seal, entry_id.decode())

    async def _replace_unless_believed(self, run: Run) -> None:
        """Put a run's answer in the place of a result of its call that no worker has sealed."""
        parent = run.parent_call_id or ""
        result = TrueResult(parent, self._seal.close_result(result_for_parent(run), parent), "nobody")
        await replace_forged(self._client, self._keys, self._seal, result)


def not_stored(run_id: str) -> str:
    """Return why a run is not found, for whoever asks for it."""
    why = "its id is wrong, it ended longer ago than runs are kept, or it was another fleet's"
    return f"no run {run_id} is stored here: {why}"


def not_believed(run_id: str) -> str:
    """Return why a run that is stored is as good as none."""
    return (
        f"run {run_id} is stored here and not by this fleet: its first entry is not sealed with our secret. If the "
        "secret was changed, set the one of that time as TOOLFLEET_PREVIOUS_SECRET"
    )


def title_of(messages: Sequence[Message]) -> str:
    """Return what a run was asked first, on one line, shortened."""
    asked = next((described(message) for message in messages if isinstance(message, UserMessage)), "")
    whole = " ".join(asked.split())
    return whole if len(whole) <= TITLE_CHARS else f"{whole[: TITLE_CHARS - 1]}…"


def _head(run_id: str, head: dict[bytes, bytes]) -> Head | None:
    """Return what a head tells; None for one that nobody of ours has written."""
    try:
        return _read_head(run_id, {text_of(name): text_of(value) for name, value in head.items()})
    except (LookupError, ValueError) as error:
        skip("head", error, run_id=run_id)
        return None


def _read_head(run_id: str, text: dict[str, str]) -> Head:
    return Head(
        run_id=run_id,
        state=State(text["state"]),
        owner=text.get("owner", ""),
        model=text.get("model", ""),
        title=text.get("title", ""),
        turn=int(text.get("turn", 0)),
        calls=int(text.get("calls", 0)),
        started_unix_s=int(text.get("started_ms", 0)) / 1000,
        updated_unix_s=int(text.get("updated_ms", 0)) / 1000,
        awaiting_approval=int(text.get("awaiting", 0)),
    )
