"""How a delivery ends on this worker. Pure; the order of the steps that lead here is in the package's docstring."""

from __future__ import annotations

from enum import StrEnum


class Ending(StrEnum):
    """What became of a delivery."""

    SETTLED = "settled"
    """Its result is stored and its message acknowledged."""
    FAILED = "failed"
    """As `SETTLED`, and the result says that the call failed."""
    CANCELLED = "cancelled"
    """As `SETTLED`, and the result says that the call was cancelled."""
    BURIED = "buried"
    """It was a duplicate or nobody's call: nothing is owed but an acknowledgement."""
    TAKEN_OVER = "taken_over"
    """Another worker owns it by now; its message must not be touched."""
    HANDED_BACK = "handed_back"
    """This worker stops before its tool has done harm; another one will start it anew."""
    LEFT_OPEN = "left_open"
    """This worker stops in the midst of an effect: another one asks the tool's reconcile function what became of it."""
    PASSED_ON = "passed_on"
    """Another worker serves its tool, or may soon; the delivery does not count."""
    NOT_PERFORMED = "not_performed"
    """This worker failed, not the tool; the message is treated as if the worker had been lost."""


class Interruption(StrEnum):
    """Why a running call is cancelled: the message of its CancelledError."""

    REVOKED = "revoked"
    """Somebody no longer wants the call."""
    SHUTDOWN = "shutdown"
    """This worker stops."""
