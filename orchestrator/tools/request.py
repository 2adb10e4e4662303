"""What a model is about to be asked, as interceptors see it, and what they may say to that. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pydantic import JsonValue

from toolfleet.messages import AssistantMessage, Message, Usage
from toolfleet.tool import ToolSpec

NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is to be asked; `dataclasses.replace` changes the messages and the tools that it is shown."""

    run_id: str
    turn: int
    """How many replies the run has had."""
    turns_before: int
    """How many it had had when the user last spoke."""
    messages: tuple[Message, ...]
    tools: Mapping[str, ToolSpec]
    note: JsonValue = None
    """What this interceptor has noted for the run; None while it has noted nothing."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the run's tools share."""
    context: Mapping[str, Any] = field(default_factory=dict)
    tenant: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """What an interceptor has found out. It is written into the run's history, and only then used."""

    value: JsonValue = None
    """JSON; None: as it was."""
    usage: Usage = NO_USAGE
    """What a model has used up for it: it counts as the run's."""
    blocks: str = ""
    """Why the run must not go on; it fails with this reason. "" where it may."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply as it may be stored. Its calls stay as they are."""

    message: AssistantMessage
    usage: Usage = NO_USAGE
    """What a model has used up to look at it."""
    blocks: str = ""
    """Why nobody may see it: it is not stored, and the run fails with this reason."""


class TextFilter(Protocol):
    """Passes on a reply's text as it comes, as far as it may be shown; one for each reply."""

    def feed(self, text: str) -> str:
        """Take the next piece; return what may be shown by now."""
        ...

    def end(self) -> str:
        """Return the rest, once there is no more."""
        ...
