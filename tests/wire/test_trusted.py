import copy
import pickle

import hypothesis
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from toolfleet.calls import Failed, FailureKind, Returned, ToolCall
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator.calls.scope import CallScope
from toolfleet.orchestrator.calls.terms import CallTerms, is_like_others
from toolfleet.orchestrator.run.events import Approval, CallRecord
from toolfleet.orchestrator.run.transcript import to_message
from toolfleet.orchestrator.run.updates import CallEnded, CallStarted
from toolfleet.orchestrator.tools.agents import Agents
from toolfleet.tool import ToolSpec
from toolfleet.tracing import Trace
from toolfleet.trusted import changed, trusted
from toolfleet.wire import Seal

TEXTS = st.text()  # without lone surrogates, which no JSON has either
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
TIMES = st.floats(0, 4e9)
RESULTS = st.builds(Returned, content=TEXTS, state=OBJECTS) | st.builds(
    Failed, kind=st.sampled_from(FailureKind), message=TEXTS
)

FIELDS = {
    ToolCall: st.fixed_dictionaries(
        {"call_id": TEXTS, "run_id": TEXTS, "tool": TEXTS, "arguments": TEXTS, "deadline_unix_s": TIMES}
        | {"reply_to": TEXTS},
        optional={"context": OBJECTS, "state": OBJECTS, "tenant": TEXTS, "subject": TEXTS, "undoes": st.none()},
    ),
    CallRecord: st.fixed_dictionaries(
        {"call_id": TEXTS, "turn": st.integers(1, 9), "requested_id": TEXTS, "tool": TEXTS, "arguments": TEXTS},
        optional={"approval": st.none() | st.builds(Approval, granted=st.booleans()), "result": st.none() | RESULTS},
    ),
    ToolMessage: st.fixed_dictionaries(
        {"tool_call_id": TEXTS, "name": TEXTS, "content": TEXTS},
        optional={"is_error": st.booleans(), "media": st.just(())},
    ),
    CallStarted: st.fixed_dictionaries(
        {"run_id": TEXTS, "call_id": TEXTS, "tool": TEXTS, "arguments": TEXTS, "long_running": st.booleans()}
        | {"at_unix_s": TIMES}
    ),
    CallEnded: st.fixed_dictionaries(
        {"run_id": TEXTS, "call_id": TEXTS, "tool": TEXTS, "result": RESULTS, "at_unix_s": TIMES}
    ),
}
RECORDS = pytest.mark.parametrize("record", FIELDS, ids=lambda record: record.__name__)


@RECORDS
@given(data=st.data())
def test_an_unchecked_record_is_the_validated_one_in_all_that_can_be_seen_of_it(record, data):
    fields = data.draw(FIELDS[record])
    # In any order: JSON has them as the class has them.
    shuffled = {name: fields[name] for name in data.draw(st.permutations(sorted(fields)))}
    validated, own = record(**fields), trusted(record)(**shuffled)
    assert own == validated
    assert validated == own
    assert type(own) is record
    assert repr(own) == repr(validated)
    assert own.__dict__ == validated.__dict__
    assert own.model_dump_json() == validated.model_dump_json()
    assert own.__pydantic_serializer__.to_json(own) == validated.__pydantic_serializer__.to_json(validated)
    assert record.model_validate_json(own.model_dump_json()) == own


@RECORDS
@given(data=st.data())
def test_an_unchecked_record_is_copied_changed_and_pickled_like_any_other(record, data):
    fields = data.draw(FIELDS[record])
    own, name = trusted(record)(**fields), next(iter(fields))
    given_before = set(own.model_fields_set)
    assert own.model_copy(update={name: fields[name]}) == copy.deepcopy(own) == pickle.loads(pickle.dumps(own)) == own
    assert own.model_fields_set == given_before == set(record.model_fields)
    with pytest.raises(ValueError, match="frozen"):
        setattr(own, name, fields[name])


def test_records_share_none_of_the_values_that_they_were_not_given():
    make = trusted(ToolCall)
    fields = {"call_id": "r.1.0", "run_id": "r", "tool": "t", "arguments": "{}", "deadline_unix_s": 1.0}
    one, other = make(**fields, reply_to="o"), make(**fields, reply_to="o")
    one.context["x"] = 1
    assert other.context == {}
    assert ToolCall(**fields, reply_to="o").context == {}


def test_results_that_are_read_share_the_set_of_their_fields(settings):
    seal, attempt = Seal(settings), b'{"worker":"w","number":1,"began_unix_s":1.5,"ended_unix_s":2.5}'
    sealed = {name: seal.close_result(Returned(content=name), name, attempt) for name in ("one", "other")}
    one, other = (seal.open_result(text, name) for name, text in sealed.items())
    assert one.model_fields_set is other.model_fields_set
    assert one.attempt.model_fields_set is other.attempt.model_fields_set
    assert one.model_fields_set == set(Returned.model_fields)
    changed_one = one.model_copy(update={"content": "more"})
    assert changed_one.content == "more"
    assert (one.content, other.content) == ("one", "other")


@pytest.fixture
def terms(settings) -> CallTerms:
    return CallTerms(settings, "o", Agents((), model="none", max_turns=1, max_depth=1))


UNRECORDED = f"00-{'a' * 32}-{'b' * 16}-00"
RECORDED = f"00-{'a' * 32}-{'b' * 16}-01"
RECORD = CallRecord(call_id="r.1.0", turn=1, requested_id="1", tool="t", arguments="{}")
SPEC = ToolSpec(name="t", description="", input_schema={"type": "object"})


@given(
    fields=st.fixed_dictionaries(
        {},
        optional={"context": OBJECTS, "values": OBJECTS, "tenant": TEXTS, "subject": TEXTS, "deadline_unix_s": TIMES},
    ),
    arguments=TEXTS,
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_every_call_is_sent_as_it_would_be_with_all_of_it_validated(terms, fields, arguments):
    record = RECORD.model_copy(update={"arguments": arguments, "deadline_unix_s": 5.0})
    call = terms.tool_call(record, SPEC, CallScope(run_id="r", offered={"t": SPEC}, **fields), record.arguments)
    validated = ToolCall(**{name: getattr(call, name) for name in ToolCall.model_fields})
    assert call == validated
    assert call.model_dump_json() == validated.model_dump_json()
    assert (call.context, call.state) == (fields.get("context", {}), fields.get("values", {}))


@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "context": OBJECTS,
            "values": OBJECTS,
            "tenant": TEXTS,
            "subject": TEXTS,
            "trace": st.builds(Trace, traceparent=st.just(UNRECORDED), tracestate=TEXTS, baggage=TEXTS),
        },
    ),
    arguments=TEXTS,
)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_a_call_that_is_made_like_another_of_its_tool_is_what_it_would_be_alone(terms, fields, arguments):
    scope = CallScope(run_id="r", offered={"t": SPEC}, deadline_unix_s=5.0, **fields)
    other = RECORD.model_copy(update={"call_id": "r.1.1", "requested_id": "2", "arguments": arguments})
    assert is_like_others(other, SPEC, scope, other.arguments)
    like = changed(terms.tool_call(RECORD, SPEC, scope, RECORD.arguments), call_id="r.1.1", arguments=arguments)
    alone = terms.tool_call(other, SPEC, scope, other.arguments)
    assert (like, like.model_dump_json()) == (alone, alone.model_dump_json())


def test_calls_of_a_trace_that_is_recorded_have_spans_of_their_own(terms):
    scope = CallScope(run_id="r", offered={"t": SPEC}, trace=Trace(traceparent=RECORDED))
    assert not is_like_others(RECORD, SPEC, scope, RECORD.arguments)
    other = RECORD.model_copy(update={"call_id": "r.1.1"})
    spans = {terms.tool_call(each, SPEC, scope, each.arguments).traceparent for each in (RECORD, other)}
    assert len(spans) == 2


def test_a_call_whose_arguments_were_changed_or_that_was_sent_before_is_made_by_itself():
    scope = CallScope(run_id="r", offered={"t": SPEC})
    assert not is_like_others(RECORD, SPEC, scope, '{"x": 1}')
    assert not is_like_others(RECORD.model_copy(update={"deadline_unix_s": 5.0}), SPEC, scope, RECORD.arguments)
    assert not is_like_others(RECORD, SPEC.model_copy(update={"background": "model"}), scope, RECORD.arguments)


@pytest.mark.parametrize(
    "said", [{"context": {1: "x"}}, {"values": {1: "x"}}, {"tenant": None}, {"tenant": 5}, {"subject": 0}], ids=repr
)
def test_what_a_caller_says_with_a_call_is_validated(terms, said):
    with pytest.raises(ValidationError):
        terms.tool_call(RECORD, SPEC, CallScope(run_id="r", offered={"t": SPEC}, **said), RECORD.arguments)


def test_arguments_that_an_interceptor_has_made_are_validated(terms):
    with pytest.raises(ValidationError):
        terms.tool_call(RECORD, SPEC, CallScope(run_id="r", offered={"t": SPEC}), {"x": 1})


@pytest.mark.parametrize("said", [{"content": 5}, {"content": None}, {"media": ["x"]}], ids=repr)
def test_a_result_that_an_interceptor_has_changed_is_validated_before_a_model_reads_it(said):
    with pytest.raises(ValidationError):
        to_message(RECORD, Returned(content="x").model_copy(update=said))


def test_what_is_no_result_is_no_message_either():
    with pytest.raises(ValidationError):
        to_message(RECORD, "an interceptor's own text")
