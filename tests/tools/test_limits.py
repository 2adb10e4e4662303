"""Limits as they are declared: what is understood, what is refused and in which words, and the gates of one call."""

from __future__ import annotations

import json

import pytest
from pydantic import SecretStr

from toolfleet import FromArgument, FromContext, FromTenant, ToolCall, ToolSpec, tool
from toolfleet.errors import InvalidTool
from toolfleet.gates import gates_of
from toolfleet.handwritten import hand_written
from toolfleet.limits import Gate


def spec(**limits):
    @tool(name="forecast", **limits)
    def forecast(city: str = "Rome", days: int = 1, token: SecretStr | None = None) -> str:
        """Tell the weather."""

    return forecast.spec


def call(arguments="{}", *, tenant="", context=None):
    return ToolCall(
        call_id="run.0.0",
        run_id="run",
        tool="forecast",
        arguments=arguments,
        deadline_unix_s=2e9,
        reply_to="orchestrator",
        tenant=tenant,
        context=context or {},
    )


@pytest.mark.parametrize(
    ("text", "per_s"),
    [("10/s", 10.0), ("600/min", 10.0), ("5/h", 5 / 3600), ("100/day", 100 / 86400), (" 0.5 / s ", 0.5)],
)
def test_a_rate_says_how_many_in_which_time(text, per_s):
    declared = spec(rate=text).limits.rate
    assert (declared.per_s, declared.burst, declared.key.source) == (pytest.approx(per_s), 1, "fleet")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": "ten"}, """rate='ten' is no rate: write "10/s", "600/min", "5/h" or "100/day\""""),
        ({"rate": 10}, 'rate=10 does not say per what: write "10/s" or "10/min"'),
        ({"rate": "10/week"}, "is no rate"),
        ({"rate": "-1/s"}, "is no rate"),
        ({"rate": "0/s"}, "more than 0"),
        ({"rate": "9" * 400 + "/s"}, "more than 0 and at most"),
        ({"rate": "10/s", "burst": 0}, "burst=0: a whole number from 1 to"),
        ({"rate": "10/s", "burst": 1.5}, "burst=1.5: a whole number"),
        ({"rate": "10/s", "burst": -1}, "burst=-1: a whole number"),
        ({"burst": 3}, "burst is given without rate"),
        ({"rate_key": FromTenant()}, "rate_key is given without rate"),
        ({"concurrency": 0}, "concurrency=0: a whole number"),
        ({"concurrency": True}, "concurrency=True: a whole number"),
        ({"concurrency": -2}, "concurrency=-2: a whole number"),
        ({"concurrency_key": FromTenant()}, "concurrency_key is given without concurrency"),
        ({"rate": "1/s", "rate_key": FromArgument("town")}, "no such argument; it has city, days, token"),
        ({"rate": "1/s", "rate_key": FromArgument("token")}, "it is a secret"),
        ({"rate": "1/s", "rate_key": FromContext("x" * 100_000)}, "is no name: 1 to 100 printable characters"),
        ({"rate": "1/s", "rate_key": "tenant"}, "rate_key='tenant' is no key: use FromTenant()"),
        ({"rate": "1/s", "rate_key": FromTenant}, "rate_key=FromTenant: call it, FromTenant("),
        ({"rate": "1/s", "rate_key": lambda call: call.tenant}, "rate_key is a function, which only workers have"),
        ({"cache_s": 60}, "cache_s is for tools that change nothing: add read_only=True"),
        ({"cache_s": 0, "read_only": True}, "cache_s=0: seconds, more than 0"),
        ({"cache_s": "long", "read_only": True}, "cache_s='long': seconds"),
        ({"cache_s": 60, "read_only": True}, "an argument is a secret"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line_that_names_the_tool_and_the_option(options, said):
    with pytest.raises(InvalidTool) as refused:
        spec(**options)
    text = str(refused.value)
    assert text.startswith("tool forecast: ")
    assert said in text
    assert "\n" not in text
    assert len(text) < 400


def test_a_hand_written_tool_is_limited_by_the_same_words():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    described = {"name": "forecast", "description": "Weather.", "input_schema": schema, "concurrency": 2}
    made = hand_written({**described, "concurrency_key": FromArgument("city")}, lambda arguments: arguments)
    assert gates_of(call('{"city": "Oslo"}'), made.spec) == (
        Gate("concurrency", "forecast", "argument.city=Oslo", 2, 0),
    )
    with pytest.raises(InvalidTool, match="no such argument; it has city"):
        hand_written({**described, "concurrency_key": FromArgument("town")}, lambda arguments: arguments)


def test_a_limit_changes_nothing_of_what_workers_of_both_versions_may_run_for_each_other():
    plain, limited = spec(), spec(rate="10/s", concurrency=3)
    assert plain.contract == limited.contract
    assert "limits" not in plain.model_dump()
    assert ToolSpec.model_validate_json(limited.model_dump_json()) == limited


def test_a_call_of_a_tool_without_limits_meets_no_gate():
    assert gates_of(call("not even JSON"), spec()) == ()


def test_concurrency_is_asked_before_the_rate():
    both = spec(rate="10/s", burst=5, rate_key=FromTenant(), concurrency=3)
    assert gates_of(call(tenant="acme"), both) == (
        Gate("concurrency", "forecast", "", 3.0, 0),
        Gate("rate", "forecast", "tenant=acme", 10.0, 5),
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (FromTenant(), "tenant=acme"),
        (FromContext("tenant"), "context.tenant=umbrella"),
        (FromContext("missing"), "context.missing="),
        (FromContext("plan"), 'context.plan={"a":1,"b":2}'),
        (FromArgument("city"), "argument.city=Oslo"),
        (FromArgument("days"), "argument.days=1"),
    ],
)
def test_a_key_is_what_the_fleet_the_caller_or_the_model_says_and_never_one_for_the_other(key, value):
    asked = call('{"city": "Oslo"}', tenant="acme", context={"tenant": "umbrella", "plan": {"b": 2, "a": 1}})
    assert gates_of(asked, spec(concurrency=1, concurrency_key=key))[0].value == value


@pytest.mark.parametrize("arguments", ['{"city": "Oslo",}', "{'city': 'Oslo'}", ' {"city": "Oslo"} '])
def test_arguments_that_a_model_wrote_badly_count_as_what_the_tool_will_get(arguments):
    limited = spec(concurrency=1, concurrency_key=FromArgument("city"))
    assert gates_of(call(arguments), limited)[0].value == "argument.city=Oslo"


@pytest.mark.parametrize("arguments", ["", "null", "[1, 2]", "no JSON at all", '{"city": null}'])
def test_what_cannot_be_read_is_limited_with_what_is_not_said(arguments):
    limited = spec(concurrency=1, concurrency_key=FromContext("city"))
    assert gates_of(call(arguments), limited)[0].value == "context.city="


def test_a_key_of_100_kB_is_kept_short_and_told_from_one_that_begins_alike():
    limited = spec(concurrency=1, concurrency_key=FromContext("key"))
    one, other, again = (
        gates_of(call(context={"key": "k" * 100_000 + end}), limited)[0].value for end in ("a", "b", "a")
    )
    assert one == again != other
    assert one.startswith("context.key=kkkkkkkk")
    assert len(one) < 100


OSLO = '{"city": "Oslo"}'


@pytest.mark.parametrize("arguments", [json.dumps(OSLO), json.dumps(json.dumps(OSLO)), f" {OSLO} "])
def test_json_within_json_has_the_key_that_its_worker_reads(arguments):
    limited = spec(concurrency=1, concurrency_key=FromArgument("city"))
    assert gates_of(call(arguments), limited)[0].value == "argument.city=Oslo"


def test_a_list_that_is_sent_as_a_text_has_the_key_of_the_list():
    @tool(concurrency=1, concurrency_key=FromArgument("cities"))
    def forecast(cities: list[str]) -> str:
        """Tell the weather."""
        return ""

    keys = {gates_of(call(text), forecast.spec)[0].value for text in ('{"cities": ["a"]}', '{"cities": "[ \\"a\\" ]"}')}
    assert keys == {'argument.cities=["a"]'}


def test_a_text_that_looks_like_json_is_its_own_key():
    limited = spec(concurrency=1, concurrency_key=FromArgument("city"))
    assert gates_of(call('{"city": "[1, 2]"}'), limited)[0].value == "argument.city=[1, 2]"
