"""A model that asks for one sum and says what it got; with a stage, for one call that the stage directs."""

import json

from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage, UserMessage
from toolfleet.orchestrator.models.recorded import FunctionModel


def _says(messages):
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AssistantMessage(content=f"it is {last.content}")
    assert isinstance(last, UserMessage)
    tool, arguments = ("play", {"stage": last.content}) if "/" in last.content else ("sum", _numbers(last.content))
    return AssistantMessage(tool_calls=(RequestedCall(id="1", name=tool, arguments=json.dumps(arguments)),))


def _numbers(question):
    return {"numbers": [float(word) for word in question.split() if word.replace(".", "").isdigit()]}


def summing():
    return FunctionModel(_says)
