"""Ids of calls: each its own in its conversation, and those of a reply's beginning the same as those of the whole."""

from hypothesis import given, strategies as st

from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator.run.call_ids import DistinctIds

IDS = st.sampled_from(["", "a", "b", "a-1", "a-2", "a-2-2", "a-2-2-2", "call", "call-0", "call-1", "a-1-1", "b-3"])


def reply(*ids):
    return AssistantMessage(tool_calls=tuple(RequestedCall(id=id_, name="echo", arguments="{}") for id_ in ids))


def ids_of(message):
    return [call.id for call in message.tool_calls]


def test_an_id_that_was_made_for_one_call_is_not_that_of_another():
    assert ids_of(DistinctIds().for_next(reply("a-2", "a", "a"))) == ["a-2", "a", "a-2-2"]
    assert ids_of(DistinctIds().for_next(reply("", "call-0", "call-0"))) == ["call-0", "call-0-1", "call-0-2"]


@given(st.lists(IDS, max_size=8), st.sets(IDS))
def test_every_id_is_its_own_and_what_could_be_kept_is(ids, taken):
    given_ids, made = ids, ids_of(DistinctIds(taken).for_next(reply(*ids)))
    assert len({*made}) == len(made)
    assert not taken & {*made}
    assert "" not in made
    for position, (before, after) in enumerate(zip(given_ids, made, strict=True)):
        if before and before not in taken and before not in made[:position]:
            assert after == before


@given(st.lists(IDS, max_size=8), st.integers(0, 8), st.sets(IDS))
def test_a_calls_id_does_not_depend_on_what_the_model_says_after_it(ids, length, taken):
    in_parts = DistinctIds(taken)
    parts = [in_parts.for_next(reply(*some)) for some in (ids[:length], ids[length:])]
    assert [*ids_of(parts[0]), *ids_of(parts[1])] == ids_of(DistinctIds(taken).for_next(reply(*ids)))
