"""What a tool's function and options amount to: the spec that is announced, and how its arguments are read and passed.

Decides defaults and refuses contradictions. Calls no tool; queues and workers are names here.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, get_args

import orjson
from pydantic import Field, StrictBool, StrictFloat, ValidationError

from toolfleet import strict_tools
from toolfleet.arguments import complaints
from toolfleet.arguments.parsing import ArgumentReader
from toolfleet.arguments.reading import TypedReader
from toolfleet.background import with_argument
from toolfleet.calls import MAX_VERSION, Effect, Record
from toolfleet.context import FromHistory
from toolfleet.declared_limits import Key, cache_s, limits_of
from toolfleet.docstrings import documentation, words
from toolfleet.errors import InvalidTool
from toolfleet.limits import Count, ToolLimits
from toolfleet.logs import FactLog
from toolfleet.schema import input_schema, output_schema
from toolfleet.signature import Injection, read_signature

MAX_NAME_CHARS: Final = 256
"""Providers take 64 and get a shorter one; a name beyond this is a text that went into the wrong field."""


CONTRACT_CHARS: Final = 12

THREADS: Final = "io"
"""The queue whose workers run plain functions on threads, which nothing can stop."""

PROCESSES: Final = frozenset({"cpu", "long"})
"""The queues whose workers run each call in a process, which is killed at the call's time limit."""

ON_A_THREAD: Final = "its thread goes on when its time limit has passed, and has its effect then"

log = FactLog(__name__)


class ToolSpec(Record):
    """What the fleet knows of a tool: announced by workers, offered to models. JSON on the wire."""

    v: Literal[1] = 1
    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    effect: Effect = Effect.ONCE
    queue: str = "io"
    long_running: StrictBool = False
    background: Literal["model"] | None = Field(default=None, exclude_if=lambda who: who is None)
    """Who decides for each call whether it is a handle at once; the argument that says so is in `input_schema`."""
    timeout_s: StrictFloat | None = Field(default=None, gt=0)
    patience_s: StrictFloat | None = Field(default=None, ge=0)
    requires_approval: StrictBool = False
    return_direct: StrictBool = False
    compensates: StrictBool = False
    """Whether the tool can take back what a call of it has done."""
    wants_history: StrictBool = False
    """Whether the conversation so far is sent with each call."""
    tags: tuple[str, ...] = ()
    strict: StrictBool | None = Field(default=None, exclude_if=lambda strict: strict is None)
    """Whether the model's provider is to hold it to the schema; None leaves that to the provider."""
    limits: ToolLimits | None = Field(default=None, exclude_if=lambda limits: limits is None)
    """What its calls may not exceed in the whole fleet."""
    cache_s: StrictFloat | None = Field(default=None, gt=0, exclude_if=lambda seconds: seconds is None)
    """For how long a result is given again to whoever asks the same."""
    version: Count = Field(default=0, ge=0, le=MAX_VERSION, exclude_if=lambda version: not version)
    """Which of several versions of the tool it is, the highest being the newest; 0 for one without versions."""
    digest: str | None = Field(default=None, pattern=r"^[0-9a-f]{12}$", exclude_if=lambda digest: digest is None)
    """The contract as its worker names it. Those in Python say none: theirs is computed of the rest."""
    tenant: str = Field(default="", exclude_if=lambda tenant: not tenant)
    """Whose calls alone it is served for; "" for everybody's."""

    @cached_property
    def contract(self) -> str:
        """A digest of all that a call depends on: workers with the same one may run one another's calls.

        What only tells a model what the tool is for does not count, nor does when a call may start.
        """
        if self.digest is not None:
            return self.digest
        bound = self.model_dump(mode="json", exclude={"description", "tags", "limits", "cache_s"})
        return hashlib.sha256(orjson.dumps(bound, option=orjson.OPT_SORT_KEYS)).hexdigest()[:CONTRACT_CHARS]


@dataclass(frozen=True, slots=True)
class Options:
    """What `@tool(...)` was told, as it was told."""

    name: str | None = None
    description: str | None = None
    read_only: bool = False
    idempotent: bool = False
    queue: str | None = None
    long_running: bool = False
    background: Literal["model"] | None = None
    timeout_s: float | None = None
    patience_s: float | None = None
    blocking: Literal["thread", "process"] | None = None
    retries: int = 0
    retry_on: tuple[type[BaseException], ...] = ()
    requires_approval: bool = False
    return_direct: bool = False
    callback_sets_state: bool = False
    extra: Literal["forbid", "ignore"] = "forbid"
    tags: tuple[str, ...] = ()
    strict: bool | None = None
    convert: Callable[[Any], Any] | None = None
    interceptors: tuple[Callable[..., Awaitable[Any]], ...] = ()
    rate: str | None = None
    burst: int | None = None
    rate_key: Key | None = None
    concurrency: int | None = None
    concurrency_key: Key | None = None
    cache_s: float | None = None
    version: int | None = None

    @property
    def effect(self) -> Effect:
        """What a repeat of a call would do."""
        if self.read_only:
            return Effect.READ_ONLY
        return Effect.IDEMPOTENT if self.idempotent else Effect.ONCE

    def queue_of(self, *, is_async: bool) -> str:
        """Return the queue that was asked for, or else the pool that suits the function."""
        if self.queue:
            return self.queue
        if self.long_running and self.blocking != "thread":
            return "long"
        return "io" if is_async or self.blocking == "thread" else "cpu"


@dataclass(frozen=True, slots=True)
class Declaration:
    """All that is known of a tool before it is called.

    `whole` names the parameter that takes all arguments as one dict, where the schema was written by hand.
    """

    spec: ToolSpec
    reader: ArgumentReader
    injections: tuple[tuple[str, Injection], ...] = ()
    positional_only: tuple[str, ...] = ()
    whole: str | None = None
    returns_nothing: bool = False
    yields_texts: bool = True
    """Of a function that yields: whether its pieces are texts, which are joined."""


def declare(function: Callable[..., Any], options: Options, local_names: Mapping[str, Any]) -> Declaration:
    """Read a function's declaration.

    Raises InvalidTool, or NotYetDefined when an annotation is ahead of its definition.
    """
    name = options.name or function.__name__
    documented = documentation(function)
    signature = read_signature(function, documented, extra=options.extra, local_names=local_names)
    schema = input_schema(signature.model)
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    returns = sum_of(signature.returns) if is_generator else signature.returns
    return Declaration(
        spec=spec_of(
            name,
            options,
            is_async=inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function),
            description=options.description or documented.description or words(name),
            input_schema=schema,
            output_schema=output_schema(returns),
            wants_history=wants_history(signature.injections),
        ),
        reader=TypedReader(name, signature, schema, extra=options.extra),
        injections=signature.injections,
        positional_only=signature.positional_only,
        returns_nothing=returns in (None, type(None)),
        yields_texts=returns is str,
    )


def sum_of(yields: Any) -> Any:
    """Return the type of what a function comes to that yields, by what it says that it returns: texts are joined."""
    pieces = get_args(yields)[:1] or (Any,)
    return str if pieces[0] in (str, Any) else list[pieces[0]]  # type: ignore[valid-type]  # known when it runs


def wants_history(injections: Iterable[tuple[str, Injection]]) -> bool:
    """Return whether one of these parameters is the conversation so far."""
    return any(isinstance(injection, FromHistory) for _, injection in injections)


def spec_of(name: str, options: Options, *, is_async: bool, **described: Any) -> ToolSpec:
    """Return the spec of a tool with these options. Raises InvalidTool for values that mean nothing."""
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARS:
        raise InvalidTool(f"{name[:80]!r} is no name for a tool: 1 to {MAX_NAME_CHARS} printable characters are")
    if options.retries < 0:
        raise InvalidTool(f"tool {name}: retries={options.retries}, where 0 means to try once")
    if options.retry_on and not options.retries:
        raise InvalidTool(f"tool {name}: retry_on says when to try again, but retries=0 says never to")
    if inspect.iscoroutinefunction(options.convert):
        raise InvalidTool(f"tool {name}: its converter must be a plain function, and {options.convert!r} is async")
    if problem := _problem_with_place(options, is_async=is_async):
        raise InvalidTool(f"tool {name}: {problem}")
    for each in options.interceptors:
        if inspect.isclass(each) or not callable(each):
            raise InvalidTool(f"tool {name}: {each!r} is no interceptor: an async function or an object like one is")
    described["input_schema"] = _announced_schema(name, options, described.get("input_schema"))
    try:
        spec = ToolSpec(
            name=name,
            effect=options.effect,
            queue=options.queue_of(is_async=is_async),
            long_running=options.long_running,
            background=options.background,
            timeout_s=options.timeout_s,
            patience_s=options.patience_s,
            requires_approval=options.requires_approval,
            return_direct=options.return_direct,
            tags=options.tags,
            strict=options.strict,
            version=_version_of(name, options),
            **_bounds(name, options, described.get("input_schema")),
            **described,
        )
    except ValidationError as error:
        wrong = (complaints.unfit(each["loc"], each["input"], each["msg"]) for each in error.errors())
        raise InvalidTool(f"tool {name}: {complaints.listed(wrong)}") from None
    if spec.queue == THREADS and may_outlive_its_limit(spec, is_async=is_async):
        log.warning("tool_cannot_be_stopped", tool=name, why=ON_A_THREAD, remedy='blocking="process"')
    return spec


def _version_of(name: str, options: Options) -> int:
    """Return the version that a tool was declared with, 0 for none. Raises InvalidTool."""
    version: object = options.version
    if version is None:
        return 0
    if type(version) is not int or not 1 <= version <= MAX_VERSION:
        raise InvalidTool(f"tool {name}: version={version!r:.40}, where 1 to {MAX_VERSION} are versions")
    return version


def _announced_schema(name: str, options: Options, schema: Any) -> Any:
    """Return the schema that models are shown. Raises InvalidTool."""
    if options.strict and (problem := strict_tools.problem_with(schema)):
        raise InvalidTool(f"tool {name}: no provider holds a model to its schema (strict=True): {problem}")
    if options.background is None:
        return schema
    if options.long_running:
        raise InvalidTool(f"tool {name}: long_running=True is a handle at once in any case: leave background out")
    return with_argument(name, schema)


def _bounds(name: str, options: Options, schema: Any) -> dict[str, Any]:
    """Return when calls of a tool may start, and when they need not. Raises InvalidTool."""
    try:
        limits = limits_of(
            rate=options.rate,
            burst=options.burst,
            rate_key=options.rate_key,
            concurrency=options.concurrency,
            concurrency_key=options.concurrency_key,
            schema=schema,
        )
        kept_s = cache_s(options.cache_s, read_only=options.read_only, schema=schema)
    except InvalidTool as error:
        raise InvalidTool(f"tool {name}: {error}") from None
    return {"limits": limits, "cache_s": kept_s}


def may_outlive_its_limit(spec: ToolSpec, *, is_async: bool) -> bool:
    """Whether a call of the tool, on a thread, may have its effect after it was told as timed out."""
    return not is_async and spec.effect is Effect.ONCE and spec.timeout_s is not None


def _problem_with_place(options: Options, *, is_async: bool) -> str | None:
    """Return why a tool cannot run where it is declared to."""
    if options.blocking is not None and is_async:
        return f"blocking={options.blocking!r} is for plain functions, and this one is async: leave it out"
    if options.blocking == "process" and options.queue == THREADS:
        return f"queue={THREADS!r} runs plain functions on threads, and blocking='process' says not to: leave queue out"
    if options.blocking == "thread" and options.queue in PROCESSES:
        return f"queue={options.queue!r} runs each call in a process, and blocking='thread' says not to: leave one out"
    return None
