"""What becomes of a tool's value, whatever it is: a record that can always be written down."""

import dataclasses
import datetime as dt
import enum
import json
import uuid
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from toolfleet.calls import TOOL_RESULT, Failed, FailureKind, Returned, Submitted
from toolfleet.fitting import cut, is_larger
from toolfleet.media import Media
from toolfleet.strict_json import encodable
from toolfleet.workers.tool.results import failure_of, record_of

MAX_BYTES = 1024


def result_of(value, *, returns_nothing=False, max_bytes=MAX_BYTES):
    record = record_of(value, returns_nothing=returns_nothing)
    return cut(record, max_bytes) if is_larger(record, max_bytes) else record


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    tags: set[str] = set()


class Soup(str):
    """Text that is part of something larger, as parsers return it, and says nothing true of itself."""

    __slots__ = ()

    def __len__(self):
        raise RuntimeError("the document is gone")

    def encode(self, *_):
        raise RuntimeError("the document is gone")


@dataclasses.dataclass
class Pair:
    left: int
    right: Decimal


CONTENTS = {
    "text": ("plain", "plain"),
    "empty_text": ("", ""),
    "text_of_another_type": (Soup("bread"), "bread"),
    "number": (4, "4"),
    "float": (0.1, "0.1"),
    "truth": (True, "true"),
    "nothing": (None, "null"),
    "structure": ({"a": [1, None, "☃"]}, '{"a":[1,null,"☃"]}'),
    "tuple": ((1, 2), "[1,2]"),
    "set": ({1}, "[1]"),
    "keys_that_are_no_text": ({1: "a"}, '{"1":"a"}'),
    "large_integer": (2**70, str(2**70)),
    "model": (Point(x=1, tags={"a"}), '{"x":1,"tags":["a"]}'),
    "models": ([Point(x=1)], '[{"x":1,"tags":[]}]'),
    "dataclass": (Pair(1, Decimal("2.50")), '{"left":1,"right":"2.50"}'),
    "date": (dt.date(2026, 2, 3), '"2026-02-03"'),
    "moment": (dt.datetime(2026, 2, 3, 4, 5, tzinfo=dt.UTC), '"2026-02-03T04:05:00+00:00"'),
    "uuid": (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
    "enum": (Colour.RED, '"red"'),
    "bytes_that_are_text": (b"abc", '"abc"'),
    "not_a_number": (float("nan"), "null"),
    "not_a_number_among_types_of_pydantic": ([float("inf"), Decimal(1)], '[null,"1"]'),
}


@pytest.mark.parametrize(("value", "content"), CONTENTS.values(), ids=CONTENTS)
def test_a_value_becomes_the_text_that_the_model_reads(value, content):
    assert result_of(value) == Returned(content=content)


def test_media_inside_a_structure_leave_a_word_where_they_were():
    png, wav = Media(b"PNG", "image/png"), Media(b"WAV", "audio/wav", "a.wav")
    told = result_of({"chart": png, "others": [{"n": 1, "sound": wav}, (2, "x")]})
    assert json.loads(told.content) == {
        "chart": "[image/png, 3 bytes]",
        "others": [{"n": 1, "sound": "[audio/wav a.wav, 3 bytes]"}, [2, "x"]],
    }
    assert told.media == (png.part, wav.part)
    mixed = result_of(["first", png, {"sound": wav}])
    assert mixed.content == 'first\n[image/png, 3 bytes]\n{"sound":"[audio/wav a.wav, 3 bytes]"}'
    assert mixed.media == (png.part, wav.part)


def test_a_tool_declared_to_return_nothing_is_done():
    assert result_of(None, returns_nothing=True) == Returned(content="Done")
    assert result_of(0, returns_nothing=True) == Returned(content="0")


def test_records_of_the_tools_own_making_pass_unchanged():
    own = Returned(content="x", attributes={"source": "cache"}, state={"seen": 1})
    assert result_of(own) is own
    submitted = Submitted(handle="job-7", poll_after_s=60)
    assert result_of(submitted) is submitted


def test_a_record_whose_fields_have_no_json_form_is_a_failure():
    result = result_of(Returned(content="x", attributes={"connection": object()}))
    assert "the tool returned a Returned that has no JSON form" in result.message


def endless():
    value = []
    value.append(value)
    return value


def deep():
    value = None
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("value", [object(), b"\xff", lambda: 1, endless(), deep(), {"a": object()}])
def test_a_value_without_a_json_form_is_a_failure_that_names_its_type(value):
    result = result_of(value)
    assert result.kind is FailureKind.ERROR
    assert f"the tool returned a {type(value).__name__} that has no JSON form" in result.message


@pytest.mark.parametrize("text", ["x" * 1024, "☃" * 341])
def test_a_result_that_just_fits_is_whole(text):
    assert result_of(text) == Returned(content=text)


@pytest.mark.parametrize("character", ["x", "é", "☃", "🦀"])
def test_a_longer_result_is_cut_between_characters_and_says_so(character):
    content = result_of(character * 2000).content
    kept, note = content.rsplit("\n", 1)
    whole_bytes, kept_bytes = 2000 * len(character.encode()), len(kept.encode())
    assert kept == character * len(kept)
    assert MAX_BYTES - 4 < kept_bytes <= MAX_BYTES
    assert note == f"[cut: the result has {whole_bytes} bytes, the first {kept_bytes} are shown]"


def test_cutting_keeps_what_never_reaches_the_model():
    result = result_of(Returned(content="x" * 5000, attributes={"rows": 7}))
    assert result.attributes == {"rows": 7}
    assert "[cut: the result has 5000 bytes" in result.content


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("even this fails")


class NoSuchRow(KeyError):
    def __str__(self):
        return self.args[0]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such row"), "no such row"),
        (ValueError(""), "tool failed: ValueError"),
        (ValueError("  \n"), "tool failed: ValueError"),
        (KeyError("name"), "KeyError: 'name'"),
        (NoSuchRow("row 7 is gone"), "row 7 is gone"),
        (SystemExit(3), "SystemExit: 3"),
        (SystemExit("licence expired"), "licence expired"),
        (SystemExit(), "tool failed: SystemExit"),
        (Mute(), "tool failed: Mute"),
        (ValueError("x" * 9000), "x" * 4000),
        (OSError("cannot read \udcff.txt"), "cannot read \ufffd.txt"),
    ],
)
def test_an_exception_becomes_its_text_or_else_its_type(error, message):
    assert failure_of(error) == Failed(kind=FailureKind.ERROR, message=message)


def test_half_a_surrogate_pair_costs_one_character_not_the_call():
    assert result_of("a\ud800b") == Returned(content="a\ufffdb")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)) | st.integers(), inner),
    max_leaves=10,
)


@given(anything)
def test_every_result_can_be_written_down_and_read_again(value):
    result = result_of(value)
    assert TOOL_RESULT.validate_json(TOOL_RESULT.dump_json(result)) == result


@given(st.text())
def test_text_that_can_be_written_stays_as_it_is(text):
    assert encodable(text) == text


@given(st.text(st.characters(codec=None)))
def test_halves_of_characters_are_joined_or_replaced(text):
    kept = encodable(text)
    assert kept.encode().decode() == kept
    assert len(kept.encode("utf-16-le")) == len(text.encode("utf-16-le", "surrogatepass"))
