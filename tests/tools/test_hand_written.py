"""Row S10: a tool whose schema comes from a file or a database."""

import json

import pytest

from toolfleet import BadArguments, Context, Effect, current_context
from toolfleet.errors import InvalidTool
from toolfleet.handwritten import hand_written
from toolfleet.toolbox import by_name

CONTEXT = Context(call_id="r.1.0", run_id="r", tool="f", deadline_unix_s=0)
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "first-day": {"type": "string", "format": "date"},
        "stops": {"type": "array", "items": {"type": "object", "required": ["name"], "additionalProperties": False,
                                             "properties": {"name": {"type": "string"}}}},
    },
    "required": ["city"],
    "additionalProperties": False,
}  # fmt: skip
SPEC = {"name": "forecast", "description": "Forecast the weather.", "input_schema": SCHEMA, "read_only": True}


def echo(arguments: dict) -> dict:
    return arguments


def test_S10_it_works_as_any_other_tool():
    forecast = hand_written(SPEC, echo)
    assert (forecast.spec.name, forecast.spec.description) == ("forecast", "Forecast the weather.")
    assert (forecast.spec.input_schema, forecast.spec.effect) == (SCHEMA, Effect.READ_ONLY)
    assert by_name([forecast]) == {"forecast": forecast}
    arguments = forecast.bind('{"city": "Rome", "first-day": "2025-02-03"}')
    assert forecast.invoke(arguments, CONTEXT) == {"city": "Rome", "first-day": "2025-02-03"}


def test_S10_it_may_come_from_a_file_in_mcps_or_openais_words():
    for word in ("inputSchema", "parameters"):
        text = json.dumps({"name": "forecast", "description": "…", word: SCHEMA})
        assert hand_written(json.loads(text), echo).spec.input_schema == SCHEMA


async def test_S10_an_async_handler_may_ask_for_its_context():
    async def handler(arguments: dict, ctx: Context) -> list:
        return [arguments, ctx, current_context()]

    forecast = hand_written(SPEC, handler)
    assert (forecast.is_async, forecast.spec.queue) == (True, "io")
    assert await forecast.invoke(forecast.bind('{"city": "Rome"}'), CONTEXT) == [{"city": "Rome"}, CONTEXT, CONTEXT]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "required parameter 'city' is missing"),
        ('{"city": "Rome", "town": "x"}', "unknown argument 'town'"),
        ('{"city": "R"}', "parameter 'city' is \"R\""),
        ('{"city": "Rome", "first-day": "soon"}', "parameter 'first-day' is \"soon\""),
        ('{"city": "Rome", "stops": [{}]}', "required parameter 'stops[0].name' is missing"),
        ('{"city": "Rome", "stops": [{"name": "x", "more": 1}]}', "unknown argument 'stops[0].more'"),
        ("[]", "not a JSON object but []"),
        ("no", "not valid JSON"),
        ('{"city": NaN}', "not valid JSON"),
    ],
)
def test_S10_arguments_are_validated_against_the_schema(text, complaint):
    with pytest.raises(BadArguments) as refused:
        hand_written(SPEC, echo).bind(text)
    assert str(refused.value).startswith(f"bad arguments for forecast: {complaint}")


def test_S10_arguments_are_repaired_as_those_of_any_tool():
    forecast = hand_written(SPEC, echo)
    assert forecast.bind('{"city": "Rome",').values == {"city": "Rome"}
    unwrapped = forecast.bind(json.dumps({"city": "Rome", "stops": '[{"name": "x"}]'}))
    assert (unwrapped.values["stops"], unwrapped.repaired) == ([{"name": "x"}], True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "needs a name"),
        ({"description": None}, "needs a name and a description"),
        ({"input_schema": {"type": "array"}}, "must be a JSON Schema"),
        (
            {"input_schema": {"type": "object", "properties": {"a": {"type": "text"}}}},
            "not a JSON Schema: .*properties",
        ),
        ({"input_schema": None}, "must be a JSON Schema"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_S10_a_spec_that_cannot_work_is_refused(change, message):
    with pytest.raises(InvalidTool, match=message):
        hand_written(SPEC | change, echo)


def test_S10_a_handler_that_takes_no_arguments_is_refused():
    with pytest.raises(InvalidTool, match="as one dict"):
        hand_written(SPEC, lambda: None)
