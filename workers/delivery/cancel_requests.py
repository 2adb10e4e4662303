"""Cancel requests to tools that run on threads of this process.

A thread cannot be stopped, so its tool looks here, through its context. A request is noted only once the call has its
result: a tool that stopped sooner would have the first word.
"""

from __future__ import annotations

_requested: set[str] = set()


def request_cancel(call_id: str) -> None:
    """Ask the tool of this call, which has been settled without it, to stop."""
    _requested.add(call_id)


def is_cancel_requested(call_id: str) -> bool:
    """Return whether the tool of this call was asked to stop."""
    return call_id in _requested


def forget_request(call_id: str) -> None:
    """Forget the request to a tool that has come to its end, if there was one."""
    _requested.discard(call_id)
