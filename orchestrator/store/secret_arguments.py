"""Arguments that hold secrets: kept apart from the run's history, which shows them masked, until their call is back.

The history is read by people, by other programs and by the model itself, and kept for weeks; these keys are read by
whoever sends the call, and end with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import redis.asyncio

from toolfleet.calls import call_id
from toolfleet.masks import has_secrets, mask_arguments
from toolfleet.messages import AssistantMessage
from toolfleet.settings import Settings
from toolfleet.tool import ToolSpec


class Vault:
    """Keeps what must not be shown."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    async def keep(
        self, message: AssistantMessage, run_id: str, turn: int, offered: Mapping[str, ToolSpec], *, since: int = 0
    ) -> tuple[AssistantMessage, tuple[str, ...]]:
        """The reply with its secrets masked, and the ids of the calls that were. Raises StoreUnreachable.

        `since`: how many of its first calls are left as they are, because they were kept before.
        """
        secret = {
            position: offered[call.name].input_schema
            for position, call in enumerate(message.tool_calls)
            if position >= since and call.name in offered and has_secrets(offered[call.name].input_schema)
        }
        if not secret:
            return message, ()
        call_ids = {position: call_id(run_id, turn, position) for position in secret}
        pipeline = self._client.pipeline(transaction=False)
        for position, id_ in call_ids.items():
            pipeline.set(
                self._settings.keys.arguments(id_),
                message.tool_calls[position].arguments,
                ex=int(self._settings.long_call_timeout_s),
            )
        await pipeline.execute()
        calls = tuple(
            call.model_copy(update={"arguments": mask_arguments(call.arguments, secret[position])})
            if position in secret
            else call
            for position, call in enumerate(message.tool_calls)
        )
        return message.model_copy(update={"tool_calls": calls}), tuple(call_ids.values())

    async def arguments(self, call_ids: Sequence[str]) -> dict[str, str]:
        """What these calls are to be sent with; those are missing that were kept for too long."""
        if not call_ids:
            return {}
        kept = cast(
            "list[bytes | None]", await self._client.mget([self._settings.keys.arguments(id_) for id_ in call_ids])
        )
        return {id_: text.decode() for id_, text in zip(call_ids, kept, strict=True) if text is not None}

    async def forget(self, call_ids: Sequence[str]) -> None:
        """These calls are back. Raises StoreUnreachable."""
        if call_ids:
            await self._client.unlink(*(self._settings.keys.arguments(id_) for id_ in call_ids))
