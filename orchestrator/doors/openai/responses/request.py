"""What `POST /v1/responses` takes. Every field is passed on, kept to, shown again in the response, or refused by name.

Pure. The words for the model are those of Chat Completions, which the models' rooms put in each provider's own.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictFloat, StrictInt

from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.openai.openai_records import Function, Lenient, spec_of
from toolfleet.orchestrator.doors.openai.responses.items import Items
from toolfleet.orchestrator.run.limits import Count
from toolfleet.orchestrator.run.terms import AskedTerms
from toolfleet.tool import ToolSpec

KEPT_UNSTORED_S: Final = 3600.0
"""How long a run is kept whose response is not stored: a following request with its calls finds its turns there."""

PASSED_ON: Final = (
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "temperature",
    "top_p",
    "user",
)
"""What goes to the model under the same name."""

REMEDIES: Final = {
    "conversation": "name the response before as previous_response_id, or send all the items",
    "prompt": "this server keeps no prompts; send instructions and input",
    "max_tool_calls": 'to bound the fleet\'s calls send {"toolfleet": {"limits": {"calls": …}}}',
    "context_management": "nothing is compacted here",
    "moderation": "nothing is moderated here",
}
"""What to do instead of using a field that nothing can be made of here."""

INCLUDED: Final = frozenset({"reasoning.encrypted_content"})
"""What may be named in `include`: what a model wants back of its thoughts is kept here, and put back by itself."""

REFUSED_INCLUDES: Final = {
    "message.output_text.logprobs": "the models here are asked without logprobs",
    "message.input_image.image_url": "input items come back without their images",
}


class ResponseTool(Function):
    """A tool of the client's, as the Responses API declares it."""

    type: Literal["function"]


class OtherTool(Lenient):
    """Any other kind of tool; refused by name."""

    type: str


class TextFormat(Lenient):
    """What the answer has to be."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: StrictBool | None = None
    description: str | None = None


class TextOptions(Lenient):
    """How the answer is to be written."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Lenient):
    """How much the model is to think."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class StreamingOptions(Lenient):
    """How the events are to be sent."""

    include_obfuscation: StrictBool | None = None


class ResponseRequest(Lenient):
    """`POST /v1/responses`."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"model": "toolfleet-rehearsal", "input": "What is the square root of 2?", "background": True}]
        },
    )

    model: str
    input: Annotated[str, Field(min_length=1)] | Annotated[Items, Field(min_length=1)]
    instructions: str | None = None
    tools: list[ResponseTool | OtherTool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: StrictBool | None = None
    background: StrictBool | None = None
    stream: StrictBool | None = None
    stream_options: StreamingOptions | None = None
    store: StrictBool | None = None
    include: list[str] | None = None
    previous_response_id: str | None = None
    max_output_tokens: Count | None = None
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None, Field(max_length=16)
    ] = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    temperature: StrictFloat | None = None
    top_p: StrictFloat | None = None
    top_logprobs: StrictInt | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    toolfleet: AskedTerms = Field(
        default=AskedTerms(), description="This project's own member: every option that a run has."
    )

    @property
    def is_stored(self) -> bool:
        """Whether the response can be asked for again."""
        return self.store is not False

    def client_tools(self) -> tuple[ToolSpec, ...]:
        """Return the client's tools as the model is to see them. Raises Problem for a kind that is not served."""
        return tuple(spec_of(_own(tool, position)) for position, tool in enumerate(self.tools or ()))

    def model_options(self) -> dict[str, Any]:
        """Return the options that go on to the model, in the words of Chat Completions."""
        text = self.text or TextOptions()
        sent = {
            **{name: getattr(self, name) for name in PASSED_ON},
            "max_completion_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "response_format": _response_format(text.format),
            "tool_choice": _choice(self.tool_choice),
            "verbosity": text.verbosity,
        }
        return {name: value for name, value in sent.items() if value is not None}

    def allowed_tools(self) -> frozenset[str] | None:
        """Return the names that `tool_choice` leaves of all tools; None where it leaves all. Raises Problem."""
        match self.tool_choice:
            case {"type": "allowed_tools", "tools": list(tools)}:
                return frozenset(_allowed(tool) for tool in tools)
            case _:
                return None

    def asked_as(self, items: list[dict[str, Any]] | str) -> dict[str, Any]:
        """Return what is shown of it again: all but what it says to this server alone."""
        beside = {"model", "input", "stream", "stream_options", "include", "toolfleet"}
        said = self.model_dump(mode="json", by_alias=True, exclude=beside, exclude_none=True)
        said = {name: value for name, value in said.items() if name in ResponseRequest.model_fields}
        if self.tools:
            said["tools"] = [{"parameters": None, "strict": None, **tool} for tool in said["tools"]]
        return {**said, "input": items}

    def must_be_served(self) -> None:
        """Raise Problem for the first thing that it asks for and that nothing can be made of here."""
        for name, value in (self.model_extra or {}).items():
            if value is not None:
                raise refused(name, f"nothing is made of it here: {REMEDIES.get(name, 'leave it out')}")
        for name in self.include or ():
            must_be_includable(name)
        if self.background and not self.is_stored:
            raise refused("store", "a response in the background is stored: leave out store=false, or background")
        if self.truncation == "auto":
            raise refused("truncation", "nothing is cut off a conversation here: send a shorter one, and leave it out")
        if self.top_logprobs:
            raise refused("top_logprobs", "the models here are asked without logprobs: leave it out")
        if self.stream_options and self.stream_options.include_obfuscation:
            raise refused("stream_options.include_obfuscation", "events are not obfuscated here: leave it out")
        self._must_think_as_served()
        _must_be_a_format(self.text)

    def _must_think_as_served(self) -> None:
        asked = self.reasoning or ReasoningOptions()
        for name, value in (asked.model_extra or {}).items():
            if value is not None:
                raise refused(f"reasoning.{name}", "nothing is made of it here: leave it out")
        for name in ("summary", "generate_summary"):
            if getattr(asked, name) not in {None, "auto"}:
                raise refused(f"reasoning.{name}", "no summaries are written here: give auto, or leave it out")


def refused(param: str, why: str, *, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> Problem:
    """Return the problem with a parameter of a request."""
    return Problem(status, f"{param}: {why}", code="unsupported-parameter", param=param)


def must_be_includable(name: str) -> None:
    """Raise Problem for what no response here includes."""
    if name not in INCLUDED:
        raise refused("include", f"{name} cannot be included: {REFUSED_INCLUDES.get(name, 'no such tool is served')}")


def _own(tool: ResponseTool | OtherTool, position: int) -> ResponseTool:
    if isinstance(tool, ResponseTool):
        return tool
    why = (
        f"{tool.type} is not served: it is one of OpenAI's own. Declare a function and perform it yourself, or let a "
        "worker serve a tool for it (docs/packs.md has some, among them one for MCP servers)"
    )
    if tool.type == "function":
        why = "a function needs a name of 1 to 256 characters, and an object as its parameters"
    raise refused(f"tools[{position}]", why)


def _allowed(tool: Any) -> str:
    match tool:
        case {"type": "function", "name": str(name)}:
            return name
        case _:
            raise refused("tool_choice", f"{str(tool)[:80]} is no function that could be allowed")


def _choice(choice: Any) -> Any:
    """Return the choice of tools as Chat Completions writes it. Raises Problem."""
    match choice:
        case None | "none" | "auto" | "required":
            return choice
        case {"type": "function", "name": str(name)}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list()}:
            return mode
        case _:
            why = f"{str(choice)[:80]} cannot be chosen: give none, auto, required, a function or allowed_tools"
            raise refused("tool_choice", why)


def _response_format(asked: TextFormat | None) -> dict[str, Any] | None:
    """Return the format of the answer as Chat Completions writes it; None for plain text."""
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object":
        return {"type": "json_object"}
    given = {"name": asked.name, "schema": asked.schema_, "strict": asked.strict, "description": asked.description}
    return {"type": "json_schema", "json_schema": {name: value for name, value in given.items() if value is not None}}


def _must_be_a_format(text: TextOptions | None) -> None:
    asked = text.format if text else None
    if asked and asked.type == "json_schema" and (asked.name is None or asked.schema_ is None):
        raise refused("text.format", "a json_schema needs a name and a schema")
    for name, value in ((text.model_extra if text else None) or {}).items():
        if value is not None:
            raise refused(f"text.{name}", "nothing is made of it here: leave it out")
