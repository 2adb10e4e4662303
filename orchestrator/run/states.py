"""Where a run can stand, and what may happen to it there: one table. A missing cell is a bug, and raises."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a run stands. Each is left only as TRANSITIONS says."""

    THINKING = "thinking"
    """The model is owed the conversation so far."""
    CALLING = "calling"
    """Calls of the last reply are under way."""
    PARKED = "parked"
    """Only slow calls and calls that wait for approval are left: nothing is done until there is news of one."""
    WAITING = "waiting"
    """The model has answered, but slow calls have results that it has not seen."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended."""
        return self in _ENDS


_ENDS: Final = frozenset({State.DONE, State.FAILED, State.CANCELLED})


class Change(StrEnum):
    """What an event means for the state."""

    MODEL_ASKED_FOR_TOOLS = "model asked for tools"
    MODEL_ANSWERED = "model answered"
    ANSWER_REFUSED = "answer refused"
    MODEL_ANSWERED_EARLY = "model answered before its slow calls were back"
    CALLS_STREAMED = "calls streamed"
    CALLS_SENT = "calls sent"
    SOME_CALLS_BACK = "some calls back"
    ALL_CALLS_BACK = "all calls back"
    RESULTS_ARE_THE_ANSWER = "results are the answer"
    RESULTS_BEFORE_SLOW_ONES = "results are the answer, before its slow calls were back"
    HANDED_OVER = "handed over to the caller"
    ONLY_SLOW_CALLS_LEFT = "only slow calls left"
    APPROVAL_GIVEN = "approval given"
    APPROVAL_BELOW = "approval of a call below"
    CALL_CANCEL_REQUESTED = "cancel of a call requested"
    MESSAGES_SAID = "user said more"
    INTERRUPTED = "user interrupted"
    MESSAGES_HEARD = "what the user said is heard"
    ANSWERED_TOO_SOON = "model answered before it heard the user"
    QUESTION_ANSWERED = "question answered"
    SLOW_RESULT_DELIVERED = "slow result delivered"
    ADOPTED = "adopted"
    BUDGET_RAN_LOW = "budget ran low"
    NOTED = "noted by an interceptor"
    RESUMED = "resumed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_STOPS: Final = {Change.FAILED: State.FAILED, Change.CANCELLED: State.CANCELLED}

TRANSITIONS: Final[dict[State, dict[Change, State]]] = {
    State.THINKING: {
        Change.MODEL_ASKED_FOR_TOOLS: State.CALLING,
        Change.MODEL_ANSWERED: State.DONE,
        Change.ANSWER_REFUSED: State.THINKING,
        Change.CALLS_STREAMED: State.THINKING,
        Change.CALLS_SENT: State.THINKING,
        Change.MODEL_ANSWERED_EARLY: State.WAITING,
        Change.CALL_CANCEL_REQUESTED: State.THINKING,
        Change.APPROVAL_BELOW: State.THINKING,
        Change.MESSAGES_SAID: State.THINKING,
        Change.MESSAGES_HEARD: State.THINKING,
        Change.ANSWERED_TOO_SOON: State.THINKING,
        Change.QUESTION_ANSWERED: State.THINKING,
        Change.BUDGET_RAN_LOW: State.THINKING,
        Change.NOTED: State.THINKING,
        Change.ADOPTED: State.THINKING,
        **_STOPS,
    },
    State.CALLING: {
        Change.CALLS_SENT: State.CALLING,
        Change.SOME_CALLS_BACK: State.CALLING,
        Change.ALL_CALLS_BACK: State.THINKING,
        Change.RESULTS_ARE_THE_ANSWER: State.DONE,
        Change.RESULTS_BEFORE_SLOW_ONES: State.WAITING,
        Change.HANDED_OVER: State.DONE,
        Change.ONLY_SLOW_CALLS_LEFT: State.PARKED,
        Change.APPROVAL_GIVEN: State.CALLING,
        Change.CALL_CANCEL_REQUESTED: State.CALLING,
        Change.APPROVAL_BELOW: State.CALLING,
        Change.MESSAGES_SAID: State.CALLING,
        Change.INTERRUPTED: State.CALLING,
        Change.QUESTION_ANSWERED: State.CALLING,
        Change.SLOW_RESULT_DELIVERED: State.CALLING,
        Change.ADOPTED: State.CALLING,
        **_STOPS,
    },
    State.PARKED: {
        Change.SOME_CALLS_BACK: State.PARKED,
        Change.ALL_CALLS_BACK: State.THINKING,
        Change.RESULTS_ARE_THE_ANSWER: State.DONE,
        Change.RESULTS_BEFORE_SLOW_ONES: State.WAITING,
        Change.HANDED_OVER: State.DONE,
        Change.APPROVAL_GIVEN: State.CALLING,
        Change.CALL_CANCEL_REQUESTED: State.PARKED,
        Change.APPROVAL_BELOW: State.PARKED,
        Change.MESSAGES_SAID: State.PARKED,
        Change.INTERRUPTED: State.CALLING,
        Change.QUESTION_ANSWERED: State.PARKED,
        Change.SLOW_RESULT_DELIVERED: State.PARKED,
        Change.ADOPTED: State.PARKED,
        **_STOPS,
    },
    State.WAITING: {
        Change.CALL_CANCEL_REQUESTED: State.WAITING,
        Change.APPROVAL_BELOW: State.WAITING,
        Change.MESSAGES_SAID: State.THINKING,
        Change.QUESTION_ANSWERED: State.WAITING,
        Change.SLOW_RESULT_DELIVERED: State.THINKING,
        Change.ADOPTED: State.WAITING,
        **_STOPS,
    },
    State.DONE: {Change.RESUMED: State.THINKING},
    State.FAILED: {Change.RESUMED: State.THINKING},
    State.CANCELLED: {Change.RESUMED: State.THINKING},
}
