"""The ids of calls as the history has them: each its own, since answers are paired by id. Pure."""

from __future__ import annotations

from collections.abc import Container

from toolfleet.messages import AssistantMessage, RequestedCall


class DistinctIds:
    """Gives each call of a reply an id of its own: some models double ids, omit them, or use them again.

    The id of a call depends on those before it alone, so that the beginning of a reply has the same ids as the whole.
    """

    def __init__(self, taken: Container[str] = ()) -> None:
        """`taken` are the ids of the conversation before the reply."""
        self._taken = taken
        self._given: set[str] = set()
        self._calls = 0

    def for_next(self, message: AssistantMessage) -> AssistantMessage:
        """The next calls of the reply, those of this message, with ids of their own; mostly the same message."""
        calls = tuple([self._with_own_id(call) for call in message.tool_calls])
        return message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls})

    def _with_own_id(self, call: RequestedCall) -> RequestedCall:
        own_id = call.id if call.id and self._is_free(call.id) else self._made_of(call.id or "call")
        self._given.add(own_id)
        self._calls += 1
        return call if own_id == call.id else call.model_copy(update={"id": own_id})

    def _made_of(self, given: str) -> str:
        """The first id that is made of the given one and free."""
        candidate = f"{given}-{self._calls}"
        further = 1
        while not self._is_free(candidate):
            further += 1
            candidate = f"{given}-{self._calls}-{further}"
        return candidate

    def _is_free(self, id_: str) -> bool:
        return id_ not in self._given and id_ not in self._taken
