"""A model, mostly a cheaper one, chooses the tools that the run's own model is shown."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson
from pydantic import JsonValue

from toolfleet.errors import InvalidTool
from toolfleet.logs import FactLog
from toolfleet.messages import SystemMessage, UserMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.errors import ModelError
from toolfleet.orchestrator.models.protocol import ChatModel, reply
from toolfleet.orchestrator.run.structured import parsed
from toolfleet.orchestrator.status.call_reader import OWN_QUEUE
from toolfleet.orchestrator.tools.interceptors import Interceptor
from toolfleet.orchestrator.tools.request import ModelRequest, Note
from toolfleet.tool import ToolSpec

log = FactLog("toolfleet.orchestrator")

INSTRUCTIONS: Final = (
    "Choose the tools that an assistant may need to answer the user, those first that it needs most. Answer with one "
    'JSON object, {"tools": ["name", …]}, with names of the list, and nothing else.'
)


@exact()
class ToolSelection(Interceptor):
    """Shows the run's model at most `max_tools`, as `model` chooses them each time that the user has spoken.

    Those in `always_include`, and those that this orchestrator answers itself, are shown besides. A choice is written
    into the run's history. It is no permission: a call of a tool that was not chosen is made. Where the model gives
    none, all are shown. The model is closed by whoever made it.
    """

    def __init__(
        self,
        model: ChatModel,
        max_tools: int = 10,
        *,
        always_include: Collection[str] = (),
        instructions: str = INSTRUCTIONS,
        name: str = "ToolSelection",
    ) -> None:
        if max_tools < 1:
            raise InvalidTool("ToolSelection: max_tools is 1 or more")
        if isinstance(always_include, str):
            raise InvalidTool(f"ToolSelection(always_include={always_include!r}): pass a collection of names")
        self.name = name
        self._model = model
        self._max_tools = max_tools
        self._always = frozenset(always_include)
        self._instructions = instructions

    async def decide(self, request: ModelRequest) -> Note | None:
        """A choice, where there is something to choose from and none was made since the user last spoke."""
        choosable = self._choosable(request)
        said_as = _what_was_said(request)
        if len(choosable) <= self._max_tools or _note(request).get("for") == said_as:
            return None
        described = [{"name": name, "description": spec.description} for name, spec in choosable.items()]
        question = f"Tools: {orjson.dumps(described).decode()}\n\nThe user says: {_last_said(request)}"
        question += f"\n\nChoose at most {self._max_tools}."
        try:
            made = await reply(self._model, [SystemMessage(content=self._instructions), UserMessage(content=question)])
        except ModelError as error:
            log.warning("tools_not_chosen", run_id=request.run_id, error=str(error))
            return None
        chosen = self._chosen(made.message.content, choosable)
        if chosen is None:
            log.warning("tools_not_chosen", run_id=request.run_id, error="the reply is no choice of tools")
        choice: dict[str, JsonValue] = {"for": said_as, "tools": None if chosen is None else [*chosen]}
        return Note(choice, usage=made.usage)

    def ask(self, request: ModelRequest) -> ModelRequest:
        """The tools that were chosen."""
        chosen = _note(request).get("tools")
        choosable = self._choosable(request)
        if chosen is None or len(choosable) <= self._max_tools:
            return request
        shown = {name: spec for name, spec in request.tools.items() if name in chosen or name not in choosable}
        return replace(request, tools=shown)

    def _choosable(self, request: ModelRequest) -> dict[str, ToolSpec]:
        return {
            name: spec for name, spec in request.tools.items() if name not in self._always and spec.queue != OWN_QUEUE
        }

    def _chosen(self, answer: str, choosable: Mapping[str, ToolSpec]) -> list[str] | None:
        """The names in an answer that there are; None for one that is no choice."""
        try:
            names = parsed(answer)["tools"]
            known = [name for name in dict.fromkeys(names) if name in choosable]
        except (ValueError, TypeError, KeyError):
            return None
        return known[: self._max_tools] or (None if names else [])


def _note(request: ModelRequest) -> dict[str, Any]:
    return request.note if isinstance(request.note, dict) else {}


def _last_said(request: ModelRequest) -> str:
    return next((each.content for each in reversed(request.messages) if isinstance(each, UserMessage)), "")


def _what_was_said(request: ModelRequest) -> str:
    """What a choice is for: the user's last word, and when it was said."""
    said = f"{request.turns_before} {_last_said(request)}"
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]
