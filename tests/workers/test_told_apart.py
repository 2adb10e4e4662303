"""Which questions are the same: two that a tool can tell apart never are."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Annotated

import orjson
import pytest
from pydantic import BaseModel, Field, PlainSerializer, SecretStr

from toolfleet import FromContext, tool
from toolfleet.calls import ToolCall
from toolfleet.connections import connect_async
from toolfleet.settings import Settings, new_secret
from toolfleet.wire import Seal
from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.perform.shared_answers import SharedAnswers
from toolfleet.workers.perform.told_apart import told_apart

SETTINGS = Settings(secret=new_secret())


class Place(BaseModel):
    city: str
    units: str = Field(default="c", exclude=True)
    days: Annotated[int, PlainSerializer(lambda days: min(days, 3))] = 1


@tool(read_only=True, cache_s=60)
async def forecast(place: Place, days: int = 1) -> str:
    """Tell the weather."""
    return f"{place.units} {days}"


@tool(read_only=True, cache_s=60)
async def at_home(city: Annotated[str | None, FromContext("city")] = "Rome") -> str:
    """Tell the weather at home."""
    return str(city)


@pytest.fixture
async def question():
    async with connect_async(SETTINGS) as client:
        shared = SharedAnswers(client, SETTINGS, Seal(SETTINGS), is_surrounded=False)

        def ask(asked, arguments="{}", **facts):
            known = {"call_id": "r.1.0", "run_id": "r", "deadline_unix_s": 2e9, "reply_to": "o"}
            call = ToolCall(**known, tool=asked.spec.name, arguments=arguments, **facts)
            return shared.question(Delivery("r.1.0", asked.spec.name, "", ""), call, asked)

        yield ask


async def test_what_a_model_leaves_out_of_its_json_makes_another_question(question):
    texts = ['{"place": {"city": "a"}}', '{"place": {"city": "a", "units": "f"}}']
    texts += ['{"place": {"city": "a", "days": 4}}', '{"place": {"city": "a", "days": 5}}']
    assert len({question(forecast, text) for text in texts}) == 4
    assert question(forecast, texts[0]) == question(forecast, '{"days": 1, "place": {"units": "c", "city": "a"}}') != ""


async def test_null_in_a_context_is_not_what_is_not_there(question):
    assert question(at_home) != question(at_home, context={"city": None})


@dataclass
class Pair:
    left: object
    right: object = field(default=0, repr=False)


class Colour(Enum):
    RED = "red"


DIFFERENT = [
    *(None, True, 1, 1.0, "1", Decimal(1), b"1", [1], (1,), {1}, {"1": 1}, {1: 1}, float("nan"), 2**70, 2**70 + 1),
    *(Colour.RED, "red", Pair(1), Pair(1, 2), Place(city="a"), {"city": "a", "units": "c", "days": 1}, [], {}, ""),
]


def test_values_that_differ_are_told_apart():
    texts = [orjson.dumps(told_apart(value), option=orjson.OPT_SORT_KEYS) for value in DIFFERENT]
    assert len(set(texts)) == len(DIFFERENT)


def test_the_order_of_members_says_nothing():
    assert told_apart({"a": 1, "b": 2}) == told_apart({"b": 2, "a": 1})
    assert told_apart({3, 1, 2}) == told_apart({2, 3, 1})


@pytest.mark.parametrize("value", [object(), SecretStr("x"), [SecretStr("x")], Pair(SecretStr("x"))])
def test_what_may_hide_something_stands_for_nothing(value):
    with pytest.raises(TypeError, match="may hide"):
        told_apart(value)
