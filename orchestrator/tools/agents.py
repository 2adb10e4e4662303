"""Agents as tools: a call of one starts a run of its own, whose answer is the call's result.

The child's id is the call's id, so that a call never starts two. Knows what an agent is and how its run begins; the
run itself is like any other, and may go on in another orchestrator than its parent's.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from toolfleet.calls import Effect, Failed, FailureKind, ToolCall
from toolfleet.errors import DuplicateTool, InvalidTool
from toolfleet.messages import Message, SystemMessage, UserMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.run.events import RunStarted
from toolfleet.orchestrator.run.refusals import bad_arguments
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.streams import Priority
from toolfleet.tool import ToolSpec


class Task(BaseModel):
    """What an agent is asked when it has no input model of its own."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(description="what is to be done, with all that must be known for it")


@exact()
@dataclass(frozen=True, slots=True)
class Agent:
    """A run of its own, offered to models as a tool.

    It sees its instructions and the arguments it was called with, never its caller's conversation. `tools` are names,
    None for all of the fleet; other agents only if they are named.
    """

    name: str
    description: str
    instructions: str = ""
    tools: Sequence[str] | None = None
    input: type[BaseModel] = Task
    max_turns: int | None = None
    asks: Callable[[BaseModel], Sequence[Message]] | None = None
    """How it is told what it was called with; None: its instructions, then the task or the input as JSON."""
    output_type: Any = None
    """The type of its answer, which its caller gets as JSON; None for text."""

    @property
    def spec(self) -> ToolSpec:
        """What a model is told about it."""
        return ToolSpec(
            name=self.name,
            description=self.description,
            input_schema=self.input.model_json_schema(),
            effect=Effect.ONCE,
            queue="orchestrator",
        )

    def messages(self, arguments: str) -> tuple[Message, ...]:
        """The conversation that it begins with. Raises ValidationError."""
        given = self.input.model_validate_json(arguments or "{}")
        if self.asks is not None:
            return tuple(self.asks(given))
        asked = given.task if isinstance(given, Task) else given.model_dump_json()
        instructions = (SystemMessage(content=self.instructions),) if self.instructions else ()
        return (*instructions, UserMessage(content=asked))


class Agents:
    """The agents of an orchestrator, by name."""

    def __init__(self, agents: Iterable[Agent], *, model: str, max_turns: int, max_depth: int) -> None:
        """Raises DuplicateTool for two of one name, InvalidTool for a name or an input that means nothing."""
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.name in self._agents:
                raise DuplicateTool(f"there are two agents named {agent.name}")
            if not agent.name.strip():
                raise InvalidTool("an agent needs a name")
            self._agents[agent.name] = agent
        self._model = model
        self._max_turns = max_turns
        self._max_depth = max_depth
        self.specs: Mapping[str, ToolSpec] = {name: agent.spec for name, agent in self._agents.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._agents

    def choose(self, names: Sequence[str] | None, *, depth: int) -> dict[str, ToolSpec]:
        """The agents among these names; all of them for None, but not to another agent, which must name them."""
        if names is None:
            return dict(self.specs) if depth == 0 else {}
        return {name: self.specs[name] for name in names if name in self.specs}

    async def start(
        self,
        call: ToolCall,
        *,
        begin: Callable[[RunStarted], Awaitable[bool]],
        depth: int,
        tenant: str = "",
        priority: Priority = Priority.NORMAL,
    ) -> Failed | None:
        """Start the run of a call with `begin`; its result comes as that of any call. A Failed when it may not start.

        `begin` stores a run and works on it, unless it is stored already. The run has its caller's tenant, context and
        priority; everything else the agent says itself.
        """
        agent = self._agents[call.tool]
        if depth >= self._max_depth:
            message = f"{call.tool} was not started: {self._max_depth} runs stand above it already (max_depth)."
            return Failed(kind=FailureKind.LIMIT, message=message)
        try:
            messages = agent.messages(call.arguments)
        except ValidationError as error:
            return bad_arguments(call.tool, error)
        await begin(
            RunStarted(
                run_id=call.call_id,
                messages=messages,
                model=self._model,
                terms=self._terms(agent, call, tenant, priority),
                deadline_unix_s=call.deadline_unix_s,
                parent_call_id=call.call_id,
                depth=depth + 1,
                started_unix_s=time.time(),
            )
        )
        return None

    def _terms(self, agent: Agent, call: ToolCall, tenant: str, priority: Priority) -> RunTerms:
        return RunTerms.of(
            {
                "tools": agent.tools,
                "context": call.context,
                "max_turns": agent.max_turns or self._max_turns,
                "output_schema": None if agent.output_type is None else TypeAdapter(agent.output_type).json_schema(),
                "tenant": tenant,
                "priority": priority,
            }
        )
