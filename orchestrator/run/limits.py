"""What a run may use up, and whether it goes in circles. Pure: whoever asks brings the clock.

A limit binds where a call is sent: a whole reply is judged before it is stored (`within_limits`), the calls of one that
is still being written one by one (`Allowance`). What was sent is told as what it is; what was not, as not called.

Of calls only those count that were asked for since the user last spoke: a conversation may go on for ever, one answer
may not. Tokens and cost count from the run's beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, cast, get_args

from pydantic import Field, StrictBool, StrictFloat

from toolfleet.calls import Failed, FailureKind, Record, Spent
from toolfleet.messages import Usage, UserMessage
from toolfleet.orchestrator.run.accounts import MOST_USD, no_truth_value
from toolfleet.orchestrator.run.tally import same_call

if TYPE_CHECKING:
    from toolfleet.orchestrator.run.events import CallRecord, ModelReplied
    from toolfleet.orchestrator.run.tally import Counted
    from toolfleet.orchestrator.run.value import Run

AGAIN_TOLD: Final = 3
"""After so many turns with the same call the model is told that it repeats itself."""

AGAIN_MAX: Final = 6
"""After so many the run ends."""

LOOP: Final = "loop"

TIMED_OUT: Final = "the run's deadline has passed"


WholeNumber = Annotated[int, no_truth_value("a whole number")]
"""An integer as JSON Schema has it: 3.0 is one, true is none."""

Count = Annotated[int, Field(ge=1, le=2**63 - 1), no_truth_value("a whole number")]
"""Of what somebody may use up. What is larger cannot be read of a float."""


class NothingLeft(Exception):  # not an error: the call is answered with it
    """A limit leaves nothing for the run of an agent; the text says which."""


Then = Literal["tell", "wrap_up", "end"]
"""What a run does at a limit: it goes on and its model is told, it gives one more answer without tools, or it fails."""

CallLimit = Literal["calls", "calls_per_tool", "calls_per_reply", "calls_per_conversation"]

CALL_LIMITS: Final = get_args(CallLimit)


class Limits(Record):
    """What one answer may cost, that of its agents included; None: without limit."""

    calls: Count | None = 150
    calls_per_tool: Count | None = 40
    calls_per_reply: Count | None = Field(default=None, exclude_if=lambda count: count is None)
    calls_per_conversation: Count | None = Field(default=None, exclude_if=lambda count: count is None)
    """Since the run began, however often its user has spoken."""
    then: dict[CallLimit, Then] = Field(default_factory=dict, exclude_if=lambda then: not then)
    """What is done at each limit on calls. With `tell` the calls beyond it are not made, and the model reads why."""
    wrap_up: StrictBool = Field(default=False, exclude_if=lambda wrap_up: not wrap_up)
    """What is done at any other limit, at those that `then` does not name and at a tenant's budget: the model answers
    once more, without tools, and the run is done for the reason `budget`. Otherwise it fails."""
    tokens: Count | None = None
    """Input and output tokens together, as the provider counts them."""
    cost: Annotated[StrictFloat, Field(gt=0, le=MOST_USD)] | None = None
    """In US dollars. The price of the model must be known, from Toolfleet's list or the setting `prices`."""
    tell_left: StrictBool = Field(default=False, exclude_if=lambda tell: not tell)
    """Tell the model how much is left with each request, once four fifths of a budget are used."""
    strict: StrictBool = Field(default=False, exclude_if=lambda strict: not strict)
    """Never go beyond tokens and cost: each reply is bounded by what is left. Otherwise the last one may."""

    def at(self, limit: str) -> Then:
        """What is done at a limit of this name."""
        told = self.then.get(cast("CallLimit", limit))
        return told or ("wrap_up" if self.wrap_up and limit not in _ENDS else "end")

    @property
    def binds_each_call(self) -> bool:
        """Whether a reply is to be judged call by call."""
        return bool(self.then) or self.calls_per_reply is not None or self.calls_per_conversation is not None


class Reached(NamedTuple):
    """A limit that stands against what a run wants to do."""

    reason: str
    wraps_up: bool = False
    """Whether its model is to answer once more, without tools."""


def own_usage(run: Run) -> Usage:
    """What the run's own model has read and written, without those of its agents."""
    below = run.tally.spent
    return run.usage.model_copy(
        update={
            "input_tokens": run.usage.input_tokens - below.input_tokens,
            "output_tokens": run.usage.output_tokens - below.output_tokens,
        }
    )


def cost_of(run: Run) -> float:
    """What the run has cost so far in US dollars: its own tokens by its price, its agents' runs by theirs."""
    price = run.terms.price
    return (0.0 if price is None else price.of(own_usage(run))) + run.tally.spent.cost


def has_timed_out(run: Run, now_unix_s: float) -> bool:
    """Whether the run's deadline has passed."""
    return run.deadline_unix_s is not None and now_unix_s >= run.deadline_unix_s


def breach(run: Run, now_unix_s: float) -> Reached | None:
    """Why the run must not go on as it wants to, None if it may."""
    if has_timed_out(run, now_unix_s):
        return Reached(TIMED_OUT)
    max_turns = run.terms.max_turns
    if max_turns is not None and run.turn - run.turns_before >= max_turns and not run.calls_owed:
        return Reached(f"the limit of {max_turns} turns is reached")
    if run.over_limit is not None:
        return Reached(run.over_limit, run.wraps_up)
    found = _too_many_calls(run) or too_expensive(run)
    if found is None:
        return None
    limit, reason = found
    return Reached(reason, run.terms.limits.at(limit) == "wrap_up")


class Allowance:
    """What may still be sent of a reply while its model goes on writing it: as much as no limit stands against.

    It is asked about each call of the reply, in its order, and counts them. A reply that has passed a limit is over it
    for good, so nothing that comes later is sent either. What a reply costs is known only at its end: of a run with a
    limit on tokens or cost, nothing is sent before that.
    """

    def __init__(self, run: Run) -> None:
        """Begin with what the run has called since the user last spoke."""
        self._limits = run.terms.limits
        self._of_tool = Counter(run.tally.tools)
        self._calls = self._of_tool.total()
        self._in_conversation = run.tally.made + run.tally.made_below
        self._in_reply = 0
        self._asked_before = run.tally.asked
        self.is_used_up = self._limits.tokens is not None or self._limits.cost is not None
        """Whether nothing more of this reply may be sent before it is whole."""
        self.withheld: dict[str, str] = {}
        """The calls that are not made although the run goes on, and why."""
        self.over: Reached | None = None
        """The first limit on calls that the reply goes over, of those with which the run does not go on."""

    def admits(self, call: CallRecord) -> bool:
        """Count the reply's next call. Whether it may be sent."""
        for limit, reason in self._against(call):
            if self._limits.at(limit) == "tell":
                self.withheld[call.call_id] = reason
                return False
            self.over = self.over or Reached(reason, self._limits.at(limit) == "wrap_up")
        self._calls += 1
        self._in_conversation += 1
        self._in_reply += 1
        self._of_tool[call.tool] += 1
        self.is_used_up = (
            self.is_used_up
            or self.over is not None
            # In as many turns before this one, whether or not the reply has asked for it already.
            or self._asked_before[same_call(call)] >= AGAIN_MAX
        )
        return not self.is_used_up

    def _against(self, call: CallRecord) -> list[tuple[str, str]]:
        """The limits that the call goes over, those first with which the run goes on: such a call does not count."""
        limits, of_tool = self._limits, self._of_tool[call.tool]
        against = []
        if limits.calls is not None and self._calls >= limits.calls:
            against.append(("calls", _reason(limits, "calls")))
        if limits.calls_per_tool is not None and of_tool >= limits.calls_per_tool:
            against.append(("calls_per_tool", f"{_reason(limits, 'calls_per_tool')} by {call.tool}"))
        if limits.calls_per_reply is not None and self._in_reply >= limits.calls_per_reply:
            against.append(("calls_per_reply", _reason(limits, "calls_per_reply")))
        if limits.calls_per_conversation is not None and self._in_conversation >= limits.calls_per_conversation:
            against.append(("calls_per_conversation", _reason(limits, "calls_per_conversation")))
        return sorted(against, key=lambda each: limits.at(each[0]) != "tell") if against else against


_OF: Final = {
    "calls": "",
    "calls_per_tool": " of one tool",
    "calls_per_reply": " in one reply",
    "calls_per_conversation": " in one conversation",
}

_ENDS: Final = (LOOP,)


def _reason(limits: Limits, limit: CallLimit) -> str:
    return f"the limit of {getattr(limits, limit)} calls{_OF[limit]} is reached"


def _too_many_calls(run: Run) -> tuple[str, str] | None:
    """The limit on calls that the run has gone over, and how that is said."""
    limits, asked = run.terms.limits, run.tally.tools
    if limits.calls is not None and sum(asked.values()) > limits.calls:
        return "calls", _reason(limits, "calls")
    if limits.calls_per_tool is not None:
        busiest = max(asked, key=asked.__getitem__, default="")
        if asked.get(busiest, 0) > limits.calls_per_tool:
            return "calls_per_tool", f"{_reason(limits, 'calls_per_tool')} by {busiest}"
    return (LOOP, LOOP) if run.tally.most_asked > AGAIN_MAX else None


def calls_counted(calls: Iterable[CallRecord]) -> Counter[str]:
    """How many calls of each tool these are, with those of the runs that have answered some of them."""
    asked = Counter[str]()
    for call in calls:
        asked[call.tool] += 1
        if call.spent is not None:
            asked.update(call.spent.calls)
    return asked


def spent_by(run: Run) -> Spent:
    """All that a run has used up, with the runs below it."""
    return Spent(
        input_tokens=run.usage.input_tokens,
        output_tokens=run.usage.output_tokens,
        cost=cost_of(run),
        calls=dict(calls_counted(run.calls)),
    )


def limits_below(
    parent: Run, own: Limits, tools: Collection[str], *, sharing: int, has_account: bool = False
) -> Limits:
    """What the run of an agent may use up: what the agent says itself, and no more than its share of what is left.

    `tools` are those that it may call, none for one that makes no calls; `sharing` is how many runs of agents share it,
    `has_account` whether they do so in one account (`accounts.py`), which need not be divided among them.
    Raises NothingLeft when nothing is left that it needs.
    """
    limits, asked = parent.terms.limits, parent.tally.tools
    busiest = max((times for name, times in asked.items() if name in tools), default=0)
    tokens = parent.usage.total_tokens
    # One that has no tools cannot make the call that it is allowed.
    least = 0 if tools else 1
    of_account = 1 if has_account else sharing
    shares = {
        "calls": _share(limits.calls, sum(asked.values()), of_account, least=least),
        "calls_per_tool": _share(limits.calls_per_tool, busiest, sharing, least=least),
        "tokens": _share(limits.tokens, tokens, of_account),
    }
    cost = None if limits.cost is None else (limits.cost - cost_of(parent)) / of_account
    for name, share in {**shares, "cost": cost}.items():
        if share is not None and share <= 0:
            raise NothingLeft(f"the limit of {getattr(limits, name):g} {name.replace('_', ' ')} leaves nothing for it")
    shared = {name: _narrowest(getattr(own, name), share) for name, share in {**shares, "cost": cost}.items()}
    kept = {
        name: getattr(own, name)
        for name in ("calls_per_reply", "calls_per_conversation", "then", "wrap_up", "tell_left")
    }
    return Limits.model_validate({**shared, **kept, "strict": own.strict or limits.strict})


def _share(limit: int | None, used: int, sharing: int, *, least: int = 0) -> int | None:
    return None if limit is None else max(least, (limit - used) // sharing)


def _narrowest(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def too_expensive(run: Run) -> tuple[str, str] | None:
    """The limit on tokens or cost that the run has gone over, and how that is said."""
    limits = run.terms.limits
    if limits.tokens is not None and run.usage.total_tokens > limits.tokens:
        return "tokens", f"the limit of {limits.tokens} tokens is reached"
    if limits.cost is not None and cost_of(run) > limits.cost:
        return "cost", f"the limit of ${limits.cost:g} is reached"
    return None


def note_for(call: CallRecord, asked: Counted[tuple[str, str]]) -> str:
    """What the model is told with the result of a call that it asks for again and again; mostly nothing.

    `asked`: in how many turns it has asked for each call since the user last spoke.
    """
    times = asked[same_call(call)]
    if times <= AGAIN_TOLD:
        return ""
    return (
        f"\n[You have asked for this same call {times} times. Use the result you have, ask for something else, or say "
        "what is missing.]"
    )


def within_limits(run: Run, reply: ModelReplied, now_unix_s: float) -> tuple[ModelReplied, Run]:
    """The reply as it is to be stored, with the limit that the run reaches by it if it asks for calls; the run then."""
    after = run.on(reply)
    if not reply.message.tool_calls:
        return reply, after
    over = None
    if run.terms.limits.binds_each_call:
        allowance = Allowance(run)
        for call in after.calls_owed:
            allowance.admits(call)
        over = allowance.over
        if allowance.withheld:
            reply = reply.model_copy(update={"withheld": allowance.withheld})
            after = run.on(reply)
    over = over or breach(after, now_unix_s)
    return (reply, after) if over is None else beyond(run, reply, over)


def beyond(run: Run, reply: ModelReplied, over: Reached) -> tuple[ModelReplied, Run]:
    """The reply as it is to be stored when this limit stands against its calls; the run then."""
    reply = reply.model_copy(update={"over_limit": over.reason, "wraps_up": over.wraps_up})
    return reply, run.on(reply)


def without(run: Run, reply: ModelReplied, calls: Iterable[str], reason: str) -> tuple[ModelReplied, Run]:
    """The reply as it is to be stored when the run goes on without these of its calls; the run then."""
    reply = reply.model_copy(update={"withheld": {**reply.withheld, **dict.fromkeys(calls, reason)}})
    return reply, run.on(reply)


def last_word(over: Reached) -> UserMessage:
    """What a model is told that is to answer once more, without tools."""
    return UserMessage(content=f"[You can use no more tools: {over.reason}. Answer now with what you have.]")


def over_limit(tool: str, reason: str) -> Failed:
    """The answer to a call that is not sent because its run has reached a limit."""
    return Failed(kind=FailureKind.LIMIT, message=f"{tool} was not called: {reason}.")
