"""How the HTTP doors are set up: every bound in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from toolfleet.misspelt import exact


@exact()
@dataclass(frozen=True, slots=True)
class ApiOptions:
    """The bounds of one API process. Times are seconds."""

    max_body_bytes: int = 4 * 1024 * 1024
    """A larger request is refused with 413. As large as the largest call that a worker accepts."""

    max_body_depth: int = 64
    """How deep a request's JSON may nest; what writes it down again gives up somewhere beyond 200."""

    body_timeout_s: float = 30.0
    """How long a request's body may take to arrive: clients that never end would hold connections."""

    max_wait_s: float = 60.0
    """How long one request may wait for a call: proxies on the way give up soon after."""

    ping_s: float = 15.0
    """How often an event stream without news says that it is alive."""

    send_timeout_s: float = 20.0
    """A listener who takes nothing for so long is dropped; it can come back with Last-Event-ID."""

    max_frames: int = 1000
    """Events that wait for one listener; one who is further behind is dropped."""

    grace_s: float = 30.0
    """How long a completion goes on that nobody listens to, where its client has said that it may come back for it."""

    local_key_file: Path | None = None
    """Where the key of this machine's user stands; None: in the user's data directory."""

    is_insecure: bool = False
    """Whether requests without a key are served; on loopback not those of web pages, by their host and origin."""
