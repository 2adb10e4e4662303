"""`toolfleet runs approve` and `deny`: what a person says about calls that wait for it.

Finds the calls that are meant and asks again where that is not plain; whether they may be decided, their run says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import orjson
import typer

from toolfleet.calls import run_of
from toolfleet.errors import AmbiguousId, RunNotFound, RunNotOpen
from toolfleet.local.fleet import redis_or_embedded
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.cli.telling import Desk, desk
from toolfleet.orchestrator.doors.cli.wording import one_line, plural
from toolfleet.orchestrator.run.events import Approval, CallRecord
from toolfleet.orchestrator.status.below import with_approvals_below
from toolfleet.settings import Settings

Named = Annotated[
    str, typer.Argument(metavar="ID", help="A call's id (RUN.TURN.POSITION), or its run's if no other call waits.")
]
All = Annotated[bool, typer.Option("--all", help="Every call of the run that waits.")]

ARGUMENTS_CHARACTERS = 100


def approve(
    named: Named,
    *,
    arguments: Annotated[
        str | None, typer.Option("--arguments", help="A JSON object to run the call with instead of the model's.")
    ] = None,
    everything: All = False,
) -> None:
    """Let a call run that waits for approval."""
    if arguments is not None:
        if everything:
            raise typer.BadParameter("--arguments are those of one call: name it, without --all")
        check_arguments(arguments)
    _decide(named, Approval(granted=True, arguments=arguments), everything=everything)


def deny(
    named: Named,
    *,
    reason: Annotated[str, typer.Option(help="Why not; the model reads it.")] = "",
    everything: All = False,
) -> None:
    """Do not let a call run that waits for approval. The model is told, and the run goes on."""
    _decide(named, Approval(granted=False, reason=reason), everything=everything)


def check_arguments(arguments: str) -> None:
    """Raises BadParameter for what is no JSON object."""
    try:
        is_object = isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"--arguments is no JSON: {error}") from None
    if not is_object:
        raise typer.BadParameter("--arguments must be a JSON object")


def _decide(named: str, approval: Approval, *, everything: bool) -> None:
    with redis_or_embedded() as settings:
        asyncio.run(_decided(settings, named, approval, everything=everything))


async def _decided(settings: Settings, named: str, approval: Approval, *, everything: bool) -> None:
    async with desk(settings) as open_desk, Orchestrator(settings=settings) as orchestrator:
        for call_id in await _meant(open_desk, named, everything=everything):
            run = await orchestrator.approve(call_id, approval)
            typer.echo(f"call {call_id} {'approved' if approval.granted else 'denied'}; run {run.run_id} goes on")
        await open_desk.warn_unless_somebody_goes_on(run.model)


async def _meant(open_desk: Desk, named: str, *, everything: bool) -> list[str]:
    """The ids of the calls to decide about. Raises AmbiguousId, RunNotOpen, RunNotFound."""
    # A call comes first: the run of an agent, which is below it, has its call's id.
    call_id = await _waiting_call(open_desk, named)
    if call_id is not None:
        return [call_id]
    run = (await open_desk.store.load(await open_desk.store.named(named))).run
    run = await with_approvals_below(open_desk.store, run)
    waiting = run.awaiting_approval
    if not waiting:
        raise RunNotOpen(f"no call of run {run.run_id} waits for approval: the run is {run.state}")
    if len(waiting) > 1 and not everything:
        raise AmbiguousId(_choice(run.run_id, waiting))
    return [call.call_id for call in waiting]


async def _waiting_call(open_desk: Desk, named: str) -> str | None:
    """The id of the call that is named by its own, whether it waits or not; None for what names a run."""
    _, *position = named.rsplit(".", 2)
    if len(position) != 2 or not all(part.isdigit() for part in position):
        return None
    call_id = await open_desk.call_named(named)
    try:
        run = (await open_desk.store.load(run_of(call_id))).run
    except RunNotFound:
        return None
    waits = any(call.call_id == call_id for call in run.awaiting_approval)
    return call_id if waits or not await _is_run(open_desk, call_id) else None


async def _is_run(open_desk: Desk, run_id: str) -> bool:
    try:
        await open_desk.store.tenant(run_id)
    except RunNotFound:
        return False
    return True


def _choice(run_id: str, waiting: Sequence[CallRecord]) -> str:
    """Which calls there are to choose from."""
    lines = [f"  {call.call_id}  {call.tool} {one_line(call.arguments, ARGUMENTS_CHARACTERS)}" for call in waiting]
    return "\n".join(
        [f"{plural(len(waiting), 'call')} of run {run_id} wait for approval: name one, or say --all", *lines]
    )
