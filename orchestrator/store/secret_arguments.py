"""Arguments that hold secrets: kept apart from the run's history, which shows them masked, until their call is back.

The history is read by people, by other programs and by the model itself, and kept for weeks; these keys are read by
whoever sends the call, and end with it. They are sealed: what stands there is signed and run.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import redis.asyncio

from toolfleet.calls import call_id
from toolfleet.errors import Refused
from toolfleet.logs import FactLog
from toolfleet.masks import MASK, has_secrets, mask_arguments, mask_by_name, unmask_edited
from toolfleet.messages import AssistantMessage
from toolfleet.misspelt import nearest
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.settings import Settings
from toolfleet.skipped import skip
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

log = FactLog("toolfleet.orchestrator")


class Vault:
    """Keeps the secret arguments of calls until the calls are back."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, seal: Seal) -> None:
        self._client = client
        self._settings = settings
        self._seal = seal

    async def keep(
        self,
        message: AssistantMessage,
        run_id: str,
        turn: int,
        specs: Mapping[str, ToolSpec],
        *,
        begins: int = 0,
    ) -> tuple[AssistantMessage, tuple[str, ...]]:
        """Return a reply with its secrets masked, and the ids of the calls that have any. Raises StoreUnreachable.

        The secrets are stored apart. `specs`: all tools that a name in the reply may mean, by that name. `begins`:
        the place in its reply of the first call that the message has.
        """
        kept: dict[str, str] = {}
        calls = []
        for position, call in enumerate(message.tool_calls, begins):
            shown = masked_call(call.name, call.arguments, specs)
            if shown is None:
                calls.append(call)
                continue
            kept[call_id(run_id, turn, position)] = call.arguments
            calls.append(call.model_copy(update={"arguments": shown}))
        if not kept:
            return message, ()
        await self._keep(kept)
        return message.model_copy(update={"tool_calls": tuple(calls)}), tuple(kept)

    async def as_meant(self, call: CallRecord, arguments: str) -> str:
        """What a person wrote, with the secrets of the model's arguments that they saw masked and left so."""
        if not call.is_masked:
            return arguments
        return unmask_edited(arguments, (await self.arguments([call])).get(call.call_id))

    async def keep_edited(self, call: CallRecord, arguments: str, spec: ToolSpec | None) -> tuple[str, str]:
        """The arguments that a person wants a call to be run with, as they may be shown, and what they are kept as.

        They are kept as "" if they may be shown whole. Without a spec nobody knows what is secret in them.
        """
        shown = json.dumps(MASK) if spec is None else masked_call(spec.name, arguments, {spec.name: spec})
        if shown is None:
            return arguments, ""
        # Never where the model's own are: whoever decides first has decided, and this may be the second.
        kept_as = f"{call.call_id}-edited-{secrets.token_hex(8)}"
        await self._keep({kept_as: arguments})
        return shown, kept_as

    async def _keep(self, arguments: Mapping[str, str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for kept_as, text in arguments.items():
            key = self._settings.keys.arguments(kept_as)
            pipeline.set(key, self._seal.close_kept(text.encode(), key), ex=int(self._settings.long_call_timeout_s))
        await pipeline.execute()

    async def arguments(self, calls: Iterable[CallRecord]) -> dict[str, str]:
        """Return what the masked ones of these calls are to be sent with; those kept for too long are missing.

        So are those that somebody else has put there.
        """
        masked = {call.call_id: self._settings.keys.arguments(call.kept_as) for call in calls if call.is_masked}
        if not masked:
            return {}
        kept = cast("list[bytes | None]", await self._client.mget(list(masked.values())))
        found = {}
        for (id_, key), sealed in zip(masked.items(), kept, strict=True):
            if sealed is not None:
                try:
                    found[id_] = self._seal.open_kept(sealed, key).decode()
                except Refused as refusal:
                    skip("arguments", str(refusal), call_id=id_)
        return found

    async def unmasked(self, calls: Sequence[CallRecord]) -> list[CallRecord]:
        """Return the same calls with what they are to be answered with."""
        arguments = await self.arguments(calls)
        return [
            call.model_copy(update={"arguments": arguments[call.call_id]}) if call.call_id in arguments else call
            for call in calls
        ]

    async def forget(self, kept_as: Sequence[str]) -> None:
        """Delete the arguments of calls that are back. Raises StoreUnreachable."""
        if kept_as:
            await self._client.unlink(*(self._settings.keys.arguments(each) for each in kept_as))


def masked_call(name: str, arguments: str, specs: Mapping[str, ToolSpec]) -> str | None:
    """Return the arguments of a call with their secrets masked; None if there are none.

    A name that nobody has is a slip for one that somebody has, or any: what is called like a secret is masked too.
    """
    if name in specs:
        schema = specs[name].input_schema
        return mask_arguments(arguments, schema) if has_secrets(schema) else None
    secretive = {known: spec.input_schema for known, spec in specs.items() if has_secrets(spec.input_schema)}
    for meant in nearest(name, secretive):
        return mask_arguments(arguments, secretive[meant])
    shown = mask_by_name(arguments, secretive.values())
    return None if shown == arguments else shown
