"""What a model is asked, once the interceptors of its run have had their say; and its reply, once they have heard it.

What any of them has found out is written down before it is used: a run that is taken over asks its model the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from toolfleet.extra_arguments import with_argument
from toolfleet.messages import AssistantMessage, Message, Usage
from toolfleet.orchestrator.loop.at_work import RunAtWork
from toolfleet.orchestrator.loop.in_time import in_time
from toolfleet.orchestrator.run.events import Noted
from toolfleet.orchestrator.run.value import Run
from toolfleet.orchestrator.tools.chain import NO_CHAIN, Chain, note_name
from toolfleet.orchestrator.tools.interceptors import Interceptor
from toolfleet.orchestrator.tools.request import NO_USAGE, ModelRequest
from toolfleet.points import Point, reached
from toolfleet.tool import ToolSpec


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the model is shown, and who hears its reply."""

    messages: tuple[Message, ...]
    tools: Mapping[str, ToolSpec]
    chain: Chain = NO_CHAIN
    request: ModelRequest | None = None


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A reply as it may be stored, or what is written down instead."""

    message: AssistantMessage
    usage: Usage = NO_USAGE
    """What was used up to look at it."""
    blocked: Noted | None = None


NOTHING: Final[Mapping[str, ToolSpec]] = {}


async def prepared(work: RunAtWork, chain: Chain, offered: Mapping[str, ToolSpec]) -> Prepared | None:
    """What the model is asked next; None where an interceptor has kept the run from going on, and that is noted."""
    tools = _with_arguments(work.run, chain, offered) if chain.adding else offered
    if not chain.around_model:
        return Prepared(work.run.messages, tools)
    request = _request(work.run, tools)
    async with in_time(work.run):
        for interceptor in chain.around_model:
            request = replace(request, note=work.run.notes.get(note_name(interceptor)))
            if not await _decided(work, interceptor, request):
                return None
            request = interceptor.ask(replace(request, note=work.run.notes.get(note_name(interceptor))))
    return Prepared(request.messages, request.tools, chain, request)


async def _decided(work: RunAtWork, interceptor: Interceptor, request: ModelRequest) -> bool:
    """Write down what an interceptor finds out. Whether the run may go on."""
    note = await interceptor.decide(request)
    if note is None:
        return True
    noted = Noted(name=note_name(interceptor), value=note.value, usage=note.usage, blocks=note.blocks)
    run = await work.journal.append(noted)
    reached(Point.NOTED, run.run_id)
    return not run.blocked


async def reviewed(run: Run, asked: Prepared, message: AssistantMessage) -> Reviewed:
    """A reply as the interceptors leave it, in reverse; its calls stay as they are."""
    usage, said = NO_USAGE, message
    for interceptor in reversed(asked.chain.around_model):
        name = note_name(interceptor)
        request = replace(asked.request or _request(run, NOTHING), note=run.notes.get(name))
        heard = await interceptor.hear(request, said)
        usage += heard.usage
        if heard.blocks:
            return Reviewed(message, usage, Noted(name=name, blocks=heard.blocks))
        # A call may have been sent by now, and its id is what its answer is known by.
        said = heard.message.model_copy(update={"tool_calls": message.tool_calls})
    return Reviewed(said, usage)


def _request(run: Run, tools: Mapping[str, ToolSpec]) -> ModelRequest:
    return ModelRequest(
        run_id=run.run_id,
        turn=run.turn,
        turns_before=run.turns_before,
        messages=run.messages,
        tools=tools,
        state=run.values,
        context=run.terms.context,
        tenant=run.terms.tenant,
        subject=run.terms.subject,
    )


def _with_arguments(run: Run, chain: Chain, offered: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """The tools with the arguments that interceptors add; the caller's own, which nobody here calls, without."""
    callers = {spec.name for spec in run.terms.client_tools}
    return {name: spec if name in callers else _with_those(chain, spec) for name, spec in offered.items()}


def _with_those(chain: Chain, spec: ToolSpec) -> ToolSpec:
    schema = spec.input_schema
    for name in chain.extra_arguments(spec):
        # Required: strict providers take no other, and a model that may leave it out does.
        schema = with_argument(schema, name, chain.adding[name], required=True)
    return spec if schema is spec.input_schema else spec.model_copy(update={"input_schema": schema})
