"""Messages out of notices, for the endpoints that want them: what the script that stores an event writes beside it.

Knows which endpoints there are from a moment ago, and asks nobody: a run that no endpoint hears of pays nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import orjson

from toolfleet.keys import Keys
from toolfleet.orchestrator.run.events import RunEvent, RunStarted
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.webhooks.notices import notices_of
from toolfleet.orchestrator.webhooks.records import MESSAGE_PREFIX, Endpoint, Notice, Owed
from toolfleet.wire import Seal

MESSAGE_ID_CHARS: Final = 32


class Owing:
    """Says what is owed for an event, by the endpoints that were last seen."""

    def __init__(self, keys: Keys, seal: Seal) -> None:
        self._keys = keys
        self._seal = seal
        self.endpoints: Mapping[str, Endpoint] = {}
        """By their ids; whoever looks after them sets it anew."""
        self._tenants: frozenset[str] = frozenset()

    def know(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Take these for all that there are."""
        self.endpoints = endpoints
        self._tenants = frozenset(each.tenant for each in endpoints.values() if not each.disabled)

    def for_entry(self, run: Run, event: RunStarted | RunEvent, digest: bytes) -> Sequence[tuple[str, bytes]]:
        """Return what is owed for the entry with this digest: deliveries, and what is stored of them."""
        tenant, named = run.terms.tenant, run.terms.webhook or ""
        if tenant not in self._tenants and not named:
            return ()
        owed = [
            each
            for notice in notices_of(run, event)
            for each in self.messages(notice, of=digest.hex(), about=run.run_id, tenant=tenant, named=named)
        ]
        return [(each.delivery_id, self.sealed(each)) for each in owed]

    def messages(self, notice: Notice, *, of: str, about: str, tenant: str, named: str) -> list[Owed]:
        """Return a notice as one message for each endpoint that wants it; `of` what makes its id its own."""
        wanting = [each for each in self.endpoints.values() if each.wants(notice.event, tenant=tenant, named=named)]
        if named and named not in self.endpoints:
            # Added a moment ago, elsewhere: who sends it knows more.
            wanting.append(Endpoint(endpoint_id=named, tenant=tenant, url="", created_unix_s=0.0))
        message_id = id_of(notice, of)
        return [message_for(each, notice, message_id, about) for each in wanting]

    def sealed(self, owed: Owed) -> bytes:
        """Return a message as it is stored."""
        return self._seal.close_kept(owed.model_dump_json().encode(), self._keys.webhook(owed.delivery_id))


def message_for(endpoint: Endpoint, notice: Notice, message_id: str, about: str) -> Owed:
    """Return what an endpoint is sent of a notice."""
    now = time.time()
    data = {**notice.data, **(notice.content if endpoint.content else {})}
    body = {
        "type": notice.event.value,
        "timestamp": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": data,
    }
    return Owed(
        message_id=message_id,
        endpoint_id=endpoint.endpoint_id,
        tenant=endpoint.tenant,
        event=notice.event,
        about=about,
        made_unix_s=now,
        body=orjson.dumps(body).decode(),
    )


def id_of(notice: Notice, of: str) -> str:
    """Return a message's id: the same whoever makes it of the same entry, and whenever."""
    text = f"{of}\0{notice.event.value}\0{notice.subject}"
    return MESSAGE_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:MESSAGE_ID_CHARS]
