"""The JSON that travels: what is left out of it is what every reader takes for granted."""

import json

import pytest
from hypothesis import given, strategies as st
from pydantic_core import PydanticSerializationError

from toolfleet.calls import TOOL_RESULT, Attempt, Failed, FailureKind, Returned, Spent, Submitted, ToolCall
from toolfleet.settings import Settings
from toolfleet.wire import Seal
from toolfleet.wire_text import text_of_call, text_of_result

TEXTS, COUNTS, TIMES = st.text(), st.integers(1, 9), st.floats(0, 4e9)
OBJECTS = st.dictionaries(TEXTS, st.integers() | TEXTS | st.booleans(), max_size=2)
CALLS = st.builds(
    ToolCall,
    call_id=TEXTS,
    run_id=TEXTS,
    tool=TEXTS,
    arguments=TEXTS,
    attempt=st.just(1) | st.integers(1, 9),
    deadline_unix_s=st.floats(allow_nan=False, allow_infinity=False),
    reply_to=TEXTS,
    context=st.just({}) | OBJECTS,
    state=st.just({}) | OBJECTS,
    traceparent=st.none() | TEXTS,
    tracestate=st.just("") | TEXTS,
    baggage=st.just("") | TEXTS,
    tenant=st.just("") | TEXTS,
    subject=st.just("") | TEXTS,
    undoes=st.none() | st.builds(Returned, content=TEXTS),
    version=st.just(0) | st.integers(0, 9),
)
RESULTS = st.one_of(
    st.builds(
        Returned,
        content=TEXTS,
        state=st.just({}) | OBJECTS,
        attributes=st.just({}) | OBJECTS,
        artifact=st.none() | TEXTS,
        attempt=st.none() | st.builds(Attempt, worker=TEXTS, number=COUNTS, began_unix_s=TIMES, ended_unix_s=TIMES),
        repaired=st.booleans(),
        spent=st.none() | st.builds(Spent, cost=st.floats(0, 9)),
    ),
    st.builds(Failed, kind=st.sampled_from(FailureKind), message=TEXTS),
    st.builds(Submitted, handle=TEXTS, message=TEXTS),
)
COMMON = ToolCall(
    call_id="r.1.0", run_id="r", tool="t", arguments='{"x":1}', deadline_unix_s=1795877032.5080109, reply_to="o"
)
HALF = "\ud800"


@given(call=CALLS)
def test_a_call_is_read_as_the_one_that_was_written(call):
    assert ToolCall.model_validate_json(text_of_call(call)) == call


@given(result=RESULTS)
def test_a_result_is_read_as_the_one_that_was_written_whoever_worked_on_it(result):
    read = TOOL_RESULT.validate_json(text_of_result(result))
    assert (type(read), read.__dict__) == (type(result), result.__dict__)


def test_a_common_call_says_what_it_must_and_no_more():
    assert json.loads(text_of_call(COMMON)) == {
        "v": 1,
        "call_id": "r.1.0",
        "run_id": "r",
        "tool": "t",
        "arguments": '{"x":1}',
        "deadline_unix_s": 1795877032.5080109,
        "reply_to": "o",
    }


def test_a_common_result_says_its_content_and_who_has_worked_on_it():
    sealed = Seal(Settings()).close_result(Returned(content="é"), "r.1.0", b'{"worker":"w"}')
    assert sealed[64:] == '{"type":"returned","content":"é","attempt":{"worker":"w"}}'.encode()


@pytest.mark.parametrize("field", ["arguments", "tool"])
def test_half_a_character_in_a_call_has_no_json(field):
    with pytest.raises(PydanticSerializationError):
        text_of_call(COMMON.model_copy(update={field: HALF}))


def test_half_a_character_in_a_result_has_no_json():
    with pytest.raises(PydanticSerializationError):
        text_of_result(Returned.model_construct(content=HALF))
