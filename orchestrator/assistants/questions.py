"""What a method of an assistant asks: its templates, read from decorators and docstring, filled in with its arguments.

Reads declarations and makes messages. Knows no orchestrator; nothing is sent from here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar, get_args

from pydantic_core import to_json

from toolfleet.context import ConversationId, FromContext
from toolfleet.docstrings import documentation, words
from toolfleet.errors import InvalidTool
from toolfleet.messages import Message, SystemMessage, UserMessage
from toolfleet.orchestrator.errors import InvalidAssistant
from toolfleet.orchestrator.tools.agents import Agent
from toolfleet.signature import NotYetDefined, Signature, read_signature
from toolfleet.tool import Tool

D = TypeVar("D")

IT: Final = "it"
"""In a template: the only parameter, whatever it is called."""

_PLACEHOLDER: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_CONVERSATION: Final = get_args(ConversationId)[1]
_ASKS: Final = "__toolfleet_asks__"
_TOOLS: Final = "__toolfleet_tools__"
_SYSTEM: Final = "__toolfleet_system__"


def asks(template: str = "", *, tools: Sequence[object] | None = None) -> Callable[[D], D]:
    """The user's message of a method, with `{{parameter}}` where an argument goes, and the tools that it may use.

    Tools are named as for `assistant`. Without a template the docstring is one, if it has such places, or else the only
    argument is the message.
    """

    def marked(method: D) -> D:
        setattr(method, _ASKS, template)
        setattr(method, _TOOLS, None if tools is None else names_of(tools))
        return method

    return marked


def system(template: str) -> Callable[[D], D]:
    """Return the instructions of a method, or of all methods of a class that have none of their own."""

    def marked(declared: D) -> D:
        if inspect.isclass(declared):
            for method in vars(declared).values():
                if isinstance(method, FunctionType) and not hasattr(method, _SYSTEM):
                    setattr(method, _SYSTEM, template)
        else:
            setattr(declared, _SYSTEM, template)
        return declared

    return marked


@dataclass(frozen=True, slots=True)
class Question:
    """One method, read."""

    name: str
    description: str
    template: str
    instructions: str
    tools: tuple[str, ...] | None
    signature: Signature
    conversation: str | None
    """The parameter that names the conversation."""
    context: Mapping[str, str]
    """The parameters that go into the run's context, and their keys there."""

    def messages(self, arguments: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return what the model is told."""
        asked = UserMessage(content=self._filled(self.template, arguments))
        if not self.instructions:
            return (asked,)
        return SystemMessage(content=self._filled(self.instructions, arguments)), asked

    def messages_for(self, given: Any) -> tuple[Message, ...]:
        """Return the messages for arguments that a model has written, in an instance of the signature's model."""
        values = (getattr(given, field) for field in type(given).model_fields)
        return self.messages(dict(zip(self.signature.names, values, strict=True)))

    def _filled(self, template: str, arguments: Mapping[str, Any]) -> str:
        # In one pass: an argument that holds such a place itself is left as it is.
        return _PLACEHOLDER.sub(lambda place: _text(arguments[self._parameter(place[1])]), template)

    def _parameter(self, place: str) -> str:
        names = self.signature.names
        return names[0] if place == IT and place not in names else place


def read_question(method: Callable[..., Any]) -> Question:
    """Return what a method asks. Raises InvalidAssistant."""
    documented = documentation(method)
    signature = _signature(method)
    template = _template(method, signature.names)
    in_docstring = not getattr(method, _ASKS, "") and _PLACEHOLDER.search(template) is not None
    question = Question(
        name=method.__name__,
        description=words(method.__name__) if in_docstring else documented.description or words(method.__name__),
        template=template,
        instructions=inspect.cleandoc(getattr(method, _SYSTEM, "")),
        tools=getattr(method, _TOOLS, None),
        signature=signature,
        conversation=next((name for name, mark in signature.injections if mark == _CONVERSATION), None),
        context={name: mark.key for name, mark in signature.injections if isinstance(mark, FromContext)},
    )
    _check(question, method)
    return question


def names_of(tools: Sequence[object]) -> tuple[str, ...]:
    """Return the names of tools given by name, as tools, as agents, or as classes or objects with tools as methods.

    Raises InvalidAssistant for what is none of these.
    """
    return tuple(dict.fromkeys(name for tool in tools for name in _names(tool)))


def _names(tool: object) -> Iterator[str]:
    match tool:
        case str():
            yield tool
        case Agent():
            yield tool.name
        case Tool() | MethodType(__func__=Tool()):
            yield from _specs_in([tool])
        case _:
            found = list(_specs_in(inspect.getattr_static(tool, name) for name in dir(tool)))
            if not found:
                raise InvalidAssistant(f"{tool!r} is no tool, and has none: give names, tools, agents, or their class")
            yield from found


def _specs_in(members: Iterable[object]) -> Iterator[str]:
    """Return the names of those members that are tools, as they are, static, or of a class."""
    unwrapped = (getattr(member, "__func__", member) for member in members)
    return (member.spec.name for member in unwrapped if isinstance(member, Tool))


def _signature(method: Callable[..., Any]) -> Signature:
    try:
        return read_signature(method, documentation(method), extra="forbid", local_names={})
    except (InvalidTool, NotYetDefined) as error:
        raise InvalidAssistant(f"{method.__qualname__}: {error}") from error


def _template(method: Callable[..., Any], names: Sequence[str]) -> str:
    """The user's message: the decorator's, the docstring if it has places for arguments, or else the only argument."""
    declared: str = getattr(method, _ASKS, "")
    docstring = inspect.getdoc(method) or ""
    if declared:
        return inspect.cleandoc(declared)
    if _PLACEHOLDER.search(docstring) or (docstring and not names):
        return docstring
    if len(names) == 1:
        return "{{" + names[0] + "}}"
    raise InvalidAssistant(
        f"{method.__qualname__} takes {', '.join(names) or 'nothing'} and does not say what to ask: "
        '@asks("… {{parameter}} …"), or the same as its docstring'
    )


def _check(question: Question, method: Callable[..., Any]) -> None:
    names = question.signature.names
    used = set(_PLACEHOLDER.findall(question.template + question.instructions))
    if IT in used and IT not in names and len(names) == 1:
        used = used - {IT} | {names[0]}
    if unknown := sorted(used - set(names)):
        raise InvalidAssistant(f"{method.__qualname__} has no parameter {', '.join(unknown)} for its template")
    if unused := [name for name in names if name not in used]:
        raise InvalidAssistant(f"{method.__qualname__} asks nothing with {', '.join(unused)}: its template lacks it")
    taken = {question.conversation, *question.context}
    if strange := [name for name, _ in question.signature.injections if name not in taken]:
        raise InvalidAssistant(f"{method.__qualname__}: {', '.join(strange)} is for tools, an assistant has none")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value, inf_nan_mode="constants").decode()
