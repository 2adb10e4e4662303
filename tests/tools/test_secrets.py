"""Secrets among a tool's arguments reach the tool, and nobody who only looks."""

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from toolfleet import BadArguments, Context, Secret, tool
from toolfleet.calls import ToolCall
from toolfleet.errors import CallerError
from toolfleet.handwritten import hand_written
from toolfleet.masks import has_secrets, mask_arguments, mask_by_name, unmask_edited

SECRET = "hunter2"


class Login(BaseModel):
    user: str
    password: SecretStr
    next: "Login | None" = None


@tool
def plain(a: Any, b: dict[str, int] | None = None): ...


@tool
def secretive(
    url: str,
    token: Annotated[str, Secret()] = "",
    password: SecretStr | None = None,
    login: Login | None = None,
    logins: list[Login] = [],  # noqa: B006  # pydantic copies it
    keys: dict[str, SecretStr] = {},  # noqa: B006  # what authors write
    pin: Annotated[int, Secret()] = 0,
): ...


by_hand = hand_written(
    {
        "name": "by_hand",
        "description": "By hand.",
        "input_schema": {
            "type": "object",
            "properties": {"url": {"type": "string"}, "pin": {"type": "integer", "writeOnly": True}},
            "additionalProperties": False,
        },
    },
    lambda arguments: arguments,
)


def test_a_secret_reaches_the_tool_as_it_was_declared():
    values = secretive.bind(json.dumps({"url": "u", "token": SECRET, "password": SECRET, "pin": 7})).values
    assert (values["token"], values["pin"]) == (SECRET, 7)
    assert values["password"].get_secret_value() == SECRET


def test_the_schema_says_what_is_secret():
    properties = secretive.spec.input_schema["properties"]
    assert properties["token"] == {"type": "string", "writeOnly": True, "default": ""}
    assert properties["password"]["anyOf"][0]["writeOnly"]
    assert "writeOnly" not in properties["url"]
    assert [has_secrets(each.spec.input_schema) for each in (plain, secretive, by_hand)] == [False, True, True]


def test_arguments_of_a_tool_without_secrets_are_left_as_they_are():
    for text in ('{"a": 1,  "b": {"c": 2}}', "hopeless", ""):
        assert mask_arguments(text, plain.spec.input_schema) == text


MASKED = {
    "where_it_is_declared": (
        {"url": "u", "token": SECRET, "password": SECRET, "pin": 7},
        {"url": "u", "token": "***", "password": "***", "pin": "***"},
    ),
    "but_not_what_is_absent": ({"url": "u", "password": None}, {"url": "u", "password": None}),
    "in_models_of_models": (
        {"login": {"user": "u", "password": SECRET, "next": {"user": "v", "password": SECRET}}},
        {"login": {"user": "u", "password": "***", "next": {"user": "v", "password": "***"}}},
    ),
    "in_lists": ({"logins": [{"user": "u", "password": SECRET}]}, {"logins": [{"user": "u", "password": "***"}]}),
    "in_values_of_dicts": ({"keys": {"a": SECRET, "b": SECRET}}, {"keys": {"a": "***", "b": "***"}}),
    "whatever_its_type": ({"token": [SECRET, {"x": SECRET}]}, {"token": "***"}),
    "under_a_misspelt_name": ({"url": "u", "tokn": SECRET}, {"url": "u", "tokn": "***"}),
    "in_an_object_written_as_a_string": ({"login": json.dumps({"password": SECRET})}, {"login": "***"}),
    "in_a_list_where_an_object_was_wanted": ({"login": [{"password": SECRET}]}, {"login": "***"}),
}


@pytest.mark.parametrize(("arguments", "masked"), MASKED.values(), ids=MASKED)
def test_a_secret_is_masked(arguments, masked):
    shown = json.loads(mask_arguments(json.dumps(arguments), secretive.spec.input_schema))
    if arguments.get("login") and isinstance(arguments["login"], list):
        assert SECRET not in json.dumps(shown)
    else:
        assert shown == masked


@pytest.mark.parametrize(
    "text",
    [
        f'{{"token": "{SECRET}"',
        f"{{'token': '{SECRET}'}}",
        f"call it with {SECRET}",
        f'["{SECRET}"]',
        f'"{SECRET}"',
        json.dumps(f'{{"token": "{SECRET}"}}'),
        f'{{"token": {"9" * 5000}, "x": "{SECRET}"}}',
        '{"token": ' * 500 + f'"{SECRET}',
    ],
)
def test_badly_written_arguments_show_no_secret_either(text):
    assert SECRET not in mask_arguments(text, secretive.spec.input_schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"properties": {"x": {"writeOnly": True}}}]},
        {"properties": {"x": {"$ref": "#/definitions/s"}}, "definitions": {"s": {"writeOnly": True}}},
        {"properties": {"x": {"$ref": "https://elsewhere"}}},
        {"patternProperties": {"^x": {"writeOnly": True}}},
        {"additionalProperties": {"writeOnly": True}},
        {"properties": {"x": {"prefixItems": [{"writeOnly": True}]}}},
        {"if": {}, "then": {"properties": {"x": {"oneOf": [{"type": "array", "items": {"writeOnly": True}}]}}}},
        {"properties": {"x": {"$ref": "#"}, "y": {"writeOnly": True}}},
        {"patternProperties": {"(?<x": {"writeOnly": True}}},
    ],
)
def test_schemas_of_all_kinds_are_understood(schema):
    assert SECRET not in mask_arguments(json.dumps({"x": [SECRET]}), schema)
    assert SECRET not in mask_arguments(json.dumps({"x": {"y": SECRET}}), schema)


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "u", "token": [SECRET]},
        {"url": "u", "password": {"x": SECRET}},
        {"url": "u", "login": {"user": 1, "password": [SECRET]}},
        {"url": "u", "login": {"password": SECRET}},
        {"url": "u", "login": SECRET},
        {"url": "u", "logins": SECRET},
        {"url": "u", "logins": [SECRET]},
        {"url": "u", "keys": {"a": [SECRET]}},
        {"url": "u", "pin": SECRET},
        {"url": "u", "tokn": SECRET},
        {"password": SECRET},
        [SECRET],
        SECRET,
    ],
    ids=repr,
)
@pytest.mark.parametrize("tool", [secretive, by_hand], ids=["typed", "by_hand"])
def test_what_is_wrong_is_said_without_the_secret(tool, arguments):
    with pytest.raises(BadArguments) as refused:
        tool.bind(json.dumps(arguments))
    assert SECRET not in str(refused.value)


def test_a_validators_own_words_are_not_trusted_with_a_secret():
    from pydantic import AfterValidator

    def refuse(value: str) -> str:
        raise ValueError(f"{value} is too easy")

    @tool
    def guarded(token: Annotated[str, AfterValidator(refuse), Secret()], name: Annotated[str, Field(max_length=2)]): ...

    with pytest.raises(BadArguments) as refused:
        guarded.bind(json.dumps({"token": SECRET, "name": "long"}))
    assert str(refused.value) == (
        "bad arguments for guarded: parameter 'token' is \"***\": it is not accepted; "
        "parameter 'name' is \"long\": string should have at most 2 characters."
    )


def test_reprs_show_no_arguments_and_nothing_of_the_callers():
    call = ToolCall(
        call_id="r.1.0",
        run_id="r",
        tool="t",
        arguments=json.dumps({"token": SECRET}),
        deadline_unix_s=9,
        reply_to="o",
        context={"key": SECRET},
    )
    bound = plain.bind(json.dumps({"a": SECRET}))
    assert SECRET not in f"{call!r} {call} {Context.of(call, last_checkpoint=SECRET)!r} {bound!r}"


NESTED = {
    "under_another_parameter": {"url": {"password": SECRET}},
    "as_json_in_another_parameter": {"url": json.dumps({"token": SECRET})},
    "as_a_query_in_another_parameter": {"url": f"https://x?token={SECRET}"},
    "in_a_list_under_another_parameter": {"url": [SECRET]},
    "as_a_name": {"url": "u", SECRET: ""},
    "as_a_name_under_another_parameter": {"url": {SECRET: 1}},
    "as_a_name_inside_a_model": {"url": "u", "login": {"user": "u", SECRET: 1}},
    "as_a_name_of_the_secret": {"url": "u", "token": {SECRET: 1}},
    "in_free_form_beside_it": {"more": {"deeper": [{"Password": SECRET}]}},
    "in_free_form_misspelt": {"more": {"pasword": SECRET}},
}


@tool
def with_more(url: str, password: SecretStr | None = None, token: Annotated[str, Secret()] = "", more: Any = None): ...


@pytest.mark.parametrize("arguments", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("declared", [secretive, with_more, by_hand], ids=["typed", "with_more", "by_hand"])
def test_a_secret_in_the_wrong_place_is_masked_and_not_said(declared, arguments):
    if declared is by_hand and "pin" not in arguments:
        arguments = json.loads(json.dumps(arguments).replace("password", "pin").replace("Password", "Pin"))
        arguments = json.loads(json.dumps(arguments).replace("pasword", "pinn").replace("token", "pin"))
    assert SECRET not in mask_arguments(json.dumps(arguments), declared.spec.input_schema)
    said = ""
    try:
        declared.bind(json.dumps(arguments))
    except BadArguments as refused:
        said = str(refused)
    assert SECRET not in said


def test_what_stands_in_its_own_place_beside_a_secret_is_shown():
    given = {"url": "https://example.org/?q=1", "more": {"rows": [1, "two", None], "flag": True}, "password": SECRET}
    shown = json.loads(mask_arguments(json.dumps(given), with_more.spec.input_schema))
    assert shown == given | {"password": "***"}


def test_a_slip_in_a_name_is_still_named():
    with pytest.raises(BadArguments, match=r"unknown argument 'tokn' \(did you mean 'token'\?\)"):
        secretive.bind(json.dumps({"url": "u", "tokn": SECRET}))


def test_a_tool_that_nobody_knows_shows_nothing_that_is_called_like_a_secret():
    schemas = [secretive.spec.input_schema]
    shown = mask_by_name(json.dumps({"user": "u", "pasword": SECRET, "deep": [{"token": SECRET}]}), schemas)
    assert json.loads(shown) == {"user": "u", "pasword": "***", "deep": [{"token": "***"}]}
    assert SECRET not in mask_by_name(f"password {SECRET}", schemas)
    assert mask_by_name('{"user":  "u"}', schemas) == '{"user":  "u"}'
    assert mask_by_name("hopeless", [plain.spec.input_schema]) == "hopeless"


# --- edited by a person ----------------------------------------------------------------------------------------------


ACCOUNTS = [{"user": "a", "password": "pa"}, {"user": "b", "password": "pb"}]


@pytest.mark.parametrize(
    ("edited", "original", "sent"),
    [
        ({"token": "***", "n": 2}, {"token": SECRET, "n": 1}, {"token": SECRET, "n": 2}),
        ({"token": "mine", "n": 2}, {"token": SECRET, "n": 1}, {"token": "mine", "n": 2}),
        (
            {"accounts": [{"user": "a", "password": "***"}, {"user": "b", "password": "***"}], "n": 2},
            {"accounts": ACCOUNTS},
            {"accounts": ACCOUNTS, "n": 2},
        ),
        (
            {"accounts": [{"user": "c", "password": "pc"}]},
            {"accounts": ACCOUNTS},
            {"accounts": [{"user": "c", "password": "pc"}]},
        ),
    ],
)
def test_a_secret_that_is_left_masked_stays_what_it_was(edited, original, sent):
    assert json.loads(unmask_edited(json.dumps(edited), json.dumps(original))) == sent


@pytest.mark.parametrize(
    "accounts",
    [
        [{"user": "b", "password": "***"}],
        [{"user": "b", "password": "***"}, {"user": "a", "password": "***"}],
        [{"user": "a", "password": "***"}, {"user": "b", "password": "***"}, {"user": "c", "password": "***"}],
    ],
)
def test_a_masked_secret_in_a_list_that_was_changed_is_nobodys(accounts):
    with pytest.raises(CallerError, match="write it again"):
        unmask_edited(json.dumps({"accounts": accounts}), json.dumps({"accounts": ACCOUNTS}))


def test_a_masked_secret_that_is_kept_no_longer_is_not_sent_as_its_mask():
    with pytest.raises(CallerError, match="write it again"):
        unmask_edited('{"token": "***"}', None)


def test_numbers_beside_a_masked_secret_keep_their_digits():
    text = '{"token": "***", "url": 0.10000000000000000001}'
    sent = unmask_edited(text, f'{{"token": "{SECRET}", "url": 0.10000000000000000001}}')
    assert sent == f'{{"token": "{SECRET}", "url": 0.10000000000000000001}}'
    assert "0.10000000000000000001" in mask_arguments(sent, secretive.spec.input_schema)
