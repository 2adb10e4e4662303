"""The dead letters: messages that no worker could handle, read, dropped, and put back into their queues.

Knows the store, the seal and the catalog; it must not know runs. What is not signed by this fleet is never put back,
whoever asks for it.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self, cast

import orjson
import redis.asyncio

from toolfleet.calls import Failed, FailureKind, Returned, Submitted, ToolCall
from toolfleet.catalog import version_unserved
from toolfleet.errors import Refused
from toolfleet.orchestrator.errors import BadCursor, DeadLetterNotFound
from toolfleet.orchestrator.fleet.catalog import Catalog
from toolfleet.orchestrator.fleet.envelopes import task_message
from toolfleet.orchestrator.fleet.publishers import Publisher
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.streams.direct import TaskMessage
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

_PAGE: Final = 100
"""Entries in one read; each may hold a text of 64 KiB."""

LOOKED_AT: Final = 1000
"""Letters that one look reads, whatever it looks for."""

_COUNT: Final = re.compile(r"[0-9]{1,9}")
"""What can be read as a number of deliveries, whoever wrote it."""

_LETTER_ID: Final = re.compile(r"[1-9][0-9]{0,18}-[0-9]{1,19}")
"""What Redis understands, as an id and as what to read behind."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message and why it lies here. Everything but `letter_id` and `reason` is as the message itself had it.

    `text` and `mac` are the envelope if there is one; `raw` holds what else the transport kept of an entry.
    """

    letter_id: str
    reason: str
    tool: str
    call_id: str
    deliveries: int | None
    queue: str
    text: str
    mac: str
    raw: Mapping[str, str]

    @classmethod
    def read(cls, letter_id: str, fields: Mapping[bytes, bytes]) -> Self:
        """The letter in an entry, whoever wrote it and whatever it holds."""
        named = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
        raw = {name.removeprefix("raw:"): value for name, value in named.items() if name.startswith("raw:")}
        headers = _object(raw.get("h", ""))
        text, mac = (named["text"], named.get("mac", "")) if "text" in named else _envelope(raw.get("b", ""))
        return cls(
            letter_id=letter_id,
            reason=named.get("reason", ""),
            tool=named.get("task") or str(headers.get("task") or ""),
            call_id=named.get("id") or str(headers.get("id") or ""),
            deliveries=int(named["deliveries"]) if _COUNT.fullmatch(named.get("deliveries", "")) else None,
            queue=named.get("queue", ""),
            text=text,
            mac=mac,
            raw=raw,
        )

    @property
    def buried_at(self) -> datetime:
        """When it came here, by the clock of Redis."""
        return datetime.fromtimestamp(int(self.letter_id.partition("-")[0]) / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The call of a letter is in its queue again. `result` is what it ended in; None if that is not known yet.

    `call_id` is the envelope's own; the message around it may have said another.
    """

    letter: DeadLetter
    call_id: str
    queue: str
    result: Returned | Failed | Submitted | None = None


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """Nothing was put back, and the letter still lies here."""

    letter: DeadLetter
    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found among the letters that it has read, newest first."""

    found: tuple[DeadLetter, ...]
    after: str
    """The last letter that it has read, if there may be older ones; "" otherwise."""


class DeadLetters:
    """The dead letters of one fleet. Raises StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._stream = settings.keys.dead_letters()

    async def newest(self, *, reason: str = "", limit: int | None = None) -> list[DeadLetter]:
        """The letters whose reason contains `reason`, newest first, at most `limit`."""
        found: list[DeadLetter] = []
        async with aclosing(self.each()) as letters:
            async for letter in letters:
                if reason.lower() in letter.reason.lower():
                    found.append(letter)
                if limit is not None and len(found) >= limit:
                    break
        return found

    async def each(self, after: str = "") -> AsyncGenerator[DeadLetter, None]:
        """Yield all letters, newest first, or those older than the one named. Raises BadCursor."""
        if after and not _LETTER_ID.fullmatch(after):
            raise BadCursor("this cursor was not given out here: begin without one")
        before = f"({after}" if after else "+"
        while entries := await self._page(before):
            for letter_id, fields in entries:
                yield DeadLetter.read(letter_id.decode(), fields)
            before = f"({entries[-1][0].decode()}"

    async def look(self, is_wanted: Callable[[DeadLetter], bool], *, after: str = "") -> Look:
        """Look through the LOOKED_AT newest letters, or through as many behind the one named. Raises BadCursor."""
        found: list[DeadLetter] = []
        read, last = 0, ""
        async with aclosing(self.each(after)) as letters:
            async for letter in letters:
                if read == LOOKED_AT:
                    return Look(tuple(found), last)
                read, last = read + 1, letter.letter_id
                if is_wanted(letter):
                    found.append(letter)
        return Look(tuple(found), "")

    async def latest(self, at_most: int) -> list[DeadLetter]:
        """The newest letters, in one command that reads no more of them."""
        page = await self._page("+", "-", at_most)
        return [DeadLetter.read(letter_id.decode(), fields) for letter_id, fields in page]

    async def _page(self, last: str, first: str = "-", at_most: int = _PAGE) -> list[tuple[bytes, dict[bytes, bytes]]]:
        page = await self._client.xrevrange(self._stream, max=last, min=first, count=at_most)
        return cast("list[tuple[bytes, dict[bytes, bytes]]]", page)

    async def named(self, ids: Sequence[str]) -> list[DeadLetter]:
        """The letters with these ids, or about the calls with these ids. Raises DeadLetterNotFound."""
        chosen: dict[str, DeadLetter] = {}
        for wanted in ids:
            matching = await (self._with_id(wanted) if _LETTER_ID.fullmatch(wanted) else self._about(wanted))
            if not matching:
                raise DeadLetterNotFound(f"no dead letter {wanted!r}: `toolfleet dead list` shows their ids")
            chosen |= {letter.letter_id: letter for letter in matching}
        return list(chosen.values())

    async def _with_id(self, letter_id: str) -> list[DeadLetter]:
        return [DeadLetter.read(letter_id, fields) for _, fields in await self._page(letter_id, letter_id)]

    async def _about(self, call_id: str) -> list[DeadLetter]:
        async with aclosing(self.each()) as letters:
            return [letter async for letter in letters if letter.call_id == call_id]

    async def drop(self, letters: Sequence[DeadLetter]) -> int:
        """Delete letters for good; how many of them still lay here."""
        if not letters:
            return 0
        dropped: int = await self._client.xdel(self._stream, *(letter.letter_id for letter in letters))
        return dropped


class Replay:
    """Puts the calls of letters back into their queues, under the call ids they had.

    A letter is deleted once its call is in the queue, so a crash in between may replay a call twice but loses none.
    """

    def __init__(
        self, client: redis.asyncio.Redis, settings: Settings, publisher: Publisher, *, timeout_s: float | None = None
    ) -> None:
        self._client = client
        self._settings = settings
        self._publisher = publisher
        self._timeout_s = timeout_s
        self._seal = Seal(settings)
        # Ours, for the push. The stored result is there for whoever else waits for the call.
        self._reply_to = f"dead-{secrets.token_hex(8)}"

    async def replay(
        self, letters: Sequence[DeadLetter], *, force: bool = False, wait_s: float = 0.0
    ) -> list[Replayed | NotReplayed]:
        """What became of each letter, in order, after at most `wait_s`.

        Refuses what this fleet did not sign, what no live worker serves, and the second letter of one call. Without
        `force` also calls whose effect could happen twice, and those that have a result other than "crashed" by now.
        Raises BrokerUnreachable, StoreUnreachable.
        """
        catalog = Catalog(self._client, self._settings)
        await catalog.offered()
        outcomes: list[Replayed | NotReplayed] = []
        messages: dict[str, TaskMessage] = {}
        for letter in letters:
            try:
                call, spec = await self._believed(letter, catalog, force=force)
                if call.call_id in messages:
                    raise Refused("another letter of the same call is replayed already")
                messages[call.call_id] = self._message(call, spec, catalog.routes.lane(spec))
            except Refused as refusal:
                outcomes.append(NotReplayed(letter, str(refusal)))
            else:
                outcomes.append(Replayed(letter, call.call_id, spec.queue))
        await self._put_back(messages, [outcome.letter for outcome in outcomes if isinstance(outcome, Replayed)])
        results = await self._results(list(messages), wait_s)
        return [
            replace(outcome, result=results.get(outcome.call_id)) if isinstance(outcome, Replayed) else outcome
            for outcome in outcomes
        ]

    def signature(self, letter: DeadLetter) -> str:
        """Why the letter's envelope is not to be believed; empty if its signature holds now."""
        try:
            self._seal.open_call(letter.text, letter.mac)
        except Refused as refusal:
            return str(refusal)
        return ""

    async def _believed(self, letter: DeadLetter, catalog: Catalog, *, force: bool) -> tuple[ToolCall, ToolSpec]:
        try:
            call = self._seal.open_call(letter.text, letter.mac)
        except Refused as refusal:
            raise Refused(f"{refusal}: only what this fleet has signed is ever run") from None
        spec = catalog.in_version(call.tool, call.version)
        if spec is None and call.version:
            raise Refused(
                f"{version_unserved(call.tool, call.version, catalog.versions.get(call.tool, ()))}: start one"
            )
        if spec is None:
            raise Refused(f"no live worker serves {call.tool}: start one first")
        if not (spec.effect.repeatable or force):
            raise Refused(f"{call.tool} is not to be repeated, and may have had its effect: check, then use --force")
        if not force and (ended := await self._other_end(call)):
            raise Refused(f"the call has its result by now ({ended}); --force discards that")
        return call, spec

    async def _other_end(self, call: ToolCall) -> str:
        """How the call has ended, unless it is the crash that brought it here."""
        sealed = cast("bytes | None", await self._client.get(self._settings.keys.result(call.call_id)))
        if sealed is None:
            return ""
        try:
            result = self._seal.open_result(sealed, call.call_id)
        except Refused as refusal:
            return str(refusal)
        if isinstance(result, Failed):
            return "" if result.kind is FailureKind.CRASHED else f"failed: {result.kind.value}"
        return result.type

    def _message(self, call: ToolCall, spec: ToolSpec, lane: str) -> TaskMessage:
        usual_s = self._settings.long_call_timeout_s if spec.long_running else self._settings.call_timeout_s
        timeout_s = self._timeout_s or max(usual_s, spec.timeout_s or 0.0)
        fresh = call.model_copy(update={"deadline_unix_s": time.time() + timeout_s, "reply_to": self._reply_to})
        return task_message(fresh, spec, Priority.NORMAL, self._seal, lane)

    async def _put_back(self, messages: Mapping[str, TaskMessage], letters: Sequence[DeadLetter]) -> None:
        if not messages:
            return
        keys = self._settings.keys
        # A claim or a result of the past would make the new message a copy of a settled one: dropped unrun.
        await self._client.delete(*(key for call_id in messages for key in (keys.result(call_id), keys.claim(call_id))))
        await self._publisher.publish(list(messages.values()))
        await DeadLetters(self._client, self._settings).drop(letters)

    async def _results(self, call_ids: Sequence[str], wait_s: float) -> dict[str, Returned | Failed | Submitted]:
        """The results that come within `wait_s`."""
        replies = self._settings.keys.replies(self._reply_to)
        results: dict[str, Returned | Failed | Submitted] = {}
        give_up_s = time.monotonic() + wait_s
        last_id: str | bytes = "0"
        while len(results) < len(call_ids) and (left_s := give_up_s - time.monotonic()) > 0:
            reply = await self._client.xread({replies: last_id}, count=_PAGE, block=max(1, int(left_s * 1000)))
            for entry_id, fields in _entries(reply):
                last_id = entry_id
                results |= self._opened(fields)
        await self._client.delete(replies)
        return results

    def _opened(self, fields: Mapping[bytes, bytes]) -> dict[str, Returned | Failed | Submitted]:
        if b"r" not in fields:  # progress
            return {}
        call_id = fields[b"c"].decode()
        return {call_id: self._seal.open_result(fields[b"r"], call_id)}


def _envelope(body: str) -> tuple[str, str]:
    """Text and MAC in the body of a task message; empty where there are none."""
    try:
        envelope, *_ = orjson.loads(body)
        text, mac = envelope
    except (ValueError, TypeError):
        return "", ""
    return (text, mac) if isinstance(text, str) and isinstance(mac, str) else ("", "")


def _object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _entries(reply: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of one stream in a reply to XREAD, in either protocol's form."""
    streams = list(reply.items()) if isinstance(reply, dict) else reply
    entries = [entry for _, found in streams or () for entry in found]
    return [pair for entry in entries for pair in (entry if isinstance(entry, list) else [entry])]
