"""Rows S1 to S6: what the model is told about a tool's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from toolfleet import Context, ConversationId, FromContext, Media, Submitted, Tool, tool
from toolfleet.errors import InvalidTool


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Address(BaseModel):
    street: str
    zip: str | None = Field(default=None, description="five digits")


class Person(BaseModel):
    name: str
    address: Address


class Node(BaseModel):
    value: int
    children: list[Node] = []


@dataclass
class Point:
    x: float
    y: float = 0.0


class Box(TypedDict):
    width: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int = 0


def schema_of(declared: Tool[..., Any]) -> dict[str, Any]:
    schema = declared.spec.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def test_S1_every_parameter_without_a_default_is_required_and_nothing_else_is_allowed():
    @tool
    def f(name: str, age: int): ...

    assert schema_of(f) == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }


def test_S1_objects_are_closed_at_every_level():
    @tool
    def f(person: Person, points: list[Point], box: Box): ...

    definitions = schema_of(f)["$defs"]
    assert {name: each["additionalProperties"] for name, each in definitions.items()} == dict.fromkeys(
        ["Address", "Box", "Person", "Point"], False
    )


def test_S1_an_object_that_its_author_left_open_stays_open():
    @tool
    def f(options: Open, anything: dict[str, Any]): ...

    schema = schema_of(f)
    assert schema["$defs"]["Open"]["additionalProperties"] is True
    assert schema["properties"]["anything"]["additionalProperties"] is True


def test_S1_a_tool_that_ignores_extra_arguments_still_announces_a_closed_object():
    @tool(extra="ignore")
    def f(name: str): ...

    assert schema_of(f)["additionalProperties"] is False


def test_S2_only_the_parameter_without_a_default_is_required_and_descriptions_are_kept():
    @tool
    def f(city: str, unit: Annotated[str, Field(description="C or F")] = "C", note: Optional[str] = None): ...  # noqa: UP045  # the old spelling is what is tested

    schema = schema_of(f)
    assert schema["required"] == ["city"]
    assert schema["properties"]["unit"] == {"type": "string", "default": "C", "description": "C or F"}
    assert schema["properties"]["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}


def test_S2_a_pydantic_field_as_default_makes_a_parameter_optional():
    @tool
    def f(
        limit: int = Field(default=10, ge=1, description="how many"),
        tags: list[str] = Field(default_factory=list),  # noqa: B008  # that is the point
    ): ...

    schema = schema_of(f)
    assert "required" not in schema
    assert schema["properties"]["limit"] == {"type": "integer", "default": 10, "minimum": 1, "description": "how many"}


def test_S2_an_optional_parameter_without_a_default_may_be_left_out():
    @tool
    def f(
        note: str | None,
        count: Annotated[Optional[int], Field(ge=1)],  # noqa: UP045  # as many still write it
        page: Annotated[int | None, Field(default=3)],
        anything: Any,
    ): ...

    assert schema_of(f)["required"] == ["anything"]
    assert f.bind('{"anything": 1}').values == {"note": None, "count": None, "page": 3, "anything": 1}


def test_S3_what_the_worker_fills_in_is_absent():
    @tool
    def f(
        city: str,
        ctx: Context,
        conversation: ConversationId,
        tenant: Annotated[str, FromContext("tenant")],
        maybe: Context | None = None,
    ): ...

    assert list(schema_of(f)["properties"]) == ["city"]


def test_S3_a_tool_with_only_injected_parameters_has_an_empty_object():
    @tool
    def f(ctx: Context, conversation: ConversationId): ...

    assert schema_of(f) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_S4_every_kind_of_type_has_its_schema():
    @tool
    def f(
        person: Person,
        names: list[str],
        unique: set[int],
        prices: dict[str, Decimal],
        level: Level,
        mode: Literal["fast", "slow"],
        either: int | str,
        day: date,
        at: datetime,
        wait: timedelta,
        key: UUID,
        pair: tuple[int, str],
    ): ...

    schema = schema_of(f)
    jsonschema.Draft202012Validator.check_schema(schema)
    properties = schema["properties"]
    assert properties["person"] == {"$ref": "#/$defs/Person"}
    assert schema["$defs"]["Person"]["required"] == ["name", "address"]
    assert schema["$defs"]["Address"]["required"] == ["street"]
    assert properties["names"] == {"type": "array", "items": {"type": "string"}}
    assert properties["unique"] == {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    assert properties["prices"]["additionalProperties"]["anyOf"][0] == {"type": "number"}
    assert schema["$defs"]["Level"]["enum"] == ["low", "high"]
    assert properties["mode"] == {"type": "string", "enum": ["fast", "slow"]}
    assert properties["either"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert [properties[name]["format"] for name in ("day", "at", "wait", "key")] == [
        "date",
        "date-time",
        "duration",
        "uuid",
    ]
    assert properties["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]


def test_S4_a_default_without_a_json_form_is_left_out():
    sentinel = object()

    @tool
    def f(count: int = sentinel): ...

    assert schema_of(f)["properties"]["count"] == {"type": "integer"}


def test_S4_a_parameter_may_have_the_name_of_anything_in_pydantic():
    @tool
    def f(copy: str, json: str, model_config: str, schema: str, _private: str, self_: str): ...

    arguments = f.bind('{"copy":"1","json":"2","model_config":"3","schema":"4","_private":"5","self_":"6"}')
    assert arguments.values == {
        "copy": "1",
        "json": "2",
        "model_config": "3",
        "schema": "4",
        "_private": "5",
        "self_": "6",
    }


def test_S4_a_parameter_may_be_called_otherwise_in_json():
    @tool
    def f(from_: Annotated[str, Field(alias="from")]): ...

    assert list(schema_of(f)["properties"]) == ["from"]
    assert f.bind('{"from": "Paris"}').values == {"from_": "Paris"}


def test_S5_a_recursive_model_has_its_definition_at_the_root():
    @tool
    def f(tree: Node): ...

    schema = schema_of(f)
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    jsonschema.validate({"tree": {"value": 1, "children": [{"value": 2}]}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tree": {"value": 1, "children": [{"value": "x"}]}}, schema)


def test_S5_a_recursive_model_reaches_the_tool_as_objects():
    @tool
    def f(tree: Node): ...

    tree = f.bind('{"tree": {"value": 1, "children": [{"value": 2}]}}').values["tree"]
    assert tree == Node(value=1, children=[Node(value=2)])


def google(city: str, days: int = 3):
    """Forecast the weather.

    Uses the nearest station.

    Args:
        city: where to
            look
        days (int): how far ahead
    """


def numpy(city: str, days: int = 3):
    """Forecast the weather.

    Uses the nearest station.

    Parameters
    ----------
    city : str
        where to look
    days : int
        how far ahead
    """


def sphinx(city: str, days: int = 3):
    """Forecast the weather.

    Uses the nearest station.

    :param city: where to look
    :param int days: how far ahead
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx], ids=lambda function: function.__name__)
def test_S6_docstrings_of_three_styles_reach_the_schema(function):
    declared = tool(function)
    properties = schema_of(declared)["properties"]
    assert declared.spec.description == "Forecast the weather.\n\nUses the nearest station."
    assert [properties[name]["description"] for name in ("city", "days")] == ["where to look", "how far ahead"]


def test_S6_what_stands_at_the_annotation_wins_over_the_docstring():
    @tool
    def f(a: Annotated[str, "plain text"], b: Annotated[str, Field(description="a field")], c: str):
        """Do it.

        Args:
            a: never seen
            b: never seen
            c: from the docstring
        """

    properties = schema_of(f)["properties"]
    assert [properties[name]["description"] for name in "abc"] == ["plain text", "a field", "from the docstring"]


def test_S6_the_description_of_the_decorator_wins():
    @tool(description="Told to the model.")
    def f():
        """Told to programmers."""

    assert f.spec.description == "Told to the model."


@pytest.mark.parametrize(
    ("name", "description"),
    [("get_weather", "get weather"), ("getWeather", "get weather"), ("parseHTTPHeader", "parse HTTP header")],
)
def test_S6_without_any_description_the_name_is_split_into_words(name, description):
    @tool(name=name)
    def f(): ...

    assert f.spec.description == description


def test_a_declared_return_type_is_announced():
    @tool
    def f() -> list[Address]: ...

    @tool
    async def g() -> int: ...

    assert f.spec.output_schema["items"] == {"$ref": "#/$defs/Address"}
    assert g.spec.output_schema == {"type": "integer"}


@pytest.mark.parametrize(
    "returns", [None, Any, Submitted, Submitted | int, object, Media, list[Media | str], dict[str, Media], Media | None]
)
def test_an_indefinite_return_type_is_not_announced(returns):
    def f(): ...

    f.__annotations__["return"] = returns
    assert tool(f).spec.output_schema is None


def test_a_type_without_json_is_refused_with_the_name_of_the_tool():
    class Connection: ...

    with pytest.raises(InvalidTool, match=r"tool lookup: .*Connection"):

        @tool
        def lookup(connection: Connection): ...


@pytest.mark.parametrize("kind", ["*args", "**kwargs"])
def test_parameters_that_have_no_name_are_refused(kind):
    scope: dict[str, Any] = {}
    exec(f"def f({kind}): ...", scope)
    with pytest.raises(InvalidTool, match="no place in a schema"):
        tool(scope["f"])


def test_a_type_defined_below_its_first_use_is_found_when_the_tool_is_used():
    @tool
    def f(later: Later): ...

    class Later(BaseModel):
        x: int

    globals()["Later"] = Later
    try:
        assert f.bind('{"later": {"x": 1}}').values == {"later": Later(x=1)}
    finally:
        del globals()["Later"]


def test_a_type_that_is_never_defined_is_refused_when_the_tool_is_used():
    @tool
    def f(later: NeverDefined): ...  # noqa: F821  # that is the point

    with pytest.raises(InvalidTool, match=r"test_schema.*NeverDefined"):
        _ = f.spec
