"""What is kept of a run as it goes is what a look at all its calls and messages would say."""

from collections import Counter
from functools import reduce

from hypothesis import given, strategies as st

from toolfleet.calls import Failed, FailureKind, Returned, Spent, Submitted
from toolfleet.messages import AssistantMessage, RequestedCall, UserMessage
from toolfleet.orchestrator.run.events import (
    Approval,
    ApprovalGiven,
    CallsBack,
    CallsSent,
    ModelReplied,
    RunResumed,
    RunStarted,
    SlowResultDelivered,
)
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.tally import Counted, Tally
from toolfleet.orchestrator.run.value import Run

STARTED = RunStarted(run_id="r", messages=(UserMessage(content="?"),))
SPENT = Spent(input_tokens=3, output_tokens=2, cost=0.5, calls={"deep": 4, "none": 0})

RETURNED = [
    Returned(content="1"),
    Returned(content="2", artifact="0" * 64),
    Returned(content="3", spent=SPENT),
    Failed(kind=FailureKind.ERROR, message="no", spent=SPENT),
]


@given(st.lists(st.lists(st.sampled_from("abcdefgh"))))
def test_each_version_of_a_count_keeps_what_it_has_counted(batches):
    versions = [Counted()]
    for batch in batches:
        versions.append(versions[-1].with_each(batch))
    for counted, length in zip(versions, range(len(versions)), strict=True):
        expected = reduce(Counter.__add__, (Counter(set(batch)) for batch in batches[:length]), Counter())
        assert counted.all() == expected
        assert all(counted[key] == expected[key] and (key in counted) is (key in expected) for key in "abcdefgh")


def replied(turn, asked):
    calls = tuple(
        RequestedCall(id=f"{turn}-{at}", name=tool, arguments=arguments) for at, (tool, arguments) in enumerate(asked)
    )
    return ModelReplied(message=AssistantMessage(content="" if calls else "done", tool_calls=calls))


def made(run, draw):
    """The run once all calls of its last reply are back, some after a person has changed their arguments."""
    ids = [call.call_id for call in run.calls_owed]
    edited = [id_ for id_ in ids if draw(st.booleans())]
    if edited:
        run = run.on(CallsSent(deadlines_unix_s={}, awaiting_approval=tuple(edited)))
    for id_ in edited:
        run = run.on(ApprovalGiven(call_id=id_, approval=Approval(granted=True, arguments='{"b": 1}')))
    agents = tuple(id_ for id_ in ids if draw(st.booleans()))
    run = run.on(CallsSent(deadlines_unix_s=dict.fromkeys(ids, 1e9), agents=agents))
    results = {
        id_: draw(st.sampled_from([*RETURNED, *(Submitted(handle=handle) for handle in (f"h-{id_}", "h"))]))
        for id_ in ids
    }
    slow = [call.call_id for call in run.open_slow_calls]
    fetched = {id_: draw(st.sampled_from(RETURNED)) for id_ in slow if draw(st.booleans())}
    return run.on(CallsBack(results=results, messages=run.messages_with(results), fetched=fetched))


def ended(run, draw):
    """The run after its answer, with what was slow delivered, and after the user has spoken again."""
    run = run.on(replied(run.turn + 1, ()))
    if run.state is State.WAITING:
        late = {call.call_id: draw(st.sampled_from(RETURNED)) for call in run.open_slow_calls}
        run = run.on(SlowResultDelivered(results=late, messages=())).on(replied(run.turn + 2, ()))
    return run.on(RunResumed(messages=(UserMessage(content="and now?"),)))


CALLS = st.lists(st.tuples(st.sampled_from(["one", "two"]), st.sampled_from(["{}", '{"a": 1}', "no"])), min_size=1)


@given(st.data())
def test_the_tally_that_is_kept_is_that_of_all_calls_and_messages(data):
    run = Run.start(STARTED)
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.integers(0, 3)) == 0:
            run = ended(run, data.draw)
        else:
            run = made(run.on(replied(run.turn + 1, data.draw(CALLS))), data.draw)
        assert run.tally == Tally.of(run.messages, run.calls, run.turns_before)
        spent = [call.spent for call in run.calls if call.spent]
        by_agents = [each for each in spent if each == SPENT]
        assert run.usage.input_tokens == run.tally.spent.input_tokens == 3 * len(by_agents)
        assert run.tally.spent.cost == 0.5 * len(spent)
        assert sum(run.spent_by_tools.values()) == 0.5 * (len(spent) - len(by_agents))
        assert run.tally.most_asked == max(run.tally.asked.all().values(), default=0)
        assert run.tasks == {call.result.handle: call for call in run.calls if isinstance(call.result, Submitted)}
