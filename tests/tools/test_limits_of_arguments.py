"""Arguments that no honest model writes are refused before they cost anything."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest

from toolfleet import BadArguments, tool
from toolfleet.arguments.parsing import MAX_BYTES, MAX_DIGITS, MAX_ELEMENTS, ArgumentLimits
from toolfleet.arguments.repair import MAX_GUESS_CHARS
from toolfleet.handwritten import hand_written
from toolfleet.strict_json import MAX_DEPTH


@tool
def anything(a: Any): ...


@tool
def number(n: int): ...


def nested(levels: int) -> str:
    return '{"a": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


def test_depth_is_limited():
    assert anything.bind(nested(MAX_DEPTH)).values
    with pytest.raises(BadArguments, match=f"more than {MAX_DEPTH} levels"):
        anything.bind(nested(MAX_DEPTH + 1))


def test_brackets_inside_strings_are_not_depth():
    text = "[{" * 1000
    assert anything.bind(json.dumps({"a": text})).values == {"a": text}


def test_brackets_side_by_side_are_not_depth():
    assert len(anything.bind(json.dumps({"a": [[]] * 500})).values["a"]) == 500


def test_the_number_of_values_is_limited():
    with pytest.raises(BadArguments, match="values; at most"):
        anything.bind(json.dumps({"a": [0] * (MAX_ELEMENTS + 1)}))
    commas = "," * MAX_ELEMENTS * 2
    assert anything.bind(json.dumps({"a": commas})).values == {"a": commas}


def test_the_size_is_limited():
    with pytest.raises(BadArguments, match=f"bytes of arguments; at most {MAX_BYTES} are taken"):
        anything.bind(json.dumps({"a": "x" * MAX_BYTES}))


SMALL = ArgumentLimits(max_bytes=300, max_depth=3, max_elements=5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": "' + "x" * 300 + '"}', "at most 300 are taken. Send less"),
        ('{"a": "' + "☃" * 100 + '"}', "at most 300 are taken. Send less"),
        ('{"a": [[[]]]}', "more than 3 levels deep. Send a flatter structure"),
        ('{"a": [1, 2, 3, 4, 5]}', "at most 5 are taken. Send fewer"),
    ],
)
def test_a_fleet_may_set_its_own_limits_and_each_names_itself_and_the_remedy(text, complaint):
    assert anything.bind(text).values
    with pytest.raises(BadArguments, match=complaint):
        anything.bind(text, SMALL)


def test_what_keeps_within_a_fleets_own_limits_is_taken():
    for text in ('{"a": "' + "☃" * 96 + '"}', '{"a": [[1]]}', '{"a": [1, 2, 3, 4]}', '{"a": ",,,,,,,[[[[[[[["}'):
        assert anything.bind(text, SMALL).values


written = hand_written({"name": "written", "description": "By hand.", "input_schema": {"type": "object"}}, lambda n: n)


@pytest.mark.parametrize("tool", [anything, number, written], ids=repr)
@pytest.mark.parametrize("number", ["{}", "-{}", "[{}]"])
def test_an_integer_of_too_many_digits_is_refused_by_name(tool, number):
    parameter = "a" if tool is anything else "n"
    for digits in (MAX_DIGITS + 1, 100_000):
        with pytest.raises(BadArguments, match=f"more than {MAX_DIGITS} digits, which no tool takes; a string may"):
            tool.bind(f'{{"{parameter}": {number.format("9" * digits)}}}')


@pytest.mark.parametrize("digits", ["9" * 100_000, f'"{"9" * 100_000}"', "1e" + "9" * 100_000])
def test_an_endless_number_is_refused_and_not_computed(digits):
    with pytest.raises(BadArguments):
        number.bind(f'{{"n": {digits}}}')


def test_a_string_may_not_hide_what_would_be_refused_outside():
    with pytest.raises(BadArguments):
        number.bind(json.dumps({"n": nested(MAX_DEPTH * 3)}))
    hidden = json.dumps(nested(MAX_DEPTH * 3))
    with pytest.raises(BadArguments):
        anything.bind(hidden)


def test_long_text_is_mended_where_that_takes_no_guess():
    file = "line one\n" * MAX_GUESS_CHARS
    assert anything.bind('{"a": ["' + file + '",').values == {"a": [file]}
    with pytest.raises(BadArguments, match="not valid JSON"):
        anything.bind("{'a': '" + file + "'}")


@pytest.mark.parametrize(
    "pattern",
    [
        '{"a":"',
        '\\"',
        '"',
        "{",
        "[",
        '{"a"',
        ":",
        '"a" ',
        "/",
        "`",
        "'",
        "(",
        '{"a":"b" c ',
        '"x"y" ',
        "\\",
        "{}",
        "[,",
    ],
)
@pytest.mark.parametrize("start", ["", '{"a": '])
def test_no_text_takes_long_to_refuse(start, pattern):
    for size in (MAX_GUESS_CHARS, MAX_BYTES):
        text = (start + pattern * size)[:size]
        began = time.process_time()
        with suppress(BadArguments):
            anything.bind(text)
        assert time.process_time() - began < 2, "a tenth of it is usual, quadratic behaviour takes minutes"
