"""Personal data that models are not to read, and runs not to tell: taken out, made unknowable, or a reason to stop."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, Literal, get_args

from toolfleet.calls import Failed, FailureKind
from toolfleet.errors import InvalidTool
from toolfleet.messages import AssistantMessage, Message, ToolMessage, UserMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.tools.interceptors import Interceptor, RequestedToolCall, Result
from toolfleet.orchestrator.tools.request import Heard, ModelRequest, Note, TextFilter
from toolfleet.orchestrator.tools.standard.kinds_of_data import FINDERS, Find, Kind, Span, pattern_finder, spans

Strategy = Literal["redact", "mask", "hash", "block"]
Place = Literal["input", "output", "results"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
PLACES: Final[tuple[Place, ...]] = get_args(Place)

LONGEST: Final = 320
"""So many characters of a reply are held back while it comes: no address or number is longer."""

MIN_KEY_BYTES: Final = 16
HASH_CHARACTERS: Final = 12
SHOWN_DIGITS: Final = 4

_LETTERS: Final = bytes.maketrans(b"0123456789abcdef", b"abcdefghijklmnop")
"""A hash of letters only: digits might look like a phone number to whoever looks at it next."""


@exact()
class PersonalData(Interceptor):
    """Looks for e-mail addresses, credit cards, IP addresses and phone numbers (`kinds`) and for your own `patterns`.

    `strategy`: `redact` puts the kind in its place, `mask` leaves the last digits or the domain, `hash` puts the same
    word for the same data (HMAC with `key`, the same in every orchestrator), `block` stops the run, or withholds the
    result. `where`: in what the user says, as the model is shown it; in what the model says, stored and streamed; in
    results, stored and shown. Arguments of calls are left as they are: the tool needs them.
    """

    def __init__(
        self,
        *,
        kinds: Collection[Kind] = KINDS,
        patterns: Mapping[str, str] | None = None,
        strategy: Strategy = "redact",
        where: Collection[Place] = PLACES,
        key: bytes = b"",
        name: str = "PersonalData",
    ) -> None:
        if unknown := [each for each in kinds if each not in FINDERS]:
            raise InvalidTool(f"PersonalData: no kind {unknown[0]!r}; there are {', '.join(KINDS)}, or use patterns=")
        if strategy not in get_args(Strategy) or any(each not in PLACES for each in where):
            raise InvalidTool(f"PersonalData: strategy is one of {get_args(Strategy)}, where some of {PLACES}")
        if strategy == "hash" and len(key) < MIN_KEY_BYTES:
            raise InvalidTool(
                f"PersonalData: a hash wants a secret key= of {MIN_KEY_BYTES} bytes: phone numbers can be tried out"
            )
        self.name = name
        self._finders = {each: FINDERS[each] for each in kinds} | _own_finders(patterns or {})
        self._strategy = strategy
        self._where = frozenset(where)
        self._key = key
        self.hides_results = "results" in where
        self.hides_replies = "output" in where and strategy == "block"

    # --- what the user says -----------------------------------------------------------------------------------------

    async def decide(self, request: ModelRequest) -> Note | None:
        """The reason to stop, where there is any in what the user says and that is to stop the run."""
        if self._strategy != "block" or "input" not in self._where:
            return None
        said = (each.content for each in request.messages if isinstance(each, UserMessage))
        found = next((kinds for text in said if (kinds := self._kinds_in(text))), "")
        return Note(blocks=f"{self.name} stopped the input: it has {found} in it") if found else None

    def ask(self, request: ModelRequest) -> ModelRequest:
        """The conversation without it, whatever way it has come in."""
        return replace(request, messages=tuple(map(self._shown, request.messages)))

    def _shown(self, message: Message) -> Message:
        match message:
            case UserMessage() if "input" in self._where:
                return self._without(message)
            case AssistantMessage() if "output" in self._where:
                return self._without(message)
            case ToolMessage() if "results" in self._where and self._strategy == "block":
                found = self._kinds_in(message.content)
                return message.model_copy(update={"content": _withheld(message.name, found)}) if found else message
            case ToolMessage() if "results" in self._where:
                return self._without(message)
            case _:
                return message

    def _without(self, message: UserMessage | AssistantMessage | ToolMessage) -> Message:
        text = self._replaced(message.content)
        if text == message.content:
            return message
        if isinstance(message, UserMessage) and message.images:
            return _with_images_in_place(message, text)
        return message.model_copy(update={"content": text})

    # --- what the model says ----------------------------------------------------------------------------------------

    async def hear(self, request: ModelRequest, message: AssistantMessage) -> Heard:
        """The reply without it, or the reason to stop."""
        del request
        if "output" not in self._where:
            return Heard(message)
        texts = {"content": message.content, "refusal": message.refusal, "thoughts": message.thoughts}
        if self._strategy == "block":
            found = next((kinds for text in texts.values() if (kinds := self._kinds_in(text))), "")
            return Heard(message, blocks=f"{self.name} stopped the output: it has {found} in it" if found else "")
        return Heard(message.model_copy(update={name: self._replaced(text) for name, text in texts.items()}))

    def text_filter(self) -> TextFilter | None:
        """What holds a reply's text back until it is known what may be told of it."""
        return _Replacing(self) if "output" in self._where and self._strategy != "block" else None

    # --- what comes back --------------------------------------------------------------------------------------------

    async def after(self, call: RequestedToolCall, result: Result) -> Result:
        """The result without it, or word that it is withheld."""
        if "results" not in self._where:
            return result
        text = result.message if isinstance(result, Failed) else result.content
        if self._strategy != "block":
            field = "message" if isinstance(result, Failed) else "content"
            return result.model_copy(update={field: self._replaced(text)})
        found = self._kinds_in(text)
        return Failed(kind=FailureKind.ERROR, message=_withheld(call.tool, found)) if found else result

    # --- the text itself --------------------------------------------------------------------------------------------

    def spans(self, text: str) -> list[Span]:
        """Where there is any in a text."""
        return spans(text, self._finders)

    def replaced(self, text: str, found: list[Span]) -> str:
        """The text with something else in these places."""
        pieces, told = [], 0
        for span in found:
            pieces += [text[told : span.begin], self._stand_in(text[span.begin : span.end], span.kind)]
            told = span.end
        return "".join([*pieces, text[told:]])

    def _replaced(self, text: str) -> str:
        return self.replaced(text, found) if text and (found := self.spans(text)) else text

    def _kinds_in(self, text: str) -> str:
        return ", ".join(dict.fromkeys(_named(span.kind) for span in self.spans(text)))

    def _stand_in(self, data: str, kind: str) -> str:
        match self._strategy:
            case "mask":
                return _masked(data, kind)
            case "hash":
                digest = hmac.digest(self._key, f"{kind}\0{data}".encode("utf-8", "surrogatepass"), hashlib.sha256)
                return f"<{kind}:{digest.hex().encode().translate(_LETTERS)[:HASH_CHARACTERS].decode()}>"
            case _:
                return f"[REDACTED_{kind.upper()}]"


class _Replacing:
    """Tells a text as it comes, all but its end: cut where a word ends, and in no piece of personal data."""

    def __init__(self, data: PersonalData) -> None:
        self._data = data
        self._held = ""

    def feed(self, text: str) -> str:
        """Take more; tell what nothing that follows can change."""
        self._held += text
        cut = self._held.rfind(" ", 0, max(0, len(self._held) - LONGEST)) + 1
        if not cut:
            return ""
        found = self._data.spans(self._held)
        across = next((span for span in found if span.begin < cut < span.end), None)
        cut = cut if across is None else across.begin
        told, self._held = self._held[:cut], self._held[cut:]
        return self._data.replaced(told, [span for span in found if span.end <= cut])

    def end(self) -> str:
        """Tell the rest."""
        held, self._held = self._held, ""
        return self._data.replaced(held, self._data.spans(held))


def _own_finders(patterns: Mapping[str, str]) -> dict[str, Find]:
    finders = {}
    for name, pattern in patterns.items():
        if name in FINDERS:
            raise InvalidTool(f"PersonalData: {name!r} is a kind that there is; give your pattern another name")
        try:
            finders[name] = pattern_finder(re.compile(pattern))
        except re.error as error:
            raise InvalidTool(f"PersonalData: {name}={pattern!r} is no regular expression: {error}") from None
    return finders


def _masked(data: str, kind: str) -> str:
    match kind:
        case "email":
            return f"***@{data.rpartition('@')[2]}"
        case "credit_card" | "phone":
            return f"***{''.join(each for each in data if each.isdigit())[-SHOWN_DIGITS:]}"
        case _:
            return "***"


def _with_images_in_place(message: UserMessage, text: str) -> UserMessage:
    """The message with another text. Where its images stood in the old one is known no more: they stand behind it."""
    images = tuple(image.model_copy(update={"at": len(text)}) for image in message.images)
    return message.model_copy(update={"content": text, "images": images})


def _withheld(tool: str, found: str) -> str:
    return f"{tool} has returned, but its result is withheld: it has {found} in it. Do not repeat the call."


def _named(kind: str) -> str:
    return {"email": "an e-mail address", "credit_card": "a credit card number", "ip": "an IP address"}.get(
        kind, "a phone number" if kind == "phone" else f"what is called {kind} here"
    )
