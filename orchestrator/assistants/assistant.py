"""An assistant as its author declares it: a Protocol class whose methods become runs of an orchestrator.

Decides what kind of answer a method gives and what its conversation has said before. The run is the orchestrator's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final, Generic, TypeVar, Unpack, cast, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from toolfleet.errors import ToolfleetError
from toolfleet.messages import Message, SystemMessage, Usage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.assistants.questions import Question, asks, names_of, read_question, system
from toolfleet.orchestrator.errors import InvalidAssistant, RunExists, RunNotFound
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.options import AskOptions, RunOptions
from toolfleet.orchestrator.run.events import CallRecord
from toolfleet.orchestrator.run.incomplete import Incomplete
from toolfleet.orchestrator.run.limits import Limits
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.updates import CallsRequested, RunBegan, RunEnded, RunUpdate, TextArrived
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.store.conversations import Place, remembered
from toolfleet.orchestrator.tools.agents import Agent

__all__ = ["InvalidAssistant", "Result", "RunFailed", "agent_of", "asks", "assistant", "forget", "system"]

P = TypeVar("P")
T = TypeVar("T")

_STREAMS: Final = (AsyncIterator, AsyncGenerator)


class RunFailed(ToolfleetError):
    """A run ended without an answer; the text says why, `run` is how it stands."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"run {run.run_id} {run.state}: {run.reason}")
        self.run = run


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """An answer, and what it took."""

    answer: T
    calls: tuple[CallRecord, ...]
    """The calls that were made for it, each with its result."""
    usage: Usage
    run_id: str
    incomplete: Incomplete | None = None
    """What the answer lacks: it was cut off, withheld, refused or empty; None for a whole one."""


@exact(AskOptions)
def assistant(
    protocol: Callable[..., P],
    orchestrator: Orchestrator,
    *,
    tools: Sequence[object] | None = None,
    name: str | None = None,
    remembers: int | None = None,
    **options: Unpack[AskOptions],
) -> P:
    """Return an object of the given class each of whose public methods asks `orchestrator`.

    What a method asks is said by `@asks` and `@system`, or its docstring; what comes back, by its return annotation:
    text, any type that pydantic knows, `Result` of either, or (from `def`, not `async def`) an AsyncIterator of `str`
    or `RunUpdate`. A parameter of type `ConversationId` names the conversation, whose earlier messages go before, the
    last `remembers` of them if that is given; `name` (the class's, unless given) keeps those of other assistants apart.

    `tools` are names, tools, agents, or classes and objects with tools as methods; None for all of the fleet. Methods
    raise RunFailed, and what `Orchestrator.run` raises. Raises InvalidAssistant.
    """
    if not inspect.isclass(protocol):
        raise InvalidAssistant(f"{protocol!r} is no class: declare the assistant's methods in a Protocol")
    asked = cast("RunOptions", {**options, "tools": None if tools is None else names_of(tools)})
    memory = _Memory(name or protocol.__qualname__, remembers)
    declared = {key: value for key, value in inspect.getmembers(protocol, inspect.isfunction) if key[0] != "_"}
    if not declared:
        raise InvalidAssistant(f"{protocol.__qualname__} has no methods to ask with")
    methods = {key: _method(method, orchestrator, memory, asked) for key, method in declared.items()}
    made = type(protocol.__name__, (protocol,), {**methods, "__init__": lambda _self: None, "__slots__": ()})
    return cast("P", made())


@exact()
def agent_of(
    method: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    tools: Sequence[object] | None = None,
    max_turns: int | None = None,
    model: ChatModel | None = None,
    limits: Limits | None = None,
    interceptors: Sequence[str] = (),
    model_options: Mapping[str, Any] | None = None,
) -> Agent:
    """Return a method of an assistant as a tool of others: its parameters are what a model fills in.

    Pass it to `Orchestrator(agents=…)`. Its description is the docstring, unless that is the template; what else may be
    said of it is as with `Agent`. A run of its own sees nothing of its caller's conversation. Raises InvalidAssistant.
    """
    question = read_question(method)
    _, answer = _answer_of(method, question)
    return Agent(
        name=name or question.name,
        description=description or question.description,
        tools=question.tools if tools is None else names_of(tools),
        input=question.signature.model,
        max_turns=max_turns,
        model=model,
        limits=limits,
        interceptors=interceptors,
        model_options=dict(model_options or {}),
        asks=question.messages_for,
        output_type=None if answer is str else answer,
    )


@exact()
async def forget(
    protocol: type | Callable[..., Any],
    orchestrator: Orchestrator,
    conversation_id: str,
    *,
    name: str | None = None,
    tenant: str = "",
) -> None:
    """Delete a conversation of an assistant, with its runs. Raises StoreUnreachable."""
    place = await orchestrator.conversations.newest(name or protocol.__qualname__, conversation_id, tenant=tenant)
    await orchestrator.conversations.forget(place)
    while await orchestrator.delete(place.next.run_id):
        place = place.next
    for number in range(place.number, 0, -1):
        await orchestrator.delete(Place(place.key, place.prefix, number).run_id)


# --- one method ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Memory:
    """The name that an assistant's conversations are kept under, and how many messages go before a new one."""

    name: str
    limit: int | None


def _method(method: FunctionType, orchestrator: Orchestrator, memory: _Memory, options: RunOptions) -> Any:
    """Return the function that takes the method's place."""
    question = read_question(method)
    kind, answer = _answer_of(method, question)
    own = cast("RunOptions", {**options, **({} if question.tools is None else {"tools": question.tools})})
    if answer is not str:
        own["output_type"] = answer
    signature = inspect.signature(method)

    def events(*args: Any, **kwargs: Any) -> AsyncGenerator[RunUpdate, None]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return _run_method(orchestrator, question, memory, bound.arguments, own)

    @functools.wraps(method)
    async def answered(*args: Any, **kwargs: Any) -> Any:
        run = await _wait_for_end(events(*args, **kwargs))
        said = run.answer or run.refusal or "" if answer is str else run.answer_as(answer)
        return said if kind is None else Result(said, run.calls, run.usage, run.run_id, run.incomplete)

    @functools.wraps(method)
    def streamed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        return _text(events(*args, **kwargs)) if kind is str else events(*args, **kwargs)

    return streamed if kind in (str, RunUpdate) else answered


def _answer_of(method: Callable[..., Any], question: Question) -> tuple[Any, Any]:
    """Return what a method gives (None: its answer; Result; pieces of text, `str`; RunUpdate), and the answer's type.

    Raises InvalidAssistant.
    """
    returns = question.signature.returns
    origin, where = get_origin(returns), method.__qualname__
    if origin in _STREAMS:
        kind = get_args(returns)[0]
        if kind not in (str, RunUpdate):
            raise InvalidAssistant(f"{where}: an AsyncIterator is one of str or of RunUpdate, not of {kind}")
        if inspect.iscoroutinefunction(method):
            raise InvalidAssistant(f"{where}: write `def`, because what comes back is iterated and not awaited")
        return kind, str
    if not inspect.iscoroutinefunction(method):
        raise InvalidAssistant(f"{where}: write `async def`, because its answer is awaited")
    kind, answer = (Result, get_args(returns)[0]) if origin is Result else (None, returns)
    if answer in (Any, None, type(None), Result):
        raise InvalidAssistant(f"{where}: say what comes back, `-> str` for example")
    try:
        TypeAdapter(answer).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise InvalidAssistant(f"{where}: no answer can be of type {answer}: {error.message}") from error
    return kind, answer


async def _run_method(
    orchestrator: Orchestrator,
    question: Question,
    memory: _Memory,
    arguments: Mapping[str, Any],
    options: RunOptions,
) -> AsyncGenerator[RunUpdate, None]:
    """Begin the run that a call of a method stands for. Yields its events."""
    context = dict(options.get("context") or {}) | {key: arguments[name] for name, key in question.context.items()}
    conversation_id = arguments[question.conversation] if question.conversation else None
    if conversation_id:
        context["conversation_id"] = conversation_id
    asked = cast("RunOptions", {**options, "context": context})
    messages = question.messages(arguments)
    if not conversation_id:
        async with aclosing(orchestrator.stream(messages, **asked)) as events:
            async for event in events:
                yield event
        return
    place = await orchestrator.conversations.newest(memory.name, conversation_id, tenant=options.get("tenant", ""))
    is_begun = False
    while not is_begun:
        earlier = await _wait_at(orchestrator, place)
        place = place.next
        said = messages if earlier is None else _behind(earlier, messages, memory)
        state = {} if earlier is None else earlier.values
        own: RunOptions = {**asked, "state": {**(asked.get("state") or {}), **state}}
        try:
            async with aclosing(_begin(orchestrator, place, said, own)) as events:
                async for event in events:
                    is_begun = True
                    yield event
        except RunExists:
            continue  # somebody else has said something meanwhile: that goes before


async def _begin(
    orchestrator: Orchestrator, place: Place, messages: tuple[Message, ...], options: RunOptions
) -> AsyncGenerator[RunUpdate, None]:
    """Begin the run at a place of a conversation. Yields its events; raises RunExists if somebody else has begun it."""
    options["run_id"] = place.run_id
    async with aclosing(orchestrator.stream(messages, **options)) as events:
        async for event in events:
            if isinstance(event, RunBegan):
                await orchestrator.conversations.note_begun(place)
            yield event


def _behind(earlier: Run, messages: tuple[Message, ...], memory: _Memory) -> tuple[Message, ...]:
    """New messages after what was said before; the instructions stay first, and are those of now."""
    instructions = tuple(message for message in messages if isinstance(message, SystemMessage))
    return (*instructions, *remembered(earlier, memory.limit), *messages[len(instructions) :])


async def _wait_at(orchestrator: Orchestrator, place: Place) -> Run | None:
    """Wait for the end of the run at a place. Returns None if there is none, or no longer."""
    try:
        return await orchestrator.wait(place.run_id) if place.number else None
    except RunNotFound:
        return None


async def _wait_for_end(events: AsyncGenerator[RunUpdate, None]) -> Run:
    """Wait for the end of a run. Raises RunFailed if it has no answer."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, RunEnded):
                return _require_done(event.run)
    raise AssertionError("the last event of a run is its end")


async def _text(events: AsyncGenerator[RunUpdate, None]) -> AsyncGenerator[str, None]:
    """Yield the model's text as it comes; the answer at its end where nothing came. Raises RunFailed."""
    is_said = False
    async with aclosing(events):
        async for event in events:
            match event:
                case TextArrived():
                    is_said = True
                    yield event.text
                case CallsRequested():
                    is_said = False
                case RunEnded():
                    ended = _require_done(event.run)
                    answer = ended.answer or ended.refusal
                    if answer and not is_said:
                        yield answer


def _require_done(run: Run) -> Run:
    if run.state is not State.DONE:
        raise RunFailed(run)
    return run
