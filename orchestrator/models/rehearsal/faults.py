"""What can be wrong with a provider: faults, one request each, and dialects, the ways of servers that almost conform.

Plain records; `server` acts on faults, `reply` on dialects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """An answer with this status instead of a reply."""

    code: int
    message: str = "the rehearsal was told to fail"
    retry_after: str | None = None
    type: str = "server_error"


@dataclass(frozen=True, slots=True)
class Garbage:
    """Status 200 with something that is no reply."""

    body: str = "<!doctype html><html><title>Sign in to the guest network</title></html>"
    media_type: str = "text/html"


@dataclass(frozen=True, slots=True)
class Hang:
    """Silence until the client hangs up: from the start, or in a stream after so many chunks."""

    after_chunks: int | None = None


@dataclass(frozen=True, slots=True)
class CutStream:
    """The connection is reset after so many chunks of the stream."""

    after_chunks: int


@dataclass(frozen=True, slots=True)
class ErrorInStream:
    """The stream ends in an error event after so many chunks."""

    after_chunks: int
    message: str = "the rehearsal was told to fail"
    type: str = "server_error"


@dataclass(frozen=True, slots=True)
class Drip:
    """A stream that never ends: after its first chunk a sign of life every so often, until the client hangs up."""

    pause_s: float


Fault = ErrorStatus | Garbage | Hang | CutStream | ErrorInStream | Drip


@dataclass(frozen=True, slots=True)
class Dialect:
    """How replies are written. The default is OpenAI's own way."""

    ids: Literal["unique", "missing", "doubled"] = "unique"
    indices: Literal["given", "missing", "zero", "interleaved"] = "given"
    arguments: Literal["text", "object", "after_placeholder"] = "text"
    streams: bool = True
    """False: answers in one piece even where a stream was asked for."""
    says_done: bool = True
    """False: the stream ends without `[DONE]`."""
    signs_calls: bool = False
    """True: every call carries a signature, and a history whose calls have lost theirs is refused, as Gemini does."""
