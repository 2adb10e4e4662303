"""One request as every verb of the protocol is given it: who asks, through which door, and what was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.webhooks.push_records import Protocol


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a client."""

    door: Door
    grant: Grant
    request: Request
    params: Mapping[str, Any]
    """As they were written: the protocol's own records keep numbers as doubles, and would change large ones."""
    message_id: str = ""
    """Of the message that is sent."""
    protocol: Protocol = "1.0"
    """In whose words it was written."""

    @property
    def message(self) -> Mapping[str, Any]:
        """The message as it was written. Only for one that was read by the protocol's record before."""
        written: Mapping[str, Any] = self.params["message"]
        return written

    @property
    def base_url(self) -> str:
        """Where this API is reached: as the settings say or, without a word there, as this request has reached it."""
        return base_url_of(self.door, self.request)


def base_url_of(door: Door, request: Request) -> str:
    """Return the address of this API, without a slash at its end."""
    return (door.settings.public_url or str(request.base_url)).rstrip("/")
