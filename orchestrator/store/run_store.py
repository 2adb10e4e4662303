"""A run in Redis: an append-only stream of its events. The run is read back by folding them.

Every write names the entry it follows. One that follows an older entry is refused, whoever makes it: so two
orchestrators can never both go on with a run, and whoever lost it learns so from the entries it missed. Beside the
stream stands a small hash, the run's head, for lists and for those who must know the owner; it is written in the same
script and is never asked what a run is.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import orjson
import redis.asyncio

from toolfleet.calls import ToolResult
from toolfleet.errors import Refused, StoreUnreachable
from toolfleet.logs import FactLog
from toolfleet.messages import Message, UserMessage
from toolfleet.orchestrator.errors import AmbiguousId, RunNotFound
from toolfleet.orchestrator.run.events import RUN_EVENT, RunAdopted, RunEvent, RunResumed, RunStarted
from toolfleet.orchestrator.run.outcome import result_for_parent
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.value import Run
from toolfleet.replies import CLOCK, TELL
from toolfleet.scripts import lua
from toolfleet.settings import Settings
from toolfleet.skipped import skip, text_of
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")

FIRST: Final = "0-0"
"""What the first event of a stream follows."""

FOLLOW_BLOCK_MS: Final = 5000
"""How long one read waits for news of a run; a deleted one is noticed as late as that."""

FOLLOW_AGAIN_S: Final = 1.0

TITLE_CHARS: Final = 100

PAGE: Final = 500
"""How many heads are read at once where only some are wanted."""

SCAN_COUNT: Final = 5000

APPEND: Final = lua(__package__, "append", before=f"{TELL}\n{CLOCK}")


class Entry(NamedTuple):
    """One stored event, and where it stands."""

    id: str
    event: RunStarted | RunEvent


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
    tenant: str = ""
    awaiting_approval: int = 0
    """How many of its calls a person has to decide about."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A run as it was read, and the entry that its next event follows."""

    run: Run
    last_id: str


class RunStore:
    """Writes events down before what they announce is done, and reads them back."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        settings: Settings,
        seal: Seal,
        *,
        blocking_client: redis.asyncio.Redis | None = None,
    ) -> None:
        """`blocking_client` is for reads that wait on the server; None: `client` may be used for them."""
        self._client = client
        self._blocking_client = blocking_client or client
        self._settings = settings
        self._seal = seal
        self._keys = settings.keys
        self._append = client.register_script(APPEND)

    async def begin(self, started: RunStarted, *, owner: str = "") -> Stored | None:
        """Store a run's first event. Returns the run, or None when one with this id is stored already.

        A run without an owner waits for any orchestrator with its model. Raises StoreUnreachable.
        """
        run = Run.start(started)
        head = {
            "model": started.model,
            "title": _title(started.messages),
            "started_ms": int(started.started_unix_s * 1000),
            "tenant": started.terms.tenant,
        }
        last_id = await self._write(run, started, FIRST, owner=owner, may_be_adopted=not owner, head=head)
        return Stored(run, last_id) if last_id else None

    async def append(self, run: Run, event: RunEvent, *, follows: str) -> str | None:
        """Store an event behind the entry that it follows; `run` is what it leads to.

        Returns the id of its entry, or None when it is not stored because others have written since. Raises
        StoreUnreachable; then the event may be stored or not, and nothing that follows from it may be done.
        """
        return await self._write(run, event, follows, may_be_adopted=isinstance(event, RunResumed))

    async def entries(self, run_id: str, *, after: str = FIRST) -> list[Entry]:
        """Return the events of a run that come after an entry. Raises StoreUnreachable."""
        found = cast(
            "list[tuple[bytes, dict[bytes, bytes]]]",
            await self._client.xrange(self._keys.run(run_id), min=f"({after}"),
        )
        return [
            Entry(entry_id.decode(), RUN_EVENT.validate_json(fields[b"e"], extra="ignore"))
            for entry_id, fields in found
        ]

    async def load(self, run_id: str) -> Stored:
        """Read a run back from its events. Raises RunNotFound, StoreUnreachable."""
        entries = await self.entries(run_id)
        if not entries or not isinstance(entries[0].event, RunStarted):
            raise RunNotFound(not_stored(run_id))
        run = folded(Run.start(entries[0].event), entries[1:])
        return Stored(run, entries[-1].id)

    async def end_of(self, run_id: str, *, on_news: Callable[[Run], None] | None = None) -> Run:
        """Wait until a run has ended, whoever works on it, and return it. Raises RunNotFound.

        A Redis that is away is waited for. `on_news` is given the run as it stands, now and whenever it has changed.
        """
        while True:
            try:
                stored = await self.load(run_id)
                if stored.run.state.is_terminal:
                    return stored.run
                if on_news is not None:
                    on_news(stored.run)
                key = self._keys.run(run_id)
                await self._blocking_client.xread({key: stored.last_id}, count=1, block=FOLLOW_BLOCK_MS)
            except StoreUnreachable:
                await asyncio.sleep(FOLLOW_AGAIN_S)

    async def results(self, call_ids: Sequence[str]) -> list[bytes | None]:
        """Return the sealed results of calls, None where there is none yet. Raises StoreUnreachable."""
        if not call_ids:
            return []
        return cast("list[bytes | None]", await self._client.mget([self._keys.result(call_id) for call_id in call_ids]))

    async def known_results(self, call_ids: Sequence[str]) -> dict[str, ToolResult]:
        """The stored results of calls, by id; one that no worker has sealed is none. Raises StoreUnreachable."""
        found: dict[str, ToolResult] = {}
        for call_id, sealed in zip(call_ids, await self.results(call_ids), strict=True):
            if sealed is not None:
                try:
                    found[call_id] = self._seal.open_result(sealed, call_id)
                except Refused as refusal:
                    skip("result", str(refusal), call_id=call_id)
        return found

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

    async def tenant(self, run_id: str) -> str:
        """Return whose run it is, "" for nobody's. Raises RunNotFound, StoreUnreachable."""
        reply = self._client.hmget(self._keys.head(run_id), ["state", "tenant"])
        state, tenant = await cast("Awaitable[list[bytes | None]]", reply)
        if state is None:
            raise RunNotFound(not_stored(run_id))
        return text_of(tenant or b"")

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
        listed = self._listed(tenant or "")
        found: list[Head] = []
        more = True
        while more and len(found) < skipped + wanted:
            more, listed_still, page = await self._page(
                listed, position, PAGE if is_sifted else min(PAGE, wanted - len(found))
            )
            position += listed_still
            found += (head for head in page if is_wanted(head))
        return found[skipped : skipped + wanted]

    async def named(self, beginning: str) -> str:
        """Return the id of the one run whose id is this or begins like this. Raises RunNotFound, AmbiguousId."""
        if await self._client.exists(self._keys.head(beginning)):
            return beginning
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", beginning) + "*"
        scan = self._client.zscan_iter(self._keys.runs(), match=pattern, count=SCAN_COUNT)
        found = sorted({text_of(cast("bytes", run_id)) async for run_id, _ in scan}) if beginning else []
        if not found:
            raise RunNotFound(not_stored(beginning))
        first, *others = found
        # Runs below a run have its id and more.
        if not all(other.startswith(f"{first}.") for other in others):
            raise AmbiguousId(f"{len(found)} runs have ids that begin with {beginning}, for example {first}")
        return first

    async def follow(self, run_id: str) -> AsyncGenerator[Entry, None]:
        """Yield the events of a run, stored and to come, until it has ended. Raises RunNotFound, StoreUnreachable."""
        run: Run | None = None
        last_id = FIRST
        while True:
            for entry in await self.entries(run_id, after=last_id):
                last_id = entry.id
                run = Run.start(entry.event) if isinstance(entry.event, RunStarted) else run and run.on(entry.event)
                yield entry
            if run is None or not await self._is_stored(run_id):
                raise RunNotFound(not_stored(run_id))
            if run.state.is_terminal:
                return
            await self._blocking_client.xread({self._keys.run(run_id): last_id}, count=1, block=FOLLOW_BLOCK_MS)

    async def _is_stored(self, run_id: str) -> bool:
        return bool(await self._client.exists(self._keys.run(run_id)))

    def _listed(self, tenant: str) -> str:
        """Return the list that holds the runs of a tenant; runs without one are in that of all only."""
        return self._keys.runs_of(tenant) if tenant else self._keys.runs()

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
        heads = (_head(text_of(run_id), head) for run_id, head in zip(ids, found, strict=True) if head)
        return bool(ids), len(ids) - len(gone), [head for head in heads if head is not None]

    async def delete(self, run_id: str) -> bool:
        """Delete a run; False when there was none. Raises StoreUnreachable.

        The orchestrator working on it stops at its next write.
        """
        owner = await self.owner(run_id)
        with suppress(RunNotFound):
            await self._client.zrem(self._listed(await self.tenant(run_id)), run_id)
        pipeline = self._client.pipeline(transaction=True)
        pipeline.unlink(self._keys.run(run_id))
        pipeline.unlink(self._keys.head(run_id))
        pipeline.zrem(self._keys.runs(), run_id)
        pipeline.srem(self._keys.owned(owner), run_id)
        deleted, *_ = await pipeline.execute()
        return bool(deleted)

    async def notify(self, run_id: str) -> None:
        """Tell the run's owner that somebody else has written to it. Raises StoreUnreachable."""
        await self.tell(await self.owner(run_id), run_id)

    async def tell(self, owner: str, run_id: str) -> None:
        """Tell an orchestrator that somebody else has written to a run. Raises StoreUnreachable."""
        if owner:
            await self._client.xadd(self._keys.replies(owner), {"run": run_id})

    async def _write(
        self,
        run: Run,
        event: RunStarted | RunEvent,
        follows: str,
        *,
        owner: str = "",
        may_be_adopted: bool = False,
        head: dict[str, Any] | None = None,
    ) -> str | None:
        keys = self._keys
        parent = run.parent_call_id or ""
        ends = bool(parent) and run.state.is_terminal
        fields = {"turn": run.turn, "calls": len(run.calls), "awaiting": _awaiting(run), **(head or {})}
        entry_id: bytes | None = await self._append(
            keys=[
                keys.run(run.run_id),
                keys.head(run.run_id),
                keys.runs(),
                keys.unowned(run.model),
                self._listed(run.terms.tenant),
            ],
            args=[
                follows,
                event.__pydantic_serializer__.to_json(event),
                run.state.value,
                int(run.state.is_terminal),
                int(self._ttl_s(run) * 1000),
                run.run_id,
                owner,
                int(may_be_adopted),
                parent,
                self._seal.close_result(result_for_parent(run), parent) if ends else "",
                keys.result(""),
                keys.replies(""),
                keys.owned(""),
                *(part for field in fields.items() for part in field),
            ],
        )
        return entry_id.decode() if entry_id else None

    def _ttl_s(self, run: Run) -> float:
        settings = self._settings
        match run.state:
            case State.DONE:
                return run.terms.keep_s or settings.keep_done_s
            case State.FAILED:
                return run.terms.keep_s or settings.keep_failed_s
            case State.CANCELLED:
                return run.terms.keep_s or settings.keep_cancelled_s
            case _:
                return settings.keep_unfinished_s


def folded(run: Run, entries: Sequence[Entry]) -> Run:
    """Return the run after these events."""
    for entry in entries:
        assert not isinstance(entry.event, RunStarted)  # noqa: S101  # a stream has one beginning
        run = run.on(entry.event)
    return run


def adoption(orchestrator_id: str) -> bytes:
    """Return the event that makes an orchestrator the owner, as it is stored."""
    return orjson.dumps(RunAdopted(orchestrator_id=orchestrator_id).model_dump())


def not_stored(run_id: str) -> str:
    """Return why a run is not found, for whoever asks for it."""
    why = "its id is wrong, it ended longer ago than runs are kept, or it was another fleet's"
    return f"no run {run_id} is stored here: {why}"


def _title(messages: Sequence[Message]) -> str:
    asked = next((message.content for message in messages if isinstance(message, UserMessage)), "")
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
        tenant=text.get("tenant", ""),
        awaiting_approval=int(text.get("awaiting", 0)),
    )


def _awaiting(run: Run) -> int:
    """Return how many calls wait for a person; they are looked for only where there can be any."""
    return len(run.awaiting_approval) if run.state in {State.CALLING, State.PARKED} else 0
