"""Every error this project raises, sorted by who must act on it.

The model acts on a `Failed` record (see `toolfleet.calls`), never on an exception. The other three families live here:
the caller's, the operator's and ours. Each message names the thing and the remedy.
"""

from __future__ import annotations


class ToolfleetError(Exception):
    """The root of all errors raised on purpose."""


# --- for the author of a tool, to speak to the model ---------------------------------------------------------------


class ToolError(ToolfleetError):
    """Raised by a tool to tell the model what went wrong; its text is shown to the model as it is."""


class UnconvertibleValue(ToolfleetError):
    """The tool has run, and the converter that its author gave it could do nothing with what it returned."""


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


class UnknownTool(CallerError):
    """A run asks for a tool that no live worker announces."""


class RunNotFound(CallerError):
    """No run with this id is stored."""


class RunNotOpen(CallerError):
    """The run, or its call, is not in a state in which it could do what was asked: it has ended, or it has not."""


class AmbiguousId(CallerError):
    """Several runs have ids that begin like this."""


class HandleNotFound(CallerError):
    """No handle with this id belongs to this run."""


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


class BrokerUnreachable(OperatorError):
    """The Celery broker does not take messages."""


class ServerNotStarted(OperatorError):
    """The embedded server could not be started."""


class PortInUse(OperatorError):
    """Another process listens on the address."""


class WorkerNotReady(OperatorError):
    """A worker process ended, or did not announce its tools in time."""


class ModelError(OperatorError):
    """The model could not be asked, or its answer could not be used."""


class ModelUnreachable(ModelError):
    """The model's server did not answer, after retries."""


class ModelRefused(ModelError):
    """The model's server refused the request: key, quota, model name or parameters."""


class ModelReplyInvalid(ModelError):
    """The model's server answered something that is not its protocol."""


# --- we act ---------------------------------------------------------------------------------------------------------


class IllegalTransition(Exception):
    """A run or call was asked to change in a way its table does not allow: a bug in this project.

    Not a ToolfleetError, so that nobody takes it for one that somebody else should act on.
    """
