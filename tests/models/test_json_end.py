import json

from hypothesis import given, strategies as st

from toolfleet.orchestrator.models.json_end import StreamedObject

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, min_size=1, max_size=4)


@given(objects, st.booleans())
def test_an_object_is_complete_at_its_last_character_and_not_before(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    arguments = StreamedObject()
    completed = [arguments.add(character) for character in text]
    assert completed == [False] * (len(text) - 1) + [True]
    assert arguments.text == text


def test_a_placeholder_before_the_arguments_is_left_out():
    arguments = StreamedObject()
    assert [arguments.add(piece) for piece in ("{}", '{"a"', ": 1}")] == [False, False, True]
    assert arguments.text == '{"a": 1}'


def test_an_empty_object_is_not_yet_known_to_be_complete():
    assert StreamedObject().add("{}") is False


def test_malformed_text_is_never_complete_and_kept_as_it_was():
    arguments = StreamedObject()
    assert arguments.add("{'a': 1}") is False
    assert arguments.text == "{'a': 1}"
