"""Puts one reply together from its pieces, for every wire format alike.

Pure: pieces in, events out. It owns the order of calls, their ids, and the moment at which a call is handed out. Text
that comes together is told together: who falls behind a model hears of the same text in fewer events.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from toolfleet.messages import AssistantMessage, Extras, RequestedCall, Usage
from toolfleet.orchestrator.models.json_end import EMPTY_OBJECT, StreamedObject
from toolfleet.orchestrator.models.names import NameMap
from toolfleet.orchestrator.models.protocol import (
    CallComplete,
    CallDelta,
    FinishReason,
    ModelEvent,
    ReplyComplete,
    TextDelta,
    ThoughtDelta,
)
from toolfleet.strict_json import PiecedText, encodable, encodable_value


def new_call_id() -> str:
    """Return an id for a call that came without one: unique in the conversation, legal at every provider."""
    return f"call_{secrets.token_hex(12)}"


class _OpenCall:
    """One call while its arguments arrive."""

    __slots__ = ("arguments", "ended", "extras", "id", "name", "pieces")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.arguments = StreamedObject()
        self.pieces = PiecedText()
        self.extras: Extras = {}
        self.ended = False

    def requested(self, provider: str) -> RequestedCall:
        extras: Extras = {provider: encodable_value(self.extras)} if self.extras else {}
        return RequestedCall(id=self.id, name=self.name, arguments=self.arguments.text, extras=extras)


class _ArrivingText:
    """Text whose pieces may be cut in the middle of a character."""

    __slots__ = ("_pieces", "_told", "fresh")

    def __init__(self) -> None:
        self.fresh: list[str] = []
        self._told: list[str] = []
        self._pieces = PiecedText()

    @property
    def has_begun(self) -> bool:
        return bool(self.fresh or self._told)

    @property
    def told(self) -> str:
        return "".join(self._told)

    @property
    def said(self) -> str:
        return "".join((*self._told, *self.fresh))

    def tell(self) -> str:
        """What is whole of the text and was not told before; a character that it ends in the midst of comes later."""
        fresh = self._pieces.add("".join(self.fresh))
        self.fresh.clear()
        return self._note(fresh)

    def end(self) -> str:
        """What stands for half a character whose other half never came; mostly nothing."""
        return self._note(self._pieces.end())

    def _note(self, fresh: str) -> str:
        if fresh:
            self._told.append(fresh)
        return fresh


class ReplyAssembly:
    """One reply on its way in; whatever its pieces were, what comes out has a UTF-8 form.

    Calls keep the order in which they first appeared. They are handed out (`CallComplete`) in that order and never
    taken back: the calls handed out are always the beginning of the final message's calls. `provider` is the name
    under which extras are kept for who sent them.
    """

    def __init__(
        self,
        model: str,
        names: NameMap,
        taken_ids: Iterable[str] = (),
        new_id: Callable[[], str] = new_call_id,
        *,
        provider: str = "",
    ) -> None:
        self.model = model
        self._provider = provider
        self.usage = Usage()
        self.service_tier = ""
        self.system_fingerprint = ""
        self._names = names
        self._taken_ids = set(taken_ids)
        self._new_id = new_id
        self._events: list[ModelEvent] = []
        self._text = _ArrivingText()
        self._thoughts = _ArrivingText()
        self._refusal: list[str] = []
        self._extras: Extras = {}
        self._calls: list[_OpenCall] = []
        self._handed_out = 0

    @property
    def has_handed_out(self) -> bool:
        """Whether someone may already be running a call of this reply."""
        return self._handed_out > 0

    @property
    def is_empty(self) -> bool:
        """Whether neither text nor a call has come."""
        return not (self._text.has_begun or self._refusal or self._calls)

    @property
    def said(self) -> str:
        """The text so far."""
        return self._text.said

    @property
    def has_calls(self) -> bool:
        """Whether a call has begun."""
        return bool(self._calls)

    def heard(self) -> list[ModelEvent]:
        """Return the events that were not told before, in their order."""
        self._tell_text()
        events, self._events = self._events, []
        return events

    def text(self, piece: str) -> None:
        """More text; a character that it ends in the midst of is told with the next piece."""
        if piece:
            self._text.fresh.append(piece)

    def think(self, piece: str) -> None:
        """More of what the model lets see of its thinking; what it thinks once it has spoken is not shown."""
        if piece and not self._text.has_begun and not self._calls:
            self._thoughts.fresh.append(piece)

    def _tell_text(self) -> None:
        # What was thought comes before all text, and all text so far before the call that follows it.
        if self._thoughts.fresh and (thoughts := self._thoughts.tell()):
            self._events.append(ThoughtDelta(thoughts))
        if self._text.fresh and (text := self._text.tell()):
            self._events.append(TextDelta(text))

    def _end_text(self) -> None:
        self._tell_text()
        if half := self._text.end():
            self._events.append(TextDelta(half))

    def refuse(self, piece: str) -> None:
        """More of what the model says in place of an answer. It is told whole, at the end."""
        if piece:
            self._refusal.append(piece)

    def keep(self, extras: Extras) -> None:
        """What the provider wants back with this message."""
        self._extras |= extras

    def keep_instead(self, extras: Extras) -> None:
        """What the provider wants back with this message, in place of what was kept before."""
        self._extras = extras

    def keep_with_call(self, position: int, extras: Extras) -> None:
        """What the provider wants back with this call. To be told before the call's last argument."""
        self._calls[position].extras |= extras

    def open_call(self, call_id: str | None, wire_name: str) -> int:
        """Begin a further call; return its position. A missing id, or one used before, is replaced by a new one."""
        if self._calls and self._calls[-1].arguments.text == EMPTY_OBJECT:
            self._calls[-1].ended = True
        call_id, name = encodable(call_id or ""), self._names.to_catalog(encodable(wire_name))
        self._calls.append(_OpenCall(self._unique_id(call_id), name))
        return len(self._calls) - 1

    def extend_call(self, position: int, piece: str) -> None:
        """More of a call's arguments. What follows a complete object is noise and left out."""
        call = self._calls[position]
        if not call.ended:
            whole = call.pieces.add(piece)
            call.ended = call.arguments.add(whole)
            self._tell_text()
            self._events.append(CallDelta(position, call.id, call.name, whole))
        self._hand_out()

    def end_call(self, position: int) -> None:
        """Note that the provider calls this call complete."""
        self._end(self._calls[position])
        self._hand_out()

    @staticmethod
    def _end(call: _OpenCall) -> None:
        if not call.ended:
            call.arguments.add(call.pieces.end())
        call.ended = True

    def holds_object(self, position: int) -> bool:
        """Whether the call's arguments contain a whole object, so that more of the same can only be another call."""
        return self._calls[position].arguments.closed_once

    def end(self, finish_reason: str) -> None:
        """Complete the reply, and with it every call."""
        for call in self._calls:
            self._end(call)
        self._end_text()
        self._hand_out()
        if self._calls and finish_reason in {FinishReason.STOP, ""}:
            finish_reason = FinishReason.TOOL_CALLS  # Several servers say "stop" where they ask for tools.
        self._events.append(self._complete(finish_reason or FinishReason.STOP))

    def interrupt(self) -> None:
        """Complete the reply as far as it can be relied on: the text so far and the calls handed out."""
        self._end_text()
        self._events.append(self._complete(FinishReason.INTERRUPTED))

    def _complete(self, finish_reason: str) -> ReplyComplete:
        calls = tuple(call.requested(self._provider) for call in self._calls[: self._handed_out])
        extras: Extras = {self._provider: encodable_value(self._extras)} if self._extras else {}
        message = AssistantMessage(
            content=self._text.told,
            refusal=encodable("".join(self._refusal)),
            thoughts=self._thoughts.told,
            tool_calls=calls,
            extras=extras,
        )
        return ReplyComplete(
            message,
            self.usage,
            encodable(self.model),
            encodable(str(finish_reason)),
            encodable(self.service_tier),
            encodable(self.system_fingerprint),
        )

    def _hand_out(self) -> None:
        """Tell of the calls that became complete. One waits for those before it, so that its position is final."""
        while self._handed_out < len(self._calls) and self._calls[self._handed_out].ended:
            self._tell_text()
            self._events.append(CallComplete(self._handed_out, self._calls[self._handed_out].requested(self._provider)))
            self._handed_out += 1

    def _unique_id(self, given: str) -> str:
        unique = given if given and given not in self._taken_ids else self._new_id()
        self._taken_ids.add(unique)
        return unique
