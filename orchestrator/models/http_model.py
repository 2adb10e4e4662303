"""One reply over HTTP, in whichever wire format: request, stream, retries, and the rule for broken connections.

Owns the order of these steps; a `WireFormat` owns the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

from toolfleet.logs import FactLog
from toolfleet.messages import AssistantMessage, Message
from toolfleet.orchestrator.errors import ModelError, ModelRefused, ModelReplyInvalid, TryAgain
from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.breaker import Breaker, through_breaker
from toolfleet.orchestrator.models.event_stream import EventStream
from toolfleet.orchestrator.models.http import CONNECTION_ERRORS, Endpoint, HttpOptions
from toolfleet.orchestrator.models.names import NameMap
from toolfleet.orchestrator.models.protocol import ModelEvent, OfferedTool
from toolfleet.orchestrator.models.provider_tools import clash, left_behind
from toolfleet.orchestrator.models.repeated import AT_ONCE
from toolfleet.orchestrator.models.retries import with_retries

EVENT_STREAM = "text/event-stream"
JSON = "application/json"
BOUNDS = ("max_tokens", "max_completion_tokens")
"""The two names that callers have for how long a reply may be."""
# After the last event the body ends at once; waiting for that end keeps the connection usable for the next request.
DRAIN_S = 1.0
MAX_PAUSES = 10
"""How often the rest of one reply is asked for; providers pause after about ten uses of their own tools."""

log = FactLog(__name__)


class PausedReply(Protocol):
    """A reply that its provider has only paused, as far as it has come."""

    def next_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request for the rest of it; `body` was that for its beginning."""
        ...


class ReplyReader(Protocol):
    """Reads one reply of a wire format into an assembly."""

    @property
    def complete(self) -> bool:
        """Whether the reply can be used as it is, should the stream end here."""
        ...

    @property
    def over(self) -> bool:
        """Whether the format says that nothing more follows."""
        ...

    def feed(self, data: bytes) -> None:
        """Take the data of one server-sent event. Raises a ModelError for a complaint or for garbage."""
        ...

    def feed_texts(self, events: Sequence[bytes]) -> int:
        """Take the first of these events, as many as bring text and nothing else that is new; how many these are.

        Not for more than AT_ONCE.
        """
        ...

    def read_whole(self, body: bytes) -> None:
        """Take a reply that came in one piece. Raises ModelReplyInvalid."""
        ...

    def paused(self) -> PausedReply | None:
        """Return what has come of a reply whose rest is to be asked for; None for one that has ended."""
        ...

    def go_on(self) -> None:
        """Expect the rest of a reply that was paused."""
        ...

    def repeat(self, paused: Any) -> None:
        """Begin with what another reader had of a reply when it was paused, and expect the rest."""
        ...

    def end(self) -> None:
        """Note that nothing more comes; the assembly's last event is `ReplyComplete`."""
        ...


class WireFormat(Protocol):
    """A provider's protocol: pure translation, no I/O."""

    @property
    def path(self) -> str:
        """The endpoint below the base URL."""
        ...

    @property
    def provider_names(self) -> frozenset[str]:
        """The names of the tools that the provider runs itself."""
        ...

    def request(
        self, model: str, messages: Sequence[Message], tools: Sequence[OfferedTool], *, stream: bool, provider: str
    ) -> dict[str, Any]:
        """The body of one request. Of the messages' extras it holds what came from `provider`, and no other's."""
        ...

    def options(self, model: str, asked: Mapping[str, Any], *, host: str, has_tools: bool) -> dict[str, Any]:
        """What the model is asked with besides, in the words that it takes."""
        ...

    def objection(self, model: str, messages: Sequence[Message], asked: Mapping[str, Any]) -> str | None:
        """Return why the model must not be asked this; None if nothing is known against it."""
        ...

    def reader(self, assembly: ReplyAssembly, address: str) -> ReplyReader:
        """Return a reader for one reply; `address` names the server in errors."""
        ...


class HttpChatModel:
    """A `ChatModel` behind an HTTP API. Belongs to the event loop that asks it first.

    When the connection breaks before a call was handed out, the whole reply is asked for again. When it breaks
    afterwards, the reply ends with the calls handed out, and the model asks for the rest in its next turn: a call that
    may be running is never replaced by a different one. When replies fail in a row, the model is not asked for a while
    (`HttpOptions.opens_after`), by none of those who share this object.
    """

    def __init__(
        self,
        name: str,
        wire_format: WireFormat,
        endpoint: Endpoint,
        *,
        stream: bool,
        http: HttpOptions,
        extra_body: Mapping[str, Any] | None,
    ) -> None:
        self._name = name
        self._format = wire_format
        self._endpoint = endpoint
        self._stream = stream
        self._http = http
        self._extra_body = dict(extra_body or {})
        self._breaker = Breaker(
            f"{name} at {endpoint.address}", opens_after=http.opens_after, open_s=http.open_s, clock=time.monotonic
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, base_url={self._endpoint.address!r})"

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        return self._name

    @property
    def provider_tools(self) -> tuple[str, ...]:
        """The names of the tools that its provider runs itself."""
        return tuple(sorted(self._format.provider_names))

    def objection(self, messages: Sequence[Message], options: Mapping[str, Any]) -> str | None:
        """Return why it must not be asked this; None if nothing is known against it."""
        return self._format.objection(self._name, messages, self._together(options))

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[OfferedTool],
        *,
        extra_body: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask for one reply; see `ChatModel.stream`."""
        asked = self._together(extra_body or {})
        if (why := self._format.objection(self._name, messages, asked)) is not None:
            raise ModelRefused(why)
        if (why := clash(self._format.provider_names, tools)) is not None:
            raise ModelRefused(why)
        provider = self._endpoint.host
        if others := left_behind(messages, provider):
            log.warning("model.provider_parts_left_out", model=self._name, provider=provider, of=others)
        body = self._format.request(self._name, messages, tools, stream=self._stream, provider=provider)
        body |= self._format.options(self._name, asked, host=provider, has_tools=bool(tools))
        names = NameMap(tool.name for tool in tools)
        taken_ids = frozenset(_call_ids(messages))
        pauses: list[PausedReply] = []
        ask = partial(self._ask_once, body, names, taken_ids, pauses)
        async with aclosing(through_breaker(lambda: with_retries(ask, self._http), self._breaker)) as heard:
            async for events in heard:
                for event in events:
                    yield event

    def _together(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of one request: what is asked for takes the place of the model's own.

        So does a bound of the reply, whichever of its two names either has.
        """
        left_out = BOUNDS if any(asked.get(name) is not None for name in BOUNDS) else ()
        own = {name: value for name, value in self._extra_body.items() if name not in left_out}
        return {**own, **asked}

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()

    async def _ask_once(
        self, body: Mapping[str, Any], names: NameMap, taken_ids: frozenset[str], pauses: list[PausedReply]
    ) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """Yield the events of one attempt, together those that come together.

        What came before the last pause is not asked for again.
        """
        assembly = ReplyAssembly(self._name, names, taken_ids, provider=self._endpoint.host)
        fault: ModelError | None = None
        try:
            async with aclosing(self._exchanges(body, assembly, pauses)) as pieces_read:
                async for _ in pieces_read:
                    if events := assembly.heard():
                        yield events
        except ModelError as error:
            fault = error
            if assembly.has_handed_out:
                log.warning("model.reply_interrupted", model=self._name, error=str(error))
                assembly.interrupt()
        if events := assembly.heard():
            yield events
        if fault is not None and not assembly.has_handed_out:
            raise fault

    async def _exchanges(
        self, body: Mapping[str, Any], assembly: ReplyAssembly, pauses: list[PausedReply]
    ) -> AsyncGenerator[None, None]:
        """Read one reply into the assembly, with the rest of one that pauses; yields after each piece of a stream."""
        reader = self._format.reader(assembly, self._endpoint.address)
        if pauses:
            reader.repeat(pauses[-1])
        while True:
            asked = pauses[-1].next_request(body) if pauses else body
            async with aclosing(self._exchange(asked, reader)) as pieces_read:
                async for _ in pieces_read:
                    yield
            paused = reader.paused()
            if paused is None or len(pauses) >= MAX_PAUSES:
                break
            log.info("model.reply_paused", model=self._name, pauses=len(pauses) + 1)
            pauses.append(paused)
            reader.go_on()
        reader.end()

    async def _exchange(self, body: Mapping[str, Any], reader: ReplyReader) -> AsyncGenerator[None, None]:
        """Read one answer; yields after each piece of a stream."""
        accept = EVENT_STREAM if self._stream else JSON
        async with self._endpoint.post(self._format.path, body, accept=accept) as answer:
            if answer.media_type == EVENT_STREAM:
                async with aclosing(answer.pieces()) as pieces:
                    server_events = EventStream()
                    while not reader.over and await _read_on(pieces, server_events, reader):
                        yield
                    await _drain(pieces)
                if not reader.complete:
                    raise TryAgain(f"{self._endpoint.address} ended its stream in the middle of the reply")
            elif answer.media_type == JSON:
                reader.read_whole(await answer.whole())
            else:
                sent = answer.media_type or "no media type"
                address = self._endpoint.address
                raise ModelReplyInvalid(f"{address} answered {sent}, not a model's reply (is base_url right?)")


async def _read_on(pieces: AsyncGenerator[bytes, None], server_events: EventStream, reader: ReplyReader) -> bool:
    """Read a further piece; False if there is none. A connection lost after the reply's end is no loss."""
    try:
        piece = await anext(pieces, None)
    except CONNECTION_ERRORS:
        if not reader.complete:
            raise
        return False
    _feed(reader, server_events.add(piece or b""))
    return piece is not None


def _feed(reader: ReplyReader, events: Sequence[bytes]) -> None:
    """Raises TryAgain for a garbled event: the next reply may be whole."""
    try:
        at = 0
        while at < len(events) and not reader.over:
            texts = reader.feed_texts(events[at : at + AT_ONCE]) if len(events) > at + 1 else 0
            if not texts:
                reader.feed(events[at])
            at += texts or 1
    except ModelReplyInvalid as error:
        raise TryAgain(str(error)) from error


async def _drain(pieces: AsyncGenerator[bytes, None]) -> None:
    with contextlib.suppress(*CONNECTION_ERRORS):
        async with asyncio.timeout(DRAIN_S):
            async for _ in pieces:
                pass


def _call_ids(messages: Sequence[Message]) -> list[str]:
    return [call.id for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
