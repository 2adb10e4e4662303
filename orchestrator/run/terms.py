"""The options of a run: the one list that every door takes, and whether they can be meant. Pure.

An option is a field here, with its bounds and its default, and nowhere else. The Python keywords (`RunOptions`), the
body of `POST /v1/runs`, the lines of a batch, the `toolfleet` member of OpenAI's requests and the options of the
command are made of these fields or held to them by a test, so that no door can lack one.

Not here is what the clock or the store says of a run: its id, its absolute deadline, its parent. That stands beside the
terms in `RunStarted`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictBool,
    StrictFloat,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from toolfleet.calls import Record
from toolfleet.misspelt import what_is_wrong
from toolfleet.orchestrator.errors import InvalidOption
from toolfleet.orchestrator.run.accounts import Account
from toolfleet.orchestrator.run.limits import Limits, WholeNumber
from toolfleet.orchestrator.run.shared_state import Strategy
from toolfleet.orchestrator.run.structured import problem_with_schema
from toolfleet.orchestrator.run.words import Words
from toolfleet.prices import Price
from toolfleet.streams import Priority
from toolfleet.tool import ToolSpec

Slow = Literal["wait", "handle"]
"""What a run does with a call whose patience is used up: rest until it is back, or give the model a handle."""

PriorityName = Literal["interactive", "normal", "batch"]
"""A priority as it is written where there is no `Priority`."""

LONGEST_S: Final = 100 * 366 * 24 * 3600.0
"""A hundred years: what is longer overflows clocks, and was most likely meant in another unit."""

MOST_TURNS: Final = 1_000_000
MOST_AT_A_TIME: Final = 1_000_000

SHOWN_CHARACTERS: Final = 80

MOST_WEBHOOK_CHARS: Final = 2048

OURS_TO_SAY: Final = ("model", "messages", "system", "tools", "stream")
"""Parts of a model's request that the run itself decides about."""


def _seconds(value: float, least: str, *, is_ok: bool) -> float:
    if math.isnan(value) or value > LONGEST_S:
        raise ValueError(f"must be a number of seconds within a hundred years, but is {value:g}; leave it out for none")
    if not is_ok:
        raise ValueError(f"must {least}, but is {value:g}")
    return value


def _patience(value: float) -> float:
    return _seconds(value, "not be negative (0 makes every call a handle)", is_ok=value >= 0)


def _timeout(value: float) -> float:
    if value <= 0:
        raise ValueError(f"of {value:g} is a deadline in the past; leave it out for none")
    return _seconds(value, "be more than 0", is_ok=True)


def _turn_timeout(value: float) -> float:
    return _seconds(value, "be more than 0 (leave it out for none)", is_ok=value > 0)


def _kept(value: float) -> float:
    return _seconds(value, "be more than 0 (to delete a run at once, use `delete`)", is_ok=value > 0)


def _turns(value: int) -> int:
    if not 1 <= value <= MOST_TURNS:
        raise ValueError(f"must be 1 to {MOST_TURNS}, but is {value}; leave it out for the setting's")
    return value


def _at_a_time(value: int) -> int:
    if not 1 <= value <= MOST_AT_A_TIME:
        raise ValueError(f"must be 1 to {MOST_AT_A_TIME}, but is {value}; leave it out for all")
    return value


def _priority(value: object) -> object:
    if isinstance(value, Priority):
        return value
    if not isinstance(value, str) or value.upper() not in Priority.__members__:
        raise ValueError(f"must be {', '.join(each.name.lower() for each in Priority)}, but is {value!r}")
    return Priority[value.upper()]


def _answer_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if problem := problem_with_schema(schema):
        raise ValueError(f"is no JSON Schema that answers can be checked with: {problem}")
    return schema


def _model_options(options: dict[str, Any]) -> dict[str, Any]:
    if taken := [name for name in OURS_TO_SAY if name in options]:
        raise ValueError(f"must not have {', '.join(taken)}, which the run itself says; leave it out")
    return options


_POSITIVE = WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S})
Patience = Annotated[
    StrictFloat, AfterValidator(_patience), WithJsonSchema({"type": "number", "minimum": 0, "maximum": LONGEST_S})
]
Turns = Annotated[
    WholeNumber, AfterValidator(_turns), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_TURNS})
]
AtATime = Annotated[
    WholeNumber,
    AfterValidator(_at_a_time),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_AT_A_TIME}),
]
NamedPriority = Annotated[
    Priority,
    BeforeValidator(_priority),
    PlainSerializer(lambda priority: priority.name.lower(), when_used="json"),
    WithJsonSchema({"type": "string", "enum": [priority.name.lower() for priority in Priority]}),
]
"""A priority, in JSON by its name in small letters."""


class AskedTerms(Record):
    """Every option of a run that its caller may give. A door for strangers says itself whose run it is."""

    tools: tuple[str, ...] | None = Field(
        default=None, description="Names to offer; all that live workers serve by default."
    )
    slow: Slow = Field(default="wait", description="Wait for slow calls, or give the model a handle and go on.")
    patience_s: Patience | None = Field(
        default=None, description="How long a call may take before it counts as slow; as each tool says by default."
    )
    context: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Your own JSON: handed to tools, hidden from the model."
    )
    state: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="What the tools share to begin with; they may return updates."
    )
    merging: dict[str, Strategy] = Field(
        default_factory=dict, description="How updates of a key of the state are merged; `replace` by default."
    )
    interceptors: tuple[str, ...] = Field(
        default=(), description="Names of the orchestrator's interceptors, besides those for every run."
    )
    limits: Limits = Field(default=Limits(), description="What one answer may use up.")
    max_turns: Turns | None = Field(default=None, description="Model replies at most; as the settings say by default.")
    timeout_s: Annotated[StrictFloat, AfterValidator(_timeout), _POSITIVE] | None = Field(
        default=None, description="Seconds until the run fails and its calls expire."
    )
    turn_timeout_s: Annotated[StrictFloat, AfterValidator(_turn_timeout), _POSITIVE] | None = Field(
        default=None, description="Seconds that the calls of one reply may take; slower ones are stopped."
    )
    calls_at_a_time: AtATime | None = Field(
        default=None,
        exclude_if=lambda most: most is None,
        description="How many calls of a reply are made together at most, 1 for one after the other; all by default. "
        "None of them counts as slow then.",
    )
    compensate: StrictBool = Field(
        default=False, description="When a call fails, take back what the others of its reply have done."
    )
    keep_s: Annotated[StrictFloat, AfterValidator(_kept), _POSITIVE] | None = Field(
        default=None, description="How long the run is kept once it has ended; as the settings say by default."
    )
    model_options: Annotated[dict[str, Any], AfterValidator(_model_options)] = Field(
        default_factory=dict,
        repr=False,
        description="What the model is asked with besides the conversation: temperature, … in its provider's words. "
        "`tool_choice` goes with the first turn only.",
    )
    output_schema: Annotated[dict[str, Any], AfterValidator(_answer_schema)] | None = Field(
        default=None, description="The JSON Schema that the answer must satisfy; the model may try twice."
    )
    client_tools: tuple[ToolSpec, ...] = Field(
        default=(),
        description="Tools that no worker serves: calls of them end the run, and are its caller's to answer.",
    )
    priority: NamedPriority = Field(
        default=Priority.NORMAL,
        description="Whether its calls go before or behind those of others that wait.",
        json_schema_extra={"default": "normal"},  # its name, as it is written in JSON
    )
    webhook: Annotated[str, Field(min_length=1, max_length=MOST_WEBHOOK_CHARS)] | None = Field(
        default=None,
        exclude_if=lambda webhook: webhook is None,
        description="The id or the URL of an endpoint of your webhooks, which is told of all that happens to this run.",
    )

    @model_validator(mode="after")
    def _each_client_tool_has_its_own_name(self) -> Self:
        names = [spec.name for spec in self.client_tools]
        if len(set(names)) < len(names):
            raise ValueError("client_tools has two tools of one name; rename one of them")
        return self

    def given(self) -> dict[str, Any]:
        """The options that were given, by name; those that were left out are not among them."""
        return {name: getattr(self, name) for name in AskedTerms.model_fields if name in self.model_fields_set}


class RunTerms(AskedTerms):
    """The options of a run, as they are stored with it and hold for its whole life."""

    tenant: str = Field(default="", description="Whose run it is; nobody else sees it.")
    subject: str = Field(
        default="", exclude_if=lambda subject: not subject, description="Who asks: the subject of the key that came."
    )
    price: Price | None = Field(
        default=None, exclude_if=lambda price: price is None, description="What its model's tokens cost."
    )
    accounts: tuple[Account, ...] = Field(
        default=(),
        exclude_if=lambda accounts: not accounts,
        description="What it shares with the runs above it; empty for a run that begins a tree.",
    )
    words: Words | None = Field(
        default=None,
        exclude_if=lambda words: words is None,
        description="What its model reads of calls that ended without their tools, where that is not as usual.",
    )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The terms that options by name amount to; None stands for one that is left out. Raises InvalidOption."""
        try:
            return cls.model_validate({name: value for name, value in options.items() if value is not None})
        except ValidationError as error:
            raise InvalidOption(complaint(error)) from error


def complaint(error: ValidationError) -> str:
    """What is wrong with the first option that is: its name, its value where that is no secret, and what it may be."""
    first = error.errors(include_url=False)[0]
    said = what_is_wrong(first, RunTerms)
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "value_error" or not where:
        return f"{where} {said}".strip()
    field = RunTerms.model_fields.get(str(first["loc"][0]))
    value = f" of {first['input']!r:.{SHOWN_CHARACTERS}}" if field is not None and field.repr else ""
    return f"{where}{value} cannot be meant: {said}"
