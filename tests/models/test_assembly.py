import pytest

from toolfleet.orchestrator.models.assembly import ReplyAssembly
from toolfleet.orchestrator.models.names import NameMap
from toolfleet.orchestrator.models.protocol import CallComplete


@pytest.fixture
def assembly():
    return ReplyAssembly("a model", NameMap(["größe"]), taken_ids={"call_of_an_earlier_turn"})


def handed_out(assembly):
    return [event.index for event in assembly.heard() if isinstance(event, CallComplete)]


def ended(assembly, finish_reason):
    assembly.end(finish_reason)
    return assembly.heard()[-1]


def test_a_call_is_handed_out_with_its_last_brace(assembly):
    position = assembly.open_call("c1", "add")
    assembly.extend_call(position, '{"a": ')
    assert handed_out(assembly) == []
    assembly.extend_call(position, "1}")
    assert handed_out(assembly) == [0]


def test_a_call_that_completes_early_waits_for_those_before_it(assembly):
    first = assembly.open_call("c1", "add")
    second = assembly.open_call("c2", "add")
    assembly.extend_call(second, '{"a": 2}')
    assert handed_out(assembly) == []
    assembly.extend_call(first, '{"a": 1}')
    assert handed_out(assembly) == [0, 1]


def test_an_interrupted_reply_keeps_exactly_the_calls_handed_out(assembly):
    assembly.text("Let me see.")
    done = assembly.open_call("c1", "add")
    assembly.extend_call(done, '{"a": 1}')
    cut = assembly.open_call("c2", "add")
    assembly.extend_call(cut, '{"path": "/tmp/har')
    assembly.interrupt()
    reply = assembly.heard()[-1]
    assert [call.id for call in reply.message.tool_calls] == ["c1"]
    assert (reply.message.content, reply.finish_reason) == ("Let me see.", "interrupted")


def test_missing_and_doubled_ids_are_filled_in(assembly):
    for given in (None, "", "same", "same", "call_of_an_earlier_turn"):
        assembly.extend_call(assembly.open_call(given, "add"), '{"a": 1}')
    reply = ended(assembly, "tool_calls")
    ids = [call.id for call in reply.message.tool_calls]
    assert len(set(ids)) == 5
    assert ids[2] == "same"
    assert "call_of_an_earlier_turn" not in ids


def test_text_after_a_complete_call_is_left_out(assembly):
    position = assembly.open_call("c1", "add")
    assembly.extend_call(position, '{"a": 1}')
    assembly.extend_call(position, '{"a": 1}')
    reply = ended(assembly, "tool_calls")
    assert reply.message.tool_calls[0].arguments == '{"a": 1}'


def test_malformed_arguments_arrive_as_they_were_written(assembly):
    assembly.extend_call(assembly.open_call("c1", "add"), '{"a": 1,')
    reply = ended(assembly, "tool_calls")
    assert reply.message.tool_calls[0].arguments == '{"a": 1,'


def test_a_reply_with_calls_never_says_that_it_stopped(assembly):
    assembly.extend_call(assembly.open_call("c1", "add"), "{}")
    reply = ended(assembly, "stop")
    assert reply.finish_reason == "tool_calls"


def test_a_call_without_arguments_is_handed_out_when_the_next_one_begins(assembly):
    assembly.extend_call(assembly.open_call("c1", "list"), "{}")
    assembly.extend_call(assembly.open_call("c2", "add"), "")
    assert handed_out(assembly) == [0]
