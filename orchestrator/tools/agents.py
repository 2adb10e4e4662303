"""Agents as tools: a call of one starts a run of its own, whose answer is the call's result.

The child's id is the call's id, so that a call never starts two. Knows what an agent is and how its run begins; the
run itself is like any other, and may go on in another orchestrator than its parent's.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from toolfleet.calls import Effect, Failed, FailureKind, ToolCall
from toolfleet.errors import DuplicateTool, InvalidTool, ToolfleetError
from toolfleet.messages import Message, SystemMessage, UserMessage
from toolfleet.misspelt import exact
from toolfleet.orchestrator.budgets.price_list import must_be_known, price_of
from toolfleet.orchestrator.errors import UnknownPrice
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.run.accounts import tree_accounts
from toolfleet.orchestrator.run.events import RunStarted
from toolfleet.orchestrator.run.limits import Limits, NothingLeft, calls_counted, limits_below, over_limit
from toolfleet.orchestrator.run.refusals import bad_arguments
from toolfleet.orchestrator.run.terms import RunTerms
from toolfleet.orchestrator.run.value import Run
from toolfleet.prices import Price
from toolfleet.tool import ToolSpec
from toolfleet.tracing import Trace

ANY_TOOL: Final = "*"
"""Stands for the tools of the fleet that a run has not called yet."""


class AgentMissing(ToolfleetError):
    """A run is an agent's with a model of its own, and whoever goes on with it has no such agent."""


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
    model: ChatModel | None = None
    """Asked instead of the orchestrator's, and closed with it. Whoever may go on with its runs needs the same agent."""
    limits: Limits | None = None
    """What one answer of it may use up, and never more than is left to its caller; None: the default limits."""
    interceptors: Sequence[str] = ()
    """Names of the orchestrator's interceptors that its calls pass besides those that its caller's pass."""
    model_options: Mapping[str, Any] = field(default_factory=dict)
    """What its model is asked with besides the conversation: temperature, … in its provider's words."""
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

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        model: str,
        max_turns: int,
        max_depth: int,
        prices: Mapping[str, Price] = MappingProxyType({}),
    ) -> None:
        """Raises DuplicateTool for two of one name, InvalidTool for a name or an input that means nothing."""
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.name in self._agents:
                raise DuplicateTool(f"there are two agents named {agent.name}")
            if not agent.name.strip():
                raise InvalidTool("an agent needs a name")
            self._agents[agent.name] = agent
            # Now, and not at its first call: whoever writes it should hear of what cannot be meant.
            RunTerms.of({"model_options": agent.model_options, "max_turns": agent.max_turns})
        self._model = model
        self._max_turns = max_turns
        self._max_depth = max_depth
        self._prices = prices
        self.specs: Mapping[str, ToolSpec] = {name: agent.spec for name, agent in self._agents.items()}

    @property
    def models(self) -> list[ChatModel]:
        """The agents' own models, each once."""
        own = [agent.model for agent in self._agents.values() if agent.model is not None]
        return list({id(model): model for model in own}.values())

    @property
    def interceptors(self) -> dict[str, tuple[str, ...]]:
        """The names of each agent's own interceptors."""
        return {name: tuple(agent.interceptors) for name, agent in self._agents.items()}

    def may_be_asked_by(self, run: Run) -> bool:
        """Whether the run may begin runs of agents."""
        return bool(self._agents and self.choose(run.terms.tools, depth=run.depth))

    def models_below(self, tools: Sequence[str] | None) -> list[str]:
        """The names of the models of their own that the agents among these tools have, at whatever depth."""
        asked = list(self._agents if tools is None else (name for name in tools if name in self._agents))
        for name in asked:
            asked += [each for each in self._agents[name].tools or () if each in self._agents and each not in asked]
        return sorted({model.name for name in asked if (model := self._agents[name].model) is not None})

    def model_of(self, run: Run) -> ChatModel | None:
        """The model that a run's agent has of its own, if it is one's. Raises AgentMissing."""
        if not run.agent:
            return None
        agent = self._agents.get(run.agent)
        if agent is None or agent.model is None:
            raise AgentMissing(
                f"run {run.run_id} is one of the agent {run.agent}, which has a model of its own and is not here: give "
                "every orchestrator of one model the same agents"
            )
        return agent.model

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
        parent: Run,
    ) -> Failed | None:
        """Start the run of a call with `begin`; its result comes as that of any call. A Failed when it may not start.

        `begin` stores a run and works on it, unless it is stored already. The run has its caller's tenant, subject,
        context and priority, passes its caller's interceptors and keeps within what its caller's limits leave; within
        that the agent says everything itself.
        """
        agent = self._agents[call.tool]
        if parent.depth >= self._max_depth:
            message = f"{call.tool} was not started: {self._max_depth} runs stand above it already (max_depth)."
            return Failed(kind=FailureKind.LIMIT, message=message)
        try:
            messages = agent.messages(call.arguments)
            tools = self._callable_by(agent, parent)
            # Further down, what is left to a run may be less than its tree's account has.
            has_account = parent.depth == 0 and bool(tree_accounts(parent))
            own, sharing = agent.limits or Limits(), self._sharing(parent)
            limits = limits_below(parent, own, tools, sharing=sharing, has_account=has_account)
            terms = self._terms(agent, call, parent, limits)
        except ValidationError as error:
            return bad_arguments(call.tool, error)
        except NothingLeft as reason:
            return over_limit(call.tool, str(reason))
        except UnknownPrice as unknown:
            return Failed(kind=FailureKind.ERROR, message=f"{call.tool} was not called: {unknown}")
        await begin(
            RunStarted(
                run_id=call.call_id,
                messages=messages,
                model=self._model,
                terms=terms,
                deadline_unix_s=call.deadline_unix_s,
                parent_call_id=call.call_id,
                depth=parent.depth + 1,
                agent="" if agent.model is None else agent.name,
                started_unix_s=time.time(),
                trace=_trace_of(call, agent.name),
            )
        )
        return None

    def _price(self, agent: Agent, parent: Run, limits: Limits) -> Price | None:
        """What the agent's model costs, where anything limits that. Raises UnknownPrice."""
        if agent.model is None and not parent.agent and parent.terms.price is not None:
            return parent.terms.price
        if limits.cost is None and parent.terms.price is None:
            return None
        name = self._model if agent.model is None else agent.model.name
        return must_be_known(name, price_of(name, self._prices), f"the limit on the cost of {agent.name}")

    def _callable_by(self, agent: Agent, parent: Run) -> Collection[str]:
        """What an agent may call: those it names or, where it names none, whatever its caller may, but no agents."""
        if agent.tools is not None:
            return agent.tools
        return {name for name in calls_counted(parent.recent_calls) if name not in self._agents} | {ANY_TOOL}

    def _sharing(self, parent: Run) -> int:
        """How many runs of agents share what is left to their caller: those it waits for, and those it is to begin."""
        return sum(
            call.tool in self._agents and call.refusal is None and (call.result is None or call.is_slow_and_open)
            for call in parent.calls
        )

    def _terms(self, agent: Agent, call: ToolCall, parent: Run, limits: Limits) -> RunTerms:
        above = parent.terms
        return RunTerms.of(
            {
                "tools": agent.tools,
                "context": call.context,
                "max_turns": agent.max_turns or self._max_turns,
                "output_schema": None if agent.output_type is None else TypeAdapter(agent.output_type).json_schema(),
                "interceptors": tuple(dict.fromkeys((*above.interceptors, *agent.interceptors))),
                "limits": limits,
                "model_options": agent.model_options,
                "tenant": above.tenant,
                "subject": above.subject,
                "priority": above.priority,
                "accounts": tree_accounts(parent),
                "words": above.words,
                "price": self._price(agent, parent, limits),
            }
        )


def _trace_of(call: ToolCall, agent: str) -> Trace | None:
    """Return the span of a call, below which whoever begins its run makes that a span of its own."""
    if call.traceparent is None:
        return None
    return Trace(traceparent=call.traceparent, tracestate=call.tracestate, baggage=call.baggage, agent=agent)
