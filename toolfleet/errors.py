"""Every error that the leaf and the workers raise, and the families of all, sorted by who must act on it.

The model acts on a `Failed` record (see `toolfleet.calls`), never on an exception, so its family holds what a worker
turns into such a record. The caller and the operator act on the others. Each message names the thing and the remedy.
The orchestrator's own errors are in `orchestrator/errors.py`; one that only its own module raises and catches stands
in that module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RETRY_AFTER_MAX_S: Final = 24 * 3600.0


class ToolfleetError(Exception):
    """The root of all errors raised on purpose."""


# --- the model acts: a worker turns these into a `Failed` record ----------------------------------------------------


class ToolError(ToolfleetError):
    """A tool raises this to tell the model what went wrong. The model reads its text as it is."""


class RetryAfter(ToolError):
    """A tool raises this when what it asks wants to be asked later, and this call has had no effect.

    The call is tried again after so many seconds, which does not count as an attempt, and so long no other call starts
    that shares one of its limits. With `tell_model` the model is told instead, and so it is where the call's deadline
    comes first, or the broker cannot let calls wait.
    """

    def __init__(self, seconds: float, *, tell_model: bool = False) -> None:
        if not 0 < seconds <= RETRY_AFTER_MAX_S:
            raise ValueError(f"RetryAfter({seconds!r}): more than 0 and at most {RETRY_AFTER_MAX_S:.0f} seconds")
        super().__init__(f"rate limited, try again in {seconds:g} s")
        self.seconds = seconds
        self.tell_model = tell_model


class QuestionExpired(ToolError):
    """Nobody has answered what a tool has asked (`ctx.ask`) in time. A tool may catch it, and go on without."""


class BadAnswer(ToolError):
    """What a person has answered fits the schema of a question, and is no value of the type that its tool asked for."""


class BadArguments(ToolfleetError):
    """The arguments of a call cannot be used. The text is written for the model, which may try again.

    `parameters` are the top-level ones that do not fit.
    """

    def __init__(self, tool: str, complaint: str, parameters: Iterable[str] = ()) -> None:
        super().__init__(f"bad arguments for {tool}: {complaint}")
        self.parameters = frozenset(parameters)


class UnconvertibleValue(ToolfleetError):
    """The tool has run, and the converter that its author gave it could do nothing with what it returned."""


# --- the receiver acts: it does not believe what it has read ---------------------------------------------------------


class Refused(ToolfleetError):
    """An envelope must not be executed or believed. The text is the reason, for counters and dead letters."""


# --- the caller acts ------------------------------------------------------------------------------------------------


class CallerError(ToolfleetError):
    """The request cannot be served as it was made."""


class InvalidTool(CallerError):
    """A tool's declaration cannot be turned into a spec."""


class DuplicateTool(CallerError):
    """Two different tools claim one name."""


class NoToolsFound(CallerError):
    """A module or an object holds no tool."""


class ToolModuleError(CallerError):
    """A tool module is missing or raised while it was imported."""


class ArtifactNotFound(CallerError):
    """Whoever asks was never given an artifact with this id, or the artifact is kept no longer."""


class InvalidMedia(CallerError):
    """A `Media` was made from something that is not bytes, or with a media type that is not one."""


class NoContext(CallerError):
    """`current_context()` was called outside a tool call."""


class MissingFromContext(CallerError):
    """A tool wants a value that the caller did not put into the call's context."""


class NoCallback(CallerError):
    """A tool asked for its callback's address, but no setting says where the HTTP API is."""


class BadCheckpoint(CallerError):
    """A tool's checkpoint has no JSON form, or is larger than `toolfleet.context.MAX_CHECKPOINT_BYTES`."""


class BadSpending(CallerError):
    """`ctx.spend` was given what is no sum of money, or was called where nothing counts what is spent."""


class BadQuestion(CallerError):
    """`ctx.ask` was given what nobody could answer, or was called where nobody can be asked."""


class BadSleep(CallerError):
    """`ctx.sleep` was given no time, or more than its call has left."""


class InvalidSettings(CallerError):
    """A setting is missing, unknown, or contradicts another."""


class ExtraMissing(InvalidSettings):
    """What was asked for needs packages that are not installed; the text names the extra that has them."""


class OtherSecret(InvalidSettings):
    """The two halves of the fleet sign with different secrets: neither would believe the other."""


class UnknownOption(CallerError, TypeError):
    """An option by this name does not exist; most likely it is misspelt."""


# --- the operator acts ----------------------------------------------------------------------------------------------


class OperatorError(ToolfleetError):
    """Something the system stands on is not there, or refuses."""


class StoreUnreachable(OperatorError):
    """Redis does not answer, or refuses."""


class StoreRefuses(StoreUnreachable):
    """Redis is there, and refuses: the password, a right, or for now all writes or all commands."""


class TooFewReplicas(StoreUnreachable):
    """Redis has a write that its replicas were to have first (TOOLFLEET_WAIT_REPLICAS), and they have not."""


class BrokerUnreachable(OperatorError):
    """The Celery broker does not take messages."""


class ServerNotStarted(OperatorError):
    """The embedded server could not be started."""


class PortInUse(OperatorError):
    """Another process listens on the address."""


class WorkerNotReady(OperatorError):
    """A worker process ended, or did not announce its tools in time."""


class WorkerMisconfigured(WorkerNotReady):
    """A worker process ended because a setting of it is missing or wrong: starting it again will not help."""


class NameTaken(OperatorError):
    """A live worker already has the name that another one was to be started under."""
