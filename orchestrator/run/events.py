"""What happens to a run, as records: the entries of its stream in Redis, and what they say of each call.

Values only. What they amount to is folded in `run`; how they are stored is `store`'s matter.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, TypeAdapter

from toolfleet.calls import Failed, Record, ResultRecord, Spent, Submitted, ToolResult, attempt_of
from toolfleet.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from toolfleet.orchestrator.run.fault import Fault
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.nearly_spent import Left
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.words import Words
from toolfleet.tracing.trace import Trace


class Approval(Record):
    """What a person said about a call: run it, perhaps with other arguments, or do not."""

    granted: bool
    arguments: str | None = None
    reason: str = ""
    by: str = Field(default="", exclude_if=lambda by: not by)
    """Who has said so, as the door knows them; "" where nobody is known."""
    digest: str = Field(default="", exclude_if=lambda digest: not digest)
    """The `digest` of the call that they were shown: nothing is decided about any other arguments."""


class Answered(Record):
    """What a person has said to a question that a tool has asked while it ran."""

    key: str
    """Which of its call's questions it is."""
    question: str
    answer: str | None = None
    """As JSON; None where the person has declined."""
    reason: str = ""
    """Why they have."""
    by: str = ""
    """Who has said so, as the door knows them; "" where nobody is known."""
    asked_unix_s: float = Field(default=0.0, exclude_if=lambda asked: not asked)
    """When it was asked, by the worker's clock."""


class CallRecord(Record):
    """One call of the run: what was asked, how far it is, and its result once there is one.

    Whatever waits holds one of these for each of its calls. With a 22nd field it would take 370 bytes more, as the dict
    that it stands on doubles then.
    """

    call_id: str
    turn: int
    requested_id: str
    tool: str
    arguments: str = Field(repr=False)
    kept_as: str = ""
    """What its arguments are kept as with their secrets, which are masked here; "" where none of them is one."""
    refusal: Failed | None = None
    """Why it must not be sent: its answer is known already."""
    is_withheld: bool = False
    """A limit that the run goes on with is why: it does not count as a call."""
    is_sending: bool = False
    """It was about to be sent when this was written: it may be on its way, although nobody has noted so."""
    deadline_unix_s: float | None = None
    """When it expires; None until it is noted that it was sent."""
    is_direct: bool = False
    """Its result is the run's answer, if those of its neighbours are too."""
    is_in_background: bool = Field(default=False, exclude_if=lambda is_it: not is_it)
    """Its model has asked for a handle at once."""
    awaits_approval: bool = False
    digest: str = Field(default="", exclude_if=lambda digest: not digest)
    """SHA-256 of its id, tool and arguments, of one that waits for approval, or waited: what a person approves."""
    approval: Approval | None = None
    is_agents: bool = False
    """A run of an agent answers it, whose id is that of the call."""
    handle: str = ""
    """The ticket it got when its patience was used up."""
    result: ToolResult | None = None
    late_result: ToolResult | None = None
    """What a submitted call came to in the end."""
    answers: tuple[Answered, ...] = Field(default=(), exclude_if=lambda answers: not answers)
    """What people have said to its tool's questions."""
    is_left_open: bool = False
    """Its run ended before it did: `result` is what its model was told then, and no word of who works on it."""

    @property
    def spent(self) -> Spent | None:
        """What the run has used up that answered it, or its tool has spent; None for nothing."""
        known = self.late_result or self.result
        spent = known.spent if isinstance(known, ResultRecord) else None
        return spent if spent is None or self.is_agents else Spent(cost=spent.cost)

    @property
    def is_masked(self) -> bool:
        """Whether its arguments are shown without their secrets; what is sent is kept elsewhere."""
        return self.kept_as != ""

    @property
    def began_unix_s(self) -> float | None:
        """When its worker began with it; None while it has no result, and where no worker has ended it."""
        return attempt.began_unix_s if (attempt := attempt_of(self.late_result or self.result)) else None

    @property
    def ended_unix_s(self) -> float | None:
        """When its worker had its result; None as above."""
        return attempt.ended_unix_s if (attempt := attempt_of(self.late_result or self.result)) else None

    @property
    def is_slow_and_open(self) -> bool:
        """Whether the model holds a handle whose result it has not seen."""
        return isinstance(self.result, Submitted) and self.late_result is None

    @property
    def is_under_way(self) -> bool:
        """Whether a worker, a job elsewhere or a child run owes its result."""
        return self.deadline_unix_s is not None and (self.result is None or self.is_slow_and_open)


class RunStarted(Record):
    """The first event of every run."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    messages: tuple[Message, ...]
    model: str = ""
    """The name of the model that is asked; only orchestrators with this model take the run over."""
    terms: RunTerms = RunTerms()
    """The run's options, with the settings' where the caller had none of their own."""
    deadline_unix_s: float | None = None
    """When the run fails: `terms.timeout_s` after its beginning, or when the call ends that it answers."""
    parent_call_id: str | None = None
    """The call whose result this run's answer is."""
    depth: int = 0
    """How many runs stand above this one."""
    agent: str = ""
    """The agent whose own model is asked; empty where it is that of the orchestrator."""
    started_unix_s: float = 0.0
    orchestrator_id: str = Field(default="", exclude_if=lambda orchestrator_id: not orchestrator_id)
    """Who works on it first; empty: whoever adopts it."""
    asked_as: dict[str, JsonValue] = Field(default_factory=dict, repr=False, exclude_if=lambda asked: not asked)
    """What the door was asked with that began it, in that door's words, for it to show again. Nobody else reads it."""
    by: str = Field(default="", exclude_if=lambda by: not by)
    """Who has begun it, as the door knows them; "" where nobody is known."""
    trace: Trace | None = Field(default=None, repr=False, exclude_if=lambda trace: trace is None)
    """Its span; None where it was begun untraced."""
    versions: dict[str, int] = Field(default_factory=dict, exclude_if=lambda versions: not versions)
    """The versions of tools that it began with, and goes on with; of tools that have none nothing is said."""


class ModelReplied(Record):
    """The model's reply, stored before any of its calls is sent."""

    type: Literal["model_replied"] = "model_replied"
    message: AssistantMessage
    usage: Usage = Usage()
    incomplete: Incomplete | None = None
    """What the reply lacks; of one that was ended in the midst, the last call may be half a call."""
    service_tier: str = Field(default="", exclude_if=lambda tier: not tier)
    system_fingerprint: str = Field(default="", exclude_if=lambda fingerprint: not fingerprint)
    masked: tuple[str, ...] = ()
    """The calls whose arguments hold secrets, which are not stored here."""
    offered: tuple[str, ...] | None = None
    """The tools that were offered, where that is another choice in each turn."""
    problem: str | None = None
    """Why the answer is not what was asked for; the model may try once more."""
    restarts: int = Field(default=0, ge=0, lt=1000, exclude_if=lambda restarts: not restarts)
    """How often it was begun anew after some of it had been shown: what was shown before is void."""
    over_limit: str | None = None
    """The limit that the run has reached with this reply: what was not sent of it by then is not sent any more."""
    wraps_up: bool = Field(default=False, exclude_if=lambda wraps_up: not wraps_up)
    """Whether the model is asked once more then, without tools."""
    withheld: dict[str, str] = Field(default_factory=dict, exclude_if=lambda withheld: not withheld)
    """The calls that a limit has kept from being sent with which the run goes on, and why, by their ids."""
    is_last: bool = Field(default=False, exclude_if=lambda is_last: not is_last)
    """Whether it was asked for without tools, because a limit is reached."""


class CallsStreamed(Record):
    """The next calls of a reply that the model still writes, those after the ones before; the whole reply repeats them.

    Only what was added since the last such entry: a reply of thousands of calls would else be stored hundreds of times.
    """

    type: Literal["calls_streamed"] = "calls_streamed"
    message: AssistantMessage
    masked: tuple[str, ...] = ()
    sending: tuple[str, ...] = ()
    """Those of them that are sent as soon as this is stored."""


class CallsSent(Record):
    """Calls are on their way, each with its deadline; others wait for a person's approval first."""

    type: Literal["calls_sent"] = "calls_sent"
    deadlines_unix_s: dict[str, float]
    direct: tuple[str, ...] = ()
    """Those whose result is the run's answer."""
    agents: tuple[str, ...] = ()
    """Those that runs of agents answer."""
    background: tuple[str, ...] = Field(default=(), exclude_if=lambda background: not background)
    """Those of which the model has asked for a handle at once."""
    awaiting_approval: tuple[str, ...] = ()
    held_s: float = Field(default=0.0, exclude_if=lambda held_s: not held_s)
    """For how many seconds they had been in their queues when this was written."""


class CallsBack(Record):
    """Calls of the last reply have results. With the last of them come the messages that the model will read."""

    type: Literal["calls_back"] = "calls_back"
    results: dict[str, ToolResult]
    messages: tuple[ToolMessage, ...] = ()
    fetched: dict[str, ToolResult] = Field(default_factory=dict)
    """Late results of earlier, submitted calls that the model fetched in this turn, by call id."""
    sent: CallsSent | None = Field(default=None, exclude_if=lambda sent: sent is None)
    """Of calls that were back at once: that they were sent, which is not stored by itself then."""


class CallsParked(Record):
    """Only slow calls are left, each with a handle now: the run rests until one of them is back."""

    type: Literal["calls_parked"] = "calls_parked"
    handles: dict[str, str]


class ApprovalGiven(Record):
    """A person has decided about a call. Anybody may write this, not only who owns the run."""

    type: Literal["approval_given"] = "approval_given"
    call_id: str
    approval: Approval
    """With secrets masked."""
    kept_as: str = ""
    """What the edited arguments are kept as; "" if nothing of them is masked."""


class CallCancelRequested(Record):
    """Somebody wants one call no more. Anybody may write this; how the call ends is its worker's word."""

    type: Literal["call_cancel_requested"] = "call_cancel_requested"
    call_id: str
    by: str
    """Who has asked for it, as the door knows them."""


class ApprovalBelow(Record):
    """A call of a run below, one of an agent's, waits for a person, or was decided about. Told once of each."""

    type: Literal["approval_below"] = "approval_below"
    call_id: str
    tool: str
    arguments: str = Field(repr=False)
    """With secrets masked."""
    digest: str = ""
    approval: Approval | None = None
    """What was decided; None while it waits."""

    @property
    def told_as(self) -> tuple[str, bool]:
        """What is told once: which call, and whether it is decided."""
        return self.call_id, self.approval is not None


class MessagesSaid(Record):
    """A person says something while the run goes on. Anybody may write this, not only who owns the run.

    Its model reads it the next time that it is asked: never between calls and their results, nor behind a reply that
    was asked for without it.
    """

    type: Literal["messages_said"] = "messages_said"
    messages: tuple[UserMessage, ...]
    interrupt: bool = Field(default=False, exclude_if=lambda interrupt: not interrupt)
    """Whether open calls were not wanted any more: those that waited for a person are denied with this."""
    key: str = Field(default="", exclude_if=lambda key: not key)
    """What the sender calls it: said again under the same key, it is not said twice."""
    by: str = Field(default="", exclude_if=lambda by: not by)
    """Who has said it, as the door knows them; "" where nobody is known."""


class MessagesHeard(Record):
    """What was said since the model was last asked is part of the conversation now: it is asked again next."""

    type: Literal["messages_heard"] = "messages_heard"


class QuestionAnswered(Record):
    """A person has answered what a tool asks while it runs. Anybody may write this, not only who owns the run."""

    type: Literal["question_answered"] = "question_answered"
    call_id: str
    answered: Answered


class SlowResultDelivered(Record):
    """Late results that nobody fetched, written into the conversation as if the model had."""

    type: Literal["slow_result_delivered"] = "slow_result_delivered"
    results: dict[str, ToolResult]
    messages: tuple[Message, ...]


class RunAdopted(Record):
    """Another orchestrator owns the run from here on. Who owned it before finds this entry, and stops."""

    type: Literal["run_adopted"] = "run_adopted"
    orchestrator_id: str
    words: Words | None = Field(default=None, exclude_if=lambda words: words is None)
    """What its model reads of calls that ended without their tools, for a run that had no words of its own."""


class BudgetRanLow(Record):
    """Four fifths of something are used that the run may use up; told once of each limit, before a reply."""

    type: Literal["budget_ran_low"] = "budget_ran_low"
    left: tuple[Left, ...]


class Noted(Record):
    """What an interceptor has found out before the model is asked, or of its reply: used only once it stands here.

    So whoever goes on with the run uses the same, and asks nobody again.
    """

    type: Literal["noted"] = "noted"
    name: str
    """The interceptor's."""
    value: JsonValue = None
    """Takes the place of what it has noted before."""
    usage: Usage = Usage()
    """What was read and written to find it out."""
    blocks: str = Field(default="", exclude_if=lambda blocks: not blocks)
    """Why the run must not go on; "" where it may."""


class RunResumed(Record):
    """A run that had ended goes on, with these messages added."""

    type: Literal["run_resumed"] = "run_resumed"
    messages: tuple[Message, ...] = ()
    subject: str | None = Field(default=None, exclude_if=lambda subject: subject is None)
    """Who asks from here on; None: whoever did before."""
    trace: Trace | None = Field(default=None, repr=False, exclude_if=lambda trace: trace is None)
    """The span that it has from here on, in the same trace."""
    by: str = Field(default="", exclude_if=lambda by: not by)
    """Who has let it go on, as the door knows them; "" where nobody is known."""


class CallsHandedOver(Record):
    """Only calls of the caller's own tools are left: the run ends with them, and the caller answers them elsewhere."""

    type: Literal["calls_handed_over"] = "calls_handed_over"


class RunStopped(Record):
    """The run ends without an answer. Anybody may write this, not only who owns the run."""

    type: Literal["run_stopped"] = "run_stopped"
    state: Literal["failed", "cancelled"]
    reason: str
    by: str = Field(default="", exclude_if=lambda by: not by)
    """Who has ended it, where that was a person, as the door knows them; "" where nobody is known."""
    fault: Fault | None = Field(default=None, exclude_if=lambda fault: fault is None)
    """What kept its model from answering, where that is why."""
    results: dict[str, ToolResult] = Field(default_factory=dict)
    """What its open calls had come to by then, slow ones too, by call id. Of the others nothing was known."""
    messages: tuple[Message, ...] = ()
    """Those of the slow ones written into the conversation, as if the model had fetched them."""


RunEvent = (
    ModelReplied
    | CallsStreamed
    | CallsSent
    | CallsBack
    | CallsParked
    | ApprovalGiven
    | ApprovalBelow
    | CallCancelRequested
    | MessagesSaid
    | MessagesHeard
    | QuestionAnswered
    | SlowResultDelivered
    | RunAdopted
    | BudgetRanLow
    | Noted
    | RunResumed
    | CallsHandedOver
    | RunStopped
)
"""What can happen to a run that has started."""

RUN_EVENT: Final[TypeAdapter[RunStarted | RunEvent]] = TypeAdapter(
    Annotated[RunStarted | RunEvent, Field(discriminator="type")]
)


def sending_in(event: RunStarted | RunEvent) -> CallsSent | None:
    """Return what an event says of calls that were sent: alone, or together with what came back at once."""
    return event if isinstance(event, CallsSent) else event.sent if isinstance(event, CallsBack) else None


def apart(event: RunEvent) -> tuple[RunEvent, ...]:
    """Return an event as two, where it also says that calls were sent; the last one is of its own kind."""
    if isinstance(event, CallsBack) and event.sent is not None:
        return event.sent, event.model_copy(update={"sent": None})
    return (event,)
