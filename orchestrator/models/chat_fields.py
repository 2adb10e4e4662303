"""Every field of a Chat Completions request, and what becomes of it, wherever such requests come in. Pure.

The tables are the truth: code and page follow from them, and a test goes over the official SDK's types, so that a field
of a new SDK is decided about before it can be dropped in silence. A field that is in no table goes on to the model,
whose provider takes it or refuses it by name: servers other than OpenAI's have many of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from toolfleet.orchestrator.run.incomplete import Incomplete


class Fate(StrEnum):
    """What becomes of a field."""

    HERE = "here"
    """It is understood here."""
    MODEL = "model"
    """It goes on to the model."""
    REFUSED = "refused"
    """A request with it is refused, unless its value asks for nothing."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a field, what there is to say of that, and which values of a refused one ask for nothing.

    `null` never asks for anything.
    """

    fate: Fate
    told: str = ""
    harmless: tuple[Any, ...] = ()

    def is_refused(self, value: Any) -> bool:
        """Return whether a request with this value is refused."""
        return self.fate is Fate.REFUSED and value is not None and value not in self.harmless


_HERE: Final = Decision(Fate.HERE)
_MODEL: Final = Decision(Fate.MODEL)

REQUEST: Final[Mapping[str, Decision]] = {
    "messages": _HERE,
    "model": Decision(Fate.HERE, "the one of `GET /v1/models`"),
    "stream": _HERE,
    "stream_options": Decision(
        Fate.HERE, "`include_usage`; nothing is obfuscated, and `include_obfuscation` is refused"
    ),
    "tools": Decision(Fate.HERE, "functions, with `strict`; those of the type `custom` are refused"),
    "tool_choice": Decision(Fate.MODEL, "with the first turn; `none` offers no tool at all, the fleet's included"),
    "response_format": Decision(Fate.MODEL, "a `json_schema` is also checked here"),
    "metadata": Decision(Fate.MODEL, "and stands in the answer"),
    "service_tier": Decision(Fate.MODEL, "the answer has the tier that the provider names"),
    "max_tokens": Decision(Fate.MODEL, "under the name that the model takes; for each turn"),
    "max_completion_tokens": Decision(Fate.MODEL, "as `max_tokens`"),
    "parallel_tool_calls": Decision(Fate.MODEL, "where tools are offered"),
    "frequency_penalty": _MODEL,
    "logit_bias": _MODEL,
    "presence_penalty": _MODEL,
    "prompt_cache_key": _MODEL,
    "prompt_cache_options": _MODEL,
    "prompt_cache_retention": _MODEL,
    "reasoning_effort": _MODEL,
    "safety_identifier": _MODEL,
    "seed": Decision(Fate.MODEL, "the answer has the `system_fingerprint` that the provider names"),
    "stop": _MODEL,
    "store": Decision(Fate.MODEL, "at the provider: here each completion is a run, and kept as such"),
    "temperature": _MODEL,
    "top_p": _MODEL,
    "user": _MODEL,
    "verbosity": _MODEL,
    "n": Decision(Fate.REFUSED, "one choice for each request", (1,)),
    "logprobs": Decision(Fate.REFUSED, "an answer may be of several turns, to whose text they would not fit", (False,)),
    "top_logprobs": Decision(Fate.REFUSED, "as `logprobs`", (0,)),
    "audio": Decision(Fate.REFUSED, "answers are text"),
    "modalities": Decision(Fate.REFUSED, "answers are text", (["text"],)),
    "prediction": Decision(Fate.REFUSED, "OpenAI takes it without tools only"),
    "web_search_options": Decision(Fate.REFUSED, "give the fleet a tool that searches"),
    "moderation": Decision(Fate.REFUSED, "ask the provider's moderation yourself"),
    "functions": Decision(Fate.REFUSED, "deprecated: give `tools`", ([],)),
    "function_call": Decision(Fate.REFUSED, "deprecated: give `tool_choice`"),
}
"""The fields of a request."""

MESSAGE: Final[Mapping[str, Decision]] = {
    "role": Decision(Fate.HERE, "`developer` is taken for `system`; `function` is refused"),
    "content": Decision(Fate.HERE, "text, and images of users"),
    "tool_calls": Decision(Fate.HERE, "of assistants"),
    "tool_call_id": Decision(Fate.HERE, "of tools"),
    "name": Decision(Fate.MODEL, "models of Anthropic's have none, and refuse it; of a tool message it is the tool's"),
    "refusal": Decision(Fate.MODEL, "of assistants"),
    "audio": Decision(Fate.REFUSED, "conversations are text and images"),
    "function_call": Decision(Fate.REFUSED, "deprecated: give `tool_calls`"),
    "annotations": Decision(Fate.REFUSED, "no model takes them", ([],)),
}
"""The fields of a message, of whichever role."""

PART: Final[Mapping[str, Decision]] = {
    "text": Decision(Fate.HERE, "of every role"),
    "refusal": Decision(Fate.MODEL, "of assistants"),
    "image_url": Decision(Fate.MODEL, "of users, to models that see: `https:` and `data:` URLs"),
    "input_audio": Decision(Fate.REFUSED, "no sounds are passed on"),
    "file": Decision(Fate.REFUSED, "give its text, or a tool that reads it"),
}
"""The types of parts that a message's content may have."""

FUNCTION: Final = ("name", "description", "parameters", "strict")
"""The fields of a function that a client declares."""


def refused_fields(request: Mapping[str, Any], table: Mapping[str, Decision]) -> Iterator[tuple[str, str]]:
    """Yield each field of a request that is refused, with the sentence that says so."""
    for name, value in request.items():
        field = table.get(name)
        if field is not None and field.is_refused(value):
            yield name, f"{name} is not served here: {field.told.replace('`', '')}"


def passed_on(request: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields of a request that go on to the model: all that nothing is done with here."""
    own = {name for name, field in REQUEST.items() if field.fate is not Fate.MODEL}
    return {name: value for name, value in request.items() if name not in own and value is not None}


def answer_schema(model_options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON Schema that `response_format` asks the answer to satisfy, None if it asks for none."""
    match model_options.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case _:
            return None


def must_be_json(model_options: Mapping[str, Any]) -> bool:
    """Return whether `response_format` asks for JSON, of whichever form."""
    match model_options.get("response_format"):
        case {"type": "json_schema" | "json_object"}:
            return True
        case _:
            return False


def finish_reason(incomplete: Incomplete | None, refusal: str | None = None) -> str:
    """Why an answer ended. An empty one has simply stopped: Chat Completions has no word for it.

    A model that refuses in words of its own has stopped, too, and its words tell; one without has been withheld.
    """
    match incomplete:
        case Incomplete.LENGTH | Incomplete.CONTENT_FILTER:
            return incomplete.value
        case Incomplete.REFUSAL if not refusal:
            return Incomplete.CONTENT_FILTER.value
        case _:
            return "stop"


def refusal_told(incomplete: Incomplete | None, refusal: str | None) -> str | None:
    """What stands in `refusal` of an answer: the model's words, or ours where it refused without any."""
    return (refusal or incomplete.told) if incomplete is Incomplete.REFUSAL else None
