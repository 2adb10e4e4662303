"""Calls that run on threads of this process and whose result nobody wants any more.

A thread cannot be stopped; its tool looks here, through its context. Written only once the call has its result: a tool
that gave up sooner would have the first word.
"""

from __future__ import annotations

_unwanted: set[str] = set()


def give_up(call_id: str) -> None:
    """Note that the call has been settled without its tool."""
    _unwanted.add(call_id)


def is_given_up(call_id: str) -> bool:
    """Return whether the tool of this call may stop."""
    return call_id in _unwanted


def forget(call_id: str) -> None:
    """Forget a call whose tool has come to its end."""
    _unwanted.discard(call_id)
