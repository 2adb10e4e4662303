"""Old results are not shown to the model any more once the conversation is long; the history keeps them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from toolfleet.errors import InvalidTool
from toolfleet.messages import ToolMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.tools.interceptors import Interceptor
from toolfleet.orchestrator.tools.request import ModelRequest
from toolfleet.orchestrator.tools.standard.conversation_size import CountTokens, approximate_tokens


@exact()
class ClearOldResults(Interceptor):
    """Puts a word in the place of results, all but the newest `keep`, once there are more than `above_tokens`.

    Results of the tools in `exclude` stay. `count` says how many tokens messages are; about, where it is left out.
    """

    def __init__(
        self,
        above_tokens: int = 100_000,
        *,
        keep: int = 3,
        exclude: Collection[str] = (),
        placeholder: str = "[cleared: call the tool again if you need this]",
        count: CountTokens = approximate_tokens,
    ) -> None:
        if above_tokens < 0 or keep < 0:
            raise InvalidTool("ClearOldResults: above_tokens and keep are 0 or more")
        if isinstance(exclude, str):
            raise InvalidTool(f"ClearOldResults(exclude={exclude!r}): pass a collection of names")
        self._above_tokens = above_tokens
        self._keep = keep
        self._exclude = frozenset(exclude)
        self._placeholder = placeholder
        self._count = count

    def ask(self, request: ModelRequest) -> ModelRequest:
        """The conversation without what was cleared. Each call keeps an answer."""
        if self._count(request.messages) <= self._above_tokens:
            return request
        results = [at for at, message in enumerate(request.messages) if isinstance(message, ToolMessage)]
        old = set(results[: max(0, len(results) - self._keep)])
        shown = tuple(
            self._cleared(message) if at in old and isinstance(message, ToolMessage) else message
            for at, message in enumerate(request.messages)
        )
        return replace(request, messages=shown)

    def _cleared(self, message: ToolMessage) -> ToolMessage:
        is_short = not message.media and len(message.content) <= len(self._placeholder)
        if is_short or message.name in self._exclude:
            return message
        return message.model_copy(update={"content": self._placeholder, "media": ()})
