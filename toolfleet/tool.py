"""How a tool is declared: `@tool` makes a `Tool` of a function, which can still be called as the function it is.

Owns binding and invoking. What a declaration amounts to is decided in `declaration`; workers are unknown here.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from types import FrameType
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, cast, overload

from toolfleet.arguments.parsing import DEFAULT_LIMITS, ArgumentLimits, Arguments, read_arguments
from toolfleet.calls import Effect, Failed, Returned, Submitted
from toolfleet.context import Context, within
from toolfleet.declaration import Declaration, Options, ToolSpec, declare
from toolfleet.declared_limits import Key
from toolfleet.errors import InvalidTool, UnconvertibleValue
from toolfleet.hooks import Hooks
from toolfleet.interceptors.protocol import ToolInterceptor
from toolfleet.misspelt import check_options
from toolfleet.signature import Injection, NotYetDefined, is_method

__all__ = ["Tool", "ToolSpec", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R2 = TypeVar("R2")
S = TypeVar("S")

OPTION_NAMES: Final = frozenset(field.name for field in fields(Options))


class Tool(Generic[P, R]):
    """A function that models may call. Calling it directly is calling the function."""

    def __init__(self, function: Callable[P, R], options: Options, read: Callable[[], Declaration]) -> None:
        """`read` reads the declaration; it is asked again later when it raises NotYetDefined."""
        self._function = function
        self._name = options.name or function.__name__
        self._read = read
        self._is_method = is_method(function)
        self._receiver: tuple[Any, ...] = ()
        self.hooks = Hooks(self._name)
        self.yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.blocking = options.blocking
        self.retries = options.retries
        self.retry_on = options.retry_on
        # Innermost, so that what stands around the tool sees one call, however often it is tried.
        self.interceptors: tuple[ToolInterceptor, ...] = (
            *cast("tuple[ToolInterceptor, ...]", options.interceptors),
            *_retrying(options),
        )
        self._convert = options.convert
        self._takes_state = options.callback_sets_state
        self.source = _source(function)
        functools.update_wrapper(self, function)
        # At once, so that a mistake shows where it was made; later, if a type is written below its first use.
        with suppress(NotYetDefined):
            self.__dict__["_declaration"] = self._read_with_hooks()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it were no tool."""
        return cast("Callable[..., R]", self._function)(*self._receiver, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self._name!r} from {self.source}>"

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Tool[P, R]: ...
    @overload
    def __get__(self: Tool[Concatenate[S, Q], R], instance: S, owner: type | None = None) -> Tool[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the tool of a class, bound to an instance as a method is."""
        return self.bound_to(instance) if self._is_method and instance is not None else self

    def bound_to(self, receiver: object) -> Tool[..., R]:
        """This tool with its first parameter, `self` or `cls`, filled in."""
        bound = cast("Tool[..., R]", copy.copy(self))
        bound._receiver = (receiver,)
        return bound

    def is_same_as(self, other: Tool[..., Any]) -> bool:
        """Return whether both are one function of one object."""
        mine, its = (self._function, *self._receiver), (other._function, *other._receiver)
        return list(map(id, mine)) == list(map(id, its))

    def poll(self, function: Callable[..., R2]) -> Callable[..., R2]:
        """Declare how a job that this tool submitted elsewhere is asked: `f(external_id, ctx)`, async or not.

        It returns `Returned` or `Failed` when the job has ended, `Progress` or `Submitted` while it goes on.
        """
        return self.hooks.add("poll", function)

    def cancel(self, function: Callable[..., R2]) -> Callable[..., R2]:
        """Declare how such a job is cancelled: `f(external_id, ctx)`, async or not."""
        return self.hooks.add("cancel", function)

    def reconcile(self, function: Callable[..., R2]) -> Callable[..., R2]:
        """Declare how to find out what became of a call whose worker was lost: `f(call, ctx)`, async or not.

        It returns `Returned` or `Failed` when the effect has happened, `NotDone` when it has not and will not: then the
        call is run.
        """
        return self.hooks.add("reconcile", function)

    def compensate(self, function: Callable[..., R2]) -> Callable[..., R2]:
        """Declare how to take back what a call has done: `f(call, result, ctx)`, async or not.

        It is called once when another call of the same batch failed, in runs that want it so. Raises InvalidTool for a
        tool that has no effect to take back.
        """
        self.hooks.add("compensate", function)
        self.__dict__.pop("_declaration", None)
        with suppress(NotYetDefined):
            self.__dict__["_declaration"] = self._read_with_hooks()
        return function

    @property
    def receiver(self) -> tuple[Any, ...]:
        """The object that this tool is bound to, for its hooks; empty for a plain function."""
        return self._receiver

    @property
    def is_unbound(self) -> bool:
        """Whether this is a method that still lacks its object."""
        return self._is_method and not self._receiver

    @property
    def spec(self) -> ToolSpec:
        """What the fleet knows of this tool. Raises InvalidTool."""
        return self._declaration.spec

    @property
    def injections(self) -> tuple[tuple[str, Injection], ...]:
        """The parameters that the model never sees, and what is put there. Raises InvalidTool."""
        return self._declaration.injections

    @property
    def takes_state(self) -> bool:
        """Whether the callback of a job that it started may set what the run's tools share."""
        return self._takes_state

    @property
    def returns_nothing(self) -> bool:
        """Whether the function is declared to return None."""
        return self._declaration.returns_nothing

    def bind(self, arguments: str, limits: ArgumentLimits = DEFAULT_LIMITS) -> Arguments:
        """Read the arguments that a model wrote. Raises BadArguments, whose text is for the model."""
        return read_arguments(arguments, self._declaration.reader, limits)

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Typed arguments by parameter name that did not come from the model, checked. Raises BadArguments."""
        return self._declaration.reader.check(values)

    def invoke(self, arguments: Arguments, context: Context) -> Any:
        """Call the function, with `context` the current one; an async one returns its coroutine.

        What it returns has gone through the tool's converter. Raises what the function raises, MissingFromContext and
        UnconvertibleValue.
        """
        declaration = self._declaration
        if self.is_async and not (
            declaration.injections or declaration.positional_only or declaration.whole is not None or self.yields
        ):  # as below, at half the cost
            return self._await_with(context, arguments.values)
        values = dict(arguments.values)
        if declaration.whole is not None:
            values = {declaration.whole: values}
        for name, injection in declaration.injections:
            values[name] = injection.take(context)
        positional = (*self._receiver, *[values.pop(name) for name in declaration.positional_only])
        call = functools.partial(cast("Callable[..., Any]", self._function), *positional, **values)
        if self.yields:
            return self._invoke_yielding(context, call, of_texts=declaration.yields_texts)
        if self.is_async:
            return self._await_within(context, call)
        with within(context):
            return self._converted(call())

    def _invoke_yielding(self, context: Context, call: Callable[[], Any], *, of_texts: bool) -> Any:
        """Call a function that yields: its result is the sum of that."""
        from toolfleet.yielding import summed, summed_blocking  # noqa: PLC0415  # loads asyncio, for those tools alone

        if self.is_async:
            return self._await_within(context, lambda: summed(call(), context, of_texts=of_texts))
        with within(context):
            return self._converted(summed_blocking(call(), context, of_texts=of_texts))

    async def _await_with(self, context: Context, values: Mapping[str, Any]) -> Any:
        with within(context):
            return self._converted(await cast("Callable[..., Any]", self._function)(*self._receiver, **values))

    async def _await_within(self, context: Context, call: Callable[[], Any]) -> Any:
        with within(context):
            return self._converted(await call())

    def _converted(self, value: Any) -> Any:
        if self._convert is None or isinstance(value, Returned | Failed | Submitted):
            return value
        try:
            converted = self._convert(value)
        except Exception as error:  # the author's function may raise anything
            raise UnconvertibleValue(f"{self._name} has run, but its converter failed: {error!r}") from error
        if isinstance(converted, str | Returned):
            return converted
        raise UnconvertibleValue(
            f"{self._name} has run, but its converter returned {type(converted).__name__}, not str or Returned"
        )

    @functools.cached_property
    def _declaration(self) -> Declaration:
        try:
            return self._read_with_hooks()
        except NotYetDefined as error:
            raise InvalidTool(f"tool {self.source}: {error}") from error

    def _read_with_hooks(self) -> Declaration:
        declaration = self._read()
        if self.hooks.get("compensate") is None:
            return declaration
        if declaration.spec.effect is Effect.READ_ONLY:
            raise InvalidTool(f"tool {self._name}: it is read_only, so there is nothing to compensate")
        return replace(declaration, spec=declaration.spec.model_copy(update={"compensates": True}))


def _source(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{function.__module__}:{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    queue: str | None = None,
    long_running: bool = False,
    background: Literal["model"] | None = None,
    timeout_s: float | None = None,
    patience_s: float | None = None,
    blocking: Literal["thread", "process"] | None = None,
    retries: int = 0,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    requires_approval: bool = False,
    return_direct: bool = False,
    callback_sets_state: bool = False,
    extra: Literal["forbid", "ignore"] = "forbid",
    tags: tuple[str, ...] = (),
    strict: bool | None = None,
    convert: Callable[[Any], str | Returned] | None = None,
    interceptors: Sequence[ToolInterceptor] = (),
    rate: str | None = None,
    burst: int | None = None,
    rate_key: Key | None = None,
    concurrency: int | None = None,
    concurrency_key: Key | None = None,
    cache_s: float | None = None,
    version: int | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Any = None, /, *, retry_on: Any = (), interceptors: Any = (), **options: Any) -> Any:
    """Declare a function, a method or a static method as a tool.

    A plain function runs in a process, which is killed at its time limit; with `blocking="thread"` on a thread, which
    cannot be. Name and description come from the function unless given; parameter descriptions from the docstring,
    `Annotated` or `Field`. A tool is assumed to have an effect that must not happen twice, unless it is `read_only` or
    `idempotent`. `convert` makes of its value what the model reads; toolfleet.interceptors tells what `interceptors`
    may be.
    `rate` ("10/s", at most `burst` at once) and `concurrency` bound its calls in the whole fleet, or for each value of
    their keys: FromTenant(), FromContext("…"), FromArgument("…"). `cache_s` gives a result of a `read_only` tool again.
    `background="model"` has the model say of each call whether it is a handle at once (`run_in_background`).
    `strict` has the model's provider hold it to the schema, or not; None leaves that to the provider.
    `version` (1, 2, …) tells versions apart that are live at once: a run goes on with the one that it began with.
    `callback_sets_state` lets who calls back about a job of the tool set what the run's tools share.
    Raises InvalidTool, UnknownOption.
    """
    check_options("@tool", options, OPTION_NAMES)
    retried = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    make = functools.partial(
        _make_tool,
        options=Options(**options, retry_on=retried, interceptors=tuple(interceptors)),
        defined_in=sys._getframe(1),  # as pydantic does: the only way to types defined inside a function
    )
    return make if function is None else make(function)


def _make_tool(function: Any, *, options: Options, defined_in: FrameType) -> Tool[..., Any]:
    if isinstance(function, staticmethod):
        function = function.__func__
    if isinstance(function, classmethod):
        raise InvalidTool(f"tool {function.__func__.__qualname__}: write @classmethod above @tool")
    if not inspect.isroutine(function) or inspect.isbuiltin(function):
        raise InvalidTool(f"{function!r} is not a Python function, so it cannot be a tool")
    # A copy: the frame itself would keep everything in it alive.
    inside_function = defined_in.f_code.co_flags & inspect.CO_OPTIMIZED
    local_names = dict(defined_in.f_locals) if inside_function else {}
    return Tool(function, options, lambda: declare(function, options, local_names))


def _retrying(options: Options) -> tuple[ToolInterceptor, ...]:
    if options.retries <= 0:
        return ()
    from toolfleet.interceptors.retrying import Retry  # noqa: PLC0415  # loads asyncio, for those tools alone

    return (Retry(options.retries, options.retry_on),)
