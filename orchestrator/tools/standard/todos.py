"""A to-do list that the model keeps for itself; it is part of the state that the run's tools share."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from toolfleet.calls import Effect, Returned
from toolfleet.messages import AssistantMessage, UserMessage
from toolfleet.orchestrator.tools.interceptors import Interceptor, RequestedToolCall, Result
from toolfleet.orchestrator.tools.request import ModelRequest
from toolfleet.tool import ToolSpec

WRITE_TODOS: Final = "write_todos"

STATE_KEY: Final = "todos"
"""Under which key of the run's state the list stands."""

MAX_TODOS: Final = 100

DESCRIPTION: Final = (
    "Write down your to-do list, for work of three steps and more. Give the whole list each time: it takes the place "
    "of the one before. Mark what you are at as in_progress before you begin with it, and as completed as soon as it "
    "is done. Not for what is done in one step, and once in a reply at most."
)


class Todo(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(extra="forbid")

    content: str = Field(min_length=1, max_length=1000, description="what is to be done")
    status: Literal["pending", "in_progress", "completed"] = Field(description="how it stands")


class TodoList(BaseModel):
    """What the model passes to `write_todos`."""

    model_config = ConfigDict(extra="forbid")

    todos: list[Todo] = Field(max_length=MAX_TODOS, description="the whole list, in order")


class Todos(Interceptor):
    """Gives the model `write_todos`; the list is `run.values["todos"]`, and tools read it in `ctx.state`.

    A model that cannot see its list any more, because old messages were cleared or summarised, is reminded of it.
    """

    tools = (
        ToolSpec(
            name=WRITE_TODOS,
            description=DESCRIPTION,
            input_schema=TodoList.model_json_schema(),
            effect=Effect.IDEMPOTENT,
        ),
    )

    async def answer(self, call: RequestedToolCall) -> Result:
        """Take down the list. Of several in one reply the last one counts."""
        todos = TodoList.model_validate_json(call.arguments).todos
        done = sum(todo.status == "completed" for todo in todos)
        listed = [todo.model_dump() for todo in todos]
        return Returned(content=f"The list is written down: {done} of {len(todos)} done.", state={STATE_KEY: listed})

    def ask(self, request: ModelRequest) -> ModelRequest:
        """The conversation, with the list at its end where the model does not see it otherwise."""
        listed = request.state.get(STATE_KEY)
        if not listed or any(isinstance(each, AssistantMessage) and _writes(each) for each in request.messages):
            return request
        reminder = UserMessage(content=f"Your to-do list as it stands: {orjson.dumps(listed).decode()}")
        return replace(request, messages=(*request.messages, reminder))


def _writes(message: AssistantMessage) -> bool:
    return any(call.name == WRITE_TODOS for call in message.tool_calls)
