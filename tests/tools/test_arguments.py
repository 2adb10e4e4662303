"""Rows A1 to A11: from the JSON that a model wrote to what the tool is called with."""

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from toolfleet import BadArguments, tool


class Status(Enum):
    ACTIVE = "ACTIVE"
    CLOSED = "closed"


class Rank(IntEnum):
    FIRST = 1


class Stop(BaseModel):
    city: str
    nights: int = 1
    open: bool = True
    status: Status = Status.ACTIVE


@dataclass
class Point:
    x: int


class Box(TypedDict):
    width: int


class Lenient(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int = 0


@tool
def optional(city: str = "Paris", days: int = 3): ...


@tool
def required(city: str): ...


@tool
def number(n: int): ...


@tool
def flag(on: bool): ...


@tool
def choice(status: Status, mode: Literal["fast", "Slow"] = "fast"): ...


def refusal(declared, text: str) -> str:
    with pytest.raises(BadArguments) as refused:
        declared.bind(text)
    return str(refused.value)


# --- A1 to A3: the text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", ["", "null", "  \n", "{}"])
def test_A1_nothing_is_no_arguments(nothing):
    arguments = optional.bind(nothing)
    assert arguments.values == {"city": "Paris", "days": 3}
    assert not arguments.repaired


@pytest.mark.parametrize(
    "text",
    [
        'Sure, here it is: {"city": "Rome"} Anything else?',
        '```json\n{"city": "Rome"}\n```',
        '{"city": "Rome"',
        '{"city": "Rome",}',
        '"{\\"city\\": \\"Rome\\"}"',
        '"\\"{\\\\\\"city\\\\\\": \\\\\\"Rome\\\\\\"}\\""',
        "{'city': 'Rome'}",
        '{city: "Rome"}',
        '{} {"city": "Rome"}',
        '"city": "Rome"}',
        ' "city": "Rome"} ',
        "city: 'Rome'}",
        '{"city": "Rome"}{"city": "Rome"}',
    ],
)
def test_A2_what_is_only_written_badly_is_recovered(text):
    arguments = required.bind(text)
    assert (arguments.values, arguments.repaired, arguments.raw) == ({"city": "Rome"}, True, text)


def test_A2_nested_brackets_may_be_missing():
    @tool
    def f(stops: list[Stop]): ...

    assert f.bind('{"stops": [{"city": "Rome", "nights": 2').values == {"stops": [Stop(city="Rome", nights=2)]}


def test_A2_an_object_inside_one_without_its_opening_brace_is_not_taken_for_it():
    @tool
    def f(stop: Stop, note: str = ""): ...

    assert f.bind('"stop": {"city": "Rome"}, "note": "x"}').values == {"stop": Stop(city="Rome"), "note": "x"}


@tool
def pay(amount: Decimal, parts: list[Decimal] = [], rate: float = 0.0, more: Any = None): ...  # noqa: B006  # pydantic copies


@pytest.mark.parametrize(
    "written",
    [
        "0.1000000000000000055511151231257827",
        "12345678901234567890.12",
        "1e-30",
        "-0.30000000000000000001",
        "19.99",
        "7",
    ],
)
def test_decimals_are_exact_to_the_last_digit(written):
    values = pay.bind(f'{{"amount": {written}, "parts": [{written}], "rate": {written}, "more": {written}}}').values
    assert (values["amount"], values["parts"]) == (Decimal(written), [Decimal(written)])
    assert values["rate"] == values["more"] == float(written)
    assert pay.bind(f'{{"amount": "{written}"}}').values["amount"] == Decimal(written)


@pytest.mark.parametrize("wrong", ["true", '"much"', "NaN", "[1.00000000000000000001]"])
def test_what_is_no_decimal_is_refused(wrong):
    with pytest.raises(BadArguments, match=r"amount|not valid JSON"):
        pay.bind(f'{{"amount": {wrong}, "rate": 0.30000000000000000001}}')


def test_A2_line_breaks_inside_a_string_are_kept():
    arguments = required.bind('{"city": "Rome\nItaly\ttoo"}')
    assert arguments.values == {"city": "Rome\nItaly\ttoo"}
    assert arguments.repaired


def test_A2_an_object_sent_as_a_string_is_unwrapped_where_an_object_is_wanted():
    @tool
    def f(stop: Stop, note: str): ...

    arguments = f.bind(json.dumps({"stop": '{"city": "Rome"}', "note": '{"not": "touched"}'}))
    assert arguments.values == {"stop": Stop(city="Rome"), "note": '{"not": "touched"}'}
    assert arguments.repaired


def test_A2_integers_stay_exact_through_repair():
    assert number.bind('{"n": 9007199254740993,}').values == {"n": 9007199254740993}


def test_A2_well_formed_arguments_count_as_not_repaired():
    arguments = required.bind(' {"city": "Rome"} ')
    assert (arguments.values, arguments.repaired) == ({"city": "Rome"}, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Well, no", "not valid JSON: expected value at line 1 column 1"),
        ("[1, 2]", "not a JSON object but [1, 2]"),
        ('"Rome"', 'not a JSON object but "Rome"'),
        ("7", "not a JSON object but 7"),
    ],
)
def test_A3_hopeless_text_is_refused_with_the_reason(text, reason):
    assert refusal(required, text) == f"bad arguments for required: {reason}. Send the arguments as one JSON object."


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Ro',  # half a value may be half a file
        '{"city": ',
        '{"city" 1}',
        '{"city": "Rome"} or {"city": "Oslo"}',  # which one is a guess
    ],
)
def test_A3_what_was_never_written_is_not_made_up(text):
    assert "not valid JSON" in refusal(required, text)


# --- A4 to A8: the values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1", "1.0", '"1"', "1e0"])
def test_A4_what_names_an_integer_is_one(text):
    value = number.bind(f'{{"n": {text}}}').values["n"]
    assert (value, type(value)) == (1, int)


def test_A4_a_float_with_a_fraction_is_refused_for_int():
    assert refusal(number, '{"n": 1.5}').startswith("bad arguments for number: parameter 'n' is 1.5: ")


def test_A4_a_word_is_refused_for_int():
    assert refusal(number, '{"n": "abc"}').startswith("bad arguments for number: parameter 'n' is \"abc\": ")


def test_A4_a_boolean_is_no_number():
    @tool
    def f(x: float): ...

    assert "parameter 'n' is true" in refusal(number, '{"n": true}')
    assert "parameter 'x' is true" in refusal(f, '{"x": true}')


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", '"NaN"'])
def test_A4_a_float_is_finite(text):
    @tool
    def f(x: float): ...

    assert "parameter 'x'" in refusal(f, f'{{"x": {text}}}')


@pytest.mark.parametrize("value", [9007199254740993, -(2**63) - 1, 2**200])
def test_A5_large_integers_are_exact(value):
    assert number.bind(json.dumps({"n": value})).values == {"n": value}


@pytest.mark.parametrize("text", ["9007199254740993.0", "1e300"])
def test_A5_a_float_too_large_to_be_exact_is_refused_rather_than_rounded(text):
    assert "parameter 'n'" in refusal(number, f'{{"n": {text}}}')


@pytest.mark.parametrize("text", ['"true"', '"false"', "1", "0", '"yes"', "null"])
def test_A6_only_true_and_false_are_booleans(text):
    assert "parameter 'on'" in refusal(flag, f'{{"on": {text}}}')
    assert flag.bind('{"on": true}').values == {"on": True}


def test_A6_also_inside_a_model_of_the_authors():
    @tool
    def f(stop: Stop): ...

    assert "parameter 'stop.open' is \"true\"" in refusal(f, '{"stop": {"city": "Rome", "open": "true"}}')
    assert Stop.model_validate({"city": "Rome", "open": "true"}).open, "the author's own class is left as it is"


@pytest.mark.parametrize("text", ["ACTIVE", "active", "Active"])
def test_A7_an_enum_matches_without_regard_to_case(text):
    assert choice.bind(json.dumps({"status": text})).values["status"] is Status.ACTIVE


def test_A7_an_enum_matches_by_value_and_by_name():
    assert choice.bind('{"status": "Closed"}').values["status"] is Status.CLOSED

    @tool
    def f(rank: Rank): ...

    assert f.bind('{"rank": "first"}').values["rank"] is f.bind('{"rank": 1}').values["rank"] is Rank.FIRST


def test_A7_a_literal_matches_without_regard_to_case():
    assert choice.bind('{"status": "closed", "mode": "SLOW"}').values["mode"] == "Slow"


def test_A7_values_that_differ_only_in_case_must_be_exact():
    @tool
    def f(unit: Literal["mW", "MW"]): ...

    assert f.bind('{"unit": "MW"}').values == {"unit": "MW"}
    assert "'mW' or 'MW'" in refusal(f, '{"unit": "mw"}')


def test_A7_the_legal_values_are_listed():
    assert "'ACTIVE' or 'closed'" in refusal(choice, '{"status": "D"}')
    assert "'fast' or 'Slow'" in refusal(choice, '{"status": "closed", "mode": "D"}')


def test_A7_also_when_one_enum_is_used_twice():
    @tool
    def f(first: Status, second: list[Status], stop: Stop): ...

    values = f.bind('{"first": "active", "second": ["CLOSED"], "stop": {"city": "x", "status": "Closed"}}').values
    assert (values["first"], values["second"], values["stop"].status) == (Status.ACTIVE, [Status.CLOSED], Status.CLOSED)


def test_A8_a_default_stands_in_for_what_is_left_out():
    assert optional.bind('{"city": "Rome"}').values == {"city": "Rome", "days": 3}


def test_A8_a_wrong_value_is_refused_and_not_replaced_by_the_default():
    assert "parameter 'days' is \"banana\"" in refusal(optional, '{"days": "banana"}')


def test_A8_a_mutable_default_is_fresh_in_each_call():
    @tool
    def f(items: list[str] = [], nested: dict[str, list[int]] = {"a": []}): ...  # noqa: B006  # that is the point

    first = f.bind("{}").values
    first["items"].append("x")
    first["nested"]["a"].append(1)
    assert f.bind("{}").values == {"items": [], "nested": {"a": []}}


# --- A9 to A11: the shape --------------------------------------------------------------------------------------------


def test_A9_an_unknown_argument_is_refused_by_name():
    assert refusal(required, '{"city": "Rome", "country": "Italy"}') == (
        "bad arguments for required: unknown argument 'country' (there are 'city')."
    )
    assert "unknown argument 'dayz' (did you mean 'days'?)" in refusal(optional, '{"dayz": 3}')


def test_A9_an_unknown_argument_inside_a_model_is_refused_by_its_path():
    @tool
    def f(stops: list[Stop], point: Point, box: Box): ...

    text = refusal(
        f, '{"stops": [{"city": "Rome", "stars": 5}], "point": {"x": 1, "y": 2}, "box": {"width": 1, "depth": 2}}'
    )
    assert [name in text for name in ("'stops[0].stars'", "'point.y'", "'box.depth'")] == [True] * 3


def test_A9_a_model_that_its_author_left_open_takes_more():
    @tool
    def f(options: Lenient, stop: Stop): ...

    assert f.bind('{"options": {"more": 1}, "stop": {"city": "x"}}').values["options"].more == 1
    assert "'stop.more'" in refusal(f, '{"options": {}, "stop": {"city": "x", "more": 1}}')


def test_A9_a_lenient_tool_drops_unknown_arguments_at_every_level():
    @tool(extra="ignore")
    def f(stop: Stop): ...

    assert f.bind('{"stop": {"city": "Rome", "stars": 5}, "more": 1}').values == {"stop": Stop(city="Rome")}


def test_A10_typed_objects_reach_the_tool():
    @tool
    def f(stop: Stop, stops: list[Stop], by_day: dict[str, Stop], point: Point, either: Stop | int): ...

    rome = {"city": "Rome"}
    values = f.bind(
        json.dumps({"stop": rome, "stops": [rome], "by_day": {"mon": rome}, "point": {"x": 1}, "either": rome})
    ).values
    assert values == {
        "stop": Stop(city="Rome"),
        "stops": [Stop(city="Rome")],
        "by_day": {"mon": Stop(city="Rome")},
        "point": Point(1),
        "either": Stop(city="Rome"),
    }


def test_A10_values_that_json_writes_as_strings_are_typed():
    @tool
    def f(day: date, at: datetime, key: UUID, price: Decimal, parts: set[int], data: bytes): ...

    key = "12345678-1234-5678-1234-567812345678"
    assert f.bind(
        json.dumps(
            {
                "day": "2025-02-03",
                "at": "2025-02-03T04:05:06Z",
                "key": key,
                "price": "0.10",
                "parts": [1, 2, 2],
                "data": "x",
            }
        )
    ).values == {
        "day": date(2025, 2, 3),
        "at": datetime.fromisoformat("2025-02-03T04:05:06+00:00"),
        "key": UUID(key),
        "price": Decimal("0.10"),
        "parts": {1, 2},
        "data": b"x",
    }


def test_A10_a_number_for_a_string_is_written_out():
    assert required.bind('{"city": 75001}').values == {"city": "75001"}


def test_A10_a_union_keeps_the_type_that_was_sent():
    @tool
    def f(x: int | str | bool): ...

    values = [f.bind(f'{{"x": {text}}}').values["x"] for text in ("5", '"5"', "true")]
    assert list(map(repr, values)) == ["5", "'5'", "True"]


def test_A11_a_missing_parameter_is_named_together_with_its_tool():
    assert refusal(required, "{}") == "bad arguments for required: required parameter 'city' is missing."


def test_A11_a_missing_member_is_named_by_its_path():
    @tool
    def f(stops: list[Stop]): ...

    assert "required parameter 'stops[1].city' is missing" in refusal(f, '{"stops": [{"city": "Rome"}, {}]}')


def test_all_faults_are_reported_at_once_and_no_more_than_a_model_can_use():
    @tool
    def f(items: list[int], on: bool): ...

    text = refusal(f, json.dumps({"items": ["x"] * 100, "on": "yes"}))
    assert text.endswith("'items[7]' is \"x\": input should be a valid integer, unable to parse string as an integer; "
                         "and 93 more.")  # fmt: skip


def test_a_long_value_is_cut_in_the_message():
    assert len(refusal(number, json.dumps({"n": "x" * 100_000}))) < 300


# --- whatever a model writes -----------------------------------------------------------------------------------------


@tool
def anything(a: Any, b: list[Any] | None = None, c: Stop | None = None, d: dict[str, int] = {}): ...  # noqa: B006  # copied for each call


_slips = st.sampled_from(
    ['{"a": ', '"', "'", "}", "{", "[", "]", ",", ":", "\\", "\n", "a", "1", "-", "nul", "é", "\ud800"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_slips, max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_is_either_read_or_refused(text):
    with suppress(BadArguments):
        assert anything.bind(text).raw == text


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(_json)
def test_any_json_value_arrives_as_it_was_sent(value):
    arguments = anything.bind(json.dumps({"a": value}, ensure_ascii=False))
    assert arguments.values["a"] == value
    assert not arguments.repaired
