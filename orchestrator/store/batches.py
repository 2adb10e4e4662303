"""How batches stand: one sealed record of each, and a list for each tenant, those first that are kept longest.

These are the open ones, and behind them those that ended last.

A batch needs none of this to go on: what is done says its output, what is under way the store of runs. This is for
those who look on, and for the one word that they may say to it: cancel.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, cast

import orjson
import redis.asyncio
from pydantic import Field, ValidationError

from toolfleet.calls import Record
from toolfleet.errors import Refused
from toolfleet.messages import Usage
from toolfleet.orchestrator.errors import BadCursor, BatchNotFound, BatchNotOpen
from toolfleet.orchestrator.store.run_pages import place_in
from toolfleet.orchestrator.store.run_store import Head, RunStore
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.wire import Seal

RUN_CHARS: Final = 20
"""How many characters of a run's id are its own; those before them are its batch's."""

STEP: Final = 100
"""How many names are read at once."""

STEPS: Final = 25
"""How often one page reads on where names are others': those of agents below runs."""


class BatchState(StrEnum):
    """Where a batch stands."""

    RUNNING = "running"
    DONE = "done"
    """Each line has its line of output; some of them may have failed."""
    INTERRUPTED = "interrupted"
    """It was stopped, or its process is gone. Runs that it had begun may go on; the same command takes them up."""
    CANCELLED = "cancelled"


class BatchRecord(Record):
    """A batch as its process has noted it. Figures are of the whole batch, whenever its lines were written."""

    v: Literal[1] = 1
    batch_id: str
    """What the ids of its runs begin with, but for the last hyphen."""
    tenant: str = ""
    model: str = ""
    by: str = ""
    """Who has started it last."""
    source: str = ""
    """The file of its lines, as it was named; "-" for standard input."""
    target: str = ""
    state: BatchState = BatchState.RUNNING
    reason: str = ""
    """Why it was stopped."""
    orchestrator_id: str = ""
    """Whose lease says that it still runs."""
    starts: int = 1
    """How often it was started: the first time, and after interruptions."""
    lines: int = 0
    """How many are asked for."""
    ok: int = 0
    failed: int = 0
    refused: int = 0
    """Lines that could not be asked at all; they are among the failed."""
    in_hand: int = 0
    """Runs that have begun and whose lines are not written."""
    calls: int = 0
    failed_calls: int = 0
    usage: Usage = Field(default_factory=Usage)
    cost: float | None = None
    """By the prices that were given with the command, in their currency; None without."""
    began_unix_s: float = 0.0
    started_unix_s: float = 0.0
    """When it was started last."""
    updated_unix_s: float = 0.0
    ended_unix_s: float | None = None

    @property
    def written(self) -> int:
        """How many lines have their line of output."""
        return self.ok + self.failed

    @property
    def is_open(self) -> bool:
        """Whether there is anything to cancel."""
        return self.state in {BatchState.RUNNING, BatchState.INTERRUPTED}

    def owns(self, run_id: str) -> bool:
        """Whether a run is that of one of its lines."""
        return run_id.startswith(f"{self.batch_id}-") and len(run_id) == len(self.batch_id) + 1 + RUN_CHARS


class BatchPage(NamedTuple):
    """Some batches, and what the next page is asked for with; empty when there is none."""

    batches: list[BatchRecord]
    after: str


class BatchRunPage(NamedTuple):
    """Some runs of a batch, likewise."""

    heads: list[Head]
    after: str


class Batches:
    """Writes and reads these records. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._keys = settings.keys
        self._seal = seal
        self._store = RunStore(client, settings, seal)

    # --- for the batch itself -----------------------------------------------------------------------------------

    async def save(self, record: BatchRecord) -> str:
        """Note how a batch stands. Returns who wants it cancelled, "" for nobody: one round trip."""
        key, listed = self._keys.batch(record.batch_id), self._keys.batches_of(record.tenant)
        settings = self._settings
        keep_ms = int(1000 * (settings.keep_unfinished_s if record.is_open else settings.keep_done_s))
        now_ms = int(time.time() * 1000)
        pipeline = self._client.pipeline(transaction=True)
        pipeline.set(key, self._seal.close_kept(record.model_dump_json().encode(), key), px=keep_ms)
        pipeline.zremrangebyscore(listed, "-inf", now_ms)
        pipeline.zadd(listed, {record.batch_id: now_ms + keep_ms})
        pipeline.pexpire(listed, keep_ms, gt=True)
        pipeline.pexpire(listed, keep_ms, nx=True)
        pipeline.get(self._keys.batch_cancel(record.batch_id))
        *_, mark = await pipeline.execute()
        return self._asked_to_cancel(mark, record)

    async def known(self, batch_id: str) -> BatchRecord | None:
        """Return what is noted of a batch, whoever's it is; None for nothing that is believed."""
        return self._opened(batch_id, cast("bytes | None", await self._client.get(self._keys.batch(batch_id))))

    # --- for those who look on ----------------------------------------------------------------------------------

    async def load(self, batch_id: str, *, tenant: str | None = None) -> BatchRecord:
        """Return how a batch of a tenant stands, or of anybody's. Raises BatchNotFound."""
        record = await self.known(batch_id)
        if record is None or tenant not in {None, record.tenant}:
            raise BatchNotFound(f"no batch {batch_id[:100]} is noted here: its id is wrong, or it ended long ago")
        [record] = await self._as_they_stand([record])
        return record

    async def page(self, *, tenant: str, limit: int, after: str = "") -> BatchPage:
        """Return so many batches of a tenant, those first that are kept longest. Raises BadCursor."""
        listed, at = self._keys.batches_of(tenant), await self._begins(tenant, after)
        found: list[BatchRecord] = []
        while True:
            names = cast(
                "list[tuple[bytes, float]]",
                await self._client.zrevrange(listed, at, at + limit - len(found) - 1, withscores=True),
            )
            if not names:
                return BatchPage(await self._as_they_stand(found), "")
            ids = [text_of(name) for name, _ in names]
            keys = [self._keys.batch(batch_id) for batch_id in ids]
            texts = cast("list[bytes | None]", await self._client.mget(keys))
            read = [self._opened(batch_id, text) for batch_id, text in zip(ids, texts, strict=True)]
            found += [each for each in read if each is not None and each.tenant == tenant]
            at += len(names)
            if len(found) == limit:
                return BatchPage(await self._as_they_stand(found), f"{names[-1][1]:.0f}_{ids[-1]}")

    async def runs(self, record: BatchRecord, *, limit: int, after: str = "") -> BatchRunPage:
        """Return so many runs of a batch, in the order of their ids, behind one of them. Raises BadCursor."""
        if after and not after.startswith(f"{record.batch_id}-"):
            raise BadCursor("this cursor is none of this batch: begin without one")
        found: list[Head] = []
        first = f"[{after}\x01" if after else f"[{record.batch_id}-"
        for _ in range(STEPS):
            names = [text_of(name) for name in await self._named(first, record.batch_id)]
            ids = [name.partition("\0")[0] for name in names]
            for head in await self._heads([run_id for run_id in ids if record.owns(run_id)]):
                if head.tenant == record.tenant:
                    found.append(head)
                if len(found) == limit:
                    return BatchRunPage(found, head.run_id)
            if len(names) < STEP:
                return BatchRunPage(found, "")
            first, after = f"({names[-1]}", ids[-1]
        return BatchRunPage(found, after)

    async def cancel(self, batch_id: str, *, tenant: str | None, by: str) -> BatchRecord:
        """Ask a batch to stop, and to cancel what it has begun. Raises BatchNotFound, BatchNotOpen."""
        record = await self.load(batch_id, tenant=tenant)
        if not record.is_open:
            raise BatchNotOpen(f"batch {batch_id} is {record.state}")
        key = self._keys.batch_cancel(batch_id)
        asked = orjson.dumps([record.starts, by])
        await self._client.set(key, self._seal.close_kept(asked, key), ex=int(self._settings.keep_unfinished_s))
        if record.state is BatchState.INTERRUPTED:
            now = time.time()
            record = record.model_copy(
                update={"state": BatchState.CANCELLED, "reason": cancelled_by(by), "ended_unix_s": now}
            )
            await self.save(record)
        return record

    # --- what is believed ---------------------------------------------------------------------------------------

    def _asked_to_cancel(self, mark: bytes | None, record: BatchRecord) -> str:
        if mark is None:
            return ""
        try:
            starts, by = orjson.loads(self._seal.open_kept(mark, self._keys.batch_cancel(record.batch_id)))
        except (Refused, ValueError, TypeError):
            return ""
        # One that was meant for an earlier start says nothing of this one.
        return str(by) or "somebody" if starts == record.starts else ""

    def _opened(self, batch_id: str, sealed: bytes | None) -> BatchRecord | None:
        if sealed is None:
            return None
        try:
            record = BatchRecord.model_validate_json(self._seal.open_kept(sealed, self._keys.batch(batch_id)))
        except (Refused, ValidationError) as error:
            skip("batch", type(error).__name__, batch_id=batch_id)
            return None
        return record

    async def _as_they_stand(self, records: Sequence[BatchRecord]) -> list[BatchRecord]:
        """Say of those whose process has lost its lease that they were interrupted."""
        running = [each for each in records if each.state is BatchState.RUNNING]
        pipeline = self._client.pipeline(transaction=False)
        for each in running:
            pipeline.exists(self._keys.orchestrator(each.orchestrator_id))
        alive = await pipeline.execute() if running else []
        gone = {each.batch_id for each, lives in zip(running, alive, strict=True) if not lives}
        lost = {"state": BatchState.INTERRUPTED, "reason": "its process is gone"}
        return [each.model_copy(update=lost) if each.batch_id in gone else each for each in records]

    async def _begins(self, tenant: str, after: str) -> int:
        score, last = place_in(after)
        if not last:
            return 0
        listed = self._keys.batches_of(tenant)
        rank = cast("int | None", await self._client.zrevrank(listed, last))
        return rank + 1 if rank is not None else await self._client.zcount(listed, f"({score}", "+inf")

    async def _named(self, first: str, batch_id: str) -> list[bytes]:
        """Return the names of runs of a batch, and of those below them, from there on."""
        last = f"({batch_id}."  # a dot follows a hyphen
        found = await self._client.zrangebylex(
            self._keys.run_names(), cast("Any", first.encode()), cast("Any", last.encode()), start=0, num=STEP
        )
        return cast("list[bytes]", found)

    async def _heads(self, run_ids: Sequence[str]) -> list[Head]:
        pipeline = self._client.pipeline(transaction=False)
        for run_id in run_ids:
            pipeline.hgetall(self._keys.head(run_id))
        fields = await pipeline.execute() if run_ids else []
        told = [await self._store.head_of(run_id, each) for run_id, each in zip(run_ids, fields, strict=True) if each]
        return [head for head in told if head is not None]


def cancelled_by(by: str) -> str:
    """Return why a batch, and each of its runs, was cancelled."""
    return f"the batch was cancelled by {by}" if by else "the batch was cancelled"
