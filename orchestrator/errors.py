"""Every error of the orchestrator that passes from one module to another, sorted by who must act on it.

Those of the language that both halves speak are in `toolfleet.errors`. Each message names the thing and the remedy. Two
kinds stand elsewhere: what only its own module raises and catches, and `RunFailed`, which carries a run and so lives
above what knows runs (`assistants/assistant.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from toolfleet.errors import CallerError, OperatorError, ToolfleetError

# --- the caller acts: with another id, or at another moment ---------------------------------------------------------


class RunNotFound(CallerError):
    """No run with this id is stored."""


class RunNotBelieved(RunNotFound):
    """What is stored under this id was not written by this fleet: its first entry is not sealed with our secret."""


class BatchNotFound(CallerError):
    """No batch with this id is noted."""


class BatchNotOpen(CallerError):
    """The batch is through, or was cancelled."""


class ScheduleNotFound(CallerError):
    """No schedule with this id is kept."""


class NoSuchShard(RunNotFound):
    """The id names a shard that this fleet does not have."""


class OtherShard(CallerError):
    """A run is to be begun on one shard under an id that belongs to another."""


class RunExists(CallerError):
    """A run with this id is stored already."""


class RunNotOpen(CallerError):
    """The run, or its call, is not in a state in which it could do what was asked: it has ended, or it has not."""


class MayHaveRun(RunNotOpen):
    """A call cannot be made again by itself: its effect may have happened, and must not happen twice."""


class ExportUnreadable(CallerError):
    """A file is no export of runs, or not a whole one; the text says where."""


class AmbiguousId(CallerError):
    """Several runs have ids that begin like this."""


class BadCursor(CallerError):
    """What a page was asked for with is no cursor that a page before has named."""


class HandleNotFound(CallerError):
    """No handle with this id belongs to this run."""


class QuestionNotFound(CallerError):
    """No call asks a person this, as far as is known here."""


class QuestionClosed(RunNotOpen):
    """A question is answered already, has expired, or its call has ended."""


class InvalidAnswer(CallerError):
    """An answer does not fit its question's schema; the text says where, and why."""


class DeadLetterNotFound(CallerError):
    """No dead letter has this id, and none is about this call."""


class WebhookNotFound(CallerError):
    """No endpoint, or no webhook that was given up, has this id."""


# --- the caller acts: by asking for something else ------------------------------------------------------------------


class InvalidOption(CallerError):
    """An option of a run or a call has a value that cannot be meant."""


class UnknownWebhook(InvalidOption):
    """A run names an endpoint that its tenant does not have."""


class InvalidWebhook(CallerError):
    """An endpoint cannot be as it was asked for: its URL leads nowhere, or where webhooks must not go."""


class BudgetSpent(CallerError):
    """A budget is used up; the text says whose, and how much it was."""


class BudgetSpentForNow(BudgetSpent):
    """One that begins anew by itself."""

    resets_unix_s: float | None = None
    """When that is."""

    def __init__(self, text: str, resets_unix_s: float) -> None:
        super().__init__(text)
        self.resets_unix_s = resets_unix_s


class UnknownPrice(CallerError):
    """What a model costs is not known, and a limit is set on it."""


class NotForThisModel(CallerError):
    """A run asks its model for something that the model's provider does not take; the text names it."""


class UnknownTool(CallerError):
    """A run asks for a tool that no live worker announces."""


class ApprovalMissing(CallerError):
    """A tool that needs a person's approval was called by somebody who may not give it."""


class UnknownInterceptor(CallerError):
    """A run asks for an interceptor that its orchestrator does not have."""


class InvalidLimit(CallerError):
    """What was said of a limit, or of a tenant's share, means nothing here."""


class InvalidSchedule(CallerError):
    """A schedule cannot be meant: its cron expression, its zone, its size, or a model that nobody has."""


class InvalidVersion(CallerError):
    """What was said of a version of a tool, or of its share, means nothing here."""


class NoSuchShare(CallerError):
    """Nothing was said of the versions of a tool, or nothing can be said: its name is none."""


class InvalidAssistant(CallerError):
    """A method's declaration does not say what is to be asked, or what is to come back."""


# --- the caller acts: by opening the orchestrator, or another one ---------------------------------------------------


class NotOpen(CallerError):
    """The orchestrator was asked for something before it was opened, or after it was closed."""


class NotHere(CallerError):
    """The orchestrator cannot be used without `await` in this place."""


class OrchestratorClosed(CallerError):
    """A run was still going on when its orchestrator was closed. Another one with its model goes on with it."""


# --- the caller acts: on the files of a batch -----------------------------------------------------------------------


class InputUnreadable(CallerError):
    """The batch's input cannot be read."""


class OutputUnusable(CallerError):
    """The output file cannot be written, is being written by another process, or holds something else."""


class InvalidBatchId(CallerError):
    """A batch id has characters that have no place in the ids of runs."""


class OtherQuestion(CallerError):
    """A run with the id of this line is stored, and was asked something else."""


# --- the operator acts ----------------------------------------------------------------------------------------------


class AllShardsDrain(OperatorError):
    """No shard takes new runs, until one is undrained or added."""


class FleetRunsAlready(OperatorError):
    """Another `toolfleet up` on this machine runs this fleet."""


class NewerVersion(OperatorError):
    """A newer version of this project has written something that this one cannot read: nothing of it is touched."""


# --- the operator acts, or the model's provider ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProviderSaid:
    """What a model's provider answered instead of a reply, as far as it said anything."""

    status: int | None = None
    message: str = ""
    code: str = ""
    param: str = ""
    retry_after_s: float | None = None


class ModelError(OperatorError):
    """The model could not be asked, or its answer could not be used."""

    def __init__(self, message: str, said: ProviderSaid | None = None) -> None:
        super().__init__(message)
        self.said = said or ProviderSaid()


class ModelUnreachable(ModelError):
    """The model's server did not answer, after retries."""


class TryAgain(ModelUnreachable):
    """A fault that may pass: the request is repeated."""


class ModelRefused(ModelError):
    """The model's server refused the request: key, quota, model name or parameters."""


class ModelReplyInvalid(ModelError):
    """The model's server answered something that is not its protocol."""


# --- the loop that works on a run acts: it lets go, or reads the run again. None of these reaches a caller ------------


class LostRun(ToolfleetError):
    """The run is no longer ours to work on: another orchestrator owns it, or it was deleted."""


class RunIsOver(ToolfleetError):
    """Somebody else has ended the run while we worked on it."""


class Overtaken(ToolfleetError):
    """Others have changed the run so that our event cannot happen to it any more."""


# --- we act ---------------------------------------------------------------------------------------------------------


class IllegalTransition(Exception):
    """A run or call was asked to change in a way its table does not allow: a bug in this project.

    Not a ToolfleetError, so that nobody takes it for one that somebody else should act on.
    """
