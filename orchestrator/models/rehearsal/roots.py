"""Replies to "What is the square root of 475695037565?" and "… of the sum of 16 and 9?" with the tools on offer.

Pure; needs a tool `square_root` (and `sum` for the second form) and takes the parameters' names from their schemas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolfleet.messages import AssistantMessage, UserMessage
from toolfleet.orchestrator.models.protocol import OfferedTool
from toolfleet.orchestrator.models.rehearsal.conversation import Conversation, Round, as_json, asking

SQUARE_ROOT = "square_root"
SUM = "sum"
_QUESTION = re.compile(r"square root of (?P<sum>the sum of )?(?P<numbers>.*)", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def reply(conversation: Conversation) -> AssistantMessage | None:
    """Return the next reply; None if the question is another one or the tools are not on offer."""
    start = conversation.last_question(lambda text: _QUESTION.search(text) is not None)
    if start is None or not conversation.offers(SQUARE_ROOT):
        return None
    question = conversation.messages[start]
    assert isinstance(question, UserMessage)  # noqa: S101  # last_question finds nothing else
    asked = _QUESTION.search(question.content)
    numbers = _numbers_in(asked["numbers"]) if asked else []
    if asked is None or not numbers:
        return None
    rounds = conversation.rounds_since(start)
    if asked["sum"]:
        return _root_of_sum(numbers, rounds, conversation)
    return _root(numbers[0], rounds, conversation)


def _root_of_sum(
    numbers: Sequence[int | float], rounds: Sequence[Round], conversation: Conversation
) -> AssistantMessage | None:
    if not conversation.offers(SUM):
        return None
    content = _result_of(SUM, rounds)
    if content is None:
        return asking((SUM, _arguments(conversation.tools[SUM], numbers)))
    total = _numbers_in(content)
    if not total:
        return AssistantMessage(content=f"I am the rehearsal model. The sum could not be computed: {content}")
    return _root(total[0], rounds, conversation)


def _root(number: float, rounds: Sequence[Round], conversation: Conversation) -> AssistantMessage:
    content = _result_of(SQUARE_ROOT, rounds)
    if content is None:
        return asking((SQUARE_ROOT, _arguments(conversation.tools[SQUARE_ROOT], [number])))
    if not isinstance(as_json(content), int | float):
        return AssistantMessage(content=f"I am the rehearsal model. The square root could not be computed: {content}")
    return AssistantMessage(content=f"The square root of {number} is {content}. (Said by the rehearsal model.)")


def _arguments(tool: OfferedTool, numbers: Sequence[int | float]) -> dict[str, Any]:
    """Return the numbers under the schema's names: all in the one parameter if that is a list, else one in each."""
    properties: Mapping[str, Mapping[str, Any]] = tool.input_schema.get("properties", {})
    first = next(iter(properties), "x")
    if properties.get(first, {}).get("type") == "array":
        return {first: list(numbers)}
    return dict(zip(properties or (first,), numbers, strict=False))


def _result_of(name: str, rounds: Sequence[Round]) -> str | None:
    found = [content for each in rounds for call, content in each.answered() if call.name == name]
    return found[-1] if found else None


def _numbers_in(text: str) -> list[int | float]:
    return [float(number) if "." in number else int(number) for number in _NUMBER.findall(text)]
